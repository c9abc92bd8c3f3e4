"""The study of one operator: Algorithm 1 of the paper, with every trial stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from penstock.study.curves.measured_curve import CurveStudyError, CurveTrial, MeasuredCurve, load, save
from penstock.study.curves.peak_search import next_rate, peak_rate
from penstock.study.curves.rate_trial import RateTrialSettings, TrialEngine, run_trial
from penstock.study.curves.thread_search import next_threads

THREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FIRST_ROWS_PER_S = 10.0
_USUAL_TRIALS = 5  # per number of threads, for the remaining time


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSettings:
    threads: tuple[int, ...] = THREADS
    resolution: float = 0.05  # relative
    first_rows_per_s: float = FIRST_ROWS_PER_S
    trial: RateTrialSettings = field(default_factory=RateTrialSettings)

    def check(self) -> None:
        """Raise CurveStudyError if a setting is out of range."""
        if not self.threads or self.threads[0] != 1 or list(self.threads) != sorted(set(self.threads)):
            raise CurveStudyError(
                f"The numbers of threads are {list(self.threads)}; give ascending numbers that begin with 1."
            )
        if not 0.001 <= self.resolution <= 0.5:
            raise CurveStudyError(f"The resolution is {self.resolution:g}; give a share from 0.001 to 0.5.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveProgress:
    """The progress of a study."""

    curve: MeasuredCurve
    threads: int  # threads of the next trial
    rows_per_s: float  # rate of the next trial
    remaining_s: float | None  # at most, if no rule ends the study earlier


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveStudy:
    operator: str
    dataflow: str
    function: str  # fingerprint
    input: str  # fingerprint of the operators and sources before it
    conditions: Mapping[str, str]
    directory: Path
    start: Callable[[], TrialEngine]  # called when the first trial is missing
    settings: CurveSettings = field(default_factory=CurveSettings)

    def run(self, on: Callable[[CurveProgress], None] | None = None) -> MeasuredCurve:
        """Return the curve. Trials that the directory contains are not made again."""
        self.settings.check()
        curve = self._stored()
        running: TrialEngine | None = None
        try:
            while curve.ended is None:
                threads, reason = next_threads(curve.peaks, self.settings.threads)
                if threads is None:
                    curve = msgspec.structs.replace(curve, ended=reason)
                    save(self.directory, curve)
                    break
                own = [trial for trial in curve.trials if trial.threads == threads]
                rate = next_rate(own, self._first_rate(curve), self.settings.resolution)
                if rate is None:
                    curve = msgspec.structs.replace(curve, peaks=(*curve.peaks, peak_rate(own)))
                    save(self.directory, curve)
                    continue
                if on is not None:
                    on(CurveProgress(curve=curve, threads=threads, rows_per_s=rate, remaining_s=self._remaining(curve)))
                if running is None:
                    running = self.start()
                curve = msgspec.structs.replace(curve, trials=(*curve.trials, self._trial(running, threads, rate)))
                save(self.directory, curve)
        finally:
            if running is not None:
                running.stop()
        return curve

    def _trial(self, running: TrialEngine, threads: int, rows_per_s: float) -> CurveTrial:
        running.set_threads(threads)
        trial = run_trial(running, threads, rows_per_s, self.settings.trial)
        running.drain()
        return trial

    def _stored(self) -> MeasuredCurve:
        """Return the stored curve, or an empty one. Raises CurveStudyError if it is of another program or settings."""
        curve = load(self.directory, self.operator)
        if curve is None:
            return MeasuredCurve(
                operator=self.operator,
                dataflow=self.dataflow,
                function=self.function,
                input=self.input,
                conditions=dict(self.conditions),
            )
        if curve.function != self.function:
            raise CurveStudyError(
                f"'{self.directory}' has trials of an earlier version of '{self.operator}': its function has changed. "
                "Use another directory to measure the new version."
            )
        if curve.input != self.input:
            raise CurveStudyError(
                f"'{self.directory}' has trials of '{self.operator}' with another input: a source or an operator "
                "before it has changed. Use another directory to measure with the new input."
            )
        changed = sorted(
            name
            for name in curve.conditions.keys() | self.conditions.keys()
            if curve.conditions.get(name) != self.conditions.get(name)
        )
        if changed:
            given = ", ".join(
                f"{name} {curve.conditions.get(name)} instead of {self.conditions.get(name)}" for name in changed
            )
            raise CurveStudyError(
                f"'{self.directory}' has trials of '{self.operator}' with {given}; use the same settings or another "
                "directory."
            )
        return curve

    def _first_rate(self, curve: MeasuredCurve) -> float:
        """Return where the search begins: at the peak rate of the previous number of threads."""
        return curve.peaks[-1].rows_per_s if curve.peaks else self.settings.first_rows_per_s

    def _remaining(self, curve: MeasuredCurve) -> float | None:
        if not curve.trials:
            return None
        per_count = len(curve.trials) / len(curve.peaks) if curve.peaks else _USUAL_TRIALS
        mean_s = sum(trial.seconds for trial in curve.trials) / len(curve.trials)
        left = per_count * len(self.settings.threads) - len(curve.trials)
        return max(1.0, left) * mean_s


def reusable(curves: Sequence[MeasuredCurve], function: str, conditions: Mapping[str, str]) -> MeasuredCurve | None:
    """Return a complete curve of the same function and settings, measured for any dataflow and thus any input."""
    return next(
        (
            curve
            for curve in curves
            if curve.function == function and curve.conditions == conditions and curve.ended is not None
        ),
        None,
    )
