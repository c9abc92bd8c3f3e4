"""Access logs of a hundred websites: generator and parser.

Lines are in Apache's format `vhost_common`: site, client, two dashes, time, request, status, bytes. Sites and visitors
follow Zipf's law. One line in 64 is truncated, as at the end of a full disk, and must be skipped. Log files may contain
any user, method, protocol and text after the bytes (`vhost_combined`), and a dash instead of zero bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.apps.input_output import generated_or_files
from penstock.apps.seeded_random import random_bits, zipf_table
from penstock.dataflow import Dataflow
from penstock.dataflow.stream import Stream

SITES = 100
COLUMNS = ["site", "visitor", "ts", "path", "status", "bytes"]
_SEED = 0x6C6F6773
_START = datetime(2026, 1, 1, tzinfo=UTC)
_SITES = zipf_table([f"site{number:02}.example" for number in range(SITES)], bits=12)
# Benchmark addresses (RFC 2544), which are not assigned.
_VISITORS = zipf_table([f"198.18.{i // 256}.{i % 256}" for i in range(4096)], bits=16)
_STATUSES = (200,) * 11 + (304, 304, 301, 404, 500)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_LINE = r'^(\S+) (\S+) \S+ \S+ \[([^\]]+)\] "\S+ (\S+)[^"]*" (\d{3}) (\d+|-)(?: .*)?$'


def generator(n: int) -> str:
    """Return line n of the log. There are ten lines per second of event time.

    >>> generator(1)
    'site24.example 198.18.1.138 - - [01/Jan/2026:00:00:00 +0000] "GET /page/73 HTTP/1.1" 301 3245'
    """
    bits = random_bits(n, _SEED)
    site, visitor = _SITES[bits & 0xFFF], _VISITORS[bits >> 12 & 0xFFFF]
    page, status, size = bits >> 28 & 0xFF, _STATUSES[bits >> 36 & 15], bits >> 40 & 0xFFFF
    line = f'{site} {visitor} - - [{_time(n)}] "GET /page/{page} HTTP/1.1" {status} {size}'
    return line if bits >> 58 else line[: len(line) // 2]


def _time(n: int) -> str:
    at = _START + timedelta(milliseconds=100 * n)
    return f"{at.day:02}/{_MONTHS[at.month - 1]}/{at:%Y:%H:%M:%S} +0000"  # %b depends on the locale


def parse(lines: DataFrame) -> DataFrame:
    def field(group: int) -> Any:
        return F.regexp_extract("value", _LINE, group)

    parsed = lines.where(F.col("value").rlike(_LINE)).select(
        field(1).alias("site"),
        field(2).alias("visitor"),
        F.try_to_timestamp(field(3), F.lit("dd/MMM/yyyy:HH:mm:ss Z")).alias("ts"),
        field(4).alias("path"),
        field(5).cast("int").alias("status"),
        F.when(field(6) == "-", 0).otherwise(field(6).try_cast("bigint")).alias("bytes"),
    )
    return parsed.where("ts is not null and bytes is not null")  # an invalid line must not end the query


Access = tuple[str, str, datetime, str, int, int]  # as COLUMNS


def parsed(line: str) -> Access | None:
    """Parse one line in plain Python, for the oracle; return None if it is truncated.

    >>> parsed('a.example 192.0.2.1 - - [01/Feb/2026:10:00:01 +0000] "GET /x HTTP/1.1" 200 5')
    ('a.example', '192.0.2.1', datetime.datetime(2026, 2, 1, 10, 0, 1, tzinfo=datetime.timezone.utc), '/x', 200, 5)
    >>> parsed("a.example 192.0.2.1 - - [01/Feb")
    """
    words = line.split(" ")
    if len(words) != 11:
        return None
    day, month, year = words[4][1:12].split("/")
    hour, minute, second = words[4][13:].split(":")
    at = datetime(int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    return words[0], words[1], at, words[7], int(words[9]), int(words[10])


def stream(flow: Dataflow, input: str | None, rows: int | None, rows_per_s: float | None) -> Stream:
    """Declare the stream of parsed requests, from generated lines or log files that match the glob `input`."""
    source = generated_or_files(generator, "value string", input=input, rows=rows, rows_per_s=rows_per_s)
    return flow.source("lines", source).stateless("parse", parse, columns=COLUMNS)


def accesses(rows: int) -> Iterator[Access]:
    """Return the requests of the first `rows` lines, without truncated lines."""
    return (access for n in range(rows) if (access := parsed(generator(n))) is not None)
