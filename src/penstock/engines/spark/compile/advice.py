"""Advice for operations that Spark refuses in a streaming query."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dataflow import OutputMode

# Words of Spark's message -> the alternative.
_ALTERNATIVES = {
    "Sorting": "sort a grouped result, and declare the operator that groups it with output_mode='complete', or sort "
    "the result when you read it",
    "NON_TIME_WINDOW": "compute it per key in a keyed operator, as with groupBy and F.max_by for the latest row, or "
    "with applyInPandasWithState",
    "Sampling": "filter by a hash of a column, as with F.expr('pmod(hash(id), 10) = 0')",
    "Distinct aggregations": "or remove duplicates in a keyed operator before this one, with dropDuplicates",
    "correctness": "declare each aggregation as a keyed operator of its own",
}
PIVOT = "pivot aggregates twice"
CONDITIONAL_AGGREGATES = (
    "use one conditional aggregate per value instead, as in F.sum(F.when(F.col('kind') == 'a', F.col('n'))).alias('a')"
)
_ABOUT_MODES = ("output mode", "watermark")


def advice(error: str, mode: str, event_times: Sequence[str]) -> str:
    """Return how a query could become acceptable; "" if Spark's message does not tell.

    error: the message of Spark.
    mode: the output mode of the query.
    event_times: the columns with event time around its state.

    >>> advice("Sampling is not supported on streaming DataFrames", "append", [])
    "filter by a hash of a column, as with F.expr('pmod(hash(id), 10) = 0')"
    """
    for words, alternative in {**_ALTERNATIVES, "ORDER BY": _ALTERNATIVES["Sorting"]}.items():
        if words in error:
            return alternative
    if not any(words in error.lower() for words in _ABOUT_MODES):
        return ""
    if mode == OutputMode.COMPLETE:
        return "output_mode='complete' needs an aggregation; use output_mode='update' or 'append'"
    if event_times:
        return (
            f"its input has event time in {', '.join(event_times)}: group by it or by F.window of it, and keep it in "
            "the output; otherwise use output_mode='update'"
        )
    return (
        "its input has no event time: declare a watermark on a stream before it, as in stream.watermark('ts', '10 "
        "minutes'), whose column is still there, or use output_mode='update'"
    )


def first_sentence(message: str) -> str:
    """Return the first sentence of a message of Spark. The others explain properties that a run determines itself.

    >>> first_sentence("Detected a pattern in 'a.b'. Please refer to the guide")
    "Detected a pattern in 'a.b'"
    """
    return message.split(". ")[0]
