"""`penstock.whatif`: a recorded run under another plan, load or limit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.api.input_files import dataflow_from, plan_from
from penstock.api.policy_options import OptionError, PolicyOptions, controller_settings, create_policy
from penstock.dataflow import Dataflow
from penstock.dataflow.argument_types import checked_types
from penstock.dataflow.local_paths import local_directory
from penstock.plan.counts import slots_text
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from penstock.api.record import RunRecord
    from penstock.control.whatif import Recording, WhatIf
    from penstock.store import StoreReader


@checked_types(OptionError)
def whatif(
    run: RunRecord | str | Path,
    *,
    plan: Plan | str | Path | None = None,
    rate: float = 1.0,
    max_slots: int | None = None,
    executors: tuple[int, int] | None = None,
    latency_s: float | None = None,
    quantile: float | None = None,
    flow: Dataflow | str | None = None,
    seed: int = 0,
) -> WhatIf:
    """Replay a recorded run in the simulator, with its load and its learned costs, under another plan, load or limit.

    A given `plan` is used all the time. If `max_slots` or `executors` is given, policy auto chooses the plans. Without
    these, the recorded plans are used at their recorded times.

    Args:
        run: A record, or the directory of a run or of a simulation.
        plan: A plan, or the path of its JSON file.
        rate: Factor of the recorded load.
        max_slots: Slots that policy auto may use; they may be more than the run had. If the run had executors, the
            policy chooses their number, so that they have at most these slots.
        executors: Smallest and largest number of executors that policy auto may use, if the run had executors.
        latency_s: Latency target of the policy, and of the share of late windows; default: the target of the run.
        quantile: Apply the target to this quantile (0.5, 0.95 or 0.99) instead of the mean.
        flow: The dataflow, if the record does not name its file, or if the file has moved.
        seed: Seed of the random numbers.

    Returns:
        Latency, share of late windows and cost as recorded, as reproduced by the simulator, and as they would have
        been, with 90 % intervals.

    Raises:
        OptionError: An option has an invalid value or does not fit the others.
        PenstockError: The directory has no record, or the record lacks measurements.
    """
    from penstock.control.whatif import Controlled, Planned, recording_of, what_if, with_target
    from penstock.plan import validated
    from penstock.store import LatencyTarget, StoreReader

    if plan is not None and (max_slots is not None or executors is not None):
        raise OptionError("A plan was given together with a limit for policy 'auto'; give one of them.")
    if quantile is not None and latency_s is None:
        raise OptionError("A quantile requires a latency target: give latency_s (--latency-ms) as well.")
    if not 0 < rate < float("inf"):
        raise OptionError(f"rate is {rate:g}; it must be a factor above 0, such as 2.")
    target = None if latency_s is None else LatencyTarget(seconds=latency_s, quantile=quantile)
    directory = local_directory(run if isinstance(run, str | Path) else run.directory)
    with StoreReader(directory) as reader:
        recording = with_target(recording_of(reader, _flow_of(reader, directory, flow)), target)
    load = f"{rate:g}x the load" if rate != 1.0 else "the recorded load"
    if plan is not None:
        chosen = validated(recording.flow, plan_from(plan))
        return what_if(
            recording, Planned(((0.0, chosen),)), question=f"the given plan under {load}", rate=rate, seed=seed
        )
    if max_slots is None and executors is None:
        return what_if(
            recording, Planned(recording.plans), question=f"the recorded plans under {load}", rate=rate, seed=seed
        )
    options = _options(recording, max_slots, executors)
    question = f"policy 'auto' with at most {_limit_text(options)} under {load}"
    settings = controller_settings(options, window_s=recording.step_s, micro_batch=recording.micro_batch)
    slots = max_slots if options.executors is None else None
    asked = Controlled(create_policy(options), settings, slots)
    return what_if(recording, asked, question=question, rate=rate, seed=seed)


def _options(recording: Recording, max_slots: int | None, executors: tuple[int, int] | None) -> PolicyOptions:
    target, cores = recording.target, recording.slots_per_executor
    if cores is None and executors is not None:
        raise OptionError(
            "The run has no executors whose number could change; give max_slots (--max-slots) instead of executors."
        )
    if cores is not None and executors is None and max_slots is not None:
        if max_slots < cores:
            raise OptionError(f"max_slots is {max_slots}, but one executor of the run has {slots_text(cores)}.")
        executors = (1, max_slots // cores)
    options = PolicyOptions(
        policy="auto",
        mode="active",
        latency_s=None if target is None else target.seconds,
        quantile=None if target is None else target.quantile,
        max_slots=max_slots,
        executors=executors,
        executor_cores=cores,
        micro_batch=recording.micro_batch,
    )
    options.check()
    return options


def _limit_text(options: PolicyOptions) -> str:
    slots = None if options.max_slots is None else slots_text(options.max_slots)
    if options.executors is None:
        return slots or ""
    most = options.executors[1]
    executors = f"{most} executor{'' if most == 1 else 's'}"
    return executors if slots is None else f"{slots} of {executors}"


def _flow_of(reader: StoreReader, directory: Path, flow: Dataflow | str | None) -> Dataflow:
    if flow is not None:
        return dataflow_from(flow)
    start = reader.last_run()
    if start is None or start.flow_file == "-":
        raise OptionError(f"The record in '{directory}' names no file of its dataflow; give flow (--flow FILE[:name]).")
    return dataflow_from(start.flow_file)
