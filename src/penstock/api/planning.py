"""`penstock.outline`, `penstock.assign` and `penstock.allocate`: plans that need no run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.api.input_files import dataflow_from, read_file
from penstock.dataflow import Dataflow
from penstock.plan import default_plan

if TYPE_CHECKING:
    from penstock.planning.stations import AssignmentResult, StationsDocument
    from penstock.report.dataflow_outline import DataflowOutline
    from penstock.report.thread_schedule import ScheduleReport


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


def assign(
    stations: StationsDocument | str | Path,
    *,
    processors: int | None = None,
    latency_s: float | None = None,
    quantile: float | None = None,
) -> AssignmentResult:
    """Assign processors to operators: the lowest latency within `processors`, or the fewest that meet `latency_s`.

    Args:
        stations: A document, or the path of its JSON file; `penstock schema stations` prints the format.
        processors: Number of processors to distribute.
        latency_s: Latency target.
        quantile: Apply the target to this quantile of the latency instead of the mean.

    Raises:
        PlanError: Both or none of the two goals are given, or the goal cannot be reached.
    """
    from penstock.planning.stations import StationsDocument, plan_stations

    document = (
        stations
        if isinstance(stations, StationsDocument)
        else StationsDocument.from_json(read_file(Path(stations), "stations"))
    )
    return plan_stations(document, processors=processors, latency_s=latency_s, quantile=quantile)


def allocate(
    dataflow: str | Path,
    *,
    rate: float,
    curves: str | Path,
    method: Literal["mba", "lsa"] = "mba",
    mapping: Literal["dsm", "rsm", "sam"] = "sam",
    vms: str | Path | None = None,
) -> ScheduleReport:
    """Allocate threads, slots and VMs for an input rate in rows/s, and predict the rate that they sustain.

    `penstock schema` prints the formats of the three files.

    Args:
        dataflow: JSON file with the tasks, their selectivities and connections.
        rate: Input rate in rows/s.
        curves: JSON file with the performance curve of each task: rate, CPU and memory by number of threads.
        method: Allocation of threads: model-based ("mba") or linear scaling ("lsa").
        mapping: Placement of threads on slots: "dsm", "rsm" or "sam".
        vms: JSON file with the sizes of VMs that can be rented. By default each slot is a VM.

    Raises:
        PenstockError: A file cannot be read, or the rate cannot be reached.
    """
    from penstock.models.curve import curves_from_json
    from penstock.models.flow import flow_from_json
    from penstock.planning.thread_schedule import schedule_threads
    from penstock.planning.vms import ONE_SLOT, sizes_from_json
    from penstock.report.thread_schedule import schedule_report

    flow = flow_from_json(read_file(Path(dataflow), "dataflow"))
    known_curves = curves_from_json(read_file(Path(curves), "curves"))
    sizes = (ONE_SLOT,) if vms is None else sizes_from_json(read_file(Path(vms), "VM sizes"))
    schedule = schedule_threads(flow, rate, known_curves, method=method, mapping=mapping, sizes=sizes)
    return schedule_report(schedule, known_curves, sizes)
