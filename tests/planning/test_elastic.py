"""Schedules: costs, violations, and the choices of the policies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.errors import PenstockError
from penstock.models.mst.curve_families import MODEL1
from penstock.models.mst.prediction import fit_mst
from penstock.models.mst.samples import SamplesError, ThroughputSamples
from penstock.planning.elastic_comparison import ModelInputs, compare
from penstock.planning.elastic_policies import (
    CarefulPolicy,
    choose_careful,
    least_over_provisioning,
    over_provisioned,
    rehearsals,
    static,
    with_ground_truth,
)
from penstock.planning.elastic_schedule import (
    ElasticError,
    ElasticSchedule,
    RentalTerms,
    ground_truth,
    intervals_ahead,
    needed_vms,
    reactive,
    simulate,
)
from penstock.planning.forecast import upper_forecasts
from penstock.planning.trace import Trace, parse_trace
from tests.support.mst_measurements import GENERATED, PUBLISHED, measurements

HOUR = 3600.0


def daily(days: int, *, seed: int = 0, peak: float = 30.0) -> Trace:
    rng = np.random.default_rng(seed)
    hours = np.arange(24 * days)
    rates = (1.2 + np.sin(hours * 2 * np.pi / 24)) * rng.lognormal(0, 0.08, size=len(hours))
    return Trace(rates=tuple(rates), interval_s=HOUR).scaled_to(peak)


def app(seed: int = 0) -> ThroughputSamples:
    rng = np.random.default_rng(seed)
    counts = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    return ThroughputSamples.of(
        "a", {m: 1.5 * m / (1 + 0.01 * (m - 1)) * rng.lognormal(0, 0.04, size=6) for m in counts}
    )


@pytest.mark.parametrize(
    ("name", "peak", "vms"),
    [("grep", 32, 53), ("rcount", 10, 119), ("visitor", 48, 114), ("pv", 46, 115), ("clean", 5, 16)],
)
def test_static_peak_row_of_table_3(name: str, peak: float, vms: int) -> None:
    samples = measurements(PUBLISHED)[name]
    trace = Trace(rates=(1.0, peak), interval_s=HOUR)
    truth = ground_truth(samples, 128)
    schedule = static("static peak", trace, truth, peak)
    outcome = simulate(trace, schedule, truth, RentalTerms(price_per_h=0.10))
    assert schedule.vms.tolist() == [vms, vms]
    assert outcome.cost_per_h == pytest.approx(vms * 0.10)
    assert outcome.violations == 0


@pytest.mark.parametrize("name", ["grep", "rcount", "visitor", "pv", "clean"])
def test_static_peak_row_of_table_3_on_generated_samples(name: str) -> None:
    samples = measurements(GENERATED)[name]
    peak = 0.9 * max(max(values) for values in samples.throughput)
    means = [sum(values) / len(values) for values in samples.throughput]

    def between(vms: int) -> float:
        upper = next(index for index, count in enumerate(samples.vms) if count >= vms)
        if samples.vms[upper] == vms:
            return means[upper]
        share = (vms - samples.vms[upper - 1]) / (samples.vms[upper] - samples.vms[upper - 1])
        return means[upper - 1] + share * (means[upper] - means[upper - 1])

    fewest = next(vms for vms in range(1, 129) if between(vms) >= peak)
    trace, truth = Trace(rates=(1.0, peak), interval_s=HOUR), ground_truth(samples, 128)
    schedule = static("static peak", trace, truth, peak)
    outcome = simulate(trace, schedule, truth, RentalTerms(price_per_h=0.10))
    assert schedule.vms.tolist() == [fewest, fewest]
    assert outcome.cost_per_h == pytest.approx(fewest * 0.10)
    assert outcome.violations == 0


def test_ground_truth_is_the_means_and_lines_between_them() -> None:
    samples = ThroughputSamples.of("a", {1: [1.0, 3.0], 3: [6.0], 4: [5.0]})
    assert ground_truth(samples, 4).tolist() == [2.0, 4.0, 6.0, 5.0]
    with pytest.raises(SamplesError, match="at most 4 VMs"):
        ground_truth(samples, 5)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=12), st.floats(0, 120))
def test_needed_vms_is_the_first_that_suffices(capacity: list[float], rate: float) -> None:
    enough = [m for m, c in enumerate(capacity, start=1) if c >= min(rate, max(capacity))]
    assert needed_vms(np.array(capacity), np.array([rate])).tolist() == [enough[0]]


def test_an_excessive_load_gets_no_vms_beyond_the_peak_of_the_curve() -> None:
    assert needed_vms(np.array([10.0, 16.0, 12.0, 8.0]), np.array([20.0])).tolist() == [2]


def test_a_late_change_violates_for_the_delay_and_both_sets_of_vms_are_paid() -> None:
    truth = np.array([10.0, 20.0])
    trace = Trace(rates=(10.0, 20.0, 10.0), interval_s=HOUR)
    outcome = simulate(trace, reactive("r", np.array([1, 2, 1])), truth, RentalTerms(price_per_h=1.0, delay_s=60))
    assert outcome.violations == pytest.approx(60 / (3 * HOUR))
    # 1 h + 2 h + 1 h, and in the third interval the second VM for another minute
    assert outcome.cost_per_h == pytest.approx((4 + 1 / 60) / 3)
    # An excess of 10 rows/s for 60 s leaves a backlog of 600 after the delay. Capacity equals load until interval three,
    # when 2 VMs drain 10 rows/s for a minute. There is a backlog in the whole second interval and for 60 s.
    assert outcome.behind == pytest.approx((HOUR + 60) / (3 * HOUR))
    assert outcome.worst_lag_s == pytest.approx(60.0)  # 600 rows at 10 rows/s


def test_vms_ordered_ahead_avoid_the_violation_for_a_minutes_pay() -> None:
    truth = np.array([10.0, 20.0])
    trace = Trace(rates=(10.0, 20.0), interval_s=HOUR)
    ahead = ElasticSchedule(policy="ahead", vms=np.array([1, 2]), ready=np.array([1, 2]))
    outcome = simulate(trace, ahead, truth, RentalTerms(price_per_h=1.0, delay_s=60))
    assert outcome.violations == outcome.behind == 0
    assert outcome.cost_per_h == pytest.approx((3 + 1 / 60) / 2)


def test_a_backlog_drains() -> None:
    truth = np.array([10.0, 40.0])
    # one hour at 5 rows/s above capacity: 18,000 rows; then 30 rows/s of spare capacity drain them in 600 s
    trace = Trace(rates=(15.0, 10.0), interval_s=HOUR)
    schedule = ElasticSchedule(policy="s", vms=np.array([1, 2]), ready=np.array([1, 2]))
    outcome = simulate(trace, schedule, truth, RentalTerms(delay_s=0))
    assert outcome.violations == pytest.approx(0.5)
    assert outcome.behind == pytest.approx((HOUR + 600) / (2 * HOUR))
    assert outcome.worst_lag_s == pytest.approx(1800.0)


def euler(rates, capacities, interval_s: float, dt: float = 1.0) -> float:
    backlog, behind = 0.0, 0.0
    for rate, capacity in zip(rates, capacities, strict=True):
        for _ in range(int(interval_s / dt)):
            behind += dt * (backlog > 1e-9 or rate > capacity)
            backlog = max(0.0, backlog + (rate - capacity) * dt)
    return behind / (interval_s * len(rates))


def test_a_delay_of_some_intervals() -> None:
    """The load doubles in minute 2. VMs that are ordered then and need 150 s serve from 30 s after minute 4 on."""
    truth = np.array([10.0, 20.0])
    trace = Trace(rates=(10.0, 10.0, 20.0, 20.0, 20.0, 20.0), interval_s=60.0)
    terms = RentalTerms(price_per_h=1.0, delay_s=150.0)
    ahead = intervals_ahead(trace, terms)
    assert ahead == 3
    outcome = simulate(trace, reactive("r", np.array([1, 1, 2, 2, 2, 2]), ahead), truth, terms)
    assert outcome.violations == pytest.approx(150 / 360)
    assert outcome.cost_per_h == pytest.approx((360 + 240) / 360)  # the second VM is paid from minute 2 on


@given(st.lists(st.integers(1, 4), min_size=3, max_size=8), st.integers(0, 400))
@settings(max_examples=40, deadline=None)
def test_a_delay_is_that_of_a_second_by_second_simulation(counts: list[int], delay_s: int) -> None:
    """Every second the VMs serve that were ordered `delay_s` ago; increases are paid from their order."""
    truth, vms = np.array([5.0, 11.0, 18.0, 31.0]), np.array(counts)
    rates = tuple(float(3 * (i % 5) + 2) for i in range(len(counts)))
    trace, terms = Trace(rates=rates, interval_s=60.0), RentalTerms(price_per_h=1.0, delay_s=float(delay_s))
    outcome = simulate(trace, reactive("r", vms, intervals_ahead(trace, terms)), truth, terms)
    seconds = range(60 * len(counts))
    serving = [counts[max(0, second - delay_s) // 60] for second in seconds]
    late = sum(truth[serving[second] - 1] < rates[second // 60] for second in seconds)
    started = [max(0, now - before) * min(delay_s, second + 1)
               for second, (before, now) in enumerate(itertools.pairwise(serving))]  # fmt: skip
    assert outcome.violations == pytest.approx(late / len(seconds))
    assert outcome.cost_per_h == pytest.approx((sum(serving) + sum(started)) / len(seconds))


def test_a_forecast_for_a_longer_delay_uses_older_loads_only() -> None:
    rates = np.array([2.0, 3.0, 5.0, 4.0, 6.0, 2.0, 7.0, 3.0])
    changed = np.concatenate([rates[:5], [90.0, 90.0, 90.0]])
    for ahead in (1, 3):
        known = 5 + ahead - 1  # the forecast of interval t uses loads up to t - ahead
        first, second = (upper_forecasts(loads, season=2, ahead=ahead)[:known] for loads in (rates, changed))
        # The floor of the logarithm refers to the highest rate, which is far below these loads.
        assert first == pytest.approx(second)


@given(st.lists(st.integers(1, 30), min_size=2, max_size=6), st.lists(st.integers(0, 3), min_size=6, max_size=6))
@settings(max_examples=40, deadline=None)
def test_backlog_is_that_of_a_second_by_second_simulation(rates: list[int], picks: list[int]) -> None:
    truth = np.array([5.0, 11.0, 18.0, 31.0])
    vms = np.array(picks[: len(rates)]) + 1
    trace = Trace(rates=tuple(float(r) for r in rates), interval_s=600.0)
    outcome = simulate(trace, ElasticSchedule(policy="s", vms=vms, ready=vms), truth, RentalTerms(delay_s=60))
    assert outcome.behind == pytest.approx(euler(trace.rates, truth[vms - 1], 600.0), abs=2 / 600)
    assert outcome.behind >= outcome.violations - 1e-12


def test_ground_truth_never_violates_and_nothing_that_never_violates_is_cheaper() -> None:
    truth, trace, terms = ground_truth(app(), 64), daily(4), RentalTerms(max_vms=64)
    ideal = simulate(trace, with_ground_truth(trace, truth), truth, terms)
    peak = simulate(trace, static("p", trace, truth, max(trace.rates)), truth, terms)
    assert ideal.violations == peak.violations == 0
    assert ideal.cost_per_h < peak.cost_per_h
    # the fewest VMs that suffice in each hour, without delay and other costs
    fewest = [next(m for m in range(1, 65) if truth[m - 1] >= rate) for rate in trace.rates]
    assert ideal.cost_per_h == pytest.approx(0.10 * sum(fewest) / len(fewest))


def test_over_provisioning_rounds_up_and_stops_at_the_bound() -> None:
    trace = Trace(rates=(10.0, 3.0, 20.0), interval_s=HOUR)
    capacity = np.arange(1.0, 21.0)
    assert over_provisioned(trace, capacity, 10).vms.tolist() == [11, 4, 20]
    assert over_provisioned(trace, capacity, 0).vms.tolist() == [10, 3, 20]


def test_least_over_provisioning_is_the_first_under_the_limit() -> None:
    truth, trace, terms = ground_truth(app(), 64), daily(6), RentalTerms(max_vms=64)
    optimistic = truth * 1.12

    def violations(percent: float) -> float:
        return simulate(trace, over_provisioned(trace, optimistic, percent), truth, terms).violations

    x = least_over_provisioning([trace], optimistic, truth, terms, violations=0.01)
    assert 0 < x < 100
    assert violations(x) < 0.01 <= min(violations(y) for y in range(x))


def test_forecasts_see_only_the_past_and_cover_as_promised() -> None:
    rates = daily(40, seed=2).array()
    upper = upper_forecasts(rates, season=24, quantile=0.9)
    changed = rates.copy()
    changed[500:] = 7.0
    assert upper_forecasts(changed, season=24, quantile=0.9)[:501].tolist() == upper[:501].tolist()
    assert np.mean(rates[200:] <= upper[200:]) == pytest.approx(0.9, abs=0.03)
    assert np.mean(rates[200:] <= upper_forecasts(rates, season=24, quantile=0.99)[200:]) > 0.96


def test_a_season_is_learnt() -> None:
    hours = np.arange(24 * 20)
    rates = 2 + np.sin(hours * 2 * np.pi / 24)
    assert upper_forecasts(rates, season=24)[240:] == pytest.approx(rates[240:], rel=1e-6)


def test_careful_is_more_careful_with_more_confidence() -> None:
    samples, trace, terms = app(), daily(10), RentalTerms(max_vms=64)
    truth = ground_truth(samples, 64)
    model = fit_mst(samples.only((2, 4, 8, 16, 64)), max_vms=64, validation=(64,))
    low, high = (
        simulate(trace, CarefulPolicy(confidence=c, planned_peak=30.0).schedule(trace, model), truth, terms)
        for c in (0.6, 0.95)
    )
    assert low.cost_per_h < high.cost_per_h
    assert low.violations >= high.violations
    chosen = choose_careful([trace], model, truth, terms, planned_peak=30.0, violations=0.005)
    assert simulate(trace, chosen.schedule(trace, model), truth, terms).violations <= 0.005


def test_careful_rents_no_more_than_the_plateau() -> None:
    samples = ThroughputSamples.of("flat", {m: [50.0, 50.1, 49.9] for m in (1, 2, 4, 8, 64)})
    model = fit_mst(samples, max_vms=64, validation=(64,))
    trace = Trace(rates=(40.0, 90.0), interval_s=HOUR)
    assert CarefulPolicy(confidence=None, planned_peak=90.0).schedule(trace, model).vms.tolist() == [1, 1]


def test_rehearsals_reach_the_planned_peak() -> None:
    past = Trace(rates=(1.0, 2.0), interval_s=HOUR)
    assert [max(t.rates) for t in rehearsals(past, 8.0)] == pytest.approx(list(np.geomspace(2, 8, 6)))
    assert rehearsals(past, 2.0) == [past]
    with pytest.raises(ElasticError, match="no load"):
        rehearsals(Trace(rates=(0.0, 0.0), interval_s=HOUR), 2.0)


def stepped_app(seed: int) -> ThroughputSamples:
    """A curve with steps of two VMs and an upper limit, which Models 1 and 2 cannot represent."""
    rng = np.random.default_rng(seed)
    counts = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    return ThroughputSamples.of(
        "a", {m: min(1.5 * max(1, m // 2) * 2, 40.0) * rng.lognormal(0, 0.03, size=6) for m in counts}
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_careful_policy_is_cheaper_than_the_papers_at_no_more_violations(seed: int) -> None:
    """A synthetic version of the benchmark: the paper's Model 1 and Penstock's model on held-out days."""
    comparison = compare(
        daily(20, seed=5),
        stepped_app(seed),
        terms=RentalTerms(max_vms=64),
        inputs=ModelInputs(train=(3, 4, 6, 8, 24), validation=(64,), steps=(0.0, 2.0), paper_family=MODEL1),
    )
    paper, ours = comparison.outcomes[-2:]
    assert len(comparison.outcomes) == 9 and comparison.judged_from == 240
    assert ours.cost_per_h <= paper.cost_per_h
    assert ours.violations <= paper.violations


def test_if_the_papers_model_is_exact_the_careful_policy_costs_little_more_and_violates_less() -> None:
    comparison = compare(
        daily(20, seed=5),
        app(3),
        terms=RentalTerms(max_vms=64),
        inputs=ModelInputs(train=(2, 4, 6, 8, 24), validation=(64,), paper_family=MODEL1),
    )
    paper, ours = comparison.outcomes[-2:]
    assert ours.cost_per_h <= 1.05 * paper.cost_per_h
    assert ours.violations <= paper.violations
    as_good = comparison.as_good
    assert as_good is None or (as_good.violations <= ours.violations and as_good.cost_per_h >= ours.cost_per_h)


def minutes(shape: str, seed: int) -> Trace:
    """Return half a day of minutes with a load that jumps: bursts of five minutes, or a new level every half hour."""
    rng = np.random.default_rng(seed)
    if shape == "bursts":
        rates = 1.0 + 3.0 * (np.convolve(rng.random(720) < 0.01, np.ones(5), "same") > 0)
    else:
        rates = np.repeat(rng.uniform(0.3, 2.0, 24), 30)
    return Trace(rates=tuple(rates * rng.lognormal(0, 0.05, 720)), interval_s=60.0).scaled_to(30.0)


@pytest.mark.long
@pytest.mark.parametrize(("shape", "most"), [("bursts", 1.03), ("steps", 1.12)])
def test_the_careful_policy_costs_little_more_on_loads_that_cannot_be_forecast(shape: str, most: float) -> None:
    """VMs take as long to start as an interval, so some violations cannot be avoided by any policy.

    The expected cost is that of the paper's rule at the percentage that is best in hindsight.
    """
    costs, expected = [], []
    for seed in range(3):
        comparison = compare(
            minutes(shape, seed),
            app(seed),
            terms=RentalTerms(max_vms=64, delay_s=60.0),
            inputs=ModelInputs(train=(2, 4, 6, 8, 24), validation=(64,), paper_family=MODEL1),
        )
        assert comparison.as_good is not None
        costs.append(comparison.outcomes[-1].cost_per_h)
        expected.append(comparison.as_good.cost_per_h)
    assert np.mean(costs) <= most * np.mean(expected)


def half_day(shape: str, seed: int) -> Trace:
    """Return half a day of minutes: loads that jump, drift, swing or are noise."""
    rng, at = np.random.default_rng(seed), np.arange(720)
    match shape:
        case "walk":
            rates = np.exp(np.cumsum(rng.normal(0, 0.05, 720)))
        case "sine":
            rates = (1.2 + np.sin(2 * np.pi * at / 180 + rng.uniform(0, 6))) * rng.lognormal(0, 0.1, 720)
        case "noise":
            rates = rng.lognormal(0, 0.2, 720)
        case _:
            return minutes(shape, seed)
    return Trace(rates=tuple(rates), interval_s=60.0).scaled_to(30.0)


@pytest.mark.long
def test_the_careful_policy_costs_no_more_than_the_papers_rule_on_minutes() -> None:
    """On all of 15 traces it is as cheap as the paper's rule, or it violates the capacity less often."""
    dearer = []
    for shape in ("bursts", "steps", "walk", "sine", "noise"):
        for seed in range(3):
            comparison = compare(
                half_day(shape, seed),
                app(),
                terms=RentalTerms(max_vms=64, delay_s=60.0),
                inputs=ModelInputs(train=(2, 4, 6, 8, 24), validation=(64,), paper_family=MODEL1),
            )
            paper, ours = comparison.outcomes[-2:]
            if ours.cost_per_h > paper.cost_per_h * (1 + 1e-9):
                assert ours.violations < paper.violations
                dearer.append((shape, seed))
    assert len(dearer) <= 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns"),
        ("t,rate\n0,1\n", "columns"),
        ("time_s,rate\n0,1\n", "At least two are needed"),
        ("time_s,rate\n0,1\n60,x\n", "line 3"),
        ("time_s,rate\n0,1\n60,2,3\n", "line 3"),
        ("time_s,rate\n0,1\ninf,2\n", "line 3: 'inf,2' is not a time"),
        ('time_s,rate\n0,1\n60,"2\n', "line 3: this is not valid CSV"),
        ("time_s,rate\n0,1\n60,-2\n", "day.csv, line 3: the rate is -2. It must be 0 or more"),
        ("time_s,rate\n0,1\n60,nan\n", "day.csv, line 3: '60,nan' is not a time and a rate"),
        ("time_s,rate\n0,inf\n60,1\n", "day.csv, line 2: '0,inf' is not a time and a rate"),
        ("time_s,rate\n0,1\n60,1\n180,1\n240,1\n", "line 4"),
        ("time_s,rate\n60,1\n0,1\n", "must increase by equal steps"),
        ("time,rate\nyesterday,1\n1998-01-01,2\n", "line 2"),
    ],
)
def test_bad_traces_get_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        parse_trace(text, source="day.csv")


def test_both_kinds_of_time_are_read() -> None:
    seconds = parse_trace("time_s,rate\n0,1\n900,2\n1800,0\n")
    iso = parse_trace("time,rate\n1998-06-10T00:45:00+01:00,1\n1998-06-10T00:00:00Z,2\n1998-06-10T00:15:00,0\n")
    assert seconds == iso == Trace(rates=(1.0, 2.0, 0.0), interval_s=900.0)


@pytest.mark.parametrize(
    "terms",
    [{"price_per_h": 0.0}, {"price_per_h": -1.0}, {"price_per_h": float("nan")}, {"delay_s": -1}, {"max_vms": 0}],
)
def test_bad_terms_are_refused(terms: dict[str, float]) -> None:
    with pytest.raises(ElasticError):
        RentalTerms(**terms)


@pytest.mark.parametrize("share", [0.0, 1.0, 1.5, -1.0, float("nan")])
def test_a_training_share_without_a_test_part_is_refused(share: float) -> None:
    inputs = ModelInputs(train=(2, 4, 8), validation=(64,))
    with pytest.raises(ElasticError, match="leaves no interval"):
        compare(daily(2), app(), terms=RentalTerms(max_vms=64), inputs=inputs, choose_share=share)
