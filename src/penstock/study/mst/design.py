"""The design of a study: the executor counts to measure, and the replicas of each count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import regions
from penstock.models.mst.curve_families import CURVE_FAMILIES
from penstock.models.mst.curve_selection import choose_step
from penstock.models.mst.fitted_curve import fit_curve, vms_per_step
from penstock.models.mst.prediction import fit_mst
from penstock.models.mst.samples import ThroughputSamples
from penstock.models.mst.validation_counts import first_divergences
from penstock.plan import Plan, default_plan, pipelines
from penstock.store import REPLICAS_BY_RULE, Trial

SATURATED, PACED = "mst", "mst paced"
VALIDATION = "mst validation"  # saturated trials of the counts that only select a model


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrial:
    """A trial to make."""

    executors: int
    repeat: int
    study: str = SATURATED
    plan: Plan | None = None  # None: replicas by the paper's rule

    @property
    def key(self) -> tuple[str, int, int]:
        return self.study, self.executors, self.repeat


def grid(counts: Sequence[int], repeats: int, *, paced: bool = False) -> list[PlannedTrial]:
    """Return all counts once, then again, so that an interrupted study has measured each of them."""
    trials = [
        PlannedTrial(executors=count, repeat=repeat) for repeat in range(repeats) for count in sorted(set(counts))
    ]
    if paced:
        trials += [PlannedTrial(executors=count, repeat=0, study=PACED) for count in sorted(set(counts))]
    return trials


def replicas_per_query(executors: int, slots_per_executor: int, units: int) -> int:
    """Return the replicas of each processing unit: d = max(1, floor(m gamma / n)), Imai et al. (2017), equation 1.

    >>> replicas_per_query(3, 2, 3), replicas_per_query(5, 2, 3), replicas_per_query(1, 2, 3)
    (2, 3, 1)
    """
    return max(1, executors * slots_per_executor // units)


def plan_for(flow: Dataflow, executors: int, slots_per_executor: int) -> Plan:
    """Return the plan by the rule above. The processing units are queries, which run concurrently, unlike stages."""
    slots = executors * slots_per_executor
    units = len(pipelines(flow, default_plan(flow, slots=slots)))
    replicas = replicas_per_query(executors, slots_per_executor, units)
    counts = {region.name: replicas for region in regions(flow) if region.kind is not Kind.SOURCE and region.replicable}
    return default_plan(flow, slots=slots, replicas=counts)


def samples_of(app: str, trials: Sequence[Trial]) -> ThroughputSamples | None:
    """Return the samples of the first definition; None if there are none yet."""
    by_count: dict[int, list[float]] = {}
    for trial in trials:
        if trial.study in (SATURATED, VALIDATION) and trial.rows_per_s:
            by_count.setdefault(trial.executors, []).append(trial.rows_per_s)
    return ThroughputSamples.of(app, by_count) if by_count else None


def validation_counts(trials: Sequence[Trial]) -> tuple[int, ...]:
    """Return the counts that were measured for validation."""
    return tuple(sorted({trial.executors for trial in trials if trial.study == VALIDATION and trial.rows_per_s}))


def validation_grid(app: str, trials: Sequence[Trial], *, up_to: int, repeats: int) -> list[PlannedTrial]:
    """Return the trials of the counts up to `up_to` at which the models begin to differ (Algorithm 1 of the paper).

    The result depends on the other trials only, so that an interrupted validation continues with the same counts.
    """
    training = [trial for trial in trials if trial.study != VALIDATION]
    samples = samples_of(app, training)
    if samples is None or len(samples.vms) < 2:
        return []
    step = choose_step(samples, steps=steps_of(training))
    curves = [fit_curve(family, samples, step=step) for family in CURVE_FAMILIES]
    counts = first_divergences(curves, trained=samples.vms, max_vms=up_to)
    return [
        PlannedTrial(executors=count, repeat=repeat, study=VALIDATION) for repeat in range(repeats) for count in counts
    ]


def trials_with_result(trials: Sequence[Trial]) -> int:
    """Return the number of trials of the first definition that have a result; a budget counts these."""
    return sum(trial.study == SATURATED and trial.rows_per_s is not None for trial in trials)


def steps_of(trials: Sequence[Trial]) -> tuple[float, ...]:
    """Return the step widths that a capacity curve may have: 0, and the rule's width if it set all replicas.

    Executors that do not give every query another replica add no capacity (see `models.mst.fitted_curve.vms_per_step`).
    """
    measured = [trial for trial in trials if trial.study == SATURATED and trial.rows_per_s]
    if not measured or any(trial.replicas_by != REPLICAS_BY_RULE for trial in measured):
        return (0.0,)
    units, slots_per_executor = len(measured[0].plan.cuts) + 1, measured[0].plan.slots // measured[0].executors
    by_rule = all(
        max(trial.plan.replicas.values(), default=1) == replicas_per_query(trial.executors, slots_per_executor, units)
        for trial in measured
    )
    return (0.0, vms_per_step(units, slots_per_executor)) if by_rule and slots_per_executor % units else (0.0,)


def next_trial(app: str, trials: Sequence[Trial], allowed: Sequence[int], predict: int) -> PlannedTrial:
    """Return the trial to make next: the smallest, the largest, then the count with the widest relative interval.

    A measurement narrows the interval at its count and nearby. Until two counts have a result, counts without a result
    take turns, because one of them may never have any.
    """
    counts = sorted(set(allowed))
    samples = samples_of(app, trials)
    tried = [trial.executors for trial in trials if trial.study == SATURATED]
    ends = [count for count in (counts[0], counts[-1]) if count not in tried]
    if ends or samples is None or len(samples.vms) < 2:
        without = [count for count in counts if samples is None or count not in samples.vms] or counts
        count = ends[0] if ends else min(without, key=tried.count)
    else:
        model = fit_mst(samples, max_vms=max(predict, counts[-1]), steps=steps_of(trials))
        width = {
            prediction.vms: (prediction.high - prediction.low) / prediction.throughput
            for prediction in model.predict(counts)
        }
        count = max(counts, key=lambda vms: (width[vms], -vms))
    return PlannedTrial(executors=count, repeat=tried.count(count))
