"""Organic adaptation in simulated micro-batches reaches the best of all cuts and replicas, from one replica on.

The best plan is found by a search over all plans of 16 slots with the formula of a batch, and the fastest ones for each
set of cuts are measured on the simulator as well.
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
from penstock.engines.simulated import Behaviour, Fixed, OperatorBehaviour, SimulatedEngine, SourceBehaviour
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


def engine_of(operators: Chain, plan: Plan, rate: float) -> SimulatedEngine:
    costs = {
        f"o{number}": OperatorBehaviour(service_s=Fixed(value=ms / 1e3)) for number, (_, ms, _) in enumerate(operators)
    }
    sources = {"rows": SourceBehaviour(rates=((0.0, rate),), interarrival=Fixed(value=1.0))}
    behaviour = Behaviour(operators=costs, sources=sources, batch=BATCH)
    return SimulatedEngine(flow_of(operators), behaviour, plan=plan, mode="micro-batch")


def rows_per_s(operators: Chain, plan: Plan, rate: float) -> float:
    """Return the external rows/s of the slowest operator under an overload."""
    engine = engine_of(operators, plan, rate)
    engine.start()
    engine.clock.sleep(40.0)
    engine.observe()
    engine.clock.sleep(120.0)
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


def adapted(operators: Chain, rate: float) -> Plan:
    """Return the plan that `organic` ends with, from one replica of each operator on."""
    flow = flow_of(operators)
    ones = {region.name: 1 for region in Topology.of(flow).regions}
    engine = engine_of(operators, default_plan(flow, slots=SLOTS, replicas=ones), rate)
    samples = round(PERIOD_S / WINDOW_S)
    smoothing = ExponentialSmoothing(alpha=1.0 - 2.0 / (samples + 1), min_windows=samples)
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        simulate(
            Bounded(Organic(AdaptationParameters()), max_slots=SLOTS),
            engine,
            store,
            Settings(mode="active", smoothing=smoothing, warm_up_s=3.0, micro_batch=True),
            clock=engine.clock,
            duration=Duration(windows=240, window_s=WINDOW_S),
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
