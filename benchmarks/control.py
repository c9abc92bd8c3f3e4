"""CPU time of one decision for 100 operators, by policy, including the write to the store.

python -m benchmarks.control
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from pathlib import Path

import penstock
from penstock.control.controller import Controller, Settings
from penstock.control.guards import Bounded, Cooldown, Hysteresis, PayBack
from penstock.control.policies.auto.policy import Auto
from penstock.control.policies.auto.replay import Target
from penstock.control.policies.drs import Drs, DrsSettings, FewestSlots, LeastLatency
from penstock.control.policies.ds2 import Ds2
from penstock.control.policies.stela import Stela
from penstock.control.policies.threshold import Threshold
from penstock.control.policy import Policy
from penstock.engines.ports import Applied
from penstock.measure.smoothing import MovingAverage
from penstock.measure.window import Latency, OperatorWindow, PipelineWindow, Window
from penstock.models.queueing import MMk
from penstock.plan import Plan, default_plan, pipelines
from penstock.store import RunStart, Store

OPERATORS = 100
SLOTS = 1000
TURNS = 40
ROUNDS = 5  # the policies take turns, because the speed of the machine varies


def flow_of(operators: int) -> penstock.Dataflow:
    """Return a chain whose keys alternate, so that each operator is a separate region and a separate query."""
    flow = penstock.Dataflow("long")
    stream = flow.source("rows", penstock.generate(lambda n: n, schema="n bigint, m bigint", rows_per_s=1000.0))
    for i in range(operators):
        stream = stream.keyed(f"op{i:03d}", lambda frame: frame, keys=[("n", "m")[i % 2]], columns=["n", "m"])
    stream.sink("out", penstock.noop())
    return flow


class PlanOnlyEngine:
    """An engine that only has a plan. The time for reading measurements is not part of this benchmark."""

    def __init__(self, flow: penstock.Dataflow, plan: Plan) -> None:
        self.flow, self.plan = flow, plan

    def apply(self, plan: Plan) -> Applied:
        raise AssertionError("only recommended")


def cost_s(i: int) -> float:
    return 0.002 + 0.00004 * i


# The prediction of the model for 7 replicas each. The correction is then 1, and a slightly lower target is feasible.
LATENCY_S = sum(MMk(arrival_per_s=1000.0, service_per_s=1 / cost_s(i)).mean_s(7) for i in range(1, OPERATORS + 1))


def window_of(flow: penstock.Dataflow, plan: Plan, number: int) -> Window:
    operators = []
    for i, operator in enumerate(flow.operators):
        known = {"selectivity": 1.0, "input_rows_per_s": 1000.0}
        known |= {"processed_rows_per_s": 1000.0, "rows_in": 2000, "rows_out": 2000, "backlog_rows": 10}
        if operator.fn is not None:
            cost = cost_s(i)
            known |= {"replicas": 7, "seconds_per_row": cost, "utilisation": 1000 * cost / 7}
        operators.append(OperatorWindow.knowing(operator.name, "p", **known))
    queries = tuple(
        PipelineWindow(
            pipeline=pipeline.name,
            operators=pipeline.operators,
            batches=4,
            rows_in=2000,
            batch_s=0.5,
            batch_max_s=0.6,
            phases_s={"addBatch": 0.4},
            busy_s=1.0,
            backlog_rows=10,
        )
        for pipeline in pipelines(flow, plan)
    )
    return Window(
        start_s=1000.0 + 2 * number,
        end_s=1002.0 + 2 * number,
        generation=1,
        external_rows_per_s=1000.0 + number % 3,
        latency=Latency(rows=2000, mean_s=LATENCY_S, p50_s=0.55, p95_s=0.9, p99_s=1.1),
        pipelines=queries,
        operators=tuple(operators),
    )


def timed(
    policy: Policy, *, micro_batch: bool, flow: penstock.Dataflow, plan: Plan, windows: list[Window]
) -> list[float]:
    """Return the CPU milliseconds of each decision, including its row in the store.

    CPU time excludes other processes on the machine.
    """
    with tempfile.TemporaryDirectory() as at, Store(Path(at)) as store:
        store.begin_run(RunStart(dataflow=flow.name, flow_file="-", pid=1, master="-", started_s=1000.0))
        chosen = Settings(mode="recommend", smoothing=MovingAverage(5), micro_batch=micro_batch, warm_up_s=0.0)
        controller = Controller(policy, chosen, PlanOnlyEngine(flow, plan), store)  # type: ignore[arg-type]
        took = []
        for number, window in enumerate(windows):
            began = time.thread_time()
            controller.decide(window, number=number, at_s=window.end_s)
            took.append(1000 * (time.thread_time() - began))
        return took[10:]


def decision_cases() -> list[tuple[str, Policy, bool]]:
    """Return the name of each case, its policy, and whether the engine works in micro-batches."""
    least, fewest = DrsSettings(goal=LeastLatency()), DrsSettings(goal=FewestSlots(max_s=0.95 * LATENCY_S))
    guarded = Cooldown(Bounded(PayBack(Hysteresis(Drs(least)), within_s=600.0), max_slots=SLOTS), seconds=60.0)
    return [
        ("drs, least latency, M/M/k", Drs(least), False),
        ("drs, fewest slots, M/M/k", Drs(fewest), False),
        ("drs, infeasible target", Drs(DrsSettings(goal=FewestSlots(max_s=0.1 * LATENCY_S))), False),
        ("drs, least latency, micro-batch", Drs(least), True),
        ("drs, four guards around it", guarded, False),
        ("auto", Auto(Target(seconds=0.95 * LATENCY_S)), False),
        ("auto, infeasible target", Auto(Target(seconds=0.1 * LATENCY_S)), False),
        ("auto, micro-batch", Auto(Target(seconds=200.0)), True),
        ("threshold", Threshold(), False),
        ("stela", Stela(), False),
        ("ds2", Ds2(), False),
    ]


def decision_times_ms(policy: Policy, micro_batch: bool, *, rounds: int) -> list[float]:
    """Return the CPU milliseconds of the decisions of a policy for 100 operators."""
    flow = flow_of(OPERATORS)
    plan = default_plan(flow, slots=SLOTS, replicas={f"op{i:03d}": 7 for i in range(OPERATORS)})
    windows = [window_of(flow, plan, number) for number in range(TURNS)]
    # A policy keeps state, so each round uses a new copy.
    return [
        took_ms
        for _ in range(rounds)
        for took_ms in timed(copy.deepcopy(policy), micro_batch=micro_batch, flow=flow, plan=plan, windows=windows)
    ]


def main() -> None:
    cases = decision_cases()
    print(f"{OPERATORS} operators, {SLOTS} slots")
    print(f"{'policy':34} {'median':>8} {'worst':>8}   (CPU ms per decision; target: 10, for auto 100)")
    took: dict[str, list[float]] = {name: [] for name, _, _ in cases}
    for _ in range(ROUNDS):
        for name, policy, micro_batch in cases:
            took[name] += decision_times_ms(policy, micro_batch, rounds=1)
    for name, times_ms in took.items():
        print(f"{name:34} {statistics.median(times_ms):8.2f} {max(times_ms):8.2f}")


if __name__ == "__main__":
    main()
