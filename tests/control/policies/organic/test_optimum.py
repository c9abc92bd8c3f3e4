"""Organic adaptation in simulation reaches the best of all cuts and replicas, from one replica on.

In micro-batches, the best plan is found by a search over all plans of 16 slots with the formula of a batch, and the
fastest ones for each set of cuts are measured on the simulator as well. Row by row without costs of queues, the rows/s
of a plan are those of its slowest thread.
"""

from __future__ import annotations

import tempfile
from itertools import chain, combinations, product

import pytest

import penstock
from penstock.control.controller import Settings
from penstock.control.guards import Bounded
from penstock.control.policies.adaptation_parameters import AdaptationParameters
from penstock.control.policies.organic import Organic
from penstock.control.simulation import Duration, simulate
from penstock.control.topology import Topology
from penstock.dataflow import Dataflow, Kind
from penstock.engines.simulated import (
    Behaviour,
    Fixed,
    OperatorBehaviour,
    SimulatedEngine,
    SourceBehaviour,
    ThreadCosts,
)
from penstock.engines.simulated.behaviour import SimulatedBatchCosts
from penstock.measure.smoothing import ExponentialSmoothing
from penstock.plan import Plan, default_plan, pipelines
from penstock.store import Store

pytestmark = pytest.mark.long

SLOTS, PERIOD_S, WINDOW_S = 16, 30.0, 5.0
BATCH = SimulatedBatchCosts(batch_s=0.15, task_s=0.01, target_s=1.0)
Chain = tuple[tuple[str, float, float], ...]  # kind, ms per row, selectivity of each operator


def same(frame: object) -> object:
    return frame


def flow_of(operators: Chain) -> Dataflow:
    flow = penstock.Dataflow("chain")
    stream = flow.source("rows", penstock.generate(same, schema="n bigint, m bigint", rows_per_s=10.0))
    for number, (kind, _, selectivity) in enumerate(operators):
        name, columns = f"o{number}", ["n", "m"]
        if kind == "stateless":
            stream = stream.stateless(name, same, columns=columns, selectivity=selectivity)
        elif kind == "global":
            stream = stream.global_state(name, same, columns=columns, selectivity=selectivity)
        else:
            stream = stream.keyed(name, same, keys=[kind], columns=columns, selectivity=selectivity)
    stream.sink("out", penstock.noop())
    return flow


def visits_of(operators: Chain) -> dict[str, float]:
    visits, rows = {}, 1.0
    for number, (_, _, selectivity) in enumerate(operators):
        visits[f"o{number}"] = rows
        rows *= selectivity
    return visits


def engine_of(operators: Chain, plan: Plan, rate: float, mode: str = "micro-batch") -> SimulatedEngine:
    costs = {
        f"o{number}": OperatorBehaviour(service_s=Fixed(value=ms / 1e3)) for number, (_, ms, _) in enumerate(operators)
    }
    sources = {"rows": SourceBehaviour(rates=((0.0, rate),), interarrival=Fixed(value=1.0))}
    queues = ThreadCosts(queue_rows=100) if mode == "row-by-row" else ThreadCosts()
    behaviour = Behaviour(operators=costs, sources=sources, batch=BATCH, thread=queues)
    return SimulatedEngine(flow_of(operators), behaviour, plan=plan, mode=mode)


def rows_per_s(operators: Chain, plan: Plan, rate: float, mode: str = "micro-batch") -> float:
    """Return the external rows/s of the slowest operator under an overload."""
    engine = engine_of(operators, plan, rate, mode)
    engine.start()
    engine.clock.sleep(40.0)
    engine.observe()
    engine.clock.sleep(120.0 if mode == "micro-batch" else 20.0)
    window = engine.observe()
    visits = visits_of(operators)
    return min((window.operator(name).processed_rows_per_s or 0.0) / visits[name] for name in visits)


def by_formula(operators: Chain, plan: Plan) -> float:
    visits, worst = visits_of(operators), float("inf")
    assert BATCH.target_s is not None
    for query in pipelines(flow_of(operators), plan):
        own = [(name, count) for name, count in query.replicas if name in visits]
        row_s = sum(visits[name] * operators[int(name[1:])][1] / 1e3 / count for name, count in own)
        tasks_s = BATCH.task_s * sum(count for _, count in own)
        if row_s > 0:
            worst = min(worst, (BATCH.target_s - BATCH.batch_s - tasks_s) / row_s)
    return worst


def by_threads(operators: Chain, plan: Plan) -> float:
    visits, slowest_s = visits_of(operators), 0.0
    for region in Topology.of(flow_of(operators)).regions:
        thread_s = 0.0
        for name in region.operators:
            if name in visits:
                thread_s += visits[name] * operators[int(name[1:])][1] / 1e3
            slowest_s = max(slowest_s, thread_s / plan.replicas[region.name])
            if name in plan.cuts:
                thread_s = 0.0
    return 1.0 / slowest_s


