"""A load over time, and its CSV format."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from penstock.dataflow.errors import PenstockError
from penstock.models.mst.csv_table import quoted_row, read_csv
from penstock.models.mst.samples import Floats


class TraceError(PenstockError):
    """The trace is not a load at regular intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A load with constant rates: `rates[i]` lasts from `i * interval_s` to `(i + 1) * interval_s`.

    The unit of the rates is that of the MST samples.
    """

    rates: tuple[float, ...]
    interval_s: float

    def __post_init__(self) -> None:
        if not self.rates:
            raise TraceError("The trace is empty. Give at least one rate.")
        if not (math.isfinite(self.interval_s) and self.interval_s > 0):
            raise TraceError(f"The interval of the trace is {self.interval_s} s. It must be above 0.")
        for index, rate in enumerate(self.rates):
            if not (math.isfinite(rate) and rate >= 0):
                raise TraceError(f"Rate {index + 1} of the trace is {rate}. It must be a finite number, 0 or more.")

    def array(self) -> Floats:
        return np.array(self.rates)

    def scaled_to(self, peak: float) -> Trace:
        """Return a trace of the same shape with another peak.

        >>> Trace(rates=(1.0, 4.0), interval_s=60).scaled_to(2.0).rates
        (0.5, 2.0)
        """
        top = max(self.rates)
        if not (math.isfinite(peak) and peak > 0 and top > 0):
            raise TraceError(f"A trace with peak {top} cannot be scaled to peak {peak}. Both must be above 0.")
        return Trace(rates=tuple(rate * peak / top for rate in self.rates), interval_s=self.interval_s)


def parse_trace(text: str, *, source: str = "the trace") -> Trace:
    """Parse CSV with the columns `time_s,rate` (seconds) or `time,rate` (ISO 8601) at regular intervals.

    Raise a TraceError that names `source` and the line if the text is invalid.

    >>> parse_trace("time,rate\\n1998-06-10T00:00:00,5\\n1998-06-10T01:00:00,7\\n")
    Trace(rates=(5.0, 7.0), interval_s=3600.0)
    """
    columns, rows = read_csv(text, source)
    if columns not in (["time_s", "rate"], ["time", "rate"]):
        raise TraceError(f"{source} has the columns {columns}. It must have time_s,rate or time,rate.")
    times, rates = [], []
    for line, row in rows:
        try:
            time, rate = row
            times.append(_finite(time) if columns[0] == "time_s" else _seconds(time.strip()))
            rates.append(_finite(rate))
        except (ValueError, TypeError):
            raise TraceError(f"{source}, line {line}: '{quoted_row(row)}' is not a time and a rate.") from None
        if rates[-1] < 0:
            raise TraceError(f"{source}, line {line}: the rate is {rates[-1]:g}. It must be 0 or more.")
    if len(times) < 2:
        raise TraceError(f"{source} has {len(times)} rows. At least two are needed to determine the interval.")
    gaps = np.diff(times)
    interval_s = float(np.median(gaps))
    if interval_s <= 0 or not np.allclose(gaps, interval_s, rtol=1e-3):
        bad = int(np.argmax(~np.isclose(gaps, interval_s, rtol=1e-3))) if interval_s > 0 else 0
        raise TraceError(
            f"{source}, line {rows[bad + 1][0]}: times must increase by equal steps. Most steps are {interval_s:g} s."
        )
    return Trace(rates=tuple(rates), interval_s=interval_s)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


def _seconds(time: str) -> float:
    moment = datetime.fromisoformat(time)
    # A time without a zone is read as UTC. Only differences matter, and local time has hours of 0 and 2 hours.
    # Two differences of times, because a time in the year 1 minus its zone would not be a time.
    since_1970 = moment.replace(tzinfo=None) - datetime(1970, 1, 1)
    return (since_1970 - (moment.utcoffset() or timedelta())).total_seconds()
