"""Where rows come from: declarations only; an engine gives them life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.dataflow.errors import DataflowError
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.paths import local_path

FORMATS = ("text", "csv", "json", "parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Rows of files, in order of path, appended at a rate that can be changed while running."""

    glob: str
    format: str
    schema: str
    rows_per_s: float | None  # None: all at once, a preloaded backlog
    repeat: int = 1
    header: bool = True  # of csv files


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files that appear in a folder, each read once, in the order of appearance."""

    glob: str
    format: str
    schema: str
    header: bool = True  # of csv files


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """Row number -> row, at a rate that can be changed while running; `rows` of them, or without end."""

    fn: Callable[[int], Any]
    schema: str
    rows_per_s: float | None
    rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSource:
    """Any `spark -> streaming DataFrame` of the user's; only Spark knows its offsets."""

    fn: Callable[[Any], Any]


Source = Replay | Files | Generate | SparkSource | Kafka


def _rate(rows_per_s: float | None) -> float | None:
    if rows_per_s is not None and not 0 <= rows_per_s < float("inf"):
        raise DataflowError(f"rows_per_s={rows_per_s!r}: a rate is a number of rows a second, 0 or more")
    return rows_per_s


def _format(path: str, name: str | None, schema: str | None) -> tuple[str, str]:
    """The format, by its name or by the file's ending, and its schema (text needs none)."""
    ending = {
        "txt": "text",
        "log": "text",
        "csv": "csv",
        "json": "json",
        "jsonl": "json",
        "parquet": "parquet",
    }
    chosen = name or ending.get(path.rsplit(".", 1)[-1], "text")
    if chosen not in FORMATS:
        raise DataflowError(f"format={name!r}: choose one of {', '.join(FORMATS)}")
    if chosen == "text":
        if schema not in (None, "value string"):
            raise DataflowError(f"schema={schema!r}: text files have one column, 'value string'")
        return chosen, "value string"
    if schema is None:
        raise DataflowError(f"{chosen} files need a schema, such as schema='ts timestamp, user string'")
    return chosen, schema


def replay(
    path: str,
    *,
    rows_per_s: float,
    format: str | None = None,
    schema: str | None = None,
    repeat: int = 1,
    header: bool = True,
) -> Replay:
    """Replays files at a rate; `repeat` reads them that many times over.

    The first line of a csv file names its columns; with `header=False` they come in the schema's order. A json file has
    one object a line, of which the schema's columns are read. Times without a zone are UTC.
    """
    if repeat < 1:
        raise DataflowError(f"repeat={repeat}: files are read once or more")
    chosen, columns = _format(path, format, schema)
    return Replay(
        glob=local_path(path),
        format=chosen,
        schema=columns,
        rows_per_s=_rate(rows_per_s),
        repeat=repeat,
        header=header,
    )


def backlog(
    path: str, *, format: str | None = None, schema: str | None = None, repeat: int = 1, header: bool = True
) -> Replay:
    """The same files, all there from the start: the source is never what limits the pipeline."""
    paced = replay(path, rows_per_s=0, format=format, schema=schema, repeat=repeat, header=header)
    return replace(paced, rows_per_s=None)


def files(path: str, *, format: str | None = None, schema: str | None = None, header: bool = True) -> Files:
    """Files as they appear under a glob; a file must appear whole (write elsewhere, then move it in)."""
    chosen, columns = _format(path, format, schema)
    return Files(glob=local_path(path), format=chosen, schema=columns, header=header)


def generate(
    fn: Callable[[int], Any], *, schema: str, rows_per_s: float | None = None, rows: int | None = None
) -> Generate:
    """Rows made from their number: a dict, a tuple in the schema's order, or a bare value for one column.

    A row has each column of the schema and no other, None where it has no value. For one column of structs, maps or
    arrays, a dict or a list is the bare value, unless the column's name is its only key.

    `fn` must give the same row for the same number, always: after a failure it is asked again.
    """
    if rows_per_s is None and rows is None:
        raise DataflowError("a generator without a rate needs an end: give rows_per_s=... or rows=...")
    if rows is not None and rows < 0:
        raise DataflowError(f"rows={rows}: a number of rows is 0 or more")
    return Generate(fn=fn, schema=schema, rows_per_s=_rate(rows_per_s), rows=rows)


def spark_source(fn: Callable[[Any], Any]) -> SparkSource:
    """A streaming DataFrame of your own, such as `lambda spark: spark.readStream.format("rate").load()`."""
    return SparkSource(fn=fn)


def never_ends(source: Source | None) -> bool:
    """Whether nobody will ever be able to say that all of its rows have come, or have for now."""
    return isinstance(source, SparkSource) or (isinstance(source, Generate) and source.rows is None)
