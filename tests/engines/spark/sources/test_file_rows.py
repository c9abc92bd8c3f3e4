"""Files of rows: accepted formats, and errors for unreadable files."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.dataflow import DataflowError
from penstock.engines.spark.sources.file_rows import FileRows
from penstock.engines.spark.sources.replay_files import replayed_rows
from penstock.engines.spark.storage.row_files import cast_batch

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


def test_a_line_break_in_quotes_ends_no_row_of_a_csv_file(tmp_path: Path) -> None:
    """The file has several blocks of a megabyte (Arrow), and a line break lies across two of them."""
    written = [{"n": n, "said": f'line one\nof {n}, "two"'} for n in range(60_000)]
    text = "".join(f'{row["n"]},"{row["said"].replace(chr(34), 2 * chr(34))}"\n' for row in written)
    (tmp_path / "a.csv").write_text(text)
    schema = pa.schema([("n", pa.int64()), ("said", pa.string())])
    form = FileRows(source="s", format="csv", header=False, schema=schema)
    assert rows(form, tmp_path / "a.csv") == written


ANY = pa.schema(
    [
        ("on", pa.date32()),
        ("many", pa.map_(pa.string(), pa.int64())),
        ("raw", pa.binary()),
        ("part", pa.struct([("x", pa.int64())])),
        ("price", pa.decimal128(10, 2)),
    ]
)
SAID = '{"on": "2026-01-31", "many": {"k": 1}, "raw": "aGk=", "part": {"x": 1, "y": 2}, "price": 1.5, "more": 1}\n'


def test_json_files_are_read_as_spark_writes_json(tmp_path: Path) -> None:
    """Columns that are not read may have any type, which may vary; a blank line is not a row."""
    (tmp_path / "a.json").write_text(SAID + '\n{"price": 2, "part": {"x": 2, "y": "two"}, "more": [1]}\n')
    first, second = rows(FileRows(source="s", format="json", header=True, schema=ANY), tmp_path / "a.json")
    assert first == {
        "on": date(2026, 1, 31),
        "many": [("k", 1)],
        "raw": b"hi",
        "part": {"x": 1},
        "price": Decimal("1.50"),
    }
    assert second == {"on": None, "many": None, "raw": None, "part": {"x": 2}, "price": Decimal("2.00")}


def test_a_row_of_json_may_be_long_and_a_bad_one_is_named_by_its_line(tmp_path: Path) -> None:
    form = FileRows(source="s", format="json", header=True, schema=pa.schema([("said", pa.string())]))
    (tmp_path / "long.json").write_text(f'{{"said": "{"x" * 3_000_000}"}}\n' * 2)
    assert [len(row["said"]) for row in rows(form, tmp_path / "long.json")] == [3_000_000] * 2
    (tmp_path / "bad.json").write_text('{"said": "a"}\n{"said": 5}\n')
    with pytest.raises(DataflowError, match=r"bad.json' cannot be read as json .*line 2: Expected `str.*correct it"):
        rows(form, tmp_path / "bad.json")
    with pytest.raises(DataflowError, match="column 'at' has the type .*, which cannot be read from JSON"):
        FileRows(source="s", format="json", header=True, schema=pa.schema([("at", pa.duration("us"))]))


@pytest.mark.parametrize("format", ["text", "csv", "json", "parquet"])
def test_an_empty_file_has_no_rows(tmp_path: Path, format: str) -> None:
    (tmp_path / "empty").touch()
    assert rows(FileRows(source="s", format=format, header=True, schema=TRADES), tmp_path / "empty") == []


def test_an_unreadable_file_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("symbol,ts,price\nA,2026-01-01 12:00:00,seven\n")
    with pytest.raises(
        DataflowError, match="file '.*bad.csv' cannot be read as csv .*seven.*; correct it, or replace it by an empty"
    ):
        rows(csv(), tmp_path / "bad.csv")
    with pytest.raises(
        DataflowError,
        match="file '.*gone.csv' was deleted before it was read; restore it, or create an empty file in its place",
    ):
        rows(csv(), tmp_path / "gone.csv")


def test_one_empty_file_among_others_is_replayed_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.csv").write_text("symbol,ts,price\nA,2026-01-01 12:00:00,7\n")
    numbered, count = replayed_rows(str(tmp_path / "*.csv"), csv(), tmp_path / "run", repeat=2)
    assert count == 2
    assert [row["price"] for batch in numbered(0, 2) for row in batch.to_pylist()] == [7, 7]


def test_columns_are_matched_by_name() -> None:
    batch = pa.RecordBatch.from_pydict({"b": [1], "a": [2]})
    schema = pa.schema([("a", pa.int64()), ("b", pa.int32())])
    assert cast_batch(batch, schema).to_pylist() == [{"a": 2, "b": 1}]
