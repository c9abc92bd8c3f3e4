"""`penstock.simulate`: a policy on a simulated dataflow, under a load from a trace."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from penstock.api.input_files import dataflow_from, plan_from, prediction_for, read_text
from penstock.api.notebook import html_grid, html_table
from penstock.api.policy_options import Mode, OptionError, PolicyOptions, Queue, controller_settings, create_policy
from penstock.api.record import RunRecord
from penstock.api.simulated_costs import limited_batches, operator_costs, record_of_costs
from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.dataflow import Dataflow, Kind
from penstock.dataflow.argument_types import checked_types
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.local_paths import local_directory
from penstock.dataflow.regions import regions
from penstock.plan import Plan, Routing, default_plan
from penstock.plan.plan import diff

if TYPE_CHECKING:
    import pandas as pd

    from penstock.control.simulation import SimulationSummary
    from penstock.engines.simulated import Behaviour
    from penstock.planning.trace import Trace
    from penstock.store import DecisionRecord

EngineMode = Literal["row-by-row", "micro-batch", "fluid"]
ENGINES: tuple[EngineMode, ...] = ("row-by-row", "micro-batch", "fluid")
_DEFAULT_SLOTS = 2


class Simulation:
    """The result of a simulation: totals, and all decisions of the policy."""

    def __init__(
        self, totals: SimulationSummary, decisions: list[tuple[int, DecisionRecord]], changes: list[DecisionRecord]
    ) -> None:
        self.totals = totals
        self._decisions = decisions
        self.changes = changes

    def decisions(self) -> pd.DataFrame:
        """Return one row per decision; the time starts at 0, which is shown as 1970-01-01."""
        from penstock.api.frames import decisions_frame

        return decisions_frame(self._decisions)

    def __repr__(self) -> str:
        totals = self.totals
        return (
            f"<Simulation of policy '{totals.policy}': {totals.seconds / 3600:.2f} h, "
            f"{totals.slot_seconds / 3600:.2f} slot-hours, {totals.changes} changes, "
            f"{self._violations()} violations>"
        )

    def _violations(self) -> str:
        totals = self.totals
        return "no target," if totals.violations is None else f"{totals.violations} of {totals.windows}"

    def _repr_html_(self) -> str:
        totals = self.totals
        summary = [
            ("hours", f"{totals.seconds / 3600:.2f}"),
            ("slot-hours", f"{totals.slot_seconds / 3600:.2f}"),
            ("windows above the target", self._violations()),
            ("changes", totals.changes),
            ("rolled back", totals.rolled_back),
            ("paused", f"{totals.pause_s:.1f} s"),
            ("mean latency", "-" if totals.mean_latency_s is None else f"{totals.mean_latency_s:.3g} s"),
        ]
        rows = [
            (f"{change.at_s:,.0f} s", str(diff(change.old, change.new)), change.reason_code, change.verdict or "-")
            for change in self.changes
            if change.new is not None
        ]
        changes = html_grid("plan changes", ("at", "change", "reason code", "verdict"), rows) if rows else ""
        return html_table(f"simulation of policy {totals.policy}", summary) + changes


@checked_types(OptionError)
def simulate(
    flow: Dataflow | str,
    *,
    trace: str | Path,
    policy: str | None = None,
    peak: float | None = None,
    like: RunRecord | str | Path | None = None,
    behaviour: Behaviour | str | Path | None = None,
    engine: EngineMode = "row-by-row",
    plan: Plan | str | Path | None = None,
    routing: Routing | None = None,
    slots: int | None = None,
    window_s: float = 10.0,
    seed: int = 0,
    at: str | Path | None = None,
    mode: Mode = "active",
    latency_s: float | None = None,
    release_below_s: float | None = None,
    quantile: float | None = None,
    max_slots: int | None = None,
    executors: tuple[int, int] | None = None,
    executor_cores: int | None = None,
    cooldown_s: float = 60.0,
    quiet_hours: str | None = None,
    windows: int = 5,
    alpha: float | None = None,
    warm_up_s: float = 15.0,
    catch_up_s: float = 120.0,
    mst_study: str | Path | None = None,
    adaptation: AdaptationParameters | None = None,
    thread_s: float = 0.0,
    replica_s: float = 0.0,
    profile: str | Path | None = None,
    drift_s: float = 60.0,
    curves: str | Path | None = None,
    queue: Queue | None = None,
) -> Simulation:
    """Simulate a dataflow under a policy and return the slots used, the violations of the target and the decisions.

    Parameters that are not listed here have the same meaning as in `penstock.run`.

    Args:
        trace: CSV file with the columns time_s,rate or time,rate. Every source follows it.
        peak: Scale the trace so that its highest rate is this many rows/s.
        like: A record, or the directory of a run, whose measured operator costs are used.
        behaviour: Cost of the operators, as a value or as a JSON file; give either this or `like`.
        engine: "row-by-row", "micro-batch" (as Spark works) or "fluid" (fast approximation).
        plan: The plan to start with; default: the default plan for `slots`.
        routing: "capacity" or "even"; default: as in the plan.
        slots: Number of slots; default: the slots of the run `like`, otherwise 2.
        seed: Seed of the random numbers.
        quiet_hours: Hours of each day without a plan change, such as "22:00-06:00". The trace begins at midnight.
        at: Directory in which the record of the simulation is kept; default: it is not kept.
        queue: Queueing model of policy drs: "mmk" or "gigk". The default is "mmk" row by row, and the model of
            micro-batches with the engine "micro-batch".

    Returns:
        The totals and the decisions.

    Raises:
        OptionError: An option has an invalid value or does not fit the others.
        PenstockError: A file cannot be read, or the directory `at` already contains a run.
    """
    from penstock.control.simulation import Duration
    from penstock.control.simulation import simulate as simulate_policy
    from penstock.engines.simulated import SimulatedEngine
    from penstock.planning.trace import parse_trace
    from penstock.store import LatencyTarget, Store

    if engine not in ENGINES:
        raise OptionError(f"There is no engine '{engine}'; the simulated engines are {', '.join(ENGINES)}.")
    options = PolicyOptions(
        policy=policy,
        mode=mode,
        latency_s=latency_s,
        release_below_s=release_below_s,
        quantile=quantile,
        max_slots=max_slots,
        executors=executors,
        executor_cores=executor_cores,
        cooldown_s=cooldown_s,
        quiet_hours=quiet_hours,
        zone=UTC,  # the first row of the trace is at midnight
        windows=windows,
        alpha=alpha,
        warm_up_s=warm_up_s,
        catch_up_s=catch_up_s,
        mst_study=None if mst_study is None else Path(mst_study),
        adaptation=adaptation,
        thread_s=thread_s,
        replica_s=replica_s,
        profile=None if profile is None else Path(profile),
        drift_s=drift_s,
        curves=None if curves is None else Path(curves),
        micro_batch=engine == "micro-batch",
        queue=queue,
    ).with_default_policy()
    if options.policy is None:
        raise OptionError("A simulation requires a policy, or a latency target or a limit for policy 'auto'.")
    options.check(any_target=True)
    record = record_of_costs(behaviour, like)
    available = slots or (record is not None and record.plan is not None and record.plan.slots) or _DEFAULT_SLOTS
    if plan is None and max_slots is not None and max_slots > available:
        raise OptionError(
            f"The policy may use {max_slots} slots, but there are {available}; increase the slots as well."
        )
    dataflow = dataflow_from(flow)
    load = parse_trace(read_text(Path(trace)), source=str(trace))
    load = load if peak is None else load.scaled_to(peak)
    costs = _on_trace(dataflow, operator_costs(dataflow, behaviour, record), load)
    options = replace(
        options.for_flow(dataflow),
        executor_cores=options.executor_cores or costs.cluster.slots_per_executor,
    )
    first = _first_plan(dataflow, available, engine) if plan is None else plan_from(plan)
    simulated = SimulatedEngine(
        dataflow,
        costs,
        plan=first if routing is None else first.replace(routing=routing),
        mode=engine,
        seed=seed,
    )
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory()) if at is None else at
        store = stack.enter_context(Store(local_directory(directory)))
        if store.last_run() is not None:  # its decisions belong to another time
            raise PenstockError(f"'{at}' already contains a run; choose another directory, or delete this one.")
        totals, changes = simulate_policy(
            create_policy(options),
            simulated,
            store,
            controller_settings(options, window_s=window_s, micro_batch=engine == "micro-batch"),
            clock=simulated.clock,
            duration=Duration(windows=len(load.rates) * load.interval_s / window_s, window_s=window_s),
            target=None if latency_s is None else LatencyTarget(seconds=latency_s, quantile=quantile),
            prediction=prediction_for(plan),
        )
        return Simulation(totals, store.decisions(), changes)


def _first_plan(flow: Dataflow, slots: int, engine: EngineMode) -> Plan:
    """Return the default plan; row by row all replicas run at once, so they share the slots."""
    if engine == "micro-batch":
        return default_plan(flow, slots=slots)
    stages = [region for region in regions(flow) if region.kind is not Kind.SOURCE]
    share = max(1, slots // max(1, sum(stage.kind is not Kind.SINK for stage in stages)))
    counts = {stage.name: 1 if stage.kind is Kind.SINK or not stage.replicable else share for stage in stages}
    return default_plan(flow, slots=slots, replicas=counts)


def _on_trace(flow: Dataflow, costs: Behaviour, trace: Trace) -> Behaviour:
    """Let every source follow the trace to its end, whatever number of rows it declares."""
    from penstock.engines.simulated.behaviour import UNLIMITED_ROWS

    rates = tuple((index * trace.interval_s, rate) for index, rate in enumerate(trace.rates))
    declared = {
        operator.name: costs.source(operator.name) for operator in flow.operators if operator.kind is Kind.SOURCE
    }
    sources = {
        name: msgspec.structs.replace(source, rates=rates, rows=UNLIMITED_ROWS if source.rows is None else source.rows)
        for name, source in declared.items()
    }
    return limited_batches(costs.replace(sources=sources))
