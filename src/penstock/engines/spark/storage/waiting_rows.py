"""Rows that wait at the ports of an operator, as Arrow record batches in a list state of Spark.

A chunk is a record batch with the rows of one key. It is made in front of the shuffle and stays as it is until the
operator takes rows from it, so rows that wait are not converted in between. A chunk begins with a number that
identifies the columns, because the columns themselves would take more space than the rows, and with the number of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.dataflow.errors import PlanError
from penstock.dataflow.operator_class import Overflow

_NUMBER = 8  # bytes of each number at the beginning of a chunk
_BLOCK_ROWS = 256  # rows that are converted to dicts at once
_MOST_CHUNKS = 64  # a list with more chunks is merged into one


class ChunkFormat:
    """The columns of the rows of a port."""

    def __init__(self, subject: str, schema: pa.Schema) -> None:
        self.subject = subject  # subject of errors, such as "port 0 of operator 'sums'"
        self.schema = schema
        columns = ",".join(f"{field.name} {_without_zone(field.type)}" for field in schema)
        self._columns = hashlib.sha256(columns.encode()).digest()[:_NUMBER]
        # Only for maps, because this option makes the conversion to rows several times slower.
        self._options = {"maps_as_pydicts": "strict"} if "map<" in str(schema.types) else {}

    def encode(self, batch: pa.RecordBatch) -> bytes:
        rows: int = batch.num_rows
        content: bytes = batch.serialize().to_pybytes()
        return self._columns + rows.to_bytes(_NUMBER, "little") + content

    def count(self, chunk: bytes | bytearray) -> int:
        """Return the number of rows of a chunk.

        Raises:
            PlanError: The rows have other columns.
        """
        if chunk[:_NUMBER] != self._columns:
            raise PlanError(
                f"The rows that wait at {self.subject} have other columns or types than its input now: "
                f"{', '.join(f'{field.name} {field.type}' for field in self.schema)}; restore the columns, or begin a "
                "new run in another directory"
            )
        return int.from_bytes(chunk[_NUMBER : 2 * _NUMBER], "little")

    def decode(self, chunk: bytes | bytearray) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(pa.py_buffer(chunk)[2 * _NUMBER :], self.schema)

    def rows(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = batch.to_pylist(**self._options)
        return rows


class PortRows:
    """The rows of a key that wait at a port, from earlier batches and from this one."""

    def __init__(self, format: ChunkFormat, stored: Sequence[bytes], new: Sequence[bytes]) -> None:
        self._format = format
        self._stored, self._new = len(stored), new
        self._chunks = [*stored, *new]
        self._rows = sum(map(format.count, self._chunks))
        self._first, self._end = 0, self._rows  # the rows that are left
        self._blocks = self._decoded()
        self._block: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return self._end - self._first

    def take(self, rows: int) -> list[dict[str, Any]]:
        """Remove and return the oldest rows."""
        self._first += rows
        taken, self._block = self._block[:rows], self._block[rows:]
        while len(taken) < rows:
            block = next(self._blocks)
            missing = rows - len(taken)
            taken += block[:missing]
            self._block = block[missing:]
        return taken

    def drop(self, rows: int, overflow: Overflow) -> None:
        """Remove the oldest or the newest rows. Nothing is taken afterwards."""
        if overflow is Overflow.DROP_OLDEST:
            self._first += rows
        else:
            self._end -= rows

    def store(self, state: Any) -> None:
        """Write the change to a `ListState`."""
        if len(self) == 0:
            if self._stored:
                state.clear()
        elif len(self) < self._rows or len(self._chunks) > _MOST_CHUNKS:
            state.put([(self._format.encode(self._remaining()),)])
        elif self._new:
            state.appendList([(chunk,) for chunk in self._new])

    def _remaining(self) -> pa.RecordBatch:
        pieces, begin = [], 0
        for chunk in self._chunks:
            rows = self._format.count(chunk)
            low, high = max(self._first, begin), min(self._end, begin + rows)
            if low < high:
                pieces.append(self._format.decode(chunk).slice(low - begin, high - low))
            begin += rows
        return pieces[0] if len(pieces) == 1 else merged(pieces)

    def _decoded(self) -> Iterator[list[dict[str, Any]]]:
        for batch in map(self._format.decode, self._chunks):
            for low in range(0, batch.num_rows, _BLOCK_ROWS):
                yield self._format.rows(batch.slice(low, _BLOCK_ROWS))


def merged(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Return one record batch with the rows of all."""
    table = pa.Table.from_batches(list(batches)).combine_chunks()
    return table.to_batches()[0]


def _without_zone(kind: pa.DataType) -> str:
    """Return the name of a type. The time zone of a timestamp is that of the session; it does not change the value."""
    return str(pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) and kind.tz else kind)
