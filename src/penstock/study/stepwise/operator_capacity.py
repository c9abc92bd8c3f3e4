"""Adjust single operators (Liu et al. 2017, section 4.3).

The operator with the highest capacity gets another task. The task is kept if the throughput increases significantly,
and revoked otherwise; the operator with the next highest capacity follows. A revoked operator is tried again after
another one was kept, because that may have made it the bottleneck.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from penstock.study.stepwise.configuration import Change, Decision, Finished, NextTrial, Round
from penstock.study.stepwise.sequential_test import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySettings:
    min_latency_s: Mapping[str, float]  # MinLp by operator
    fixed: Collection[str] = ()  # operators whose number of tasks must not change
    k: float = 2.0  # stop when all latencies are within this multiple of their minimum
    max_revocations: int = 2  # consecutive ones, after which to stop


def operator_capacity(*, latency_s: float, executed_rows: float, window_s: float, tasks: int) -> float:
    """Return the share of the time in which the tasks of an operator execute rows (Equation 2, per task).

    >>> operator_capacity(latency_s=0.005, executed_rows=3000, window_s=10.0, tasks=2)
    0.75
    """
    return latency_s * executed_rows / (window_s * tasks)


def next_capacity_trial(rounds: Sequence[Round], settings: CapacitySettings) -> Decision:
    """Return the next operator to enhance, or the configuration that was kept last.

    Args:
        rounds: The result of step 2, then the trials of this step.
        settings: Stop rules.
    """
    kept = _kept(rounds)
    revoked = [_enhanced(rounds[kept], round_) for round_ in rounds[kept + 1 :]]
    current = rounds[kept]
    if all(
        measured.latency_s <= settings.k * settings.min_latency_s[name] for name, measured in current.operators.items()
    ):
        return Finished(round=kept, reason=f"all operator latencies are within {settings.k:g} times their minimum")
    if len(revoked) >= settings.max_revocations:
        return Finished(round=kept, reason=f"{len(revoked)} consecutive changes did not increase the throughput")
    candidates = [name for name in current.operators if name not in revoked and name not in settings.fixed]
    if not candidates:
        return Finished(round=kept, reason="no operator is left that may have more tasks")
    name = max(candidates, key=lambda candidate: current.operators[candidate].capacity)
    return NextTrial(
        configuration=current.configuration.with_tasks({name: 1}),
        change=Change.OPERATOR,
        reference=kept,
        reason=f"'{name}' has the highest capacity, {current.operators[name].capacity:.2f}",
        ends_when_missed=True,
    )


def _kept(rounds: Sequence[Round]) -> int:
    """Return the latest round that was kept; the first round is the result of step 2."""
    return max(number for number, round_ in enumerate(rounds) if number == 0 or round_.verdict is Verdict.BETTER)


def _enhanced(before: Round, after: Round) -> str:
    """Return the operator that has more tasks."""
    tasks = before.configuration.tasks
    return next(name for name, count in after.configuration.tasks.items() if count > tasks[name])
