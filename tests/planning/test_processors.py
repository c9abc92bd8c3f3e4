from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.dataflow.errors import PlanError
from penstock.models.microbatch import MicroBatch
from penstock.models.queueing import GIGk, MMk, ModelError
from penstock.models.queueing.station import StationModel
from penstock.planning.processors import (
    Assignment,
    OperatorNetwork,
    OperatorStation,
    assign_processors,
    min_processors,
    one_less,
)

rates = st.floats(0.3, 6)
scvs = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])


@st.composite
def stations(draw: st.DrawFn) -> StationModel:
    kind = draw(st.sampled_from(["mmk", "mmk", "gigk", "drs", "microbatch"]))
    arrival, service = draw(rates), draw(st.floats(0.8, 4))
    if kind == "mmk":
        return MMk(arrival_per_s=arrival, service_per_s=service)
    if kind == "microbatch":
        return MicroBatch(
            arrival_per_s=arrival,
            batch_s=draw(st.floats(0.05, 1)),
            row_s=1 / service,
            replica_s=draw(st.floats(0.01, 0.3)),
            slots=draw(st.integers(2, 9)),
        )
    return GIGk(
        arrival_per_s=arrival,
        service_per_s=service,
        arrival_scv=draw(scvs),
        service_scv=draw(scvs),
        approximation="whitt" if kind == "gigk" else "drs",
    )


@st.composite
def workloads(draw: st.DrawFn, bounded: bool = True) -> OperatorNetwork:
    operators = []
    for i in range(draw(st.integers(1, 4))):
        least = draw(st.integers(1, 3)) if bounded else 1
        most = draw(st.none() | st.integers(least, least + 4)) if bounded else None
        operators.append(
            OperatorStation(name=f"op{i}", station=draw(stations()), min_processors=least, max_processors=most)
        )
    return OperatorNetwork(external_per_s=draw(st.floats(0.5, 5)), operators=tuple(operators))


def allocations(network: OperatorNetwork, budget: int) -> Iterator[tuple[int, ...]]:
    """Return all allocations within bounds and budget."""
    ranges = [range(o.min_processors, min(o.max_processors or budget, budget) + 1) for o in network.operators]
    return (counts for counts in itertools.product(*ranges) if sum(counts) <= budget)


def mean_s(network: OperatorNetwork, counts: tuple[int, ...]) -> float:
    """Equation 4, station by station; infinite if a station is unstable."""
    total = 0.0
    for operator, k in zip(network.operators, counts, strict=True):
        least = operator.station.least_stable()
        if least is None or k < least:
            return math.inf
        share = operator.station.arrival_per_s / network.external_per_s
        total += share * operator.station.mean_s(k)  # type: ignore[attr-defined]
    return total


def saturates_per_s(network: OperatorNetwork, counts: tuple[int, ...]) -> float:
    return min(
        o.station.capacity_per_s(k) * network.external_per_s / o.station.arrival_per_s
        for o, k in zip(network.operators, counts, strict=True)
    )


# ---- brute force


# Two stations saturate at the same rate except for rounding; one more processor for one of them has no effect.
NEARLY_TIED = OperatorNetwork(
    external_per_s=1.0,
    operators=(
        OperatorStation(name="op0", station=MMk(arrival_per_s=2.0, service_per_s=0.8000000000000002)),
        OperatorStation(name="op1", station=MMk(arrival_per_s=2.0, service_per_s=0.8), min_processors=2),
    ),
)


