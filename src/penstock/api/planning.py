"""`penstock.outline`, `penstock.assign` and `penstock.allocate`: plans that need no run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from penstock.api.input_files import curves_at, dataflow_from, read_file
from penstock.api.policy_options import OptionError
from penstock.api.record import RunRecord, open_run
from penstock.dataflow import Dataflow
from penstock.dataflow.errors import PlanError
from penstock.plan import Routing, default_plan

if TYPE_CHECKING:
    from penstock.planning.stations import AssignmentResult, StationsDocument
    from penstock.report.dataflow_outline import DataflowOutline
    from penstock.report.thread_schedule import ScheduleReport

_SEARCHED_WINDOWS = 200


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
    dataflow: Dataflow | str | Path,
    *,
    rate: float,
    curves: str | Path,
    method: Literal["mba", "lsa"] = "mba",
    mapping: Literal["dsm", "rsm", "sam"] = "sam",
    vms: str | Path | None = None,
    like: RunRecord | str | Path | None = None,
    plan: str | Path | None = None,
    routing: Routing = "capacity",
    groups: bool | None = None,
) -> ScheduleReport:
    """Allocate threads, slots and VMs for an input rate in rows/s, and predict the rate that they sustain.

    For a dataflow of operators, the report also contains a plan with replicas, threads and cuts. `penstock schema`
    prints the formats of the JSON files.

    Args:
        dataflow: A dataflow, "FILE[:name]" or "MODULE[:name]", or a JSON file with the tasks, their selectivities and
            connections.
        rate: Input rate in rows/s.
        curves: JSON file with the performance curve of each task: rate, CPU and memory by number of threads; or the
            directory of a study by `measure_curves`.
        method: Allocation of threads: model-based ("mba") or linear scaling ("lsa").
        mapping: Placement of threads on slots: "dsm", "rsm" or "sam".
        vms: JSON file with the sizes of VMs that can be rented. Without it, each slot is a VM.
        like: A record, or the directory of a run, whose measured selectivities and fixed times of batches are used.
        plan: File to write the plan to, for `penstock.run`. A plan that does not sustain the rate is not written.
            The prediction is written beside it, for the status and the report of the run.
        routing: Replicas receive rows in proportion to what they sustain ("capacity"), or all the same ("even").
        groups: Whether the plan has groups of executors, which require a cluster; default: only if the sizes of VMs
            are given.

    Raises:
        PlanError: The plan does not sustain the rate, and a file for it is given.
        PenstockError: A file cannot be read, or the rate cannot be reached.
    """
    from penstock.models.flow import flow_from_json
    from penstock.planning.plan_prediction import PlanPrediction, SlotUse, prediction_file
    from penstock.planning.thread_plan import tasks_of, thread_plan
    from penstock.planning.thread_schedule import schedule_threads
    from penstock.planning.vms import ONE_SLOT, acquire, sizes_from_json
    from penstock.report.thread_schedule import schedule_report

    is_document = isinstance(dataflow, Path) or (isinstance(dataflow, str) and dataflow.endswith(".json"))
    if is_document and (plan is not None or like is not None):
        raise OptionError("A plan requires a dataflow of operators: give FILE[:name] instead of a JSON file.")
    measured = curves_at(Path(curves))
    sizes = (ONE_SLOT,) if vms is None else sizes_from_json(read_file(Path(vms), "VM sizes"))
    if isinstance(dataflow, Path) or is_document:
        flow = flow_from_json(read_file(Path(str(dataflow)), "dataflow"))
        schedule = schedule_threads(flow, rate, measured, method=method, mapping=mapping, sizes=sizes)
        return schedule_report(schedule, measured, sizes)
    declared = dataflow_from(dataflow)
    tasks, used = tasks_of(declared, measured, _selectivities(like))
    schedule = schedule_threads(tasks, rate, used, method=method, mapping=mapping, sizes=sizes)
    has_groups = groups if groups is not None else vms is not None
    planned = thread_plan(declared, schedule, used, measured, routing=routing, groups=has_groups)
    shortfall = planned.shortfall(rate)
    prediction = PlanPrediction(
        plan=planned.plan,
        rows_per_s=rate,
        sustained_rows_per_s=planned.rows_per_s,
        latency_s=planned.latency_s(
            declared,
            schedule.flow,
            {name: used[name] for name in measured if name in used},
            rate,
            fixed_s=_fixed_s(like),
        ),
        use={
            name: SlotUse(cpu=use.cpu, memory=use.memory)
            for name, use in planned.use(used, schedule.flow, rate).items()
        },
        price_per_h=acquire(planned.plan.slots, sizes).price_per_h,
    )
    if plan is not None:
        if shortfall is not None:
            raise PlanError(
                f"No plan is written, because {shortfall}. Use method 'mba', declare '{planned.binding}' so that it "
                "can have more replicas or threads, or give a lower rate."
            )
        Path(plan).write_text(planned.plan.to_json())
        prediction_file(Path(plan)).write_text(prediction.to_json())
    return msgspec.structs.replace(
        schedule_report(schedule, used, sizes),
        plan=planned.plan,
        plan_latency_s=prediction.latency_s,
        plan_price_per_h=prediction.price_per_h,
        plan_use=prediction.use,
        plan_rows_per_s=planned.rows_per_s,
        plan_binding=planned.binding or None,
        plan_notes=planned.notes if shortfall is None else (shortfall, *planned.notes),
    )


def _selectivities(like: RunRecord | str | Path | None) -> dict[str, float]:
    """Return the selectivities that a run measured in its latest window with rows of each operator."""
    if like is None:
        return {}
    record = _record(like)
    measured = record.operators(last=_SEARCHED_WINDOWS).dropna(subset=["selectivity"])
    return {str(name): float(rows["selectivity"].iloc[-1]) for name, rows in measured.groupby("operator")}


def _fixed_s(like: RunRecord | str | Path | None) -> float:
    """Return the seconds per batch that do not depend on its rows: the mean of a run, or the default of simulations."""
    from penstock.engines.simulated.behaviour import SimulatedBatchCosts
    from penstock.store import StoreReader

    if like is not None:
        with StoreReader(_record(like).directory) as reader:
            known = [
                pipeline.fixed_s.value
                for _, window in reader.windows(last=_SEARCHED_WINDOWS)
                for pipeline in window.pipelines
                if pipeline.fixed_s is not None and pipeline.fixed_s.value is not None
            ]
        if known:
            return sum(known) / len(known)
    return SimulatedBatchCosts().batch_s


def _record(like: RunRecord | str | Path) -> RunRecord:
    return like if isinstance(like, RunRecord) else open_run(like)
