"""Organic adaptation on Spark: `python -m benchmarks.organic [--json] [--only PART]`.

The operators wait for each row, so that the 16 slots of `local[16]` are 16 processors also on a small machine. A run
begins with one replica and more rows than 16 slots can process. When policy `organic` changes nothing any more, its
plan and the plans of an exhaustive search are measured in the same way: a new run for each set of cuts, in which the
replicas change. A throughput is that of the slowest query, over whole batches.

The search covers every set of cuts between operators and every number of replicas within the slots. A query with k
replicas cannot process more rows/s than k / (sum of the waits of its operators). Plans whose slowest query cannot
exceed the highest throughput measured so far are not measured, because they cannot be the best.

region         a keyed and a stateless operator, 10 ms each
global         a keyed operator of 20 ms and one of 2 ms with global state, which has one replica
live           the load rises in steps and falls; cuts and replicas follow; the output is compared with the oracle
word_count     fusion only, fission only and joint adaptation side by side; each line takes 5 ms
netmon         the same for network monitoring
finance        the same for trades and quotes
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, combinations, groupby, product
from pathlib import Path

import penstock
from benchmarks import waiting_applications
from benchmarks.figures import Row, print_all, row
from penstock.apps.joker import waiting
from penstock.control.policies.adaptation_parameters import Variant
from penstock.control.topology import Topology
from penstock.dataflow import Dataflow, Kind
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.session import session
from penstock.engines.spark.settings import EngineSettings
from penstock.measure.window import Window
from penstock.plan import Plan, default_plan, diff, pipelines

MASTER, SLOTS, RATE = "local[16]", 16, 2_000.0
BATCH_S = 0.75  # batches take up to 4 times as long while rows wait
PERIOD_S, WARM_UP_S = 8.0, 3.0
QUIET_PERIODS, LIMIT_S = 5, 300.0  # the run ends after this many periods without a change
MEASURED_S, BATCHES = 8.0, 3  # a plan is measured for at least this time and number of batches
LOADS, STEP_S = (30.0, 120.0, 360.0, 120.0, 20.0), 60.0


def region_part(folder: Path) -> list[Row]:
    return _compared("region", waiting.flow(rows_per_s=RATE), {"keyed": 0.01, "stateless": 0.01}, folder)


def global_part(folder: Path) -> list[Row]:
    flow = waiting.flow(keyed_ms=20.0, stateless_ms=None, global_ms=2.0, rows_per_s=RATE)
    return _compared("global", flow, {"keyed": 0.02, "global": 0.002}, folder)


def live_part(folder: Path) -> list[Row]:
    flow = waiting.flow(penstock.memory(), rows_per_s=LOADS[0])
    slots = []
    with penstock.run(
        flow,
        at=folder / "live",
        spark=session(MASTER),
        plan=_ones(flow),
        policy="organic",
        mode="active",
        max_slots=SLOTS,
        adaptation=penstock.AdaptationParameters(period_s=10.0, stable_periods=2),
        window_s=1.0,
        warm_up_s=WARM_UP_S,
        cooldown_s=0.0,
        batch_s=BATCH_S,
    ) as run:
        topology = Topology.of(flow)
        for rate in LOADS:
            run.set_rate("numbers", rate)
            run.wait(timeout_s=STEP_S)
            assert run.plan is not None
            slots.append(topology.slots(run.plan, micro_batch=True))
            _say(f"  {rate:g} rows/s: {_text(run.plan)}")
        run.set_rate("numbers", 0.0)
        _wait_until_processed(run)
    wrong = waiting.check(output := run.rows("out"), len(output))
    decisions, _ = run.decision_rows(changes_only=True)
    changes = [(decision, diff(decision.old, decision.new)) for _, decision in decisions if decision.new is not None]
    for decision, _ in changes:
        _say(f"  {decision.reason} Verdict: {decision.verdict}; pause {decision.pause_s or 0.0:.1f} s")
    pauses_s = [decision.pause_s for decision, _ in changes if decision.pause_s is not None]
    follows = slots[0] < max(slots) and slots[-1] < max(slots)
    return [
        row(
            f"live: slots at {', '.join(f'{rate:g}' for rate in LOADS)} rows/s: {slots}",
            max(slots),
            "slots",
            "",
            follows,
        ),
        row("live: changes that add cuts", sum(bool(change.cuts_added) for _, change in changes), "changes"),
        row("live: changes that remove cuts", sum(bool(change.cuts_removed) for _, change in changes), "changes"),
        row("live: changes of replicas", sum(bool(change.replicas) for _, change in changes), "changes"),
        row(
            "live: changes with a reported pause",
            len(pauses_s),
            "changes",
            f"{len(changes)}",
            len(pauses_s) == len(changes),
        ),
        row("live: longest pause", max(pauses_s, default=0.0), "s"),
        row(f"live: errors in {len(output):,} output rows", len(wrong), "errors", "0", not wrong),
    ]


def _wait_until_processed(run: penstock.Run) -> None:
    """Wait until no rows are left in the source and in channels.

    Raises:
        TimeoutError: Rows are left after the time limit, or the run has ended.
    """
    deadline_s = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline_s and not run.wait(timeout_s=2.0):
        window = run.status().window
        if window is not None and window.external_rows_per_s == 0.0:
            totals = {operator.rows_in_total for operator in window.operators}
            if len(totals) == 1 and window.operator("numbers").backlog_rows == 0:
                return
    raise TimeoutError(f"Rows are left after {LIMIT_S:.0f} s without input.")


def _application_part(name: str, flow: Dataflow) -> Callable[[Path], list[Row]]:
    def part(folder: Path) -> list[Row]:
        measured = dict(_measured(flow, [_ones(flow)], folder / f"{name}-one"))
        rows = [row(f"{name}: one replica of each operator", *measured.values(), "rows/s")]
        rates = {}
        for variant in (Variant.FUSION_ONLY, Variant.FISSION_ONLY, Variant.FUSION_FIRST):
            plan, changes, _ = _adapted(flow, folder / f"{name}-{variant}", variant)
            if _text(plan) not in measured:
                measured |= _measured(flow, [plan], folder / f"{name}-{variant}-plan")
            rates[variant] = measured[_text(plan)]
            rows.append(row(f"{name}: {variant} ({_text(plan)}), {changes} changes", rates[variant], "rows/s"))
        for variant in (Variant.FUSION_ONLY, Variant.FISSION_ONLY):
            share = rates[Variant.FUSION_FIRST] / rates[variant]
            rows.append(row(f"{name}: joint adaptation / {variant}", share, "", ">= 1", share >= 1.0))
        return rows

    return part


PARTS: dict[str, Callable[[Path], list[Row]]] = {
    "region": region_part,
    "global": global_part,
    "live": live_part,
    "word_count": _application_part("word_count", waiting_applications.word_count(RATE)),
    "netmon": _application_part("netmon", waiting_applications.network_monitoring(RATE)),
    "finance": _application_part("finance", waiting_applications.finance(RATE)),
}


def _compared(name: str, flow: Dataflow, waits_s: Mapping[str, float], folder: Path) -> list[Row]:
    began_s = time.monotonic()
    adapted, changes, pauses_s = _adapted(flow, folder / name)
    seconds = time.monotonic() - began_s
    _say(f"  organic: {_text(adapted)} after {changes} changes")
    first = _ones(flow)
    measured = dict(_measured(flow, [first], folder / f"{name}-one"))
    measured |= _measured(flow, [adapted], folder / f"{name}-adapted")
    plans = list(_plans(flow, first))
    by_cuts = sorted(plans, key=lambda plan: (sorted(plan.cuts), -_limit_rows_per_s(flow, plan, waits_s)))
    for number, (_, group) in enumerate(groupby(by_cuts, key=lambda plan: plan.cuts)):
        fast = [plan for plan in group if _limit_rows_per_s(flow, plan, waits_s) > max(measured.values())]
        left = [plan for plan in fast if _text(plan) not in measured]
        measured |= _measured(flow, left, folder / f"{name}-search-{number}")
    best = max(measured, key=lambda text: measured[text])
    share = measured[_text(adapted)] / measured[best]
    limit = max(_limit_rows_per_s(flow, plan, waits_s) for plan in plans)
    subject = f"{name}: organic ({_text(adapted)}) / best of {len(plans)} plans, {len(measured)} measured ({best})"
    return [
        row(subject, share, "", ">= 0.9", share >= 0.9),
        row(f"{name}: throughput with one replica", measured[_text(first)], "rows/s"),
        row(f"{name}: throughput of organic", measured[_text(adapted)], "rows/s"),
        row(f"{name}: limit by the waits alone, for the best plan", limit, "rows/s"),
        row(f"{name}: changes until the plan is final", changes, "changes"),
        row(f"{name}: longest pause of a change", max(pauses_s, default=0.0), "s"),
        row(f"{name}: duration of the adaptation, with the start", seconds, "s"),
    ]


def _ones(flow: Dataflow) -> Plan:
    """Return the plan with one replica of each operator and with the required cuts."""
    return default_plan(flow, slots=SLOTS, replicas=dict.fromkeys(default_plan(flow).replicas, 1))


def _plans(flow: Dataflow, smallest: Plan) -> Iterator[Plan]:
    """Yield all plans within the slots: every set of cuts between operators, and every number of replicas."""
    topology = Topology.of(flow)
    between = [operator.name for operator in flow.operators if _can_be_cut(flow, operator.name)]
    counts = [range(1, SLOTS + 1) if region.replicable else (1,) for region in topology.regions]
    for replicas in product(*counts):
        given = dict(zip((region.name for region in topology.regions), replicas, strict=True))
        required = default_plan(flow, slots=SLOTS, replicas=given).cuts
        for added in chain.from_iterable(combinations(between, size) for size in range(len(between) + 1)):
            if set(added) & required:
                continue  # the same plan as without it
            plan = smallest.replace(cuts=required | set(added), replicas=given)
            if topology.slots(plan, micro_batch=True) <= SLOTS:
                yield plan


def _can_be_cut(flow: Dataflow, name: str) -> bool:
    """Return whether a cut after this operator separates it from another operator that waits."""
    consumers = [consumer.kind for consumer in flow.consumers(name)]
    return flow[name].kind is not Kind.SOURCE and any(kind is not Kind.SINK for kind in consumers)


def _limit_rows_per_s(flow: Dataflow, plan: Plan, waits_s: Mapping[str, float]) -> float:
    """Return the rows/s that the slowest query of a plan cannot exceed, because its replicas wait for each row."""
    queries = [sum(waits_s.get(name, 0.0) / count for name, count in query.replicas) for query in pipelines(flow, plan)]
    return 1.0 / max(queries)


def _adapted(flow: Dataflow, at: Path, variant: Variant = Variant.FUSION_FIRST) -> tuple[Plan, int, list[float]]:
    """Return the final plan of policy `organic`, the number of changes, and the pause of each."""
    last_change_s: float | None = None
    seen = _ones(flow)

    def note(window: Window, plan: Plan) -> None:
        nonlocal last_change_s, seen
        has_begun = last_change_s is not None or any(operator.utilisation for operator in window.operators)
        if plan != seen or (has_begun and last_change_s is None):
            last_change_s, seen = time.monotonic(), plan

    with penstock.run(
        flow,
        at=at,
        spark=session(MASTER),
        plan=seen,
        policy="organic",
        mode="active",
        max_slots=SLOTS,
        adaptation=penstock.AdaptationParameters(period_s=PERIOD_S, variant=variant),
        window_s=1.0,
        warm_up_s=WARM_UP_S,
        cooldown_s=0.0,
        batch_s=BATCH_S,
        on_window=note,
    ) as run:
        deadline_s = time.monotonic() + LIMIT_S
        while last_change_s is None and not run.wait(timeout_s=0.5):  # until the first rows were processed
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"No rows were processed within {LIMIT_S:.0f} s.")
        deadline_s = time.monotonic() + LIMIT_S
        while last_change_s is not None and time.monotonic() < min(
            deadline_s, last_change_s + QUIET_PERIODS * PERIOD_S
        ):
            if run.wait(timeout_s=0.5):
                break
    decisions, _ = run.decision_rows(changes_only=True)
    for _, decision in decisions:
        _say(f"  {decision.reason} Verdict: {decision.verdict}; pause {decision.pause_s or 0.0:.1f} s")
    return seen, len(decisions), [decision.pause_s for _, decision in decisions if decision.pause_s is not None]


def _measured(flow: Dataflow, plans: Iterable[Plan], at: Path) -> Iterator[tuple[str, float]]:
    """Yield the throughput of each plan. Plans with the same cuts share a run, which has no rows in old channels."""
    for number, (_, group) in enumerate(groupby(plans, key=lambda plan: plan.cuts)):
        first, *others = group
        settings = EngineSettings(batch_s=BATCH_S)
        engine = SparkEngine(flow, at / str(number), spark=session(MASTER), plan=first, settings=settings)
        engine.start()
        try:
            for plan in (first, *others):
                engine.apply(plan)
                rate = _throughput(engine)
                _say(f"  {_text(plan)}: {rate:.0f} rows/s")
                yield _text(plan), rate
        finally:
            engine.stop()


def _throughput(engine: SparkEngine) -> float:
    """Return the rows/s of each source that the slowest query processes, once each query has finished a batch."""
    first = {query.pipeline: query.operators for query in engine.queries}
    began_s: float | None = None
    rows, seconds, batches = (dict.fromkeys(first, 0.0) for _ in range(3))
    while began_s is None or time.monotonic() < began_s + MEASURED_S or min(batches.values()) < BATCHES:
        time.sleep(1.0)
        engine.recover()
        window = engine.observe()
        done = {pipeline.pipeline: pipeline.batches for pipeline in window.pipelines}
        if began_s is None:  # the first batch of each query is slow
            batches = {name: batches[name] + done[name] for name in first}
            if min(batches.values()) >= 1:
                began_s, batches = time.monotonic(), dict.fromkeys(first, 0.0)
            continue
        visits = _visits(engine.flow, window)
        for name, operators in first.items():
            entrance = next(own for own in operators if engine.flow[own].kind is not Kind.SOURCE)
            operator = window.operator(entrance)
            rows[name] += (operator.rows_in or 0) / visits[entrance]
            seconds[name] += operator.utilisation_s or 0.0
            batches[name] += done[name]
    return min(rows[name] / seconds[name] for name in first)


def _visits(flow: Dataflow, window: Window) -> dict[str, float]:
    """Return the rows into each operator per row of each source."""
    visits: dict[str, float] = {}
    for operator in flow.operators:
        before = [(name, window.operator(name).selectivity) for name in operator.inputs]
        visits[operator.name] = sum(visits[name] * (1.0 if own is None else own) for name, own in before) or 1.0
    return visits


def _text(plan: Plan) -> str:
    cuts = f", cut after {', '.join(sorted(plan.cuts))}" if plan.cuts else ""
    return ", ".join(f"{name} {count}" for name, count in plan.replicas.items()) + cuts


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_all(PARTS, options.only, Path(folder), as_json=options.json)


if __name__ == "__main__":
    main()
