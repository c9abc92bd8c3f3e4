"""Read the result of a stored study: the best plan for each size of the platform that was profiled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from penstock.dataflow.errors import PenstockError
from penstock.plan import Plan
from penstock.store import ProfiledOperator, StoreReader, Trial
from penstock.store.schema import FILE
from penstock.study.stepwise.profile import result_in

STUDY = "profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledPlan:
    """The best plan of one size of the platform, and the result of its trial."""

    plan: Plan  # `plan.slots` is the size
    rows_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProfile:
    dataflow: str
    plans: tuple[ProfiledPlan, ...]  # one per size, smallest first
    operators: tuple[ProfiledOperator, ...]  # features of the application
    latency_target_s: float
    slice_: float = 0.3
    k: float = 2.0
    alpha: float = 0.9
    program: str | None = None  # fingerprint of the profiled program
    micro_batch: bool = False  # whether the profiled engine processed micro-batches

    def plan_for(self, slots: int) -> ProfiledPlan | None:
        """Return the plan for this size; None if it was not profiled."""
        return next((profiled for profiled in self.plans if profiled.plan.slots == slots), None)

    def slots_for(self, rows_per_s: float) -> int | None:
        """Return the smallest profiled size that sustains a rate; None if no size does."""
        return next((profiled.plan.slots for profiled in self.plans if profiled.rows_per_s >= rows_per_s), None)


def stored_profile(directory: Path, *, dataflow: str) -> StoredProfile:
    """Return the profile in a directory. Its sizes are in one study, or in one finished study per sub-directory.

    Raises PenstockError if there is none, if it is incomplete, or if it belongs to another dataflow.
    """
    folders = [path for path in (directory, *sorted(directory.glob("*"))) if (path / FILE).is_file()]
    trials = [trial for folder in folders for trial in _trials(folder)]
    rounds = [trial for trial in trials if trial.profile is not None and trial.profile.step != "features"]
    features = [trial for trial in trials if trial.profile is not None and trial.profile.step == "features"]
    if not rounds or not features:
        raise PenstockError(
            f"'{directory}' contains no profile; create one with 'penstock profile FILE --slots N --at {directory}'."
        )
    other = next((trial.plan.dataflow for trial in rounds if trial.plan.dataflow != dataflow), None)
    if other is not None:
        raise PenstockError(f"'{directory}' is a profile of dataflow '{other}'; give a profile of '{dataflow}'.")
    results = [result for folder in folders if (result := result_in(folder)) is not None]
    if not results:
        raise PenstockError(
            f"The profile in '{directory}' is not finished; run the command that started it again to continue."
        )
    last = features[-1]
    assert last.profile is not None
    conditions = last.profile.conditions
    target_s = float(conditions.get("latency_s", "0.5"))
    return StoredProfile(
        dataflow=dataflow,
        plans=tuple(
            ProfiledPlan(plan=result.plan, rows_per_s=result.rows_per_s, latency_s=result.latency_s)
            for result in sorted(results, key=lambda result: result.plan.slots)
        ),
        operators=last.profile.operators,
        latency_target_s=target_s,
        slice_=float(conditions.get("slice", "0.3")),
        k=float(conditions.get("k", "2")),
        alpha=float(conditions.get("alpha", "0.9")),
        program=last.program,
        micro_batch=conditions.get("engine") != "row-by-row",
    )


def _trials(folder: Path) -> Iterable[Trial]:
    with StoreReader(folder) as store:
        return [trial for trial in store.trials() if trial.study == STUDY and trial.profile is not None]
