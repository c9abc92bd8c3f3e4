"""The restarts of a failed query, which continue as long as it makes progress between two failures."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

# Waiting times before the first, second and third restart at the same batch. Afterwards the failure is final.
RETRY_DELAYS_S = (0.0, 2.0, 8.0)

# Errors of a user's function that its code or its rows cause, and Spark's data exceptions, such as a division by zero
# or a failed cast. Errors of files, networks and services may pass.
_BUG = re.compile(
    r"^the function of |\bSQLSTATE: 22|"
    r"\b(Value|Type|Key|Index|Attribute|Name|UnboundLocal|ZeroDivision|Overflow|Assertion|Import|ModuleNotFound|"
    r"NotImplemented|Recursion|UnicodeDecode|UnicodeEncode|JSONDecode)Error\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedFailure:
    """The failures of a query since it last committed a batch."""

    committed_batch: int | None  # None: the query has never committed a batch
    times: int
    at_s: float
    reason: str = ""
    is_permanent: bool = False  # no restart can help

    def next(self, committed_batch: int | None, at_s: float, reason: str = "") -> RepeatedFailure:
        """Return the record after another failure. A query that has committed batches in between starts from one.

        An error of the user's function that occurs again at the same row is permanent.

        >>> first = RepeatedFailure(committed_batch=7, times=1, at_s=0.0, reason="KeyError: 'n'; row: {'m': 3}")
        >>> first.next(7, 1.0).times, first.next(9, 1.0).times
        (2, 1)
        >>> first.next(7, 1.0, first.reason).is_final, first.next(7, 1.0, "OSError: busy").is_final
        (True, False)
        """
        again = committed_batch == self.committed_batch
        is_bug = reason == self.reason and _BUG.search(reason) is not None
        return replace(
            self,
            committed_batch=committed_batch,
            times=self.times + 1 if again else 1,
            at_s=at_s,
            reason=reason,
            is_permanent=again and (self.is_permanent or is_bug),
        )

    @property
    def is_final(self) -> bool:
        """Return whether the query is not restarted any more.

        A query that never committed a batch probably has a bug, so it is restarted once only. It is not given up at
        once, because Spark allows a Python worker ten seconds to start, which may not suffice on a busy machine.
        """
        return self.is_permanent or self.times > (1 if self.committed_batch is None else len(RETRY_DELAYS_S))

    def is_retry_due(self, now_s: float) -> bool:
        return not self.is_final and now_s >= self.at_s + RETRY_DELAYS_S[self.times - 1]
