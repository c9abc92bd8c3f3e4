"""The packing of rows in front of the shuffle to an operator class: chunks with the rows of one key, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from penstock.dataflow.operator_class import PORT
from penstock.engines.spark.storage.column_names import quoted
from penstock.engines.spark.storage.row_files import cast_batch
from penstock.engines.spark.storage.waiting_rows import ChunkFormat

OTHER_COLUMNS = 3  # port, position and chunk, behind the key columns
_KEY = "__penstock_key_"  # prefix
_POSITION, _CHUNK, _HASH = "__penstock_position", "__penstock_rows", "__penstock_hash"


def packed(df: DataFrame, port: int, keys: Sequence[str], format: ChunkFormat) -> DataFrame:
    """Return the rows of a stream as chunks of one key each: key columns, port, position and chunk."""
    at = [df.schema.names.index(key) for key in keys]
    columns = [F.col(quoted(name)) for name in df.columns]
    hashed = F.xxhash64(*(columns[key] for key in at)) if at else F.lit(0).cast("bigint")
    numbered = df.select(*(column.alias(f"_{i}") for i, column in enumerate(columns)), hashed.alias(_HASH))
    key_fields = [StructField(f"{_KEY}{i}", df.schema[key].dataType) for i, key in enumerate(at)]
    schema = StructType(
        [
            *(key_fields or [StructField(f"{_KEY}0", IntegerType())]),
            StructField(PORT, IntegerType()),
            StructField(_POSITION, LongType()),
            StructField(_CHUNK, BinaryType()),
        ]
    )
    return numbered.mapInArrow(pack(port, at, format), schema)


def pack(port: int, keys: list[int], format: ChunkFormat) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def pack_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        position = (context.partitionId() if context is not None else 0) << 33
        for batch in batches:
            if batch.num_rows == 0:
                continue
            *columns, hashes = batch.columns
            order = pc.sort_indices(hashes)  # stable: the rows of a key keep their order
            rows = cast_batch(pa.RecordBatch.from_arrays(columns, names=format.schema.names), format.schema)
            rows, hashes = rows.take(order), hashes.take(order)
            starts = _starts([hashes, *(rows.column(key) for key in keys)])
            ends = [*starts[1:], rows.num_rows]
            chunks = [format.encode(rows.slice(low, high - low)) for low, high in zip(starts, ends, strict=True)]
            firsts = pa.array(starts, pa.int64())
            of_keys = [rows.column(key).take(firsts) for key in keys] or [pa.array([0] * len(starts), pa.int32())]
            positions = pa.array(range(position, position + len(starts)), pa.int64())
            position += len(starts)
            yield pa.RecordBatch.from_arrays(
                [*of_keys, pa.array([port] * len(starts), pa.int32()), positions, pa.array(chunks, pa.binary())],
                names=[*(f"{_KEY}{i}" for i in range(len(of_keys))), PORT, _POSITION, _CHUNK],
            )

    return pack_batches


def _starts(columns: list[pa.Array]) -> list[int]:
    """Return where a value differs from the one before it. Equal hashes of different keys make chunks of their own."""
    rows = len(columns[0])
    differs = None
    for column in columns:
        try:
            other = pc.fill_null(pc.not_equal(column[1:], column[:-1]), False)  # null if one of them is null
            if column.null_count:
                other = pc.or_(other, pc.xor(column[1:].is_null(), column[:-1].is_null()))
        except pa.ArrowNotImplementedError:  # a nested type: its hash decides
            continue
        differs = other if differs is None else pc.or_(differs, other)
    return [0, *(pc.indices_nonzero(differs).to_numpy() + 1).tolist()] if rows > 1 else [0]
