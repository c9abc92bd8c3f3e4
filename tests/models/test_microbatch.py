from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.models.microbatch import BatchSample, MicroBatch, MicroBatchQuery, QueryStage, fit_microbatch
from penstock.models.queueing import ModelError, UnstableError

queries = st.builds(
    MicroBatch,
    arrival_per_s=st.floats(1, 5000),
    batch_s=st.floats(0.01, 2),
    row_s=st.floats(1e-5, 0.01),
    replica_s=st.floats(1e-3, 0.1),
    slots=st.integers(1, 80),
)


def test_the_fixed_point_repeats_itself() -> None:
    """Simulate the query: each batch reads the rows that arrived during the previous one."""
    query = MicroBatch(arrival_per_s=3000.0, batch_s=0.2, row_s=0.001, replica_s=0.02, slots=16)
    batch = 10.0
    for _ in range(500):
        batch = query.batch_time_s(3000.0 * batch, 5)
    assert query.steady_batch_s(5) == pytest.approx(batch, rel=1e-9)
    assert query.steady_batch_s(5) == pytest.approx((0.2 + 5 * 0.02) / (1 - 3.0 / 5))


def test_latency_equals_that_of_a_simulation() -> None:
    query = MicroBatch(arrival_per_s=1000.0, batch_s=0.2, row_s=0.001, replica_s=0.02)
    settled = query.steady_batch_s(3)
    arrivals = np.arange(0.0, 1000 * settled, 0.001)
    latencies = (
        np.floor(arrivals / settled) + 2
    ) * settled - arrivals  # a row leaves at the end of the batch that reads it
    assert latencies.mean() == pytest.approx(query.mean_s(3), rel=1e-3)
    assert latencies.var() == pytest.approx(query.variance_s2(3), rel=1e-2)
    assert np.quantile(latencies, 0.95) == pytest.approx(query.quantile_s(3, 0.95), rel=1e-3)
    assert (latencies > 1.7 * settled).mean() == pytest.approx(query.miss_probability(3, 1.7 * settled), abs=1e-3)


@given(queries)
@settings(deadline=None)
def test_best_replicas_by_brute_force(query: MicroBatch) -> None:
    assert query.slots is not None
    settled = {}
    for k in range(1, query.slots + 20):
        if query.arrival_per_s * query.row_s / min(k, query.slots) < 1 - 1e-9:
            fixed = query.batch_s + query.replica_s * k
            settled[k] = fixed / (1 - query.arrival_per_s * query.row_s / min(k, query.slots))
    best = query.best_replicas()
    if not settled:
        assert best is None or query.arrival_per_s * query.row_s > query.slots * (1 - 1e-8)
    else:
        assert best is not None
        assert settled[best] == pytest.approx(min(settled.values()), rel=1e-9)


@given(queries)
@settings(deadline=None)
def test_convex_up_to_the_slots_then_rising(query: MicroBatch) -> None:
    least = query.least_stable()
    if least is None or query.slots is None:
        return
    drops = list(itertools.islice(query.drops_s(least), query.slots - least + 5))
    means = [query.mean_s(k) for k in range(least, query.slots + 6)]
    assert drops == pytest.approx(-np.diff(means), rel=1e-6, abs=1e-9 * means[0])
    inside = drops[: query.slots - least]
    assert all(a >= b - 1e-9 * means[0] for a, b in itertools.pairwise(inside))
    assert all(drop < 0 for drop in drops[query.slots - least :])


def test_200_default_partitions_are_too_many() -> None:
    query = MicroBatch(arrival_per_s=2000.0, batch_s=0.1, row_s=0.001, replica_s=0.02, slots=200)
    best = query.best_replicas()
    assert best is not None and best < 12
    assert query.mean_s(200) > 8 * query.mean_s(best)


def test_unstable() -> None:
    query = MicroBatch(arrival_per_s=900.0, batch_s=0.1, row_s=0.01, replica_s=0.02, slots=8)
    assert query.least_stable() is None
    assert query.best_replicas() is None
    with pytest.raises(UnstableError, match="8 slots are too few for any number"):
        query.mean_s(20)
    with pytest.raises(UnstableError, match="receives 900 rows/s but 3 replicas process 300; it needs at least 10"):
        MicroBatch(arrival_per_s=900.0, batch_s=0.1, row_s=0.01, replica_s=0.02).mean_s(3)
    with pytest.raises(ModelError, match=r"work of a row .* is nan"):
        MicroBatch(arrival_per_s=1.0, batch_s=0.1, row_s=math.nan, replica_s=0.1)


# ---- a query of stages


