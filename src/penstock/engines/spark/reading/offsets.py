"""Offsets of sources and channels, and the offsets at which a query starts to read.

An offset maps a unit ("row", "file", "entry" or a Kafka partition) to the next number to read. Readers add a start id,
which is new at each start of a query, so that the first batch runs even without rows. After a restart, Spark does
not know that a watermark has moved, and closes no window until the offsets change again.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.engines.spark.storage.atomic_files import write_atomically

Offset = dict[str, int]
START_ID = "start_id"


def with_start_id(offset: Offset, start_id: int) -> Offset:
    return {**offset, START_ID: start_id}


def without_start_id(offset: Offset) -> Offset:
    return {unit: number for unit, number in offset.items() if unit != START_ID}


def save_start_offsets(run: Path, query: str, starts: dict[str, Offset]) -> None:
    """Save where a query starts to read each named source. This is known only when its predecessor has stopped."""
    write_atomically(run / "starts" / query, msgspec.json.encode(starts))


def load_start_offset(run: Path, query: str, source: str) -> Offset:
    starts = msgspec.json.decode((run / "starts" / query).read_bytes(), type=dict[str, Offset])
    return starts[source]
