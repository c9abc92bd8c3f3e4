"""The samples of one measurement: whether they have converged, and their result."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from penstock.measure.stationarity import has_converged

_PRELOAD_S = 30.0  # recommended duration of preloaded rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    window_s: float = 5.0  # length of a window
    warm_up: int = 3  # windows that do not count: workers start and code is compiled
    max_windows: int = 40  # largest number of windows that count
    n: int = 5
    k: int = 4
    tolerance: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    rows_per_s: float | None
    converged: bool
    samples: tuple[float, ...]
    reason: str | None = None


class Samples:
    """Samples of one or several readings of the sources."""

    def __init__(self, settings: Saturation) -> None:
        self.settings = settings
        self.lacks_rows = False
        self._cold_s = settings.warm_up * settings.window_s  # remaining warm-up
        self._left_s = settings.max_windows * settings.window_s
        self._fastest = 0.0  # highest rows/s, in samples or during the warm-up
        self._before: list[float] = []  # samples of earlier readings
        self._now: list[float] = []
        self._alone = 0  # consecutive last readings with one sample each

    @property
    def cold(self) -> bool:
        return self._cold_s > 0

    def advance(self, seconds: float, rows_per_s: float | None) -> bool:
        """Note that time has passed; return whether the warm-up is over."""
        self._fastest = max(self._fastest, rows_per_s or 0.0)
        self._cold_s -= seconds
        if self._cold_s >= 0:
            return False
        self._left_s -= seconds
        return True

    def add(self, rows_per_s: float) -> None:
        self._now.append(rows_per_s)

    def discard_reading(self) -> None:
        """Drop the samples of this reading."""
        self._now = []

    @property
    def has_samples(self) -> bool:
        """Return whether this reading has a sample."""
        return bool(self._now)

    def end_reading(self) -> None:
        """Note the end of a reading."""
        self._alone = self._alone + 1 if self._before and len(self._now) == 1 else 0
        self._before, self._now = self.counted, []

    @property
    def counted(self) -> list[float]:
        """Return all samples. The first one of a reading includes its start, and counts only if it is the only one."""
        return self._before + (self._now[1:] if self._before and len(self._now) > 1 else self._now)

    @property
    def converged(self) -> bool:
        return has_converged(self.counted, n=self.settings.n, k=self.settings.k, tolerance=self.settings.tolerance)

    @property
    def over(self) -> bool:
        return self.converged or self._left_s <= 0

    def measured(self) -> Measured:
        settings, samples = self.settings, tuple(self.counted)
        if not samples:
            return self.out_of_rows() if self.lacks_rows else _without("no batch was committed")
        # The median: the convergence rule tolerates one step, and samples before the step must not count.
        rows_per_s = median(samples[-settings.n :])
        self.end_reading()
        reason = None
        if not self.converged:
            within = f"no {settings.k} of {settings.n} are within {settings.tolerance:.0%}"
            reason = f"the {len(samples)} samples do not converge: {within}"
        elif self._alone >= settings.k:
            reason = (
                f"each sample is one batch that includes the start of a query; preload more rows{self._suggestion()}"
            )
        return Measured(rows_per_s=rows_per_s, converged=reason is None, samples=samples, reason=reason)

    def out_of_rows(self) -> Measured:
        return _without(f"the source ran out of rows; preload more rows{self._suggestion()}")

    def _suggestion(self) -> str:
        enough = float(f"{self._fastest * _PRELOAD_S:.1g}")
        return f", such as {enough:,.0f}" if enough else ""


def _without(reason: str) -> Measured:
    return Measured(rows_per_s=None, converged=False, samples=(), reason=reason)
