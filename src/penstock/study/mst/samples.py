"""The samples of one measurement: when they have settled, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from penstock.measure.convergence import has_converged

_LASTS_S = 30.0  # as much as would do


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    every_s: float = 5.0  # a window
    warm_up: int = 3  # windows that do not count: workers start, code is compiled
    most: int = 40  # windows that do, at most
    n: int = 5
    k: int = 4
    tolerance: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    rows_per_s: float | None
    settled: bool
    samples: tuple[float, ...]
    why: str | None = None


class Samples:
    """Of one reading of the sources, or of several."""

    def __init__(self, how: Saturation) -> None:
        self.how = how
        self.dry = False
        self._cold_s = how.warm_up * how.every_s  # that are left before anything counts
        self._left_s = how.most * how.every_s
        self._fastest = 0.0  # rows/s that were seen, in samples or not
        self._before: list[float] = []  # of earlier readings
        self._now: list[float] = []
        self._alone = 0  # readings, one after another and up to the last, that were one sample each

    @property
    def cold(self) -> bool:
        return self._cold_s > 0

    def passed(self, seconds: float, rows_per_s: float | None) -> bool:
        """Whether this counts: workers had started, and code was compiled."""
        self._fastest = max(self._fastest, rows_per_s or 0.0)
        self._cold_s -= seconds
        if self._cold_s >= 0:
            return False
        self._left_s -= seconds
        return True

    def add(self, rows_per_s: float) -> None:
        self._now.append(rows_per_s)

    def forget(self) -> None:
        """Those of this reading."""
        self._now = []

    @property
    def read_some(self) -> bool:
        """Whether this reading has brought a sample."""
        return bool(self._now)

    def read(self) -> None:
        """A reading has ended."""
        self._alone = self._alone + 1 if self._before and len(self._now) == 1 else 0
        self._before, self._now = self.all, []

    @property
    def all(self) -> list[float]:
        """The first of a reading has its start in it, and counts where there is no other."""
        return self._before + (self._now[1:] if self._before and len(self._now) > 1 else self._now)

    @property
    def settled(self) -> bool:
        return has_converged(self.all, n=self.how.n, k=self.how.k, tolerance=self.how.tolerance)

    @property
    def over(self) -> bool:
        return self.settled or self._left_s <= 0

    def measured(self) -> Measured:
        how, samples = self.how, tuple(self.all)
        if not samples:
            return self.ran_dry() if self.dry else _without("no batch was committed")
        # The median: the rule lets one step pass, and what was before it must not count.
        rows_per_s = median(samples[-how.n :])
        self.read()
        why = None
        if not self.settled:
            why = f"of {len(samples)} samples no {how.k} of {how.n} are within {how.tolerance:.0%} of those before them"
        elif self._alone >= how.k:
            why = f"each is of one batch, with the start of a query in it: preload more rows{self._such()}"
        return Measured(rows_per_s=rows_per_s, settled=why is None, samples=samples, why=why)

    def ran_dry(self) -> Measured:
        return _without(f"the source ran dry: preload more rows{self._such()}")

    def _such(self) -> str:
        enough = float(f"{self._fastest * _LASTS_S:.1g}")
        return f", such as {enough:,.0f}" if enough else ""


def _without(why: str) -> Measured:
    return Measured(rows_per_s=None, settled=False, samples=(), why=why)
