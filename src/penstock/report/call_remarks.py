"""Concurrent calls of the operators of a run, as sentences."""

from __future__ import annotations

from penstock.measure.window import CallWindow
from penstock.report.formatting import plural, seconds


def call_remark(operator: str, calls: CallWindow) -> str:
    """Return one sentence about the concurrent calls of an operator.

    >>> import msgspec
    >>> calls = msgspec.structs.replace(
    ...     CallWindow.none(16), calls=80, in_flight=12.5, call_s=0.005, wait_s=0.2, retries=2, timeouts=1
    ... )
    >>> print(call_remark("lookup", calls))
    'lookup' had 12.5 of 16 calls in flight per replica; 5 ms per call, 200 ms waiting before it; 2 retries, 1 timeout.
    >>> print(call_remark("lookup", CallWindow.none(16)))
    'lookup' made no calls; 16 threads per replica.
    """
    if calls.in_flight is None:
        return f"'{operator}' made no calls; {plural(calls.threads, 'thread')} per replica."
    parts = [
        f"'{operator}' had {calls.in_flight:.3g} of {calls.threads} calls in flight per replica",
        f"{seconds(calls.call_s)} per call, {seconds(calls.wait_s)} waiting before it",
    ]
    counts = [
        plural(count, *nouns)
        for count, nouns in (
            (calls.retries, ("retry", "retries")),
            (calls.timeouts, ("timeout",)),
            (calls.failed_rows, ("failed row",)),
            (calls.abandoned, ("abandoned call",)),
        )
        if count
    ]
    return "; ".join([*parts, *[", ".join(counts)] * bool(counts)]) + "."
