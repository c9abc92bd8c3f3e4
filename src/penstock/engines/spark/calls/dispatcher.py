"""The dispatcher: keeps a number of calls in flight, retries failed ones, and returns the answers in order.

It runs in the thread of the Spark task. Only this thread decides. The caller reports outcomes through a queue, and the
thread that reads the input announces rows through the same queue, so this thread never waits for rows while a call is
in flight. A call is given up at its deadline, whatever it does, so no call delays a batch beyond its timeout.
"""

from __future__ import annotations

import contextlib
import heapq
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from traceback import FrameSummary
from typing import Any, Protocol

from penstock.dataflow.concurrent_calls import ConcurrentCalls, Order
from penstock.engines.spark.calls.call_sums import CallSums
from penstock.engines.spark.calls.outcome import Caller, Outcome

_LOOK_AHEAD_ROWS = 10_000  # rows that are read before the oldest unfinished one is done
_POLL_S = 0.5  # the longest wait, after which the number of threads is read again
_ABANDONED_PER_THREAD = 10  # calls that never return, before the operator fails


class AbandonedCallsError(RuntimeError):
    """Too many calls did not return after their timeout."""


@dataclass(slots=True)
class CallAnswer:
    """The final answer to one row: a result, or the error of its last attempt."""

    row: dict[str, Any]
    read_s: float  # when the row was available to the task
    number: int  # in the order of the rows
    key: str | None
    attempts: int = 0
    result: Any = None
    error: BaseException | None = None
    line: FrameSummary | None = None  # where a call waited that was given up
    is_done: bool = False


class Rows(Protocol):
    """Rows with the times at which they were available."""

    @property
    def has_ended(self) -> bool:
        """Whether all rows have been returned."""

    def take(self) -> tuple[dict[str, Any], float] | None:
        """Return a row, or None if no row is there now. A row that comes later ends a wait for outcomes."""

    def wait(self) -> None:
        """Wait until a row is there, or until the rows end."""


