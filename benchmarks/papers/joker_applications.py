"""The three applications of the Joker paper (section 5.4), as dataflows for the simulator.

The paper prints neither the costs nor the selectivities of their operators. The values here follow what the text says:
the second operator of the finance application is "very cheap", and the complexity of network monitoring is "very low".
They were chosen before the results were known, except the costs of the filter and the parser of network monitoring:
these were changed after a first result, so figure 20 is no independent prediction. A source emits at most as many times
the initial throughput as the paper prints for the saturated source.
"""

from __future__ import annotations

import penstock
from penstock.apps.joker.multiplication import finish, keyed_multiply, multiply, source
from penstock.dataflow import Dataflow
from penstock.dataflow.stream import Stream

WORDS_PER_LINE = 10.0


def _lines(flow: Dataflow) -> Stream:
    """Return rows without the key of the operator with state, so that stateless operators are a region of their own."""
    return flow.source("lines", penstock.generate(lambda n: n, schema="line bigint", rows_per_s=1.0))


def word_count() -> Dataflow:
    """A stateless splitter and a keyed counter (figure 18)."""
    lines = _lines(penstock.Dataflow("word_count"))
    return finish(keyed_multiply(multiply(lines, "split", 20, WORDS_PER_LINE), "count", 32), None, None)


def finance() -> Dataflow:
    """Two operators average the trades of a symbol; a third one joins them with quotes (figure 19)."""
    flow = penstock.Dataflow("finance")
    averages = multiply(keyed_multiply(source(flow, None, 1.0, "trades"), "average", 64), "vwap", 4)
    quotes = source(flow, None, 1.0, "quotes")
    return finish(keyed_multiply([averages, quotes], "bargain", 96, key="other"), None, None)


def network_monitoring() -> Dataflow:
    """A stateless filter and parser, and a keyed region in which only the first operator has state (figure 20)."""
    lines = _lines(penstock.Dataflow("network_monitoring"))
    failures = lines.rows("failures_4", lambda row: row, schema="line bigint", selectivity=0.625)
    attempts = keyed_multiply(multiply(failures, "parse", 12), "attempts", 64)
    return finish(multiply(multiply(attempts, "cutoff", 4, 0.5), "diff", 4), None, None)
