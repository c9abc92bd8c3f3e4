"""The advice that follows Spark's message about an operation that a stream does not support.

The messages are those of Spark 4.3.0.
"""

from __future__ import annotations

import pytest

from penstock.engines.spark.compile.advice import advice


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "Sorting is not supported on streaming DataFrames/Datasets, unless it is on aggregated DataFrame/Dataset in "
            "Complete output mode",
            "output_mode='complete'",
        ),
        (
            "[NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING] Window function is not supported in ROW_NUMBER() (as column "
            "`r`) on streaming DataFrames/Datasets.",
            "F.max_by",
        ),
        ("Sampling is not supported on streaming DataFrames/Datasets", "hash"),
        (
            "Distinct aggregations are not supported on streaming DataFrames/Datasets. Consider using "
            "approx_count_distinct() instead.",
            "dropDuplicates",
        ),
        (
            "Detected pattern of possible 'correctness' issue due to global watermark. The query contains stateful "
            "operation which can emit rows older than the current watermark",
            "an operator|operator of its own",
        ),
    ],
)
def test_an_unsupported_operation_is_not_blamed_on_the_watermark(error: str, said: str) -> None:
    text = advice(error, "update", [])
    assert any(words in text for words in said.split("|")) and "output_mode='update'" not in text


def test_a_missing_watermark_is_explained() -> None:
    error = (
        "Append output mode not supported when there are streaming aggregations on streaming DataFrames/DataSets "
        "without watermark"
    )
    assert "declare a watermark on a stream" in advice(error, "append", [])
    assert "its input has event time in at" in advice(error, "append", ["at"])
    assert "needs an aggregation" in advice("Complete output mode not supported without aggregations", "complete", [])


def test_an_unknown_message_has_no_advice() -> None:
    assert advice("Chain of multiple zips is not supported", "append", []) == ""
