"""Profiles of random dataflows in simulation: `python -m benchmarks.random_dataflows [--count 30] [--json]`.

Each dataflow has one source and two to seven operators in a random graph. An operator computes, waits, or does both; it
takes 0.1 to 3 ms for a row and emits 0.3 to 3 rows for it; the platform has 4 to 16 slots. The figure is the throughput
of the profiled plan relative to an upper bound that no plan exceeds: all cores compute all the time.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from dataclasses import dataclass

import penstock
from benchmarks.figures import print_rows, row
from penstock.dataflow import Dataflow
from penstock.engines.simulated import Behaviour, Exponential, Fixed, OperatorBehaviour
from penstock.study.stepwise.profile import Profile

SLOTS = (4, 8, 12, 16)
CPU_SHARES = {1.0: 0.6, 0.5: 0.25, 0.0: 0.15}  # share of the time on a core, and how frequent it is
SHORTEST_S, LONGEST_S = 0.1e-3, 3e-3
FEWEST, MOST = 0.3, 3.0  # rows out per row in
NEAR = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomDataflow:
    flow: Dataflow
    costs: Behaviour
    slots: int
    core_s_per_row: float  # time on a core of all operators for one row of the source

    @property
    def bound_per_s(self) -> float:
        return self.slots / self.core_s_per_row


def random_dataflow(seed: int) -> RandomDataflow:
    """Return a dataflow in which at least one operator computes."""
    draw = random.Random(seed)
    flow = Dataflow(f"random_{seed}")
    source = flow.source("source", penstock.generate(int, schema="n bigint", rows_per_s=1.0))
    streams, costs = [source], {}
    rows_out, core_s = {"source": 1.0}, 0.0
    for number in range(draw.randint(2, 7)):
        name = f"op{number}"
        recent = streams[-3:]
        inputs = draw.sample(recent, min(len(recent), 1 if draw.random() < 0.75 else 2))
        keys = ["n"] if source in inputs else [f"key_of_{name}"]
        streams.append(flow.keyed(name, lambda *frames: frames[0], keys=keys, inputs=inputs))
        (share,) = draw.choices(list(CPU_SHARES), list(CPU_SHARES.values())) if number else (1.0,)
        seconds = _between(draw, SHORTEST_S, LONGEST_S)
        selectivity = _between(draw, FEWEST, MOST)
        service = Fixed(value=seconds) if share == 0.0 or draw.random() < 0.3 else Exponential(mean=seconds)
        costs[name] = OperatorBehaviour(service_s=service, cpu_share=share, selectivity=Fixed(value=selectivity))
        rows_in = sum(rows_out[stream.name] for stream in inputs)
        rows_out[name], core_s = rows_in * selectivity, core_s + rows_in * seconds * share
    read = {name for operator in flow.operators for name in operator.inputs}
    for stream in streams[1:]:
        if stream.name not in read:
            stream.sink(f"out_{stream.name}", penstock.noop())
    return RandomDataflow(flow=flow, costs=Behaviour(operators=costs), slots=draw.choice(SLOTS), core_s_per_row=core_s)


def _between(draw: random.Random, low: float, high: float) -> float:
    return math.exp(draw.uniform(math.log(low), math.log(high)))


def profiled(case: RandomDataflow, seed: int = 0) -> Profile:
    with tempfile.TemporaryDirectory() as folder:
        return penstock.profile(case.flow, slots=case.slots, behaviour=case.costs, at=folder, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    shares, rounds = [], []
    for seed in range(options.first, options.first + options.count):
        case = random_dataflow(seed)
        result = profiled(case)
        shares.append(result.rows_per_s / case.bound_per_s)
        rounds.append(len(result.rounds))
        target = "met" if result.meets_target else "missed"
        print(
            f"  {seed}: {len(case.costs.operators)} operators, {case.slots} slots: "
            f"{100 * shares[-1]:.1f} % of the bound, {rounds[-1]} rounds, target {target}",
            file=sys.stderr,
            flush=True,
        )
    near = sum(share >= NEAR for share in shares)
    rows = [
        row(f"dataflows that reach {100 * NEAR:.0f} % of the upper bound", near, f"of {len(shares)}"),
        row("lowest share of the upper bound", min(shares), ""),
        row("mean share of the upper bound", sum(shares) / len(shares), ""),
        row("most rounds", max(rounds), "rounds"),
    ]
    print_rows(rows, as_json=options.json)


if __name__ == "__main__":
    main()
