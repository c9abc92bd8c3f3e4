"""An operator with two input ports: it waits for ten rows of a key at both ports, and adds the larger ones.

Run it with `python barrier.py`, or use the dataflow from the command line:

    penstock run barrier.py --at runs/barrier
    penstock rescale runs/barrier sums=3
"""

import penstock

ROWS, KEYS = 4_000, 5


@penstock.operator(inputs=2, outputs=1, keys=["key"], schema="key long, batch_sum long")
class SumBarrier:
    def schedule(self, config):
        return penstock.when_all(rows=config.get("rows", 10), count="exact")

    def invoke(self, ctx):
        total = sum(max(a["num"], b["num"]) for a, b in zip(ctx.rows(0), ctx.rows(1), strict=True))
        ctx.state["sum"] = ctx.state.get("sum", 0) + total
        ctx.emit({"key": ctx.key["key"], "batch_sum": total})


def numbers(factor):
    return penstock.generate(
        lambda n: {"key": n % KEYS, "num": n * factor % 1_000},
        schema="key long, num long",
        rows=ROWS,
        rows_per_s=800,
    )


flow = penstock.Dataflow("barrier")
left = flow.source("left", numbers(17))
right = flow.source("right", numbers(31))
sums = flow.operator("sums", SumBarrier(), inputs=[left, right], rows=10)
sums.sink("out", penstock.memory())

if __name__ == "__main__":
    with penstock.run(flow, at="runs/barrier") as run:
        run.rescale(sums=3)
        run.wait_until_idle()
        rows = run.rows("out")
    expected = sum(max(n * 17 % 1_000, n * 31 % 1_000) for n in range(ROWS))
    assert sum(row["batch_sum"] for row in rows) == expected, "the stream and the formula disagree"
    print(f"{len(rows)} batches with the sum {expected}, as expected.")
