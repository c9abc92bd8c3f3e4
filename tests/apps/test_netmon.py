from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.apps import netmon
from penstock.dataflow import regions
from tests.support.plain_query import collect_stream, compose, write_files

ROWS = 2_000


def _time(line: str) -> float:
    return datetime.fromisoformat(line.split(" ")[0]).timestamp()


def test_about_ten_in_sixteen_lines_are_failures_of_sshd() -> None:
    lines = [netmon.generator(n) for n in range(8_000)]
    failed = [line for line in lines if " sshd[" in line and ": Failed password for " in line]
    assert len(failed) / len(lines) == pytest.approx(10 / 16, abs=0.03)
    assert sum("invalid user" in line for line in failed) / len(failed) == pytest.approx(0.6, abs=0.03)
    assert any(": Failed password" in line and "sshd" not in line for line in lines)  # the filter must drop it


def test_no_line_is_late_in_any_batches() -> None:
    """A batch may end after any row, so no row may be older than the latest earlier row by more than the delay."""
    latest = 0.0
    for n in range(ROWS):
        at = _time(netmon.generator(n, ROWS))
        assert at > latest - netmon.WATERMARK_DELAY_S
        latest = max(latest, at)


def test_the_flush_closes_every_window_but_its_own() -> None:
    lines = [netmon.generator(n, ROWS) for n in range(ROWS)]
    real, flush = lines[: -netmon.FLUSH_ROWS], lines[-netmon.FLUSH_ROWS :]
    assert real == [netmon.generator(n) for n in range(ROWS - netmon.FLUSH_ROWS)]
    assert all("sshd[" in line and "Failed password" in line for line in flush)
    assert min(map(_time, flush)) > max(map(_time, real)) + netmon.WINDOW_S + netmon.WATERMARK_DELAY_S
    attacks = netmon.oracle(ROWS, threshold=1)
    assert sum(attack[3] for attack in attacks) == sum(" sshd[" in line and "Failed" in line for line in real)


def test_a_generated_log_has_attacks_of_every_severity() -> None:
    assert {attack[-1] for attack in netmon.oracle(ROWS)} == {"suspect", "probe", "attack"}


def test_a_window_counts_from_its_start_up_to_its_end() -> None:
    line = "2026-01-01T00:{}Z a sshd[1]: Failed password for root from 192.0.2.1 port 9 ssh2".format
    lines = [line(at) for at in ("00:00", "00:59.999", "01:00", "01:01", "01:02", "02:09.999")]
    minute = 1767225600_000  # 2026-01-01T00:00:00Z
    first = ("192.0.2.1", minute, minute + 60_000, 2, 1, 59_999, "probe")
    second = ("192.0.2.1", minute + 60_000, minute + 120_000, 3, 2, 2_000, "probe")
    assert list(netmon.attacks(lines, threshold=1)) == [first]  # the watermark is 1 ms before the end of the second
    assert list(netmon.attacks([*lines, line("02:10")], threshold=1)) == [first, second]


def test_the_dataflow_has_joker_s_two_regions() -> None:
    flow = netmon.flow(rows=ROWS)
    flow.check()
    assert [(region.operators, region.keys) for region in regions(flow)][1:] == [
        (("failures", "parse"), ()),
        (("attempts", "cutoff", "diff", "out"), ("ip",)),
    ]
    assert flow["attempts"].output_mode == "append"
    source = pickle.loads(pickle.dumps(flow["lines"].source))
    assert source.fn(ROWS - 1) == netmon.generator(ROWS - 1, ROWS)
    netmon.flow().check()


@pytest.mark.spark
def test_only_sshd_failures_with_a_readable_time_are_parsed(plain_spark: Any) -> None:
    line = "{} web sshd[1]: Failed password for {} from 192.0.2.{} port 9 ssh2".format
    lines = [
        line("2026-01-01T00:00:01.500Z", "root", 1),
        line("2026-01-01T02:00:01.500+02:00", "invalid user pi", 2),
        line("yesterday", "root", 3),
        line("2026-01-01T00:00:01Z", "root", 4).replace("Failed", "Accepted"),
        line("2026-01-01T00:00:01Z", "root", 5).replace("sshd", "ftpd"),
        "",
    ]
    parsed = netmon.parse(
        netmon.failures(plain_spark.createDataFrame([(line,) for line in lines], "value string"))
    ).collect()
    same = datetime(2026, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC).timestamp()
    assert [(row["ts"].timestamp(), row["host"], row["user"], row["known"], row["ip"]) for row in parsed] == [
        (same, "web", "root", True, "192.0.2.1"),
        (same, "web", "pi", False, "192.0.2.2"),
    ]


@pytest.mark.spark
def test_in_one_batch_all_closed_windows_are_the_oracle_s(plain_spark: Any) -> None:
    lines = plain_spark.createDataFrame([(netmon.generator(n, ROWS),) for n in range(ROWS)], "value string")
    output = [row.asDict() for row in compose(netmon.flow(rows=ROWS, threshold=1), {"lines": lines}).collect()]
    # A batch has no watermark, so it also returns the window of the flush, which stays open in a stream.
    open_window = [row for row in output if row["ip"] == "203.0.113.255"]
    assert [row["n"] for row in open_window] == [netmon.FLUSH_ROWS]
    assert netmon.check([row for row in output if row not in open_window], ROWS, threshold=1) == []


@pytest.mark.spark
@pytest.mark.parametrize(("sizes", "threshold"), [([700, 1, 500], 1), ([ROWS - 1], netmon.THRESHOLD)])
def test_as_a_stream_every_window_comes_once_and_right(
    plain_spark: Any, tmp_path: Path, sizes: list[int], threshold: int
) -> None:
    folder = write_files(tmp_path / "lines", (netmon.generator(n, ROWS) for n in range(ROWS)), sizes)
    lines = plain_spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    frame = compose(netmon.flow(rows=ROWS, threshold=threshold), {"lines": lines})
    output = collect_stream(frame, tmp_path / "checkpoint", "append")
    assert len(output) > 20
    assert netmon.check(output, ROWS, threshold) == []
