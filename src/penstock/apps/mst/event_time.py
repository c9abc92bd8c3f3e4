"""Event time of generated rows: it follows the row number, slightly out of order and never late.

A row is less than the delay of the watermark behind any earlier row, so none is dropped in any batch. The last row of a
finite stream is a day ahead: it moves the watermark past all windows but its own, which stay open.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.apps.seeded_random import random_bits

ROW_EVERY_MS = 100  # event time between two rows, independent of the arrival rate
DELAY_S = 10  # delay of the watermark
DISORDER_MS = 8_000  # less than the delay
_FLUSH_AHEAD_MS = 24 * 3600 * 1000
_SEED = 0x74696D65
_START = datetime(2026, 1, 1, tzinfo=UTC)


def event_time(n: int, rows: int | None = None) -> datetime:
    """Return the event time of row n. The last of `rows` rows flushes the windows.

    >>> event_time(5).isoformat(), event_time(5, rows=6).isoformat()
    ('2026-01-01T00:00:03.415000+00:00', '2026-01-02T00:00:00.600000+00:00')
    """
    if rows is not None and n == rows - 1:
        return _START + timedelta(milliseconds=rows * ROW_EVERY_MS + _FLUSH_AHEAD_MS)
    return _START + timedelta(milliseconds=n * ROW_EVERY_MS + random_bits(n, _SEED) % DISORDER_MS)


def is_closed(end_ms: int, latest_ms: int) -> bool:
    """Return whether the watermark has passed the end of a window, given the latest event time.

    >>> is_closed(60_000, 69_999), is_closed(60_000, 70_000)
    (False, True)
    """
    return end_ms <= latest_ms - DELAY_S * 1000
