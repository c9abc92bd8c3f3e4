"""SOL, the speed of light: rows that go through a number of stages which do nothing to them.

What remains is the cost of moving rows. Uncut, Spark fuses the stages into one and moves nothing; a plan with a cut
behind each of them, `{"cuts": ["hop1", "hop2"]}`, sends every row through as many channels.
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
    """
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
    """The dataflow with operators hop1, hop2, ... one a stage."""
    if stages < 1:
        raise penstock.DataflowError(f"sol is given stages={stages}; it needs one or more")
    flow = penstock.Dataflow("sol")
    stream = flow.source("messages", generated(generator, SCHEMA, rows, rows_per_s))
    for number in range(1, stages + 1):
        stream = stream.stateless(f"hop{number}", hop, columns=["n", "value"])
    stream.sink("out", default_sink(output, rows))
    return flow


def oracle(rows: int) -> Counter[Message]:
    """Each message once."""
    return Counter(generator(n) for n in range(rows))


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[Message]:
    return Counter((row["n"], row["value"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """How the output differs from the oracle's: messages that are missing, or there more than once."""
    return differences(oracle(rows), actual(output))
