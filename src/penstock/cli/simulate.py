"""penstock simulate: a policy on a dataflow that is simulated, under a load from a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from penstock.cli import policy
from penstock.cli.given import ABOVE_0, Finite

if TYPE_CHECKING:
    from penstock.dataflow import Dataflow
    from penstock.engines.simulated import Behaviour
    from penstock.plan import Plan
    from penstock.planning.trace import Trace

MODES = ("row-by-row", "micro-batch", "fluid")
_BATCH_S = 2.0  # that batches are to last where rows have piled up, as in 'penstock run'
_LOOKED_AT, _ALIKE = 2_000, 10  # windows of a run: the last ones, and those of them with rows that say what these cost


@click.command()
@click.argument("spec", metavar="FILE[:FLOW]")
@click.option("--trace", "trace_file", type=click.Path(path_type=Path), required=True, help="time_s,rate as CSV.")
@click.option("--peak", type=ABOVE_0, help="Scales the trace to this many rows/s.")
@click.option("--behaviour", "behaviour_file", type=click.Path(path_type=Path), help="What operators cost, as JSON.")
@click.option("--like", type=click.Path(path_type=Path), help="A run's directory: operators cost what it measured.")
@click.option(
    "--engine", "engine_mode", type=click.Choice(MODES), default=MODES[0], show_default=True, help="How it works."
)
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="To begin with.  [the default plan]")
@click.option("--slots", type=click.IntRange(min=1), default=2, show_default=True, help="That there are.")
@click.option(
    "--queue", type=click.Choice(["mmk", "gigk"]), default="mmk", show_default=True, help="DRS's model of an operator."
)
@click.option("--every", "every_s", type=Finite(min=0.1), default=10.0, show_default=True, help="A window.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--at", type=click.Path(path_type=Path, file_okay=False), help="Keeps the record, for 'decisions'.")
@policy.options(mode="active")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def command(
    spec: str,
    trace_file: Path,
    peak: float | None,
    behaviour_file: Path | None,
    like: Path | None,
    engine_mode: str,
    plan_file: Path | None,
    slots: int,
    queue: Literal["mmk", "gigk"],
    every_s: float,
    seed: int,
    at: Path | None,
    as_json: bool,
    **asked_for: Any,
) -> None:
    """Let a policy run a simulated dataflow: what it costs, how often it misses the target, what it changes.

    Every source follows the trace. --behaviour or --like says what operators cost.

    \b
    Example:
      penstock simulate flow.py --trace day.csv --peak 500 --behaviour costs.json --policy drs --latency-ms 800
      penstock simulate flow.py --trace day.csv --like runs/wc --engine micro-batch --policy threshold --json
    """
    import contextlib
    import dataclasses
    import tempfile

    import msgspec

    from penstock.cli.given import read_plan, read_text
    from penstock.control.simulation import Duration, LatencyTarget, simulate
    from penstock.dataflow.errors import PenstockError
    from penstock.dataflow.load import load
    from penstock.engines.simulated import SimulatedEngine
    from penstock.planning.trace import parse_trace
    from penstock.store import Store

    asked = policy.Asked(**asked_for, queue=queue)
    if asked.policy is None:
        raise click.UsageError("give --policy: who decides")
    asked.check(any_target=True)
    if plan_file is None and asked.max_slots is not None and asked.max_slots > slots:
        raise click.UsageError(f"--max-slots {asked.max_slots} of the {slots} slots there are; give --slots as well")
    flow = load(spec)
    flow.check()
    trace = parse_trace(read_text(trace_file), source=str(trace_file))
    trace = trace if peak is None else trace.scaled_to(peak)
    behaviour = _behaviour(flow, behaviour_file, like, trace)
    asked = dataclasses.replace(
        asked, dataflow=flow.name, slots_each=asked.slots_each or behaviour.cluster.slots_per_executor
    )
    engine = SimulatedEngine(
        flow,
        behaviour,
        plan=_first_plan(flow, slots, engine_mode) if plan_file is None else read_plan(plan_file),
        mode=engine_mode,
        seed=seed,
    )
    settings = policy.settings_of(asked, every_s=every_s, micro_batch=engine_mode == "micro-batch")
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store(at or Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        if store.last_run() is not None:  # what was decided there is of another time
            raise PenstockError(f"'{at}' has a run already; give another --at, or delete it")
        sums, changes = simulate(
            policy.policy_of(asked),
            engine,
            store,
            settings,
            clock=engine.clock,
            duration=Duration(windows=len(trace.rates) * trace.interval_s / every_s, every_s=every_s),
            target=None
            if asked.latency_ms is None
            else LatencyTarget(max_s=asked.latency_ms / 1000, quantile=asked.quantile),
        )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(sums)).decode())
        return
    from rich.console import Console

    from penstock.report.rehearsal import table

    Console().print(table(sums, changes))


def _first_plan(flow: Dataflow, slots: int, mode: str) -> Plan:
    """Row by row all replicas run at once, and share out the slots."""
    from penstock.dataflow import Kind
    from penstock.dataflow.regions import regions
    from penstock.plan import default_plan

    if mode == "micro-batch":
        return default_plan(flow, slots=slots)
    found = [one for one in regions(flow) if one.kind is not Kind.SOURCE]
    each = max(1, slots // max(1, sum(one.kind is not Kind.SINK for one in found)))
    counts = {one.name: 1 if one.kind is Kind.SINK or not one.replicable else each for one in found}
    return default_plan(flow, slots=slots, replicas=counts)


def _behaviour(flow: Dataflow, file: Path | None, like: Path | None, trace: Trace) -> Behaviour:
    """What operators cost, with every source on the trace."""
    import msgspec

    from penstock.cli.given import read
    from penstock.dataflow import Kind
    from penstock.engines.simulated import Behaviour, BehaviourError, SourceBehaviour
    from penstock.engines.simulated.behaviour import UNLIMITED_ROWS
    from penstock.engines.simulated.calibration import behaviour_from_window
    from penstock.measure.smoothing import merged
    from penstock.store import StoreReader

    if (file is None) == (like is None):
        raise click.UsageError("give --behaviour FILE or --like DIR (a run that measured it): what operators cost")
    if file is not None:
        given = Behaviour.from_json(read(file, "behaviour"))
    else:
        assert like is not None
        with StoreReader(like) as store:
            looked_at = [window for _, window in store.windows(last=_LOOKED_AT)]
        # A run that has ended has mostly seen few rows in the end, or none.
        rows = [sum(operator.rows_in or 0 for operator in one.operators) for one in looked_at]
        windows = [(one, float(of)) for one, of in zip(looked_at, rows, strict=True) if of][-_ALIKE:]
        if not windows:
            raise BehaviourError(f"no row went through the run in '{like}' yet; let it run longer, or give --behaviour")
        given = behaviour_from_window(flow, merged(*zip(*windows, strict=True)))
    rates = tuple((index * trace.interval_s, rate) for index, rate in enumerate(trace.rates))
    sources = {one.name: given.source(one.name) for one in flow.operators if one.kind is Kind.SOURCE}
    # How many rows a trial run of the dataflow is to have says nothing of the load that it is planned for.
    on_trace: dict[str, SourceBehaviour] = {
        name: msgspec.structs.replace(one, rates=rates, rows=UNLIMITED_ROWS if one.rows is None else one.rows)
        for name, one in sources.items()
    }
    batch = given.batch
    if batch.target_s is None and batch.max_rows is None:  # else one batch would take in all of an overload
        batch = msgspec.structs.replace(batch, target_s=_BATCH_S)
    return given.replace(sources=on_trace, batch=batch)
