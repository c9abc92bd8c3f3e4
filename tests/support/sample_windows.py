"""Windows with plausible numbers, for tests that store or show them."""

from __future__ import annotations

from penstock.measure.window import Latency, OperatorWindow, PipelineWindow, Window


def operator(name: str, pipeline: str = "out", **known: object) -> OperatorWindow:
    return OperatorWindow.knowing(name, pipeline, **known)


def window(number: int = 0, *, latency: bool = True) -> Window:
    return Window(
        start_s=1000.0 + 2 * number,
        end_s=1002.0 + 2 * number,
        generation=1,
        external_rows_per_s=2000.0,
        latency=Latency(rows=4000, mean_s=0.9, p50_s=0.81, p95_s=1.62, p99_s=2.4) if latency else None,
        pipelines=(
            PipelineWindow(
                pipeline="out",
                operators=("lines", "split", "count", "out"),
                batches=3,
                rows_in=4000,
                batch_s=0.5,
                batch_max_s=0.75,
                phases_s={"addBatch": 0.4},
                busy_s=1.5,
                backlog_rows=1234567,
            ),
        ),
        operators=(
            operator("lines", rows_in=4000, rows_out=4000, input_rows_per_s=2000.0, backlog_rows=1234567),
            operator(
                "split",
                replicas=2,
                rows_in=4000,
                rows_out=36000,
                input_rows_per_s=2000.0,
                seconds_per_row=12.5e-6,
                utilisation=0.0125,
            ),
            operator(
                "count",
                replicas=4,
                rows_in=36000,
                rows_out=9000,
                seconds_per_row=0.0021,
                utilisation=0.875,
                state_rows=70,
            ),
            operator("out", replicas=4, rows_in=9000),
        ),
    )
