"""Operator classes for common tasks, written with `penstock.operator`.

| class | output |
| --- | --- |
| `Barrier` | one row for one row of each port |
| `Map`, `Filter`, `FlatMap`, `ForEach` | functions of a row |
| `ExponentialAverage` | the moving average of a column |
| `TumblingWindow`, `SlidingWindow` | a result for a number of rows |
"""

from penstock.operators.barrier import Barrier
from penstock.operators.exponential_average import ExponentialAverage
from penstock.operators.row_functions import Filter, FlatMap, ForEach, Map
from penstock.operators.windows import SlidingWindow, TumblingWindow

__all__ = [
    "Barrier",
    "ExponentialAverage",
    "Filter",
    "FlatMap",
    "ForEach",
    "Map",
    "SlidingWindow",
    "TumblingWindow",
]
