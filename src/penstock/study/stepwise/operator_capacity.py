"""Adjust single operators (Liu et al. 2017, section 4.3).

The operator with the highest capacity gets another task. The task is kept if the throughput increases significantly
within the latency target, and revoked otherwise; the operator with the next highest capacity follows. A revoked
operator is tried again after another one was kept, because that may have made it the bottleneck.

Two cases are not in the paper. If several operators have the highest capacity, a task for one of them cannot help.
All of them get a task in the same trial first. On an engine that processes batches, the operators of a query take
turns. The query with the highest sum of capacities gets a task for each of its operators first. A task for one of them
alone comes with cuts that give this operator a query of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.study.stepwise.configuration import Configuration, Decision, Finished, NextTrial, Round, TrialChange
from penstock.study.stepwise.sequential_test import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySettings:
    latency_target_s: float
    min_latency_s: Mapping[str, float]  # MinLp by operator
    fixed: Collection[str] = ()  # operators whose number of tasks must not change
    k: float = 2.0  # stop when all latencies are within this multiple of their minimum
    includes_waiting: bool = True  # whether this latency includes the time that rows wait for the operator
    max_revocations: int = 2  # consecutive ones, after which to stop
    tie: float = 0.02  # capacities that differ by this share or less are equal
    # Operators of one query, for an engine on which they take turns; None: all operators work at the same time.
    queries: Callable[[Configuration], Sequence[frozenset[str]]] | None = None
    # Cuts that give an operator a query of its own, if they are possible.
    cuts: Mapping[str, frozenset[str]] = field(default_factory=dict)


class _Candidate(NamedTuple):
    names: frozenset[str]  # operators that get another task
    cuts: frozenset[str] = frozenset()  # new ones


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
    latencies_s = {
        name: measured.latency_s
        if settings.includes_waiting or measured.processing_s is None
        else measured.processing_s
        for name, measured in current.operators.items()
    }
    if all(latency_s <= settings.k * settings.min_latency_s[name] for name, latency_s in latencies_s.items()):
        return Finished(round=kept, reason=f"all operator latencies are within {settings.k:g} times their minimum")
    if len(revoked) >= settings.max_revocations:
        return Finished(round=kept, reason=f"{len(revoked)} consecutive changes did not increase the throughput")
    enhancement = next((candidate for candidate in _candidates(current, settings) if candidate not in revoked), None)
    if enhancement is None:
        return Finished(round=kept, reason="no operator is left that may have more tasks")
    capacity = max(current.operators[name].capacity for name in enhancement.names)
    have = "has" if len(enhancement.names) == 1 else "have"
    reason = f"{', '.join(sorted(enhancement.names))} {have} the highest capacity, {capacity:.2f}"
    if enhancement.cuts:
        reason += f"; other tasks than in the rest of the query need a cut after {', '.join(sorted(enhancement.cuts))}"
    return NextTrial(
        configuration=current.configuration.with_tasks(dict.fromkeys(enhancement.names, 1)).with_cuts(enhancement.cuts),
        change=TrialChange.CUT if enhancement.cuts else TrialChange.OPERATOR,
        reference=kept,
        reason=reason,
        ends_when_missed=current.meets(settings.latency_target_s),
    )


def _candidates(current: Round, settings: CapacitySettings) -> Iterator[_Candidate]:
    """Yield the operators to enhance, in this order: all with the highest capacity, then the others one by one."""
    capacities = {name: measured.capacity for name, measured in current.operators.items() if name not in settings.fixed}
    ordered = sorted(capacities, key=lambda name: -capacities[name])
    together = [frozenset({name}) for name in ordered]
    if settings.queries is not None:
        queries = (names & capacities.keys() for names in settings.queries(current.configuration))
        together = sorted(filter(None, queries), key=lambda names: -sum(capacities[name] for name in names))
    sums = [sum(capacities[name] for name in names) for names in together]
    highest = [names for names, total in zip(together, sums, strict=True) if total >= (1.0 - settings.tie) * sums[0]]
    if highest:
        yield _Candidate(frozenset().union(*highest))
    for names in together:
        yield _Candidate(names)
        yield from _single_candidates(sorted(names, key=lambda name: -capacities[name]), current, settings)


def _single_candidates(names: Sequence[str], current: Round, settings: CapacitySettings) -> Iterator[_Candidate]:
    """Yield the operators of one query one by one, each with the cuts that separate it from the others."""
    if len(names) < 2:
        return
    for name in names:
        if name in settings.cuts:
            yield _Candidate(frozenset({name}), settings.cuts[name] - current.configuration.cuts)


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


def _enhanced(before: Round, after: Round) -> _Candidate:
    """Return the operators that have more tasks, and the cuts that were added."""
    tasks = before.configuration.tasks
    names = frozenset(name for name, count in after.configuration.tasks.items() if count > tasks[name])
    return _Candidate(names, after.configuration.cuts - before.configuration.cuts)
