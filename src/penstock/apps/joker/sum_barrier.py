"""Figure 2: the sum barrier, a keyed operator with two input ports.

It takes `batch` rows of a key from each port, pairs them, and adds the larger number of each pair. It emits the sum of
the batch. The total per key is its state; the total is emitted too, so that the output shows the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import penstock
from penstock.apps.comparison import differences
from penstock.apps.input_output import default_sink, generated
from penstock.apps.seeded_random import random_bits
from penstock.dataflow.sinks import Sink

KEYS = 13
BATCH = 10
_SEED = 0x6A6F6B65


@penstock.operator(inputs=2, outputs=1, schema="key bigint, batch_sum bigint, total bigint")
class SumBarrier:
    def schedule(self, config: Mapping[str, Any]) -> Any:
        return penstock.when_all(rows=config["rows"], count="exact")

    def invoke(self, ctx: Any) -> None:
        batch_sum = sum(max(a["num"], b["num"]) for a, b in zip(ctx.rows(0), ctx.rows(1), strict=True))
        ctx.state["total"] = ctx.state.get("total", 0) + batch_sum
        ctx.emit({"key": ctx.key["key"], "batch_sum": batch_sum, "total": ctx.state["total"]})


def generator(n: int) -> tuple[int, int, int]:
    """Return row n: a port, a key and a number."""
    bits = random_bits(n, _SEED)
    return bits & 1, (bits >> 8) % KEYS, (bits >> 32) % 1000


def flow(
    output: Sink | None = None, *, rows: int | None = None, rows_per_s: float | None = None, batch: int = BATCH
) -> penstock.Dataflow:
    """Return the dataflow: one source, whose rows go to one of the two ports."""
    flow = penstock.Dataflow("sum_barrier")
    schema = "port int, key bigint, num bigint"
    source = flow.source("numbers", generated(generator, schema, rows, rows_per_s))
    left = source.stateless("left", lambda df: df.where("port = 0").select("key", "num"), columns=["key", "num"])
    right = source.stateless("right", lambda df: df.where("port = 1").select("key", "num"), columns=["key", "num"])
    sums = flow.operator("sums", SumBarrier(), inputs=[left, right], keys=["key"], rows=batch)
    sums.sink("out", default_sink(output, rows))
    return flow


def oracle(rows: int, batch: int = BATCH) -> Counter[tuple[int, int, int]]:
    """Return the output for the first `rows` rows.

    >>> oracle(rows=2, batch=1) == Counter()
    True
    """
    numbers: dict[tuple[int, int], list[int]] = {}
    for n in range(rows):
        port, key, number = generator(n)
        numbers.setdefault((key, port), []).append(number)
    output: Counter[tuple[int, int, int]] = Counter()
    for key in range(KEYS):
        pairs = list(map(max, zip(numbers.get((key, 0), ()), numbers.get((key, 1), ()), strict=False)))
        for end in range(batch, len(pairs) + 1, batch):
            output[key, sum(pairs[end - batch : end]), sum(pairs[:end])] += 1
    return output


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int, int]]:
    """Return how often each row occurs."""
    return Counter((row["key"], row["batch_sum"], row["total"]) for row in output)


def check(output: Iterable[Mapping[str, Any]], rows: int, batch: int = BATCH) -> list[str]:
    """Return the differences between the output and the oracle."""
    return differences(oracle(rows, batch), actual(output))
