"""The record of a profile as one value: operators, rounds with their samples, and the results on other platforms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.store import ProfiledOperator, StoreReader, Trial
from penstock.study.stepwise.configuration import TrialChange
from penstock.study.stepwise.profile import ProfileRound, result_in
from penstock.study.stepwise.sequential_test import Verdict, trial_interval

PROFILE = "profile"  # `Trial.study` of a profile
_PLATFORM = re.compile(r"(slots|executors)-(\d+)")  # directory of a study on one of several platforms


class ReportedRound(msgspec.Struct, frozen=True, kw_only=True):
    round: ProfileRound
    samples: tuple[float, ...]  # rows/s of each window
    is_best: bool


class PlatformResult(msgspec.Struct, frozen=True, kw_only=True):
    """The best round of a study on another number of slots or executors."""

    machines: str  # "slots" or "executors"
    count: int
    rows_per_s: float
    low_rows_per_s: float
    high_rows_per_s: float
    latency_s: float


class ProfileReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the report of a profile shows."""

    conditions: dict[str, str]  # settings of the study
    latency_target_s: float | None
    operators: tuple[ProfiledOperator, ...]
    rounds: tuple[ReportedRound, ...]
    best: ReportedRound | None  # None before the first round
    seconds: float  # duration of all rounds
    saved_s: float  # time that trials were shorter than the longest trial
    platforms: tuple[PlatformResult, ...] = ()  # empty: only one platform was profiled


def profile_report(directory: Path, trials: Sequence[Trial]) -> ProfileReport | None:
    """Return the report of the profile among these trials; None if there is none."""
    profiled = [trial for trial in trials if trial.study == PROFILE and trial.profile is not None]
    if not profiled:
        return None
    features = next((trial.profile.operators for trial in profiled if trial.profile and trial.profile.operators), ())
    conditions = profiled[0].profile.conditions if profiled[0].profile else {}
    target = conditions.get("latency_s")
    target_s = None if target is None else float(target)
    made = [trial for trial in profiled if trial.profile is not None and trial.profile.step != "features"]
    best = _best(directory, made, target_s)
    rounds = tuple(
        ReportedRound(round=_round(number, made, best), samples=trial.samples, is_best=number == best)
        for number, trial in enumerate(made)
    )
    return ProfileReport(
        conditions=conditions,
        latency_target_s=target_s,
        operators=features,
        rounds=rounds,
        best=None if best is None else rounds[best],
        seconds=sum(row.round.seconds for row in rounds),
        saved_s=sum(row.round.saved_s for row in rounds),
    )


def platform_studies(directory: Path) -> list[tuple[str, int, Path]]:
    """Return the kind of machine, the number of machines and the path of each study in a directory."""
    if not directory.is_dir():
        return []
    matches = [(_PLATFORM.fullmatch(path.name), path) for path in directory.iterdir() if path.is_dir()]
    return sorted((match[1], int(match[2]), path) for match, path in matches if match is not None)


def platform_results(directory: Path) -> tuple[PlatformResult, ...]:
    """Return the results of a study and of those beside it on other platforms; empty if there is only one."""
    own = _PLATFORM.fullmatch(directory.resolve().name)
    if own is None:
        return ()
    results = []
    for machines, count, path in platform_studies(directory.resolve().parent):
        try:
            with StoreReader(path) as reader:
                report = profile_report(path, reader.trials())
        except PenstockError:  # a directory without a record
            continue
        if machines == own[1] and report is not None and report.best is not None:
            best = report.best.round
            results.append(
                PlatformResult(
                    machines=machines,
                    count=count,
                    rows_per_s=best.rows_per_s,
                    low_rows_per_s=best.low_rows_per_s,
                    high_rows_per_s=best.high_rows_per_s,
                    latency_s=best.latency_s,
                )
            )
    return tuple(results) if len(results) > 1 else ()


def _best(directory: Path, trials: Sequence[Trial], target_s: float | None) -> int | None:
    """Return the round that the study chose, or the best one so far if it is not finished; None before the first."""
    result = result_in(directory)
    if result is not None:
        return result.best - 1
    if not trials:
        return None

    def latency_s(number: int) -> float:
        profile = trials[number].profile
        return 0.0 if profile is None or profile.latency_s is None else profile.latency_s

    within = [number for number in range(len(trials)) if target_s is None or latency_s(number) <= target_s]
    if within:
        return max(within, key=lambda number: trials[number].rows_per_s or 0.0)
    return min(range(len(trials)), key=latency_s)


def _round(number: int, trials: Sequence[Trial], best: int | None) -> ProfileRound:
    trial = trials[number]
    profile = trial.profile
    assert profile is not None
    rows_per_s = trial.rows_per_s or 0.0
    low, high = trial_interval(trial.samples) if trial.samples else (rows_per_s, rows_per_s)
    before = None if profile.reference is None else trials[profile.reference].rows_per_s
    throttled = profile.change == TrialChange.THROTTLE.value and profile.verdict == Verdict.NO_DIFFERENCE.value
    return ProfileRound(
        number=number + 1,
        step="capacity" if profile.step == "capacity" else "platform",
        change=profile.change,
        reason=profile.reason,
        plan=trial.plan,
        source_tasks=profile.source_tasks,
        throttle=profile.throttle,
        rows_per_s=rows_per_s,
        low_rows_per_s=low,
        high_rows_per_s=high,
        latency_s=profile.latency_s or 0.0,
        verdict=profile.verdict,
        compared_with=None if profile.reference is None else profile.reference + 1,
        gain=None if not before else rows_per_s / before - 1.0,
        # The study does the same: only a throttle is kept without an improvement.
        kept=profile.verdict in (None, Verdict.BETTER.value) or throttled or number == best,
        seconds=trial.ended_s - trial.began_s,
        saved_s=profile.saved_s,
    )
