"""`penstock.outline`: the structure of a dataflow before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.input_files import dataflow_from
from penstock.dataflow import Dataflow
from penstock.plan import default_plan

if TYPE_CHECKING:
    from penstock.report.dataflow_outline import DataflowOutline


def outline(flow: Dataflow | str, *, slots: int = 2) -> DataflowOutline:
    """Return the operators, the default plan for `slots`, its queries, and the reason for each cut.

    Args:
        flow: A dataflow, "FILE[:name]" or "MODULE[:name]".
        slots: Number of tasks that run at the same time.

    Raises:
        DataflowError: The dataflow cannot be loaded or is incomplete.
    """
    from penstock.report.dataflow_outline import dataflow_outline

    dataflow = dataflow_from(flow)
    return dataflow_outline(dataflow, default_plan(dataflow, slots=slots))
