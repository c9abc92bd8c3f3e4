"""Operators in output mode complete: each batch emits the whole result, so only a sink that replaces it may follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.dataflow.errors import DataflowError
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.operators import Kind, Operator

if TYPE_CHECKING:
    from penstock.dataflow.dataflow import Dataflow


def check(flow: Dataflow, operator: Operator) -> None:
    """Raise DataflowError unless the output goes to one sink that can replace the previous result."""
    for current in operators_with_whole_result(flow, operator):
        consumers = flow.consumers(current.name)
        if len(consumers) != 1:
            _refuse(operator, f"{len(consumers)} operators read '{current.name}'")
        (consumer,) = consumers
        if len(consumer.inputs) != 1:
            _refuse(operator, f"'{consumer.name}' also reads other streams")
        if consumer.kind.has_state:
            _refuse(operator, f"'{consumer.name}' would receive every result again in each batch")
        if isinstance(consumer.sink, Kafka):
            _refuse(operator, f"the records of Kafka sink '{consumer.name}' cannot be replaced")


def operators_with_whole_result(flow: Dataflow, operator: Operator) -> Iterator[Operator]:
    """Yield an operator in complete mode and the stateless operators behind it."""
    while operator.kind is not Kind.SINK:
        yield operator
        operator = flow.consumers(operator.name)[0]


def _refuse(operator: Operator, reason: str) -> None:
    raise DataflowError(
        f"Operator '{operator.name}' has output_mode='complete', whose result replaces the previous one, but {reason}; "
        "send its output through stateless operators to one sink (parquet, memory, foreach_batch or noop), or use "
        "output_mode='update'."
    )
