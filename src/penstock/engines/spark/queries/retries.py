"""How often a query that ended by itself is started again: as long as it gets further in between."""

from __future__ import annotations

from dataclasses import dataclass, replace

WAITS_S = (0.0, 2.0, 8.0)  # before the first, second and third start at the same place; then it is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """The times that a query has ended at one place."""

    batch: int | None  # the last that it had committed
    times: int
    at_s: float

    def again(self, batch: int | None, at_s: float) -> Fall:
        """

        >>> first = Fall(batch=7, times=1, at_s=0.0)
        >>> first.again(7, 1.0).times, first.again(9, 1.0).times
        (2, 1)
        """
        return replace(self, batch=batch, times=self.times + 1 if batch == self.batch else 1, at_s=at_s)

    @property
    def hopeless(self) -> bool:
        """A query that has never committed a batch is more likely wrong than unlucky: it is tried once more only.

        Spark gives a Python worker ten seconds to start, which a busy machine may not keep.
        """
        return self.times > (1 if self.batch is None else len(WAITS_S))

    def due(self, now_s: float) -> bool:
        return not self.hopeless and now_s >= self.at_s + WAITS_S[self.times - 1]
