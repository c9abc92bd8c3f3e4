"""Speed of the processor planner. `python -m benchmarks.models_queueing [--json]`

The DRS paper (table II) times its scaling computation for a chain of three operators: 0.083 ms at K = 12 to 1.250 ms
at K = 192. It does not state its service rates. The rates here make (10:11:1) of its figure 6 the best plan for K = 22.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from functools import partial

from penstock.models.queueing import GIGk, MMk, erlang_c
from penstock.models.queueing.station import StationModel
from penstock.planning.processors import OperatorNetwork, OperatorStation, assign_processors, min_processors

PRINTED_MS = {12: 0.083, 24: 0.158, 48: 0.323, 96: 0.665, 192: 1.250}


def best_of(call: Callable[[], object], *, runs: int = 1, repeats: int = 5) -> float:
    """Return the CPU seconds per call, as in the paper. The shortest of several repeats counts."""
    shortest = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(runs):
            call()
        shortest = min(shortest, (time.process_time() - start) / runs)
    return shortest


def chain(stations: list[StationModel], external_per_s: float) -> OperatorNetwork:
    operators = [OperatorStation(name=f"op{i}", station=station) for i, station in enumerate(stations)]
    return OperatorNetwork(external_per_s=external_per_s, operators=tuple(operators))


def three(scv: float = 1.0) -> OperatorNetwork:
    """Return a chain with offered loads of 4.2, 4.6 and 0.05, which fit into the smallest budget of 12."""
    rates = [(6.5, 1.55), (6.5, 1.40), (6.5, 120.0)]
    return chain([GIGk(arrival_per_s=a, service_per_s=s, arrival_scv=scv, service_scv=scv) for a, s in rates], 6.5)


def thousand() -> OperatorNetwork:
    rng = random.Random(7)
    stations: list[StationModel] = [
        MMk(arrival_per_s=1000.0, service_per_s=1000.0 / rng.uniform(1.0, 100.0)) for _ in range(1000)
    ]
    return chain(stations, 1000.0)


def row(name: str, value: float, unit: str, bar: float | None = None) -> dict[str, object]:
    return {"name": name, "value": value, "unit": unit, "bar": bar, "ok": bar is None or value <= bar}


def run() -> list[dict[str, object]]:
    rows = []
    small, other, large = three(), three(scv=0.5), thousand()
    for k, printed in PRINTED_MS.items():
        seconds = best_of(partial(assign_processors, small, k), runs=20, repeats=100)
        rows.append(row(f"assign, 3 operators, K = {k} (paper: {printed} ms)", seconds * 1e3, "ms", 0.1))
    seconds = best_of(lambda: assign_processors(small, 192).latency(), runs=20, repeats=20)
    rows.append(row("assign, 3 operators, K = 192, and its latency", seconds * 1e3, "ms"))
    for k in PRINTED_MS:
        seconds = best_of(partial(assign_processors, other, k), runs=20, repeats=100)
        rows.append(row(f"assign, 3 operators, K = {k}, Whitt's GI/G/k", seconds * 1e3, "ms", 0.1))
    at = {k: best_of(partial(assign_processors, large, k)) for k in (50_000, 100_000, 200_000)}
    rows.append(row("assign, 1,000 operators, K = 100,000", at[100_000], "s", 0.5))
    later, earlier = (at[200_000] - at[100_000]) / 100_000, (at[100_000] - at[50_000]) / 50_000
    rows.append(row("cost of a processor, K 100,000..200,000 over 50,000..100,000", later / earlier, "x", 1.5))
    floor_s = large.mean_s([10_000] * 1000)
    seconds = best_of(partial(min_processors, large, 1.01 * floor_s), repeats=3)
    rows.append(row("min processors, 1,000 operators, mean within 1% of the floor", seconds, "s"))
    rows.append(row("erlang_c, 100,000 servers", best_of(lambda: erlang_c(100_000, 99_000.0)) * 1e3, "ms"))
    return rows


def main() -> None:
    rows = run()
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("benchmark", "value", "unit", "bar", "ok")
    for entry in rows:
        bar = "" if entry["bar"] is None else f"<= {entry['bar']}"
        table.add_row(
            str(entry["name"]), f"{entry['value']:.4g}", str(entry["unit"]), bar, "yes" if entry["ok"] else "NO"
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
