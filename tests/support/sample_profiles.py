"""The record of a profile with three rounds, for tests of reports."""

from __future__ import annotations

import statistics
from pathlib import Path

from penstock.plan import Plan
from penstock.store import ProfiledOperator, ProfileTrial, RunStart, Store, Trial
from penstock.study.stepwise.profile import Profile

CONDITIONS = {"engine": "row-by-row", "slots": "4", "latency_s": "0.5"}
OPERATORS = (
    ProfiledOperator(operator="rows", type="proportional", min_latency_s=0.0, rows_in=1.0, streams={"split": 0.1}),
    ProfiledOperator(
        operator="split", type="workload-dependent", min_latency_s=2e-3, rows_in=1.0, streams={"count": 0.45}
    ),
    ProfiledOperator(operator="count", type="logic-dependent", min_latency_s=5e-4, rows_in=4.5, streams={"out": 0.45}),
    ProfiledOperator(operator="out", type="proportional", min_latency_s=0.0, rows_in=4.5, streams={}),
)


def plan(split: int, count: int) -> Plan:
    return Plan(dataflow="wc", cuts=frozenset({"split"}), replicas={"split": split, "count": count}, slots=4)


def trial(number: int, profile: ProfileTrial, samples: tuple[float, ...] = (), used: Plan | None = None) -> Trial:
    return Trial(
        study="profile",
        executors=1,
        repeat=number,
        plan=used or plan(1, 1),
        began_s=1000.0 + 60 * number,
        ended_s=1030.0 + 60 * number,
        rows_per_s=statistics.fmean(samples) if samples else None,
        samples=samples,
        converged=True,
        replicas_by="stepwise",
        profile=profile,
    )


def result(*, best: int, used: Plan, rows_per_s: float) -> Profile:
    return Profile(
        dataflow="wc",
        plan=used,
        best=best,
        rows_per_s=rows_per_s,
        latency_s=0.4,
        latency_target_s=0.5,
        meets_target=True,
        unfinished_rows=50,
        source_tasks=1,
        throttle=0.8,
        reason="no better plan",
        operators=OPERATORS,
        rounds=(),
        seconds=90.0,
        saved_s=0.0,
    )


def profiled(at: Path, *, rate: float = 100.0, rounds: int = 3, reason: str = "ratio of the task loads") -> None:
    """Write a study whose second round is the best one and whose third round is revoked."""

    def round_of(**fields: object) -> ProfileTrial:
        return ProfileTrial(conditions=CONDITIONS, reason=reason, saved_s=90.0, **fields)  # type: ignore[arg-type]

    made = [
        trial(0, ProfileTrial(step="features", conditions=CONDITIONS, operators=OPERATORS)),
        trial(1, round_of(step="platform", change="first", latency_s=0.4), (rate, 1.1 * rate, 0.9 * rate), plan(1, 1)),
        trial(
            2,
            round_of(step="platform", change="operators by ratio", latency_s=0.3, reference=0, verdict="better"),
            (2 * rate, 2.1 * rate, 1.9 * rate),
            plan(2, 2),
        ),
        trial(
            3,
            round_of(step="capacity", change="operator + 1", latency_s=0.6, reference=1, verdict="worse"),
            (1.5 * rate, 1.4 * rate, 1.6 * rate),
            plan(2, 3),
        ),
    ]
    with Store(at) as store:
        store.begin_run(RunStart(dataflow="wc", kind="study", flow_file="wc.py", pid=1, master="-", started_s=1000.0))
        for recorded in made[: rounds + 1]:
            store.add_trial(recorded)
        store.end_run(at_s=2000.0, reason="all trials are complete")
