"""The exponential moving average."""

from __future__ import annotations

import math
from typing import Any

from penstock.dataflow.errors import DataflowError
from penstock.dataflow.operator_class import operator


@operator(inputs=1, needs_state=True)
class ExponentialAverage:
    """Emits each row with the exponential moving average of a column up to this row.

    The average starts with the first value. It then becomes `weight * value + (1 - weight) * average`. A row without a
    value leaves it unchanged. Declare the operator with keys (an average per key) or with `global_state=True`.

    Args:
        column: The column with the values.
        weight: The weight of a new value, above 0 and at most 1.
        output: The column that is added to the row.

    Raises:
        DataflowError: The weight is not above 0 and at most 1.

    >>> import penstock
    >>> average = ExponentialAverage("price", weight=0.5)
    >>> runner = penstock.OperatorRunner(average, global_state=True, schema="price double, average double")
    >>> runner.feed([{"price": 8.0}, {"price": 4.0}])
    [{'price': 8.0, 'average': 8.0}, {'price': 4.0, 'average': 6.0}]
    """

    def __init__(self, column: str, weight: float, output: str = "average") -> None:
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not (0 < weight <= 1):
            raise DataflowError(f"ExponentialAverage has weight={weight!r}; give a number above 0 and at most 1.")
        self._column = column
        self._weight = weight
        self._output = output

    def invoke(self, ctx: Any) -> None:
        row, average = ctx.row, ctx.state.get("average")
        value = row[self._column]
        if value is not None and not math.isnan(value):
            average = float(value) if average is None else average + self._weight * (float(value) - average)
            ctx.state["average"] = average
        ctx.emit({**row, self._output: average})