@given(workloads(), st.integers(0, 8))
@example(NEARLY_TIED, 2)
@settings(max_examples=100, deadline=None)
def test_assign_is_optimal(network: OperatorNetwork, more: int) -> None:
    budget = sum(operator.min_processors for operator in network.operators) + more
    plan = assign_processors(network, budget)
    assert plan.total <= budget
    assert all(
        o.min_processors <= k <= (o.max_processors or k) for o, k in zip(network.operators, plan.counts, strict=True)
    )
    everything = list(allocations(network, budget))
    best = min(mean_s(network, counts) for counts in everything)
    assert plan.feasible == (best < math.inf)
    if plan.feasible:
        latency = plan.latency()
        assert latency is not None
        assert latency.mean_s == pytest.approx(best, rel=1e-9)
        assert plan.binding is None and plan.needs is None
    else:
        highest = max(saturates_per_s(network, counts) for counts in everything)
        assert plan.max_external_per_s == pytest.approx(highest, rel=1e-9)
        assert plan.latency() is None
        assert plan.binding is not None
        assert plan.max_external_per_s == pytest.approx(highest, rel=1e-9)
        # The other operators are reduced to the throughput of the bottleneck.
        assert plan.total == min(sum(c) for c in everything if saturates_per_s(network, c) >= highest * (1 - 1e-12))


