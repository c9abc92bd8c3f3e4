"""Figure 21: seven multiplication operators with different state, work and selectivity.

The text of the paper gives `mult3` only (20 multiplications, selectivity 0.9). It says that there are keyed regions
upstream and downstream and a region with global state between them, which limits the throughput if the selectivities
are high. The other values are chosen here so that this holds. All selectivities are multiplied by `factor`.
"""

from __future__ import annotations

import penstock
from penstock.apps.joker.multiplication import finish, global_multiply, keyed_multiply, multiply, source
from penstock.dataflow import Dataflow
from penstock.dataflow.sinks import Sink

# Name, multiplications and selectivity; the first and the fifth are keyed, and the fourth has global state.
OPERATORS = (
    ("mult1", 60, 0.9),
    ("mult2", 60, 0.9),
    ("mult3", 20, 0.9),
    ("mult4", 30, 0.9),
    ("mult5", 80, 0.9),
    ("mult6", 80, 0.9),
    ("mult7", 40, 0.9),
)
FACTORS = (0.1, 0.2, 0.4, 0.8, 1.0)  # selectivity factors of the experiments


def seven_operators(
    output: Sink | None = None,
    *,
    factor: float = 1.0,
    rows: int | None = None,
    rows_per_s: float | None = None,
) -> Dataflow:
    stream = source(penstock.Dataflow("seven_operators"), rows, rows_per_s)
    for number, (name, times, selectivity) in enumerate(OPERATORS, start=1):
        kept = selectivity * factor
        if number in (1, 5):
            stream = keyed_multiply(stream, name, times, key="key" if number == 1 else "other", selectivity=kept)
        elif number == 4:
            stream = global_multiply(stream, name, times, kept)
        else:
            stream = multiply(stream, name, times, kept)
    return finish(stream, output, rows)