def best_by_threads(operators: Chain) -> float:
    """Return the external rows/s of the fastest of all plans."""
    flow = flow_of(operators)
    topology = Topology.of(flow)
    counts = [range(1, SLOTS + 1) if region.replicable else [1] for region in topology.regions]
    names = [name for region in topology.regions for name in region.operators[:-1]]
    best = 0.0
    for cuts in chain.from_iterable(combinations(names, size) for size in range(len(names) + 1)):
        for replicas in product(*counts):
            given = dict(zip([region.name for region in topology.regions], replicas, strict=True))
            plan = Plan(dataflow=flow.name, cuts=topology.required_cuts | set(cuts), replicas=given, slots=SLOTS)
            if topology.slots(plan, micro_batch=False) <= SLOTS:
                best = max(best, by_threads(operators, plan))
    return best


def candidates(operators: Chain) -> list[Plan]:
    """Return the three fastest plans for each set of cuts, fastest first."""
    flow = flow_of(operators)
    topology = Topology.of(flow)
    counts = [range(1, SLOTS + 1) if region.replicable else [1] for region in topology.regions]
    names = [operator.name for operator in flow.operators if operator.kind not in (Kind.SOURCE, Kind.SINK)]
    fastest: list[Plan] = []
    for cuts in chain.from_iterable(combinations(names, size) for size in range(len(names) + 1)):
        plans = []
        for replicas in product(*counts):
            given = dict(zip([region.name for region in topology.regions], replicas, strict=True))
            plan = Plan(dataflow=flow.name, cuts=frozenset(cuts), replicas=given, slots=SLOTS)
            if topology.cuts_for(given) <= plan.cuts and topology.slots(plan, micro_batch=True) <= SLOTS:
                plans.append(plan)
        fastest += sorted(plans, key=lambda plan: -by_formula(operators, plan))[:3]
    return sorted(fastest, key=lambda plan: -by_formula(operators, plan))


def adapted(operators: Chain, rate: float, mode: str = "micro-batch") -> Plan:
    """Return the plan that `organic` ends with, from one replica of each operator on."""
    period_s, window_s, windows = (PERIOD_S, WINDOW_S, 240) if mode == "micro-batch" else (12.0, 2.0, 200)
    flow = flow_of(operators)
    ones = {region.name: 1 for region in Topology.of(flow).regions}
    engine = engine_of(operators, default_plan(flow, slots=SLOTS, replicas=ones), rate, mode)
    samples = round(period_s / window_s)
    smoothing = ExponentialSmoothing(alpha=1.0 - 2.0 / (samples + 1), min_windows=samples)
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        simulate(
            Bounded(Organic(AdaptationParameters(period_s=period_s)), max_slots=SLOTS),
            engine,
            store,
            Settings(mode="active", smoothing=smoothing, warm_up_s=3.0, micro_batch=mode == "micro-batch"),
            clock=engine.clock,
            duration=Duration(windows=windows, window_s=window_s),
        )
    return engine.plan


@pytest.mark.parametrize(
    "operators",
    [
        (("n", 5.0, 1.0),),
        (("n", 5.0, 1.0), ("stateless", 5.0, 1.0), ("m", 5.0, 1.0)),
        (("n", 10.0, 1.0), ("global", 1.0, 1.0), ("stateless", 4.0, 1.0)),
        (("stateless", 8.0, 1.0), ("n", 3.0, 1.0), ("stateless", 2.0, 1.0)),
        (("stateless", 2.0, 1.0), ("n", 8.0, 0.5), ("stateless", 10.0, 1.0)),
        (("stateless", 1.0, 2.0), ("n", 2.0, 1.0), ("global", 0.5, 1.0)),
        (("n", 4.0, 0.5), ("n", 0.5, 1.0), ("global", 0.8, 0.5), ("stateless", 0.5, 0.5)),
        (("n", 4.0, 2.0), ("global", 0.1, 1.0), ("stateless", 4.0, 0.5), ("m", 0.5, 2.0)),
    ],
    ids=[
        "one",
        "two keys",
        "global",
        "stateless first",
        "selective",
        "duplicating",
        "cheap behind a cut",
        "slots for the end",
    ],
)
def test_it_reaches_the_best_of_all_cuts_and_replicas(operators: Chain) -> None:
    plans = candidates(operators)
    rate = 2.0 * by_formula(operators, plans[0])
    best = max(rows_per_s(operators, plan, rate) for plan in plans[:6])
    plan = adapted(operators, rate)
    assert Topology.of(flow_of(operators)).slots(plan, micro_batch=True) <= SLOTS
    assert rows_per_s(operators, plan, rate) >= 0.9 * best, plan


@pytest.mark.parametrize(
    "operators",
    [
        (("m", 2.0, 1.0), ("stateless", 8.0, 1.0), ("n", 4.0, 2.0), ("n", 0.5, 1.0)),
        (("stateless", 15.0, 0.5), ("global", 0.1, 2.0), ("m", 15.0, 1.0), ("m", 0.5, 0.5)),
        (("n", 4.0, 2.0), ("global", 0.1, 1.0), ("stateless", 4.0, 0.5)),
    ],
    ids=["cut that is of no use any more", "equal regions", "two regions at the limit"],
)
def test_the_last_slots_are_given_to_all_bottlenecks(operators: Chain) -> None:
    """Two regions in a row are bottlenecks, and the last slots help only if both get their part."""
    best = best_by_threads(operators)
    plan = adapted(operators, 2.0 * best, "row-by-row")
    assert Topology.of(flow_of(operators)).slots(plan, micro_batch=False) <= SLOTS
    assert rows_per_s(operators, plan, 2.0 * best, "row-by-row") >= 0.9 * best, plan
