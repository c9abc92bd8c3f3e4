"""When the rows of a generated stream happened: by row number, a little out of order, never late.

A row lies less than the watermark's delay behind any row before it, so none is dropped, whatever the batches. The
last row of a finite stream lies a day ahead: it pushes the watermark past all windows but its own, which stay open.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.apps.seeded_random import random_bits

ROW_EVERY_MS = 100  # of event time, whatever the rate of arrival
DELAY_S = 10  # of the watermark
DISORDER_MS = 8_000  # less than the delay
_FLUSH_AHEAD_MS = 24 * 3600 * 1000
_SEED = 0x74696D65
_START = datetime(2026, 1, 1, tzinfo=UTC)


def event_time(n: int, rows: int | None = None) -> datetime:
    """Of row n; the last of `rows` is the flush.

    >>> event_time(5).isoformat(), event_time(5, rows=6).isoformat()
    ('2026-01-01T00:00:03.415000+00:00', '2026-01-02T00:00:00.600000+00:00')
    """
    if rows is not None and n == rows - 1:
        return _START + timedelta(milliseconds=rows * ROW_EVERY_MS + _FLUSH_AHEAD_MS)
    return _START + timedelta(milliseconds=n * ROW_EVERY_MS + random_bits(n, _SEED) % DISORDER_MS)


def is_closed(end_ms: int, latest_ms: int) -> bool:
    """Whether a window that ends then has been passed by the watermark of a stream whose latest row is that.

    >>> is_closed(60_000, 69_999), is_closed(60_000, 70_000)
    (False, True)
    """
    return end_ms <= latest_ms - DELAY_S * 1000
