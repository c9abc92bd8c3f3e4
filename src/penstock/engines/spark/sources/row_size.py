"""How large a row of a source is: by its first rows, as Arrow holds them or as Kafka sends them."""

from __future__ import annotations

from pathlib import Path

from penstock.dataflow import Dataflow, Kind
from penstock.engines.spark.sources.factory import create_source

_ROWS = 1_000


def row_bytes(flow: Dataflow, folder: Path) -> float | None:
    """The mean over its sources; None where one of them cannot be looked into."""
    sizes = []
    for operator in flow.operators:
        if operator.kind is not Kind.SOURCE:
            continue
        found = create_source(operator, folder).size_of(_ROWS)
        if found is None or found[1] == 0:
            return None
        sizes.append(found[0] / found[1])
    return sum(sizes) / len(sizes) if sizes else None
