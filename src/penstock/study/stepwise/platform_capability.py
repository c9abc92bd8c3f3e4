"""Find the number of tasks that the platform supports (Liu et al. 2017, section 4.2, Algorithm 2).

Sources always have input. Source tasks limit the rows in flight: each may have the same number of unfinished rows.
Tasks are added to the sources or to the operators until neither improves the throughput. The sources are then throttled
until the latency target is met.

The printed algorithm leaves four cases open. They are decided as follows:

- If adding to the sources and adding to the operators have both failed since the last improvement, the limit of the
  platform is reached, also if the throughput has not decreased below alpha times the best one.
- Once tasks share slots, up to three trials test the tasks that are predicted to use all slots best (`slot_filling`),
  each with the times of the trials before it. The next one follows if the prediction has changed. Such a trial that
  is no improvement is ignored afterwards.
- A best configuration that meets the latency target is not throttled.
- Throttled trials are compared with the best configuration. If no throttle can meet the latency target, the best
  configuration is the result. A throttle that costs throughput is relaxed, one that
  misses the latency target is tightened. The search ends when both bounds are close, or when the latency is just below
  the target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.study.stepwise.configuration import (
    Decision,
    Finished,
    NextTrial,
    Round,
    TrialChange,
    best_round,
)
from penstock.study.stepwise.sequential_test import Verdict
from penstock.study.stepwise.slot_filling import Fill

_HEADROOM = 0.9  # a throttle aims at this share of the latency target
_MAX_FILLINGS = 3
_NEAR_TARGET = 0.97  # the search for a throttle that costs throughput ends at this share of the latency target
_TOLERANCE = 0.02  # loss of throughput that ends the search for a throttle
_CLOSE = 1.05  # the search for a throttle ends when its bounds differ by less than this factor


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformSettings:
    latency_target_s: float
    ratio: Mapping[str, int]  # tasks that one step adds to each scalable operator
    alpha: float = 0.9  # a throughput below this share of the best one ends the growth
    filling: Fill | None = None  # finds the tasks that use the slots best; None: they are not tested
    rows_per_source_task: float = math.inf  # unfinished rows that each source task may have


def next_platform_trial(rounds: Sequence[Round], settings: PlatformSettings) -> Decision:
    """Return the next trial of Algorithm 2, or the best of the rounds so far."""
    counted = [n for n, round_ in enumerate(rounds) if round_.change is not TrialChange.FILL or _is_improvement(round_)]
    decision = _algorithm_2([rounds[number] for number in counted], settings)
    if isinstance(decision, Finished):
        decision = replace(decision, round=counted[decision.round])
    else:
        decision = replace(decision, reference=counted[decision.reference])
    return _filled(rounds, settings, decision) or decision


def _algorithm_2(rounds: Sequence[Round], settings: PlatformSettings) -> Decision:
    last, best = rounds[-1], _fastest(rounds)
    met = last.meets(settings.latency_target_s)
    verdict = Verdict.BETTER if last.verdict is None else last.verdict
    if verdict is Verdict.BETTER:
        if met:
            return _add_source(rounds, "the throughput increased and the latency target is met")
        return _add_tasks(rounds, settings, "the throughput increased but the latency target is not met")
    if last.change is TrialChange.THROTTLE:
        return _adjust_throttle(rounds, settings, verdict)
    if verdict is Verdict.WORSE and last.mean_rows_per_s < settings.alpha * rounds[best].mean_rows_per_s:
        return _return_to_best(rounds, settings, f"the throughput fell below {settings.alpha:g} of the best one")
    if {TrialChange.SOURCE, TrialChange.SINKS} <= _changes_since_improvement(rounds):
        return _return_to_best(rounds, settings, "neither more source tasks nor more operator tasks improved it")
    effect = "changed nothing" if verdict is Verdict.NO_DIFFERENCE else "decreased the throughput"
    if last.change is TrialChange.SINKS:
        return _add_source(rounds, f"more operator tasks {effect}")
    return _add_tasks(rounds, settings, f"another source task {effect}")


def _is_improvement(round_: Round) -> bool:
    return round_.verdict in (None, Verdict.BETTER)


def _filled(rounds: Sequence[Round], settings: PlatformSettings, planned: Decision) -> NextTrial | None:
    """Return a trial of the tasks that are predicted to use the slots best; None if it is too early or of no use."""
    filling = settings.filling
    done = [round_ for round_ in rounds if round_.change is TrialChange.FILL]
    if filling is None or len(done) >= _MAX_FILLINGS or any(round_.change is TrialChange.THROTTLE for round_ in rounds):
        return None
    is_limit = isinstance(planned, Finished) or planned.change is TrialChange.THROTTLE
    if not (is_limit or rounds[-1].change is TrialChange.FILL or (not done and filling.shares_slots(rounds[-1]))):
        return None
    best = _fastest(rounds)
    configuration, fill = rounds[best].configuration, filling.better(rounds, rounds[best])
    if fill is None:
        return None
    rows = _HEADROOM * fill.rows_per_s * settings.latency_target_s  # Little's law
    source_tasks = max(1, round(rows / settings.rows_per_source_task))
    if rounds[best].meets(settings.latency_target_s):
        source_tasks = max(source_tasks, configuration.source_tasks)
    filled = replace(configuration.with_counts(fill.tasks), source_tasks=source_tasks)
    if any(round_.configuration == filled for round_ in rounds):
        return None
    return NextTrial(configuration=filled, change=TrialChange.FILL, reference=best, reason=fill.reason)


def _fastest(rounds: Sequence[Round]) -> int:
    """Return the round with the highest throughput, whatever its latency, among those that were an improvement.

    A round that was not significantly better may have a higher mean by chance, and has more tasks.
    """
    improvements = [n for n, round_ in enumerate(rounds) if _is_improvement(round_)]
    return max(improvements, key=lambda number: rounds[number].mean_rows_per_s)


def _changes_since_improvement(rounds: Sequence[Round]) -> set[TrialChange]:
    changes = set()
    for round_ in reversed(rounds):
        if _is_improvement(round_):
            break
        changes.add(round_.change)
    return changes


def _add_source(rounds: Sequence[Round], reason: str) -> NextTrial:
    return NextTrial(
        configuration=rounds[-1].configuration.with_source_task(),
        change=TrialChange.SOURCE,
        reference=len(rounds) - 1,
        reason=reason,
    )


def _add_tasks(rounds: Sequence[Round], settings: PlatformSettings, reason: str) -> NextTrial:
    return NextTrial(
        configuration=rounds[-1].configuration.with_tasks(settings.ratio),
        change=TrialChange.SINKS,
        reference=len(rounds) - 1,
        reason=reason,
    )


def _return_to_best(rounds: Sequence[Round], settings: PlatformSettings, reason: str) -> Decision:
    best = _fastest(rounds)
    if rounds[best].meets(settings.latency_target_s):
        return Finished(round=best, reason=f"{reason}; the best configuration meets the latency target")
    return _throttle(
        rounds, best, rounds[best], settings, f"{reason}; the best configuration misses the latency target"
    )


def _throttle(
    rounds: Sequence[Round], best: int, measured: Round, settings: PlatformSettings, reason: str
) -> NextTrial:
    """Throttle the best configuration. The latency is proportional to the rows in flight (Little's law)."""
    share = min(_HEADROOM, _HEADROOM * settings.latency_target_s / measured.latency_s)
    return _throttled_trial(rounds, best, measured.configuration.throttle * share, reason)


def _throttled_trial(rounds: Sequence[Round], best: int, throttle: float, reason: str) -> NextTrial:
    configuration = rounds[best].configuration.throttled(throttle)
    return NextTrial(configuration=configuration, change=TrialChange.THROTTLE, reference=best, reason=reason)


def _adjust_throttle(rounds: Sequence[Round], settings: PlatformSettings, verdict: Verdict) -> Decision:
    last, target_s = rounds[-1], settings.latency_target_s
    before = _without_last_throttles(rounds)
    best, throttled = _fastest(before), rounds[len(before) :]
    is_equal = last.mean_rows_per_s >= (1.0 - _TOLERANCE) * rounds[best].mean_rows_per_s
    if verdict is Verdict.NO_DIFFERENCE and is_equal and last.meets(target_s):
        return Finished(
            round=len(rounds) - 1, reason="the throttled sources meet the latency target without a loss of throughput"
        )
    loose = min(
        (rounds[best], *(round_ for round_ in throttled if not round_.meets(target_s))),
        key=lambda round_: round_.configuration.throttle,
    )
    within = [round_ for round_ in throttled if round_.meets(target_s)]
    if not within:
        return _tightened(rounds, best, settings)
    tight = max(within, key=lambda round_: round_.configuration.throttle)
    is_close = loose.configuration.throttle < _CLOSE * tight.configuration.throttle
    if is_close or tight.latency_s >= _NEAR_TARGET * target_s:
        return Finished(
            round=best_round(rounds, target_s),
            reason="a looser throttle misses the latency target and a tighter one costs throughput",
        )
    reason = "decreased the throughput: it is relaxed" if last.meets(target_s) else "is too loose: it is tightened"
    return _throttled_trial(rounds, best, _throttle_between(tight, loose, target_s), f"the throttle {reason}")


def _tightened(rounds: Sequence[Round], best: int, settings: PlatformSettings) -> Decision:
    """Throttle more, along the line latency = a + b throttle through the best and the latest trial.

    The latency a without load is above 0, for example because of the fixed duration of batches.
    """
    first, last = rounds[best], rounds[-1]
    share, step = last.configuration.throttle, first.configuration.throttle - last.configuration.throttle
    slope_s = (first.latency_s - last.latency_s) / step
    without_load_s = last.latency_s - slope_s * share
    aim_s = (1.0 + _NEAR_TARGET) / 2.0 * settings.latency_target_s
    if slope_s <= 0 or without_load_s >= aim_s:
        return Finished(
            round=best,
            reason=f"a latency of {max(0.0, without_load_s):.3g} s remains without load, so that a throttle cannot "
            "meet the latency target",
        )
    tighter = min(_HEADROOM * share, (aim_s - without_load_s) / slope_s)
    return _throttled_trial(rounds, best, tighter, "the latency target is not met: the throttle is tightened")


def _throttle_between(tight: Round, loose: Round, target_s: float) -> float:
    """Return the throttle between two trials at which the latency is just below the target: a line through logarithms.

    The lower and upper tenth are left out, so that the bounds approach each other also if the latency is noisy.
    """
    low, high = math.log(tight.configuration.throttle), math.log(loose.configuration.throttle)
    aim_s = (1.0 + _NEAR_TARGET) / 2.0 * target_s
    position = 0.5
    if tight.latency_s < loose.latency_s:
        position = math.log(aim_s / tight.latency_s) / math.log(loose.latency_s / tight.latency_s)
    return math.exp(low + min(0.9, max(0.1, position)) * (high - low))


def _without_last_throttles(rounds: Sequence[Round]) -> Sequence[Round]:
    end = len(rounds)
    while rounds[end - 1].change is TrialChange.THROTTLE:
        end -= 1
    return rounds[:end]
