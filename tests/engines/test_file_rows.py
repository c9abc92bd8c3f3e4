"""Files of rows: how they are written, and what is said of one that cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.dataflow import DataflowError
from penstock.engines.spark.rowfiles import conformed
from penstock.engines.spark.sources.file_rows import FileRows
from penstock.engines.spark.sources.replayed import replayed

TRADES = pa.schema([("symbol", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("price", pa.int64())])
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def csv(header: bool = True) -> FileRows:
    return FileRows(source="trades", format="csv", header=header, schema=TRADES)


def rows(form: FileRows, path: Path) -> list[dict[str, Any]]:
    return [row for batch in form.of(str(path)) for row in batch.to_pylist()]


@pytest.mark.parametrize("ts", ["2026-01-01 12:00:00", "2026-01-01T12:00:00Z", "2026-01-01 13:00:00+01:00"])
def test_times_of_a_csv_file_may_have_a_zone_or_not(tmp_path: Path, ts: str) -> None:
    (tmp_path / "a.csv").write_text(f"price,symbol,ts\n7,A,{ts}\n")
    assert rows(csv(), tmp_path / "a.csv") == [{"symbol": "A", "ts": NOON, "price": 7}]


def test_a_csv_file_without_a_header_has_the_columns_of_the_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("A,2026-01-01 12:00:00,7\nB,2026-01-01 12:00:00,8\n")
    assert [(row["symbol"], row["price"]) for row in rows(csv(header=False), tmp_path / "a.csv")] == [
        ("A", 7),
        ("B", 8),
    ]


@pytest.mark.parametrize("format", ["text", "csv", "json", "parquet"])
def test_an_empty_file_has_no_rows(tmp_path: Path, format: str) -> None:
    (tmp_path / "empty").touch()
    assert rows(FileRows(source="s", format=format, header=True, schema=TRADES), tmp_path / "empty") == []


def test_a_file_that_cannot_be_read_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("symbol,ts,price\nA,2026-01-01 12:00:00,seven\n")
    with pytest.raises(
        DataflowError, match="file '.*bad.csv' does not read as csv .*seven.*; mend it, or put an empty"
    ):
        rows(csv(), tmp_path / "bad.csv")
    with pytest.raises(DataflowError, match="file '.*gone.csv' is gone .*; put it back, or an empty file in its place"):
        rows(csv(), tmp_path / "gone.csv")


def test_one_empty_file_among_others_is_replayed_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.csv").write_text("symbol,ts,price\nA,2026-01-01 12:00:00,7\n")
    numbered, count = replayed(str(tmp_path / "*.csv"), csv(), tmp_path / "run", repeat=2)
    assert count == 2
    assert [row["price"] for batch in numbered(0, 2) for row in batch.to_pylist()] == [7, 7]


def test_columns_are_told_by_their_names() -> None:
    batch = pa.RecordBatch.from_pydict({"b": [1], "a": [2]})
    schema = pa.schema([("a", pa.int64()), ("b", pa.int32())])
    assert conformed(batch, schema).to_pylist() == [{"a": 2, "b": 1}]
