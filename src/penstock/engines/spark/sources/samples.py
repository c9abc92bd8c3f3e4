"""The first rows of a source, without a streaming query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from penstock.dataflow.errors import PenstockError
from penstock.dataflow.operators import Operator
from penstock.dataflow.sources import Files, Generate, Replay
from penstock.engines.spark.sources.file_rows import FileRows
from penstock.engines.spark.sources.paced import generated_rows, vectorised_rows
from penstock.engines.spark.storage.row_files import arrow_schema
from penstock.engines.spark.storage.schemas import parse_schema


def first_rows(operator: Operator, rows: int) -> pa.Table:
    """Return the first `rows` rows of a source that generates rows or reads files. Needs a running Spark session.

    Raises:
        PenstockError: The source is of another kind, or no file matches.
    """
    source, name = operator.source, operator.name
    if not isinstance(source, Generate | Replay | Files):
        raise PenstockError(
            f"Source '{name}' is {type(source).__name__}, which has no first rows that could be read again; declare it "
            "as penstock.generate(...), replay(...), backlog(...) or files(...), or do not compare results."
        )
    schema = parse_schema(f"source '{name}'", source.schema)
    if isinstance(source, Generate):
        numbered = vectorised_rows if source.vectorised else generated_rows
        count = rows if source.rows is None else min(rows, source.rows)
        return pa.Table.from_batches(numbered(name, source.fn, schema)(0, count), arrow_schema(schema))
    arrow = arrow_schema(schema.toNullable())
    file_rows = FileRows(source=name, format=source.format, header=source.header, schema=arrow)
    paths = _matching(source.glob)
    if not paths:
        raise PenstockError(f"Source '{name}' reads '{source.glob}', which matches no file; check the path.")
    batches = (batch for path in paths for batch in file_rows.of(str(path)))
    return pa.Table.from_batches(_limited(batches, rows), arrow)


def _matching(pattern: str) -> list[Path]:
    absolute = Path(pattern).absolute()
    return sorted(
        path for path in Path(absolute.anchor).glob(str(absolute.relative_to(absolute.anchor))) if path.is_file()
    )


def _limited(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    left = rows
    for batch in batches:
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if left == 0:
            return
