"""Adjust single operators (Liu et al. 2017, section 4.3).

The operator with the highest capacity gets another task. The task is kept if the throughput increases significantly
within the latency target, and revoked otherwise; the operator with the next highest capacity follows. A revoked
operator is tried again after another one was kept, because that may have made it the bottleneck.

One case is not in the paper: if several operators have the highest capacity, a task for one of them alone cannot help.
All of them get a task in the same trial first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.study.stepwise.configuration import Change, Decision, Finished, NextTrial, Round
from penstock.study.stepwise.sequential_test import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySettings:
    latency_target_s: float
    min_latency_s: Mapping[str, float]  # MinLp by operator
    fixed: Collection[str] = ()  # operators whose number of tasks must not change
    k: float = 2.0  # stop when all latencies are within this multiple of their minimum
    max_revocations: int = 2  # consecutive ones, after which to stop
    tie: float = 0.02  # capacities that differ by this share or less are equal


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
    kept = _kept(rounds, settings.latency_target_s)
    revoked = [_enhanced(rounds[kept], round_) for round_ in rounds[kept + 1 :]]
    current = rounds[kept]
    if all(
        measured.latency_s <= settings.k * settings.min_latency_s[name] for name, measured in current.operators.items()
    ):
        return Finished(round=kept, reason=f"all operator latencies are within {settings.k:g} times their minimum")
    if len(revoked) >= settings.max_revocations:
        return Finished(round=kept, reason=f"{len(revoked)} consecutive changes did not increase the throughput")
    names = next((names for names in _candidates(current, settings) if names not in revoked), None)
    if names is None:
        return Finished(round=kept, reason="no operator is left that may have more tasks")
    capacity = max(current.operators[name].capacity for name in names)
    have = "has" if len(names) == 1 else "have"
    return NextTrial(
        configuration=current.configuration.with_tasks(dict.fromkeys(names, 1)),
        change=Change.OPERATOR,
        reference=kept,
        reason=f"{', '.join(sorted(names))} {have} the highest capacity, {capacity:.2f}",
        ends_when_missed=current.meets(settings.latency_target_s),
    )


def _candidates(current: Round, settings: CapacitySettings) -> Iterator[frozenset[str]]:
    """Yield the operators to enhance, in this order: all with the highest capacity, then single ones."""
    capacities = {name: measured.capacity for name, measured in current.operators.items() if name not in settings.fixed}
    ordered = sorted(capacities, key=lambda name: -capacities[name])
    yield from (
        frozenset(name for name in ordered if capacities[name] >= (1.0 - settings.tie) * capacities[highest])
        for highest in ordered[:1]
    )
    yield from (frozenset({name}) for name in ordered)


def _kept(rounds: Sequence[Round], latency_target_s: float) -> int:
    """Return the latest round that was kept; the first round is the result of step 2.

    A faster round that misses the latency target is kept only if the first round misses it as well.
    """
    missed_before = not rounds[0].meets(latency_target_s)
    return max(
        number
        for number, round_ in enumerate(rounds)
        if number == 0 or (round_.verdict is Verdict.BETTER and (missed_before or round_.meets(latency_target_s)))
    )


def _enhanced(before: Round, after: Round) -> frozenset[str]:
    """Return the operators that have more tasks."""
    tasks = before.configuration.tasks
    return frozenset(name for name, count in after.configuration.tasks.items() if count > tasks[name])
