"""Sources: declarations of where rows come from. Engines implement them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.dataflow.argument_types import check_parameters, checked_types
from penstock.dataflow.ddl import Struct, ddl
from penstock.dataflow.errors import DataflowError
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.local_paths import local_path

FORMATS = ("text", "csv", "json", "parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Rows of files, in the order of their paths, appended at a rate that can be changed during a run."""

    glob: str
    format: str
    schema: str
    rows_per_s: float | None  # None: all rows are available from the start
    repeat: int = 1
    header: bool = True  # csv files begin with a header line


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files that appear in a folder, each read once, in the order in which they appear."""

    glob: str
    format: str
    schema: str
    header: bool = True  # csv files begin with a header line


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """Rows computed from their number, at a rate that can be changed during a run; endless if `rows` is None."""

    fn: Callable[[Any], Any]
    schema: str
    rows_per_s: float | None
    rows: int | None
    vectorised: bool = False  # `fn` computes the columns of many rows at once


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSource:
    """A streaming DataFrame of the user. Only Spark knows its offsets."""

    fn: Callable[[Any], Any]


Source = Replay | Files | Generate | SparkSource | Kafka


def _rate(rows_per_s: float | None) -> float | None:
    if rows_per_s is not None and not 0 <= rows_per_s < float("inf"):
        raise DataflowError(f"rows_per_s={rows_per_s!r} is not a rate; give a number of rows per second, 0 or more.")
    return rows_per_s


def _format(path: str | Path, name: str | None, schema: str | Struct | None) -> tuple[str, str]:
    """Return the format, given or derived from the suffix of the path, and the schema."""
    ending = {
        "txt": "text",
        "log": "text",
        "csv": "csv",
        "json": "json",
        "jsonl": "json",
        "parquet": "parquet",
    }
    suffix = Path(path).suffix.lstrip(".")
    if name is None and schema is not None and suffix not in ending:
        raise DataflowError(
            f"The format of '{path}' is unknown, because it ends in none of {', '.join('.' + e for e in ending)}; "
            f"give format=..., one of {', '.join(FORMATS)}."
        )
    chosen = name or ending.get(suffix, "text")
    if chosen not in FORMATS:
        raise DataflowError(f"format={name!r} is not supported; choose one of {', '.join(FORMATS)}.")
    if chosen == "text":
        if schema not in (None, "value string"):
            raise DataflowError(
                f"schema={schema!r} is given for text files, which have one column, 'value string'; omit schema."
            )
        return chosen, "value string"
    if schema is None:
        raise DataflowError(
            f"No schema is given, but {chosen} files need a schema; give one such as schema='ts timestamp, user "
            "string'."
        )
    return chosen, ddl(schema)


@checked_types(DataflowError)
def replay(
    path: str | Path,
    *,
    rows_per_s: float,
    format: str | None = None,
    schema: str | Struct | None = None,
    repeat: int = 1,
    header: bool = True,
) -> Replay:
    """Return a source that replays files at a rate, which can be changed during a run.

    Timestamps without a time zone are UTC.

    Args:
        path: Path or glob on a local or shared disk.
        rows_per_s: Rows per second to append.
        format: "text", "csv", "json" (one object per line) or "parquet". The default depends on the suffix of `path`.
        schema: Columns to read, as DDL text such as "ts timestamp, user string" or as a StructType. Text files need
            none.
        repeat: How often the files are read.
        header: Whether the first line of a csv file names its columns. Without it, columns are in the schema's order.

    Raises:
        DataflowError: An argument is missing or not allowed.
    """
    if repeat < 1:
        raise DataflowError(f"repeat={repeat} is not allowed, because files are read once or more; give 1 or more.")
    chosen, columns = _format(path, format, schema)
    return Replay(
        glob=local_path(path),
        format=chosen,
        schema=columns,
        rows_per_s=_rate(rows_per_s),
        repeat=repeat,
        header=header,
    )


@checked_types(DataflowError)
def backlog(
    path: str | Path,
    *,
    format: str | None = None,
    schema: str | Struct | None = None,
    repeat: int = 1,
    header: bool = True,
) -> Replay:
    """Return a source with all rows of the files available from the start, so that it never limits the pipeline.

    The arguments and exceptions are those of `replay`.
    """
    paced = replay(path, rows_per_s=0, format=format, schema=schema, repeat=repeat, header=header)
    return replace(paced, rows_per_s=None)


@checked_types(DataflowError)
def files(
    path: str | Path, *, format: str | None = None, schema: str | Struct | None = None, header: bool = True
) -> Files:
    """Return a source that reads each file once, when it appears. Write a file elsewhere and then move it in.

    The arguments and exceptions are those of `replay`.
    """
    chosen, columns = _format(path, format, schema)
    return Files(glob=local_path(path), format=chosen, schema=columns, header=header)


@checked_types(DataflowError)
def generate(
    fn: Callable[[Any], Any],
    *,
    schema: str | Struct,
    rows_per_s: float | None = None,
    rows: int | None = None,
    vectorised: bool = False,
) -> Generate:
    """Return a source that computes each row from its number.

    Args:
        fn: Function from a row number to a dict, a tuple in the schema's order, or a bare value for a single column. It
            must always return the same row for the same number, because rows are computed again after a failure. A
            dict contains exactly the columns of the schema. For a single column of structs, maps or arrays, a dict or
            list is the bare value, unless its only key is the column's name.
        schema: Columns of the rows, as DDL text such as "user string, n bigint" or as a StructType.
        rows_per_s: Rows per second to append. None makes all rows available from the start.
        rows: Number of rows. None makes the source endless.
        vectorised: Call `fn` once for many rows, which is about ten times faster. `fn` then receives a NumPy array of
            row numbers and returns a dict with one NumPy or Arrow array per column. The value for a number must not
            depend on the other numbers of the array.

    Raises:
        DataflowError: Neither a rate nor a number of rows is given, or one of them is negative.
    """
    if rows_per_s is None and rows is None:
        raise DataflowError("A generator without a rate needs an end; give rows_per_s=... or rows=...")
    if rows is not None and rows < 0:
        raise DataflowError(f"rows={rows} is not a number of rows; give 0 or more.")
    check_parameters(fn, "generate()", "an array of row numbers" if vectorised else "a row number")
    return Generate(fn=fn, schema=ddl(schema), rows_per_s=_rate(rows_per_s), rows=rows, vectorised=vectorised)


@checked_types(DataflowError)
def spark_source(fn: Callable[[Any], Any]) -> SparkSource:
    """Return a source for a streaming DataFrame of your own. Its query is never changed during a run.

    Args:
        fn: Function from a SparkSession to a streaming DataFrame, such as
            `lambda spark: spark.readStream.format("rate").load()`.
    """
    check_parameters(fn, "spark_source()", "a SparkSession")
    return SparkSource(fn=fn)


def never_ends(source: Source | None) -> bool:
    """Return whether a source never becomes idle, or Penstock cannot find out whether it has."""
    return isinstance(source, SparkSource) or (isinstance(source, Generate) and source.rows is None)
