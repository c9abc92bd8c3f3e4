"""An app's operators as a plain streaming query, without Penstock's engine: what the engine is later held against."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.dataflow import Dataflow, Kind


def compose(flow: Dataflow, frames: Mapping[str, Any]) -> Any:
    """The DataFrame that reaches the one sink of `flow`; `frames` are its sources', or those of any operator."""
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
            continue  # behind a frame that is given
        if operator.columns is not None:
            assert tuple(frame.columns) == operator.columns  # what was declared is what comes
        if operator.watermark is not None and frame.isStreaming:
            frame = frame.withWatermark(operator.watermark.column, operator.watermark.delay)
        done[operator.name] = frame
    raise AssertionError("the dataflow has no sink")


def write_files(folder: Path, lines: Iterable[str], sizes: Iterable[int]) -> Path:
    """Text files with these numbers of lines (the last takes the rest), whose order is that of their times."""
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
    """Runs the query over all that is there, and gives the rows of all its batches."""
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
        assert query.awaitTermination(120), f"still running: {query.lastProgress}"
    finally:
        query.stop()
    for batch in query.recentProgress:
        progress(json.loads(batch.json))
    return rows
