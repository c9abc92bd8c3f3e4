"""The study: make the trials that are missing, and store each result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from penstock.control.loop import Clock
from penstock.engines.ports import RunnableEngine
from penstock.plan import Plan
from penstock.store import REPLICAS_BY_RULE, Store, Trial
from penstock.study.mst.design import (
    PACED,
    SATURATED,
    PlannedTrial,
    grid,
    next_trial,
    trials_with_result,
    validation_grid,
)
from penstock.study.mst.paced import Bisection, measure_paced
from penstock.study.mst.replica_search import ReplicaPolicy
from penstock.study.mst.samples import Measured, Saturation
from penstock.study.mst.saturated import measure_saturated

Fresh = Callable[[PlannedTrial, int], RunnableEngine]  # (trial, number of the run) -> an engine that is not started
OnTrial = Callable[[Trial, int, int], None]  # (completed trial, its number, total)


@dataclass(frozen=True, slots=True, kw_only=True)
class MstStudy:
    app: str
    fresh: Fresh
    store: Store
    clock: Clock
    saturation: Saturation = field(default_factory=Saturation)
    bisection: Bisection = field(default_factory=Bisection)
    slots_per_executor: int = 1  # slots of an executor
    bytes_per_row: float | None = None
    by: ReplicaPolicy | None = None  # policy that chooses replicas; None: the paper's rule
    program: str | None = None  # fingerprint of the program
    memory_mb: int | None = None  # memory of an executor

    def run(self, counts: Sequence[int], *, repeats: int = 1, paced: bool = False, on: OnTrial | None = None) -> None:
        """Measure all executor counts `repeats` times; skip trials that the store contains."""
        planned = grid(counts, repeats, paced=paced)
        for number, trial in enumerate(planned, start=1):
            if trial.key not in self._done():
                self._make(trial, number, len(planned), on)

    def spend(self, budget: int, counts: Sequence[int], *, predict: int, on: OnTrial | None = None) -> None:
        """Make trials up to a total of `budget`, each where it reduces the uncertainty most.

        A trial without a result is not repeated now, but in the next call.
        """
        for made in range(trials_with_result(self.store.trials()) + 1, budget + 1):
            self._make(next_trial(self.app, self.store.trials(), counts, predict), made, budget, on)

    def validate(self, up_to: int, *, repeats: int = 1, on: OnTrial | None = None) -> None:
        """Measure the counts up to `up_to` at which the models begin to differ; skip trials that the store contains.

        These counts select the model. If the models do not differ there are none, and nothing is measured.
        """
        planned = validation_grid(self.app, self.store.trials(), up_to=up_to, repeats=repeats)
        made = len(self._done() - {trial.key for trial in planned})
        for number, trial in enumerate(planned, start=made + 1):
            if trial.key not in self._done():
                self._make(trial, number, made + len(planned), on)

    def _done(self) -> set[tuple[str, int, int]]:
        """Return the trials with a result; the others are made again."""
        return {trial.key for trial in self.store.trials() if trial.rows_per_s is not None}

    def _make(self, planned: PlannedTrial, done: int, total: int, on: OnTrial | None) -> None:
        trial = self._trial(planned)
        self.store.add_trial(trial)
        if on is not None:
            on(trial, done, total)

    def _trial(self, planned: PlannedTrial) -> Trial:
        began_s = self.clock.time()
        known = [
            trial
            for trial in self.store.trials()
            if trial.study == SATURATED and trial.executors == planned.executors and trial.rows_per_s is not None
        ]
        engines = _TrialEngines(self.fresh, planned if not known else replace(planned, plan=known[0].plan))
        if planned.study != PACED:
            measured = self._saturated(engines, None if known else self.by)
        else:
            measured = self._paced(engines, known, planned.executors)
        plan = engines.last.plan
        there = plan.slots // self.slots_per_executor
        if there < planned.executors:
            measured = Measured(
                rows_per_s=None,
                converged=False,
                samples=measured.samples,
                reason=f"{planned.executors} executors were requested, but only {there} were available",
            )
        rate, size = measured.rows_per_s, self.bytes_per_row
        return Trial(
            study=planned.study,
            executors=planned.executors,
            repeat=planned.repeat,
            plan=plan,
            began_s=began_s,
            ended_s=self.clock.time(),
            rows_per_s=rate,
            bytes_per_s=None if rate is None or size is None else rate * size,
            converged=measured.converged,
            samples=measured.samples,
            reason=measured.reason,
            replicas_by=REPLICAS_BY_RULE if self.by is None else self.by.policy.name,
            program=self.program,
            memory_mb=self.memory_mb,
        )

    def _saturated(self, engines: _TrialEngines, by: ReplicaPolicy | None) -> Measured:
        return measure_saturated(engines, self.saturation, self.clock, by)

    def _paced(self, engines: _TrialEngines, known: list[Trial], executors: int) -> Measured:
        if not known:
            engines()  # only for its plan
            reason = f"no saturated measurement exists for {executors} executors to start from"
            return Measured(rows_per_s=None, converged=False, samples=(), reason=reason)
        return measure_paced(engines, fmean(trial.rows_per_s or 0.0 for trial in known), self.bisection, self.clock)


class _TrialEngines:
    """The consecutive engines of one trial."""

    def __init__(self, fresh: Fresh, planned: PlannedTrial) -> None:
        self._fresh, self._planned, self._runs = fresh, planned, 0
        self._last: RunnableEngine | None = None

    def __call__(self, plan: Plan | None = None) -> RunnableEngine:
        planned = self._planned if plan is None else replace(self._planned, plan=plan)
        self._last = self._fresh(planned, self._runs)
        self._runs += 1
        return self._last

    @property
    def last(self) -> RunnableEngine:
        assert self._last is not None
        return self._last
