"""Speed and accuracy of the simulated engine: `python -m benchmarks.simulated [--json] [PART ...]`.

SimPy and Ciw simulate the same networks at the same rates, written as in their documentation. Speeds are customers per
second of CPU time in one process, without compilation; the best of three runs counts.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable

import penstock
from penstock.dataflow import Dataflow
from penstock.engines.simulated import (
    Behaviour,
    Exponential,
    Mode,
    OperatorBehaviour,
    SimulatedBatchCosts,
    SimulatedEngine,
    SourceBehaviour,
)
from penstock.models.queueing import MMk
from penstock.plan import default_plan

Network = list[tuple[int, float]]  # replicas and mean service time of each operator of a chain
MMK: Network = [(3, 1.0)]
FIVE: Network = [(3, 1.0), (2, 0.6), (4, 1.5), (1, 0.3), (3, 1.1)]
RATE = 2.0


def chain(network: Network) -> Dataflow:
    flow = penstock.Dataflow("chain")
    stream = flow.source("source", penstock.generate(int, schema="n bigint", rows_per_s=RATE))
    for i in range(len(network)):
        stream = stream.keyed(f"op{i}", lambda df: df, keys=[f"key{i}"] if i else ["n"])
    stream.sink("out", penstock.noop())
    return flow


def engine_for(network: Network, rate: float, mode: Mode, batch: SimulatedBatchCosts | None = None) -> SimulatedEngine:
    flow = chain(network)
    replicas = {f"op{i}": count for i, (count, _) in enumerate(network)}
    behaviour = Behaviour(
        operators={f"op{i}": OperatorBehaviour(service_s=Exponential(mean=s)) for i, (_, s) in enumerate(network)},
        sources={"source": SourceBehaviour(rates=((0.0, rate),))},
        batch=batch or SimulatedBatchCosts(),
    )
    plan = default_plan(flow, slots=sum(replicas.values()), replicas=replicas)
    engine = SimulatedEngine(flow, behaviour, plan=plan, mode=mode)
    engine.start()
    engine.advance(0.0)
    return engine


def with_penstock(network: Network, customers: int) -> tuple[float, float]:
    """Return (customers per CPU second, mean latency)."""
    engine = engine_for(network, RATE, Mode.ROW_BY_ROW)
    engine.advance(100.0 / RATE)
    engine.observe()
    began = time.process_time()
    engine.advance(customers / RATE)
    took = time.process_time() - began
    latency = engine.observe().latency
    assert latency is not None
    return latency.rows / took, latency.mean_s


def with_simpy(network: Network, customers: int) -> tuple[float, float]:
    import simpy

    env = simpy.Environment()
    stations = [(simpy.Resource(env, replicas), 1.0 / service_s) for replicas, service_s in network]
    chance = random.Random(7)
    latencies_s = []

    def customer() -> object:
        arrived_s = env.now
        for resource, service_per_s in stations:
            with resource.request() as request:
                yield request
                yield env.timeout(chance.expovariate(service_per_s))
        latencies_s.append(env.now - arrived_s)

    def source() -> object:
        for _ in range(customers):
            yield env.timeout(chance.expovariate(RATE))
            env.process(customer())

    env.process(source())
    began = time.process_time()
    env.run()
    return customers / (time.process_time() - began), sum(latencies_s) / len(latencies_s)


def with_ciw(network: Network, customers: int) -> tuple[float, float]:
    import ciw

    last = len(network) - 1
    ciw_network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=RATE)] + [None] * last,
        service_distributions=[ciw.dists.Exponential(rate=1.0 / service_s) for _, service_s in network],
        number_of_servers=[replicas for replicas, _ in network],
        routing=[[1.0 if to == at + 1 else 0.0 for to in range(last + 1)] for at in range(last + 1)],
    )
    ciw.seed(7)
    simulation = ciw.Simulation(ciw_network)
    began = time.process_time()
    simulation.simulate_until_max_time(customers / RATE)
    took = time.process_time() - began
    customers_out = simulation.nodes[-1].all_individuals
    records = [customer.data_records for customer in customers_out]
    latencies_s = [record[-1].exit_date - record[0].arrival_date for record in records]
    return len(customers_out) / took, sum(latencies_s) / len(latencies_s)


def row(name: str, value: float, unit: str, bar: float | None = None, *, least: bool = True) -> dict[str, object]:
    ok = bar is None or (value >= bar if least else value <= bar)
    return {"name": name, "value": value, "unit": unit, "bar": bar, "least": least, "ok": ok}


def against_others(name: str, network: Network) -> list[dict[str, object]]:
    expected = sum(MMk(arrival_per_s=RATE, service_per_s=1.0 / s).mean_s(k) for k, s in network)
    runs: list[tuple[str, Callable[[Network, int], tuple[float, float]], int]] = [
        ("Penstock", with_penstock, 1_000_000),
        ("SimPy", with_simpy, 20_000),
        ("Ciw", with_ciw, 20_000),
    ]
    best: dict[str, float] = {}
    rows = []
    for simulator, run, customers in runs:
        results = [run(network, customers) for _ in range(3)]
        best[simulator] = max(speed for speed, _ in results)
        error = sum(mean for _, mean in results) / len(results) / expected - 1
        rows.append(row(f"{name}: {simulator}", best[simulator], "customers/s"))
        rows.append(row(f"{name}: {simulator}, error of the mean latency", 100 * error, "%"))
    rows.append(row(f"{name}: Penstock over SimPy", best["Penstock"] / best["SimPy"], "x", 50.0))
    rows.append(row(f"{name}: Penstock over Ciw", best["Penstock"] / best["Ciw"], "x"))
    return rows


def large(operators: int = 100, replicas: int = 100) -> Network:
    """Return a network whose operators have loads from 50 % to 90 % at 1 M rows/s."""
    return [(replicas, replicas * (0.5 + 0.4 * i / (operators - 1)) / 1e6) for i in range(operators)]


def at_scale() -> list[dict[str, object]]:
    rows = []
    batch = SimulatedBatchCosts(batch_s=0.1, task_s=0.0005, trigger_s=1.0)
    for mode in (Mode.FLUID, Mode.MICRO_BATCH):
        engine = engine_for(large(), 1e6, mode, batch)
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(60):
            engine.advance(60.0)
            window = engine.observe()
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        size = "100 operators, 10,000 replicas, 1M rows/s, 1 hour"
        rows.append(row(f"{size}: {mode}", took, "s", 300.0, least=False))
        rows.append(row(f"{size}: {mode}, CPU time", cpu, "s"))
        done = window.operator("out").rows_in or 0
        rows.append(row(f"{size}: {mode}, rows out per row in, last minute", done / 60e6, ""))
    return rows


def fluid_error() -> list[dict[str, object]]:
    """Compare fluid mode with row-by-row mode: 5 operators of 100 replicas at 20,000 rows/s; then 25 % overload."""
    rows = []
    for load in (0.5, 0.8, 0.9, 0.95):
        network = [(100, 100 * load / 20_000)] * 5
        means, tails, busy = [], [], []
        for mode in (Mode.ROW_BY_ROW, Mode.FLUID):
            engine = engine_for(network, 20_000.0, mode)
            engine.advance(20.0)
            engine.observe()
            engine.advance(30.0)
            window = engine.observe()
            assert window.latency is not None
            means.append(window.latency.mean_s)
            tails.append(window.latency.p95_s)
            busy.append([window.operator(f"op{i}").utilisation or 0.0 for i in range(5)])
        name = f"fluid against row by row, 5 x 100 replicas, load {load:g}"
        rows.append(row(f"{name}: mean latency", 100 * (means[1] / means[0] - 1), "% error"))
        rows.append(row(f"{name}: p95 of the latency", 100 * (tails[1] / tails[0] - 1), "% error"))
        worst = max((fluid / exact - 1 for exact, fluid in zip(*busy, strict=True)), key=abs)
        rows.append(row(f"{name}: utilisation, largest of 5", 100 * worst, "% error"))
    waiting = []
    for mode in (Mode.ROW_BY_ROW, Mode.FLUID):
        engine = engine_for([(100, 0.005), (100, 0.00625)], 20_000.0, mode)
        engine.advance(60.0)
        waiting.append(engine.observe().operator("op1").backlog_rows or 0)
    rows.append(
        row("fluid against row by row, overload of 25 %: backlog", 100 * (waiting[1] / waiting[0] - 1), "% error")
    )
    return rows


PARTS: dict[str, Callable[[], list[dict[str, object]]]] = {
    "mmk": lambda: against_others("M/M/3", MMK),
    "five": lambda: against_others("five operators", FIVE),
    "error": fluid_error,
    "scale": at_scale,
}


def main() -> None:
    parts = [part for part in PARTS if part in sys.argv[1:]] or list(PARTS)
    rows = [entry for part in parts for entry in PARTS[part]()]
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("benchmark", "value", "unit", "bar", "ok")
    for entry in rows:
        bar = "" if entry["bar"] is None else f"{'>=' if entry['least'] else '<='} {entry['bar']}"
        shown = f"{entry['value']:,.0f}" if float(str(entry["value"])) > 1e4 else f"{entry['value']:.3g}"
        table.add_row(str(entry["name"]), shown, str(entry["unit"]), bar, "yes" if entry["ok"] else "NO")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