class Dispatcher:
    """Dispatches the rows of one task.

    `threads` returns the number of calls that may be in flight. `key_of` returns the key of a row that decides about
    its order.
    """

    def __init__(
        self,
        caller: Caller,
        calls: ConcurrentCalls,
        threads: Callable[[], int],
        key_of: Callable[[dict[str, Any]], str],
    ) -> None:
        self.sums = CallSums()
        self._caller = caller
        self._calls = calls
        self._threads = threads
        self._key_of = key_of
        self._next_call = 0
        self._in_flight: dict[int, CallAnswer] = {}  # by call
        self._deadlines: deque[tuple[float, int]] = deque()  # (time, call), in the order of the starts
        self._retries: list[tuple[float, int, CallAnswer]] = []  # (time, number of the row, row): a heap
        self._ready: deque[CallAnswer] = deque()  # rows whose key is free again
        self._waiting: dict[str, deque[CallAnswer]] = {}  # by key of a row without an answer: the rows behind it
        self._unfinished = 0
        self._buffer: deque[CallAnswer] = deque()  # all rows that are not returned, if all rows keep their order
        self._finished: deque[CallAnswer] = deque()  # else: rows to be returned

    def answers(self, rows: Rows) -> Iterator[CallAnswer]:
        """Yield the answer to each row."""
        while True:
            limit = self._threads()
            while len(self._in_flight) < limit:
                answer = self._next_due()
                if answer is None and self._may_read(limit):
                    pair = rows.take()
                    if pair is not None:
                        answer = self._read(*pair)
                        if answer is None:  # its key is not free
                            continue
                if answer is None:
                    break
                self._start(answer)
            yield from self._in_order()
            if self._unfinished:
                self._await_event(limit)
            elif rows.has_ended:
                return
            else:
                rows.wait()

    def in_flight_until_s(self) -> float | None:
        """Process the outcomes that are there; return when the last call in flight ended, or None if one is left.

        The time is one of `time.perf_counter`, and 0 if no call ended since the last outcome was processed.
        """
        last_s = 0.0
        while not self._caller.outcomes.empty():
            outcome = self._caller.outcomes.get()
            last_s = max(last_s, outcome.ended_s)
            self._end(outcome)
        return None if self._in_flight else last_s

    # ---- which row is next

    def _may_read(self, limit: int) -> bool:
        held = len(self._buffer) if self._calls.order is Order.ALL else self._unfinished
        return held < max(_LOOK_AHEAD_ROWS, 2 * limit)

    def _next_due(self) -> CallAnswer | None:
        if self._retries and self._retries[0][0] <= time.monotonic():
            self.sums.retries += 1
            return heapq.heappop(self._retries)[2]
        return self._ready.popleft() if self._ready else None

    def _read(self, row: dict[str, Any], read_s: float) -> CallAnswer | None:
        """Return the row if its call may start now, else keep it behind the rows with the same key."""
        key = self._key_of(row) if self._calls.order is Order.KEY else None
        answer = CallAnswer(row=row, read_s=read_s, number=self.sums.rows, key=key)
        self.sums.rows += 1
        self._unfinished += 1
        if self._calls.order is Order.ALL:
            self._buffer.append(answer)
        if key is None:
            return answer
        behind = self._waiting.get(key)
        if behind is None:
            self._waiting[key] = deque()
            return answer
        behind.append(answer)
        return None

    # ---- calls

    def _start(self, answer: CallAnswer) -> None:
        now = time.monotonic()
        if not answer.attempts:
            self.sums.wait_s += now - answer.read_s
        answer.attempts += 1
        number = self._next_call
        self._next_call += 1
        self._in_flight[number] = answer
        if self._calls.timeout_s is not None:
            self._deadlines.append((now + self._calls.timeout_s, number))
        self._caller.start(number, answer.row)

    def _await_event(self, limit: int) -> None:
        """Process the outcomes that exist, or wait until an outcome arrives, a call times out or a retry is due.

        A due retry does not end the wait while the maximum number of calls is in flight, because it cannot start.
        """
        now = time.monotonic()
        while self._deadlines and self._deadlines[0][1] not in self._in_flight:
            self._deadlines.popleft()
        until_s = now + _POLL_S
        if self._deadlines:
            until_s = min(until_s, self._deadlines[0][0])
        if self._retries and len(self._in_flight) < limit:
            until_s = min(until_s, self._retries[0][0])
        with contextlib.suppress(queue.Empty):
            self._end(self._caller.outcomes.get(timeout=max(0.0, until_s - now)))
        self.in_flight_until_s()
        self._give_up()

    def _end(self, outcome: Outcome) -> None:
        answer = self._in_flight.pop(outcome.number, None)
        if answer is None:  # it was given up, or rows have arrived
            return
        self.sums.calls += 1
        self.sums.call_s += outcome.seconds
        answer.result, answer.error, answer.line = outcome.result, outcome.error, None
        self._retry_or_finish(answer)

    def _give_up(self) -> None:
        """Give up the calls whose deadline has passed."""
        timeout_s, now = self._calls.timeout_s, time.monotonic()
        while timeout_s is not None and self._deadlines and self._deadlines[0][0] <= now:
            _, number = self._deadlines.popleft()
            answer = self._in_flight.pop(number, None)
            if answer is None:
                continue
            answer.line = self._caller.abandon(number)
            answer.result, answer.error = None, TimeoutError(f"the call did not return within {timeout_s:g} s")
            self.sums.calls += 1
            self.sums.call_s += timeout_s
            self.sums.timeouts += 1
            self._retry_or_finish(answer)
            allowed = _ABANDONED_PER_THREAD * max(self._calls.threads, self._threads())
            if self._caller.abandoned > allowed:
                raise AbandonedCallsError(
                    f"more than {allowed} calls have not returned after their timeout of {timeout_s:g} s, and each "
                    "keeps a thread; give the client of the service a timeout of its own"
                )

    def _retry_or_finish(self, answer: CallAnswer) -> None:
        """Retry a failed row, or finish the row and free its key."""
        is_final = not isinstance(answer.error, Exception)  # such as SystemExit; or there is no error
        if not is_final and answer.attempts <= self._calls.retries:
            pause_s = self._calls.backoff_s * 2 ** (answer.attempts - 1)
            heapq.heappush(self._retries, (time.monotonic() + pause_s, answer.number, answer))
            return
        answer.is_done = True
        self.sums.failed_rows += answer.error is not None
        self._unfinished -= 1
        if self._calls.order is not Order.ALL:
            self._finished.append(answer)
        if answer.key is not None:
            behind = self._waiting[answer.key]
            if behind:
                self._ready.append(behind.popleft())
            else:
                del self._waiting[answer.key]

    def _in_order(self) -> Iterator[CallAnswer]:
        while self._finished:
            yield self._finished.popleft()
        while self._buffer and self._buffer[0].is_done:
            yield self._buffer.popleft()
