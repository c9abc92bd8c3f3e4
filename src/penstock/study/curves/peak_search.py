"""The search for the peak rate of one number of threads: bracketing, then bisection down to a resolution.

The paper raises the rate in equal steps until a trial is unstable. A bracket with bisection finds the same rate with a
number of trials that grows with the logarithm of the range. All decisions follow from the trials, so a study that was
interrupted continues where it ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.study.curves.measured_curve import CurveStudyError, CurveTrial, PeakRate
from penstock.study.stepwise.sequential_test import confidence_interval

LOWEST_ROWS_PER_S = 1e-3
_MAX_TRIALS = 60


def next_rate(trials: Sequence[CurveTrial], first_rows_per_s: float, resolution: float) -> float | None:
    """Return the rate of the next trial, or None if the peak rate is known.

    Args:
        trials: All trials with this number of threads.
        first_rows_per_s: Rate of the first trial.
        resolution: Largest relative distance between the highest stable and the lowest unstable rate.

    Raises:
        CurveStudyError: Even the lowest rate is unstable.

    >>> next_rate([], 10.0, 0.05)
    10.0
    """
    if len(trials) >= _MAX_TRIALS:
        raise CurveStudyError(f"{_MAX_TRIALS} trials did not find the peak rate; give a larger resolution.")
    if not trials:
        return first_rows_per_s
    low, high = bounds(trials)
    if high is None:
        return 2.0 * low
    if high < LOWEST_ROWS_PER_S:
        raise CurveStudyError(
            f"The operator sustains less than {LOWEST_ROWS_PER_S:g} rows/s with {trials[0].threads} threads; check "
            "that it processes rows at all."
        )
    if low > 0 and high - low <= resolution * high:
        return None
    # An overloaded operator processes rows at about its peak rate: try the two sides of it first.
    overloaded = min(
        (trial for trial in trials if not trial.is_stable and trial.processed_rows_per_s),
        key=lambda trial: trial.rows_per_s,
        default=None,
    )
    if overloaded is not None and overloaded.processed_rows_per_s is not None:
        for rate in (1.0 - resolution / 2.0, 1.0 + resolution / 2.0):
            guess = overloaded.processed_rows_per_s * rate
            if low < guess < high and min(guess - low, high - guess) > 0.1 * resolution * high:
                return guess
    return (low + high) / 2.0 if low > 0 else high / 2.0


def bounds(trials: Sequence[CurveTrial]) -> tuple[float, float | None]:
    """Return the highest stable rate below the lowest unstable one, and the latter. 0 and None: there is none."""
    high = min((trial.rows_per_s for trial in trials if not trial.is_stable), default=None)
    low = max((t.rows_per_s for t in trials if t.is_stable and (high is None or t.rows_per_s < high)), default=0.0)
    return low, high


def peak_rate(trials: Sequence[CurveTrial]) -> PeakRate:
    """Return the peak rate of trials for which `next_rate` is None."""
    low, high = bounds(trials)
    best = next(trial for trial in reversed(trials) if trial.is_stable and trial.rows_per_s == low)
    return PeakRate(
        threads=best.threads,
        rows_per_s=low,
        unstable_rows_per_s=high,
        latency_s=best.latency_s,
        cpu=best.cpu,
        memory=best.memory,
        latency_interval_s=_interval([window.latency_s for window in best.windows]),
        cpu_interval=_interval([window.cpu for window in best.windows]),
        memory_interval=_interval([window.memory for window in best.windows]),
    )


def _interval(values: Sequence[float | None]) -> tuple[float, float] | None:
    """Return the confidence interval of the mean; no value of a window is negative.

    >>> _interval([1.0]), _interval([4.0, None, 4.0]), [round(end, 2) for end in _interval([9.0, 10.0, 11.0])]
    (None, (4.0, 4.0), [7.52, 12.48])
    """
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    low, high = confidence_interval(known)
    return max(0.0, low), high
