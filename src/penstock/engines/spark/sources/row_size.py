"""How large a row of a source is: by its first rows, as Arrow holds them."""

from __future__ import annotations

from pathlib import Path

from penstock.dataflow import Dataflow, Kind
from penstock.engines.spark.sources.live import live_source
from penstock.engines.spark.sources.numbered import NumberedSource

_ROWS = 1_000


def row_bytes(flow: Dataflow, folder: Path) -> float | None:
    """The mean over its sources; None where one of them cannot be looked into."""
    sizes = []
    for operator in flow.operators:
        if operator.kind is not Kind.SOURCE:
            continue
        source = live_source(operator, folder)
        if not isinstance(source, NumberedSource):
            return None
        size, rows = source.size_of(_ROWS)
        if rows == 0:
            return None
        sizes.append(size / rows)
    return sum(sizes) / len(sizes) if sizes else None
