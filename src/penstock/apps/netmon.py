"""Network monitoring: find break-in attempts in the logs of sshd.

Kahveci and Gedik, "Joker", JPDC 2020, section 5.4: a filter of failed logins and their parser (stateless), then
failures by address and event-time window, a cut-off, and the difference (keyed by address).

Event time follows the row number and is out of order by less than the delay of the watermark, so no row is late in any
batch. A finite stream ends with failures far in the future: they move the watermark past all earlier windows, and their
own window stays open.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.apps.comparison import differences, epoch_ms
from penstock.apps.input_output import default_sink, generated_or_files
from penstock.apps.seeded_random import random_bits, zipf_table
from penstock.dataflow.sinks import Sink

WINDOW_S = 60
WATERMARK_DELAY_S = 10
DISORDER_MS = 8_000  # less than the delay
LINE_EVERY_MS = 100  # event time between two lines, independent of the arrival rate
THRESHOLD = 5  # attempts in one window
FLUSH_ROWS = 3
_FLUSH_AHEAD_S = 24 * 3600
_SEED = 0x73736864
_START = datetime(2026, 1, 1, tzinfo=UTC)

_HOSTS = ("alpha", "beta", "gamma", "delta")
_KNOWN = ("root", "ana", "git", "www", "backup", "postgres", "li", "omar")
_UNKNOWN = ("admin", "test", "guest", "oracle", "ubuntu", "pi", "user", "ftp")
# Documentation and benchmark addresses (RFC 2544, 5737), which are not assigned.
_ADDRESSES = zipf_table([f"198.{18 + i % 2}.{i // 256}.{i % 256}" for i in range(1024)], bits=12)
_FLUSH_ADDRESS = "203.0.113.255"


def generator(n: int, rows: int | None = None) -> str:
    """Return line n of the log. 10 in 16 lines are failed logins, 2 are accepted ones; the last flush the windows.

    >>> generator(0)
    '2026-01-01T00:00:02.841Z alpha sshd[14608]: Failed password for invalid user pi from 198.18.0.128 port 17931 ssh2'
    """
    bits = random_bits(n, _SEED)
    at_ms = n * LINE_EVERY_MS + (bits & 0x3FFF) % DISORDER_MS
    address, kind = _ADDRESSES[bits >> 14 & 0xFFF], bits >> 26 & 15
    host, pid, port = _HOSTS[bits >> 30 & 3], 1000 + (bits >> 32 & 0x7FFF), 1024 + (bits >> 47 & 0x7FFF)
    user = bits >> 61
    if rows is not None and n >= rows - FLUSH_ROWS:
        at_ms, address, kind = rows * LINE_EVERY_MS + _FLUSH_AHEAD_S * 1000, _FLUSH_ADDRESS, 0
    head = f"{_timestamp(at_ms)} {host} "
    if kind < 4:
        return f"{head}sshd[{pid}]: Failed password for {_KNOWN[user]} from {address} port {port} ssh2"
    if kind < 10:
        return f"{head}sshd[{pid}]: Failed password for invalid user {_UNKNOWN[user]} from {address} port {port} ssh2"
    if kind < 12:
        return f"{head}sshd[{pid}]: Accepted password for {_KNOWN[user]} from {address} port {port} ssh2"
    if kind < 13:  # a failure that is not from sshd
        return f"{head}vsftpd[{pid}]: Failed password for {_KNOWN[user]} from {address} port {port} ftp"
    if kind < 15:
        return f"{head}sshd[{pid}]: Connection closed by {address} port {port} [preauth]"
    return f"{head}CRON[{pid}]: session opened for user {_KNOWN[user]}"


def _timestamp(at_ms: int) -> str:
    return (_START + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds")[:-6] + "Z"


_FAILURE = r"^(\S+) (\S+) sshd\[\d+\]: Failed password for (invalid user )?(\S+) from (\S+) port \d+ ssh2$"


def failures(lines: DataFrame) -> DataFrame:
    return lines.where(F.col("value").rlike(_FAILURE))


def parse(lines: DataFrame) -> DataFrame:
    def field(group: int) -> Any:
        return F.regexp_extract("value", _FAILURE, group)

    parsed = lines.select(
        F.try_to_timestamp(field(1)).alias("ts"),
        field(2).alias("host"),
        field(4).alias("user"),
        (field(3) == "").alias("known"),
        field(5).alias("ip"),
    )
    return parsed.where("ts is not null")  # a line with an invalid time must not end the query


def attempts(parsed: DataFrame) -> DataFrame:
    """Return the failures by address and window, with the times of the first and the last."""
    return (
        parsed.groupBy(F.window("ts", f"{WINDOW_S} seconds"), "ip")
        .agg(F.count("*").alias("n"), F.min("ts").alias("first"), F.max("ts").alias("last"))
        .select(
            "ip",
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            "n",
            "first",
            "last",
        )
    )


def cutoff(counted: DataFrame, threshold: int = THRESHOLD) -> DataFrame:
    return counted.where(F.col("n") >= threshold)


def diff(reached: DataFrame, threshold: int = THRESHOLD) -> DataFrame:
    """Return the excess over the threshold and the time between the first and the last attempt."""
    n = F.col("n")
    severity = F.when(n >= 8 * threshold, "attack").when(n >= 2 * threshold, "probe").otherwise("suspect")
    return reached.select(
        "ip",
        "window_start",
        "window_end",
        "n",
        (n - threshold).alias("excess"),
        (F.unix_millis("last") - F.unix_millis("first")).alias("span_ms"),
        severity.alias("severity"),
    )


def flow(
    input: str | None = None,
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
    threshold: int = THRESHOLD,
) -> penstock.Dataflow:
    """Return the dataflow on a generated log, or on the log files that match the glob `input`.

    The times in log files are as in RFC 3339.
    """
    counted = ["ip", "window_start", "window_end", "n", "first", "last"]
    flow = penstock.Dataflow("netmon")
    lines = functools.partial(generator, rows=rows)
    source = generated_or_files(lines, "value string", input=input, rows=rows, rows_per_s=rows_per_s)
    (
        flow.source("lines", source)
        .stateless("failures", failures, columns=["value"])
        .stateless("parse", parse, columns=["ts", "host", "user", "known", "ip"])
        .watermark("ts", f"{WATERMARK_DELAY_S} seconds")
        .keyed("attempts", attempts, keys=["ip"], columns=counted)
        .stateless("cutoff", functools.partial(cutoff, threshold=threshold), columns=counted)
        .stateless(
            "diff",
            functools.partial(diff, threshold=threshold),
            columns=[*counted[:4], "excess", "span_ms", "severity"],
        )
        .sink("out", default_sink(output, rows))
    )
    return flow


Attack = tuple[str, int, int, int, int, int, str]  # ip, window start and end in ms, n, excess, span in ms, severity


def oracle(rows: int, threshold: int = THRESHOLD) -> Counter[Attack]:
    """Return the attacks in `rows` lines, each once."""
    return attacks((generator(n, rows) for n in range(rows)), threshold)


def attacks(lines: Iterable[str], threshold: int = THRESHOLD) -> Counter[Attack]:
    """Return the expected output: windows with `threshold` or more failures that the watermark has passed.

    >>> line = "2026-01-01T00:{}Z a sshd[1]: Failed password for {} from 192.0.2.1 port 9 ssh2".format
    >>> attacks([line("00:59", "root"), line("00:57.5", "invalid user x"), line("09:00", "root")], threshold=2)
    Counter({('192.0.2.1', 1767225600000, 1767225660000, 2, 0, 1500, 'suspect'): 1})
    """
    times_ms: dict[tuple[str, int], list[int]] = {}
    latest_ms = 0
    for line in lines:
        words = line.split(" ")
        if not (words[2].startswith("sshd[") and words[3:5] == ["Failed", "password"]):
            continue
        at_ms = epoch_ms(datetime.fromisoformat(words[0]))
        start_ms = at_ms - at_ms % (WINDOW_S * 1000)
        times_ms.setdefault((words[words.index("from") + 1], start_ms), []).append(at_ms)
        latest_ms = max(latest_ms, at_ms)
    expected: Counter[Attack] = Counter()
    for (address, start_ms), at in times_ms.items():
        end_ms = start_ms + WINDOW_S * 1000
        if len(at) >= threshold and end_ms <= latest_ms - WATERMARK_DELAY_S * 1000:
            severity = ["suspect", "probe", "attack"][(len(at) >= 2 * threshold) + (len(at) >= 8 * threshold)]
            expected[address, start_ms, end_ms, len(at), len(at) - threshold, max(at) - min(at), severity] += 1
    return expected


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Attack]:
    """Return the rows of the sink, with times in milliseconds."""
    return Counter(
        (
            row["ip"],
            epoch_ms(row["window_start"]),
            epoch_ms(row["window_end"]),
            row["n"],
            row["excess"],
            row["span_ms"],
            row["severity"],
        )
        for row in output
    )


def check(output: Iterable[Mapping[str, Any]], rows: int, threshold: int = THRESHOLD) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, threshold), actual(output))
