"""The operators of an app as a plain streaming query without the engine of Penstock, as a reference for tests."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.dataflow import Dataflow, Kind


def compose(flow: Dataflow, frames: Mapping[str, Any]) -> Any:
    """Return the DataFrame that reaches the only sink of `flow`. `frames` replaces sources or other operators."""
    done: dict[str, Any] = {}
    for operator in flow.operators:
        if operator.kind is Kind.SINK:
            return done[operator.inputs[0]]
        if operator.name in frames:
            frame = frames[operator.name]
        elif all(name in done for name in operator.inputs) and operator.inputs:
            assert operator.fn is not None
            frame = operator.fn(*(done[name] for name in operator.inputs))  # type: ignore[operator]
        else:
            continue  # upstream of a frame that is given
        if operator.columns is not None:
            assert tuple(frame.columns) == operator.columns  # the declared columns are the actual ones
        if operator.watermark is not None and frame.isStreaming:
            frame = frame.withWatermark(operator.watermark.column, operator.watermark.delay)
        done[operator.name] = frame
    raise AssertionError("the dataflow has no sink")


def write_files(folder: Path, lines: Iterable[str], sizes: Iterable[int]) -> Path:
    """Write text files with these numbers of lines (the last file has the rest), in the order of their times."""
    folder.mkdir(parents=True)
    left = list(lines)
    chunks = []
    for size in sizes:
        chunks.append(left[:size])
        left = left[size:]
    for number, chunk in enumerate([*chunks, left]):
        path = folder / f"{number:05}.txt"
        path.write_text("".join(f"{line}\n" for line in chunk))
        os.utime(path, (1_700_000_000 + number,) * 2)
    return folder


def collect_stream(
    frame: Any,
    checkpoint: Path,
    mode: str,
    *,
    each: Callable[[Any, int], None] = lambda batch, number: None,
    progress: Callable[[dict[str, Any]], None] = lambda batch: None,
) -> list[dict[str, Any]]:
    """Run the query over all available input, and return the rows of all batches."""
    rows: list[dict[str, Any]] = []

    def keep(batch: Any, number: int) -> None:
        each(batch, number)
        rows.extend(row.asDict() for row in batch.collect())

    query = (
        frame.writeStream.outputMode(mode)
        .foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(500), f"still running: {query.lastProgress}"
    finally:
        query.stop()
    for batch in query.recentProgress:
        progress(json.loads(batch.json))
    return rows
