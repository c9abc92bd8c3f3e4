"""The outcome of one call, and the contract of what makes calls: threads or an event loop."""

from __future__ import annotations

from queue import SimpleQueue
from traceback import FrameSummary
from typing import Any, NamedTuple, Protocol


class Outcome(NamedTuple):
    """The end of one call. `number` is that of the call."""

    number: int
    result: Any
    error: BaseException | None
    seconds: float
    ended_s: float  # of time.perf_counter


ROWS_ARRIVED = Outcome(-1, None, None, 0.0, 0.0)  # ends a wait for outcomes


class Caller(Protocol):
    """Makes calls that run at the same time. The outcome of each call that is not abandoned goes to `outcomes`."""

    outcomes: SimpleQueue[Outcome]

    @property
    def abandoned(self) -> int:
        """The number of abandoned calls that have not returned."""

    def start(self, number: int, row: dict[str, Any]) -> None:
        """Start a call."""

    def abandon(self, number: int) -> FrameSummary | None:
        """Give up a call; return the line of the user's code at which it waits, if that is known."""

    def close(self) -> None:
        """End what waits for further calls, and abandon all calls in progress."""
