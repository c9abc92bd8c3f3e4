"""Choose the executor counts to measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.models.mst.capacity_steps import vms_per_step
from penstock.models.mst.prediction import fit_mst
from penstock.models.mst.samples import ThroughputSamples
from penstock.plan import Plan
from penstock.store import REPLICAS_BY_RULE, Trial
from penstock.study.mst.replicas import replicas_each

SATURATED, PACED = "mst", "mst paced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A trial to make."""

    executors: int
    repeat: int
    study: str = SATURATED
    plan: Plan | None = None  # None: replicas by the paper's rule

    @property
    def key(self) -> tuple[str, int, int]:
        return self.study, self.executors, self.repeat


def grid(counts: Sequence[int], repeats: int, *, paced: bool = False) -> list[Wanted]:
    """Return all counts once, then again, so that an interrupted study has measured each of them."""
    found = [Wanted(executors=count, repeat=repeat) for repeat in range(repeats) for count in sorted(set(counts))]
    if paced:
        found += [Wanted(executors=count, repeat=0, study=PACED) for count in sorted(set(counts))]
    return found


def samples_of(app: str, trials: Sequence[Trial]) -> ThroughputSamples | None:
    """Return the samples of the first definition; None if there are none yet."""
    by_count: dict[int, list[float]] = {}
    for trial in trials:
        if trial.study == SATURATED and trial.rows_per_s:
            by_count.setdefault(trial.executors, []).append(trial.rows_per_s)
    return ThroughputSamples.of(app, by_count) if by_count else None


def with_result(trials: Sequence[Trial]) -> int:
    """Return the number of trials of the first definition that have a result; a budget counts these."""
    return sum(one.study == SATURATED and one.rows_per_s is not None for one in trials)


def steps_of(trials: Sequence[Trial]) -> tuple[float, ...]:
    """Return the step widths that a capacity curve may have: 0, and the rule's width if it set all replicas.

    Executors that do not give every query another replica add no capacity (see `models.mst.capacity_steps`).
    """
    made = [one for one in trials if one.study == SATURATED and one.rows_per_s]
    if not made or any(one.replicas_by != REPLICAS_BY_RULE for one in made):
        return (0.0,)
    units, each = len(made[0].plan.cuts) + 1, made[0].plan.slots // made[0].executors
    by_rule = all(
        max(one.plan.replicas.values(), default=1) == replicas_each(one.executors, each, units) for one in made
    )
    return (0.0, vms_per_step(units, each)) if by_rule and each % units else (0.0,)


def next_wanted(app: str, trials: Sequence[Trial], allowed: Sequence[int], predict: int) -> Wanted:
    """Return the trial to make next: the smallest, the largest, then the count with the widest relative interval.

    A measurement narrows the interval at its count and nearby. Until two counts have a result, counts without a result
    take turns, because one of them may never have any.
    """
    counts = sorted(set(allowed))
    samples = samples_of(app, trials)
    tried = [one.executors for one in trials if one.study == SATURATED]
    ends = [count for count in (counts[0], counts[-1]) if count not in tried]
    if ends or samples is None or len(samples.vms) < 2:
        without = [count for count in counts if samples is None or count not in samples.vms] or counts
        count = ends[0] if ends else min(without, key=tried.count)
    else:
        model = fit_mst(samples, max_vms=max(predict, counts[-1]), steps=steps_of(trials))
        width = {one.vms: (one.high - one.low) / one.throughput for one in model.predict(counts)}
        count = max(counts, key=lambda one: (width[one], -one))
    return Wanted(executors=count, repeat=tried.count(count))