@given(workloads(), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_the_plan_with_one_processor_less_is_optimal_too(network: OperatorNetwork, more: int) -> None:
    plan = assign_processors(network, sum(operator.min_processors for operator in network.operators) + more)
    if plan.feasible and plan.total > sum(operator.min_processors for operator in network.operators):
        best = min(mean_s(network, counts) for counts in allocations(network, plan.total - 1))
        fewer = one_less(plan)
        assert fewer.total <= plan.total - 1
        assert mean_s(network, fewer.counts) == pytest.approx(best, rel=1e-9)


@given(workloads(), st.floats(1.0, 3.0))
@settings(max_examples=100, deadline=None)
def test_min_processors_is_optimal(network: OperatorNetwork, slack: float) -> None:
    reach = sum(operator.min_processors for operator in network.operators) + 8
    everything = {counts: mean_s(network, counts) for counts in allocations(network, reach)}
    target = slack * min(everything.values())
    if target == math.inf:
        return
    plan = min_processors(network, target * (1 + 1e-9))
    meets = [sum(counts) for counts, mean in everything.items() if mean <= target * (1 + 1e-9)]
    assert plan.feasible
    assert plan.total == min(meets)
    assert mean_s(network, plan.counts) <= target * (1 + 1e-9)


@given(workloads(bounded=False), st.sampled_from([0.9, 0.95, 0.99, 0.999]), st.floats(1.02, 2.0))
@settings(max_examples=60, deadline=None)
def test_quantile_target_is_met_with_at_most_one_processor_too_many(
    network: OperatorNetwork, quantile: float, slack: float
) -> None:
    start = network.least_stable()
    if start is None:
        return
    reach = sum(start) + 6
    reached = {
        counts: network.latency(counts).quantile_s(quantile)
        for counts in allocations(network, reach)
        if all(k >= s for k, s in zip(counts, start, strict=True))
    }
    target = slack * min(reached.values())
    plan = min_processors(network, target, quantile=quantile)
    latency = plan.latency()
    assert plan.feasible and latency is not None
    assert latency.quantile_s(quantile) <= target
    fewest = min(sum(counts) for counts, q in reached.items() if q <= target)
    assert fewest <= plan.total <= fewest + 1


# ---- properties and limits


@given(workloads())
@settings(max_examples=50, deadline=None)
def test_more_budget_is_never_worse_and_plans_are_nested(network: OperatorNetwork) -> None:
    start = network.least_stable()
    if start is None:
        return
    plans = [assign_processors(network, sum(start) + more) for more in range(8)]
    means = [mean_s(network, plan.counts) for plan in plans]
    assert all(a >= b * (1 - 1e-12) for a, b in itertools.pairwise(means))
    assert all(a - b >= (b - c) - 1e-9 * a for a, b, c in zip(means, means[1:], means[2:], strict=False))  # convex
    for smaller, larger in itertools.pairwise(plans):
        assert all(a <= b for a, b in zip(smaller.counts, larger.counts, strict=True))


def mmk(arrival: float, service: float) -> MMk:
    return MMk(arrival_per_s=arrival, service_per_s=service)


def network(external: float, **operators: StationModel) -> OperatorNetwork:
    named = tuple(OperatorStation(name=name, station=station) for name, station in operators.items())
    return OperatorNetwork(external_per_s=external, operators=named)


def test_the_budget_is_used_to_the_last_and_no_further() -> None:
    """The published loop runs while the sum is <= K, so it ends at K + 1."""
    video = network(13.0, extract=mmk(13, 1.8), match=mmk(13, 1.6), aggregate=mmk(13, 200))
    for budget in (19, 20, 22, 50):
        assert assign_processors(video, budget).total == budget


def test_lower_bound_counts_visits() -> None:
    """The published bound is sum 1/mu = 0.2 s; each row makes three at 'count', so the real bound is 0.4 s."""
    words = network(8.0, split=mmk(8, 10), count=mmk(24, 10))
    plan = min_processors(words, 0.3)
    assert not plan.feasible
    assert plan.binding == "count"
    assert plan.needs is not None and plan.needs.processors is None
    assert "is at best 0.4 s instead of 0.3 s, with any number of processors" in plan.needs.reason
    assert mean_s(words, plan.counts) <= 1.02 * 0.4  # the result is close to the bound and plausible
    assert plan.total < 20
    assert min_processors(words, 0.401).feasible


def test_single_station_thresholds() -> None:
    single = network(2.0, only=mmk(2.0, 1.0))
    assert assign_processors(single, 3).counts == (3,)
    assert min_processors(single, 13 / 9 + 1e-9).counts == (3,)  # M/M/3 with a load of 2: 1 + 4/9
    assert min_processors(single, 13 / 9 - 1e-9).counts == (4,)


def test_a_huge_latency_at_the_start_causes_no_rounding_error() -> None:
    """rho = 1 - 1e-9 at the start: a sum of gains from there would have an error of 1e-7 s."""
    edge = network(1.0, hot=mmk(3.0 * (1 - 1e-9), 1.0), cold=mmk(1.0, 2.0))
    for counts in [(5, 2), (6, 3)]:
        best = assign_processors(edge, sum(counts))
        target = mean_s(edge, best.counts)
        assert min_processors(edge, target * (1 + 1e-13)).total == best.total
        assert min_processors(edge, target * (1 - 1e-12)).total == best.total + 1


def test_micro_batch_replicas_do_not_exceed_their_optimum() -> None:
    query = MicroBatch(arrival_per_s=2000.0, batch_s=0.1, row_s=0.001, replica_s=0.02, slots=200)
    plan = assign_processors(network(2000.0, query=query, parse=mmk(2000.0, 1500.0)), 200)
    assert plan.processors["query"] == query.best_replicas()
    floor = 1.5 * min((0.1 + 0.02 * k) / (1 - 2 / k) for k in range(3, 201))
    assert not min_processors(network(2000.0, query=query), floor * 0.99).feasible
    assert min_processors(network(2000.0, query=query), floor * 1.001).feasible


# ---- infeasible targets


@pytest.mark.parametrize(("quantile", "budget"), [(None, None), (0.95, None), (None, 3), (0.95, 3)])
def test_a_target_out_of_reach_of_replicas_without_a_cost_ends_the_search(
    quantile: float | None, budget: int | None
) -> None:
    """The batch time a / (1 - lambda c / k) approaches a and never reaches it, so each replica gains something."""
    query = MicroBatch(arrival_per_s=75.0, batch_s=20.0, row_s=0.06, replica_s=0.0)
    network = OperatorNetwork(external_per_s=75.0, operators=(OperatorStation(name="query", station=query),))
    planned = min_processors(network, 9.0, quantile, budget)
    assert not planned.feasible and planned.needs is not None
    if budget is None:
        assert planned.needs.processors is None
        assert query.steady_batch_s(*planned.counts) == pytest.approx(20.0, rel=0.02)
    else:
        assert planned.counts == (3,)
        assert planned.needs.processors == {"query": 5}  # the fewest above 75 x 0.06 = 4.5


def test_budget_too_small_for_the_rate() -> None:
    plan = assign_processors(network(8.0, split=mmk(8, 9.6), count=mmk(24, 10)), 3)
    assert not plan.feasible
    assert plan.processors == {"split": 1, "count": 2}
    assert plan.binding == "count"
    assert plan.max_external_per_s == pytest.approx(20 / 3)
    assert plan.needs is not None and plan.needs.processors == {"split": 1, "count": 3} and plan.needs.total == 4
    assert "the budget of 3 is used up; a stable plan needs 4 processors" in plan.needs.reason


def test_a_capped_operator_shrinks_the_others() -> None:
    """'global' cannot run in parallel and serves 5 rows/s, so the others are sized for 5 rows/s, not for 50."""
    capped = OperatorNetwork(
        external_per_s=50.0,
        operators=(
            OperatorStation(name="parse", station=mmk(50, 2)),
            OperatorStation(name="global", station=mmk(50, 5), max_processors=1),
            OperatorStation(name="write", station=mmk(100, 4)),
        ),
    )
    for plan in (assign_processors(capped, 500), min_processors(capped, 10.0), min_processors(capped, 10.0, 0.95)):
        assert not plan.feasible
        assert plan.processors == {"parse": 3, "global": 1, "write": 3}
        assert plan.binding == "global"
        assert plan.max_external_per_s == pytest.approx(5.0)
        assert plan.needs is not None and plan.needs.processors is not None
        assert plan.needs.processors["global"] >= 11
        assert "its max is 1" in plan.needs.reason


def test_a_target_beyond_the_budget() -> None:
    words = network(8.0, split=mmk(8, 9.6), count=mmk(24, 10))
    free = min_processors(words, 0.42)
    plan = min_processors(words, 0.42, budget=6)
    assert free.feasible and free.total > 6
    assert not plan.feasible
    assert plan.counts == assign_processors(words, 6).counts
    assert plan.binding in ("split", "count")
    assert plan.needs is not None and plan.needs.processors == free.processors
    assert f"within the budget of 6; it needs {free.total} processors" in plan.needs.reason
    assert min_processors(words, 0.42, budget=free.total).feasible


def test_a_target_beyond_an_upper_bound() -> None:
    operators = (
        OperatorStation(name="split", station=mmk(8, 9.6), max_processors=1),
        OperatorStation(name="count", station=mmk(24, 10)),
    )
    plan = min_processors(OperatorNetwork(external_per_s=8.0, operators=operators), 0.5)
    assert not plan.feasible
    assert plan.binding == "split"
    assert plan.max_external_per_s == pytest.approx(9.6)
    assert plan.needs is not None and "within the max of 'split'" in plan.needs.reason


@pytest.mark.parametrize("quantile", [None, 0.95])
def test_a_target_beyond_an_upper_bound_adds_no_useless_processors(quantile: float | None) -> None:
    """'split' alone takes 625 ms on average: no number of 'count' reaches 500 ms; beyond 6 they gain less than 1%."""
    operators = (
        OperatorStation(name="split", station=mmk(8, 9.6), max_processors=1),
        OperatorStation(name="count", station=mmk(24, 10)),
    )
    plan = min_processors(
        OperatorNetwork(external_per_s=8.0, operators=operators), 0.5 if quantile is None else 1.5, quantile
    )
    assert not plan.feasible and plan.binding == "split"
    assert plan.processors["count"] <= 6


def test_different_numbers_are_printed_differently() -> None:
    reasons = []
    for service in (4.0, 3.9999999):
        operator = OperatorStation(name="a", station=mmk(8, service), max_processors=2)
        plan = assign_processors(OperatorNetwork(external_per_s=8.0, operators=(operator,)), 5)
        assert plan.needs is not None
        reasons.append(plan.needs.reason)
    assert "with 2 processors sustains an external rate of 8 rows/s, but 8 arrive" in reasons[0]
    assert "sustains an external rate of 7.9999998 rows/s, but 8 arrive" in reasons[1]


def test_a_query_with_too_few_slots_is_unstable_for_any_allocation() -> None:
    query = MicroBatch(arrival_per_s=900.0, batch_s=0.1, row_s=0.01, replica_s=0.02, slots=8)
    plan = assign_processors(network(900.0, query=query, parse=mmk(900.0, 300.0)), 50)
    assert not plan.feasible
    assert plan.processors == {"query": 8, "parse": 3}
    assert plan.max_external_per_s == pytest.approx(800.0)
    assert plan.needs is not None and plan.needs.total is None
    assert "no number of processors makes 'query' stable" in plan.needs.reason


def test_an_operator_without_arrivals() -> None:
    plan = assign_processors(network(8.0, busy=mmk(8, 10), idle=mmk(0, 10)), 5)
    assert plan.processors == {"busy": 4, "idle": 1}
    assert plan.bottleneck == "busy"


def test_quantile_costs_more_than_the_mean() -> None:
    words = network(8.0, split=mmk(8, 9.6), count=mmk(24, 10))
    mean, tail = min_processors(words, 1.0), min_processors(words, 1.0, quantile=0.95)
    assert mean.total < tail.total
    latency = tail.latency()
    assert latency is not None and latency.quantile_s(0.95) <= 1.0
    best = min_processors(words, 1.0, quantile=0.95, budget=tail.total - 1)
    assert not best.feasible and best.needs is not None and best.needs.total == tail.total


def test_bad_input() -> None:
    single = network(1.0, a=mmk(1, 2))
    with pytest.raises(PlanError, match="The budget is 1 processor, but 2 operators need at least 2"):
        assign_processors(network(1.0, a=mmk(1, 2), b=mmk(1, 2)), 1)
    with pytest.raises(ModelError, match=r"latency target \(s\) is nan"):
        min_processors(single, math.nan)
    with pytest.raises(ModelError, match="The quantile is 95"):
        min_processors(single, 1.0, quantile=95)
    with pytest.raises(PlanError, match="bounds min 3 and max 2"):
        OperatorStation(name="a", station=mmk(1, 2), min_processors=3, max_processors=2)
    with pytest.raises(PlanError, match="each with a unique name"):
        OperatorNetwork(external_per_s=1.0, operators=(single.operators[0], single.operators[0]))
    with pytest.raises(ModelError, match=r"external rate \(rows/s\) is 0"):
        OperatorNetwork(external_per_s=0.0, operators=single.operators)


def test_large_and_mixed() -> None:
    """No move of a single processor among a hundred operators is better, which proves the optimum for convex curves."""
    rng = np.random.default_rng(3)
    many = OperatorNetwork(
        external_per_s=100.0,
        operators=tuple(
            OperatorStation(
                name=f"op{i}",
                station=GIGk(
                    arrival_per_s=float(rng.uniform(20, 300)),
                    service_per_s=float(rng.uniform(5, 60)),
                    arrival_scv=float(rng.uniform(0, 3)),
                    service_scv=float(rng.uniform(0, 3)),
                ),
            )
            for i in range(100)
        ),
    )
    start = many.least_stable()
    assert start is not None
    plan: Assignment = assign_processors(many, sum(start) + 150)
    gain, loss = [], []
    for operator, k, least in zip(many.operators, plan.counts, start, strict=True):
        visits = operator.station.arrival_per_s / 100.0
        mean = operator.station.mean_s  # type: ignore[attr-defined]
        gain.append(visits * (mean(k) - mean(k + 1)))
        loss.append(visits * (mean(k - 1) - mean(k)) if k > least else math.inf)
    assert max(gain) <= min(loss) * (1 + 1e-9)
