"""SOL (speed of light): rows pass through stages that do not change them.

The app measures the cost of moving rows. Without cuts, Spark fuses the stages into one and moves nothing. A plan with a
cut after each stage, `{"cuts": ["hop1", "hop2"]}`, sends every row through as many channels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import default_sink, generated
from penstock.apps.seeded_random import random_bits
from penstock.dataflow.sinks import Sink

STAGES = 3
SCHEMA = "n bigint, value string"
_SEED = 0x736F6C

Message = tuple[int, str]  # row number, 96 characters


def generator(n: int) -> Message:
    """Return message n: its number and 96 characters.

    >>> n, value = generator(7)
    >>> n, len(value)
    (7, 96)
    """
    return n, "".join(f"{random_bits(6 * n + part, _SEED):016x}" for part in range(6))


def hop(messages: DataFrame) -> DataFrame:
    return messages


def flow(
    output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None, stages: int = STAGES
) -> penstock.Dataflow:
    """Return the dataflow with operators hop1, hop2, ..., one per stage."""
    if stages < 1:
        raise penstock.DataflowError(f"The app sol is given stages={stages}; give 1 or more.")
    flow = penstock.Dataflow("sol")
    stream = flow.source("messages", generated(generator, SCHEMA, rows, rows_per_s))
    for number in range(1, stages + 1):
        stream = stream.stateless(f"hop{number}", hop, columns=["n", "value"])
    stream.sink("out", default_sink(output, rows))
    return flow


def oracle(rows: int) -> Counter[Message]:
    """Return each message once."""
    return Counter(generator(n) for n in range(rows))


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Message]:
    return Counter((row["n"], row["value"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows), actual(output))