@given(
    st.floats(10, 3000),
    st.lists(st.tuples(st.floats(0.1, 3), st.floats(1e-5, 2e-3)), min_size=1, max_size=3),
    st.floats(0.005, 1.0),
    st.floats(1e-3, 0.05),
    st.integers(1, 9),
)
@settings(deadline=None, max_examples=60)
def test_best_replicas_of_stages_by_brute_force(
    rate: float, work: list[tuple[float, float]], batch_s: float, replica_s: float, slots: int
) -> None:
    stages = tuple(QueryStage(name=f"s{i}", visits=v, row_s=c) for i, (v, c) in enumerate(work))
    query = MicroBatchQuery(batch_s=batch_s, replica_s=replica_s, slots=slots, stages=stages)
    shortest = math.inf
    for counts in itertools.product(range(1, slots + 1), repeat=len(stages)):
        load = rate * sum(v * c / k for (v, c), k in zip(work, counts, strict=True))
        if load < 1:
            shortest = min(shortest, (batch_s + replica_s * sum(counts)) / (1 - load))
    if shortest == math.inf:
        with pytest.raises(UnstableError, match="Add slots"):
            query.best_replicas(rate)
    else:
        assert query.steady_batch_s(rate, query.best_replicas(rate)) == pytest.approx(shortest, rel=1e-9)
        assert query.latency_s(rate, query.best_replicas(rate)) == pytest.approx(1.5 * shortest, rel=1e-9)


# ---- fitting

TRUTH = MicroBatch(arrival_per_s=0.0, batch_s=0.15, row_s=0.0008, replica_s=0.025)
DESIGN = [(n, k) for n in (50, 800, 4000) for k in (1, 2, 4, 8)]


def noisy(rng: np.random.Generator, sd: float) -> list[BatchSample]:
    return [BatchSample(n, k, max(1e-3, TRUTH.batch_time_s(n, k) + rng.normal(0, sd))) for n, k in DESIGN]


def test_fit_intervals_have_their_nominal_coverage() -> None:
    """In 500 experiments of 12 batches, each 90 % interval contains the true value in 90 % of them, within 3 sigma."""
    rng = np.random.default_rng(8)
    rate, k, rows = 2000.0, 4, 2000
    latency = TRUTH.at_rate(rate).mean_s(k)
    hits = dict.fromkeys(("batch_s", "row_s", "replica_s", "latency", "next batch"), 0)
    runs = 500
    for _ in range(runs):
        fit = fit_microbatch(noisy(rng, 0.03), level=0.9)
        for name, truth in (("batch_s", 0.15), ("row_s", 0.0008), ("replica_s", 0.025)):
            hits[name] += getattr(fit, name).low <= truth <= getattr(fit, name).high
        seen = fit.predict_latency_s(rate, k)
        hits["latency"] += seen.low <= latency <= seen.high
        drawn = fit.predict_batch_s(rows, k)
        hits["next batch"] += drawn.low <= TRUTH.batch_time_s(rows, k) + rng.normal(0, 0.03) <= drawn.high
    for name, count in hits.items():
        assert count / runs == pytest.approx(0.9, abs=3 * math.sqrt(0.9 * 0.1 / runs)), name


def test_no_parameter_is_negative() -> None:
    """If the true b is 0, unbounded least squares would be negative in half of all experiments."""
    rng = np.random.default_rng(4)
    free = MicroBatch(arrival_per_s=0.0, batch_s=0.15, row_s=0.0008, replica_s=0.0)
    clipped = 0
    for _ in range(50):
        fit = fit_microbatch([BatchSample(n, k, free.batch_time_s(n, k) + rng.normal(0, 0.02)) for n, k in DESIGN])
        for estimate in (fit.batch_s, fit.row_s, fit.replica_s):
            assert 0 <= estimate.low <= estimate.value <= estimate.high
        clipped += fit.replica_s.value == 0.0
    assert 10 < clipped < 40


def test_saturation_that_cannot_be_ruled_out_has_no_upper_end() -> None:
    fit = fit_microbatch(noisy(np.random.default_rng(1), 0.4))
    rate = 0.98 * fit.station(0.0).capacity_per_s(4)
    assert fit.predict_latency_s(rate, 4).high == math.inf
    assert fit.predict_latency_s(0.01 * rate, 4).high < math.inf


def test_slots_are_part_of_the_design() -> None:
    few = MicroBatch(arrival_per_s=0.0, batch_s=0.15, row_s=0.0008, replica_s=0.025, slots=2)
    fit = fit_microbatch([BatchSample(n, k, few.batch_time_s(n, k)) for n, k in DESIGN], slots=2)
    assert fit.row_s.value == pytest.approx(0.0008)
    assert fit.station(100.0).slots == 2


def test_parameters_that_cannot_be_identified_are_refused() -> None:
    with pytest.raises(ModelError, match="3 samples are too few"):
        fit_microbatch([BatchSample(n, k, 0.5) for n, k in DESIGN[:3]])
    with pytest.raises(ModelError, match="All samples have 4 replicas"):
        fit_microbatch([BatchSample(n, 4, TRUTH.batch_time_s(n, 4)) for n in (10, 100, 1000, 5000)])
    with pytest.raises(ModelError, match="Rows and replicas are nearly collinear"):
        fit_microbatch([BatchSample(100 * k * (k + 3), k, 0.5) for k in (1, 2, 4, 8)])  # n/k is a line in k
    with pytest.raises(ModelError, match="All samples are empty batches"):
        fit_microbatch([BatchSample(0, k, 0.5) for k in (1, 2, 4, 8)])
    with pytest.raises(ModelError, match=r"batch time of sample 1 \(s\) is nan"):
        fit_microbatch([BatchSample(10, 1, 0.5), BatchSample(10, 2, math.nan)])
    with pytest.raises(ModelError, match="replicas of sample 0 is 0"):
        fit_microbatch([BatchSample(10, 0, 0.5)])
