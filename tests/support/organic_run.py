"""A process with a run under policy `organic`: more slots than the session that other tests share, and short periods."""

from __future__ import annotations

import sys
from pathlib import Path

import penstock
from penstock.apps.joker import waiting
from penstock.dataflow import Dataflow
from penstock.plan import Plan, default_plan

SLOTS = 12
PERIOD_S = 3.0


def flow(rows_per_s: float) -> Dataflow:
    """Return two operators of 20 ms each: one slot processes 25 rows/s, and two slots with a cut process 50."""
    return waiting.flow(penstock.memory(), keyed_ms=20.0, stateless_ms=20.0, rows_per_s=rows_per_s)


def first_plan() -> Plan:
    return default_plan(flow(1.0), slots=SLOTS, replicas={"keyed": 1})


def main(at: Path, rows_per_s: float) -> None:
    with penstock.run(
        flow(rows_per_s),
        at=at,
        master=f"local[{SLOTS}]",
        plan=first_plan(),
        policy="organic",
        mode="active",
        max_slots=SLOTS,
        # Low thresholds: on a busy machine most of the time of a batch is fixed, so a change gains little.
        adaptation=penstock.AdaptationParameters(
            period_s=PERIOD_S, stable_periods=2, split_gain=0.01, throughput_increase=0.02
        ),
        window_s=0.75,
        warm_up_s=0.75,
        cooldown_s=0.0,
        batch_s=0.8,
    ) as run:
        run.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
