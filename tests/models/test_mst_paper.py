"""The direction of every row of docs/papers/mst-results.md; published numbers within a stated tolerance.

The tests run on the measurements of the authors if they are on this machine, and always on generated ones.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers import mst, mst_data
from penstock.models.mst.curve_families import LINEAR, MEAN, MODEL1, MODEL2, PAPER_FAMILIES
from penstock.models.mst.fitted_curve import FittedCurve
from penstock.models.mst.least_squares import mape
from penstock.models.mst.prediction import fit_mst
from penstock.models.mst.validation_counts import first_divergences
from tests.support.mst_measurements import GENERATED, PUBLISHED, both, measurements

BENT = ("grep", "rcount", "clean")  # applications with a bottleneck
NEARLY_LINEAR = ("visitor", "pv")


def requests(origin: str) -> np.ndarray:
    if origin == GENERATED:
        return mst_data.generated_requests()
    if not mst_data.REQUESTS.exists():
        pytest.skip(f"the World Cup trace is not at {mst_data.REQUESTS}")
    return mst_data.requests_per_hour()


def scheduled(origin: str, app: str, *, whole: bool) -> mst.Scheduled:
    samples, load = measurements(origin)[app], requests(origin)
    family, published_peak = mst_data.PHASE_2[app]
    top = max(max(values) for values in samples.throughput)
    peak = published_peak if origin == PUBLISHED else 0.9 * top
    return mst.scheduled(samples, mst_data.hourly(load if whole else mst_data.busiest(load), peak), family)


# ---- table 2 and figures 8 to 11


@pytest.mark.parametrize("app", mst.TABLE_2)
def test_published_weights_give_the_same_throughput(app: str) -> None:
    """The weights of table 2 were fitted to other samples. At the trained counts the models differ by at most 9 %."""
    samples, vms = measurements(PUBLISHED)[app], np.array(mst_data.TRAIN, dtype=float)
    for family, weights in zip(PAPER_FAMILIES, mst.TABLE_2[app], strict=True):
        published = family.predict(np.array(weights), vms)
        assert mst.fitted(samples, family).raw(vms) == pytest.approx(published, rel=0.09), family.name


@both
def test_communication_is_negligible_but_for_two_applications(origin: str) -> None:
    measured = measurements(origin)
    for app in ("grep", "rcount", *NEARLY_LINEAR):
        assert mst.fitted(measured[app], MODEL1).weights[2:] == pytest.approx((0.0, 0.0), abs=1e-4), app


@both
def test_each_model_fits_the_applications_that_it_fits_in_the_paper(origin: str) -> None:
    """Figures 8 and 9: Model 1 where there is a bottleneck, Model 2 where the growth is linear or has a peak."""
    errors = {app: mst.fit_errors(samples) for app, samples in measurements(origin).items()}
    for app in ("grep", "rcount", *(("wc",) if origin == PUBLISHED else ())):
        assert errors[app]["model1"] < errors[app]["model2"], app
    for app in ("rsort", *NEARLY_LINEAR):
        assert errors[app]["model2"] < errors[app]["model1"] * 1.02, app
    assert errors["vhtree"]["model1"] == pytest.approx(errors["vhtree"]["model2"], abs=0.01)
    if origin == PUBLISHED:
        for app in ("sol", "clean"):
            assert errors[app]["model1"] == pytest.approx(errors[app]["model2"], abs=0.01), app


def test_published_weights_give_the_published_points_of_algorithm_1() -> None:
    """All points are equal but the second one of Rolling Count. It is where two nearly parallel curves are 10 % apart
    after they cross, and depends on the digits of the weights."""
    points = {
        app: first_divergences(
            [
                FittedCurve(family=family, weights=tuple(weights), step=0.0, train_rmse=0.0)
                for family, weights in zip(PAPER_FAMILIES, published, strict=True)
            ],
            trained=mst_data.TRAIN,
            max_vms=mst.MAX_VMS,
        )
        for app, published in mst.TABLE_2.items()
    }
    first, second = points.pop("rcount")
    assert points == {"grep": [26], "visitor": [25], "pv": [25], "clean": [], "vhtree": []}
    assert first == 25 and second == pytest.approx(72, rel=0.25)


def test_published_points_of_algorithm_1() -> None:
    """The paper has 26 for Grep and 25 and 72 for Rolling Count, from other samples; the rest is equal."""
    points = {app: mst.validation_counts(samples)[0] for app, samples in measurements(PUBLISHED).items()}
    assert points["visitor"] == points["pv"] == (25,)
    assert points["clean"] == points["vhtree"] == ()
    assert points["grep"][0] == pytest.approx(26, abs=1) and len(points["grep"]) == 1
    first, second = points["rcount"]
    assert first == 25 and second == pytest.approx(72, rel=0.5)


def test_published_selection_of_models() -> None:
    """Grep is the exception: the sample on 26 VMs was not published, and on 32 VMs Model 2 is still better."""
    measured = measurements(PUBLISHED)
    selected = {app: mst.selected(measured[app]).chosen.family for app in mst_data.PHASE_2}
    assert {app for app in selected if selected[app] is not mst_data.PHASE_2[app][0]} == {"grep"}


@both
def test_the_selected_model_is_more_accurate_than_the_competitors(origin: str) -> None:
    """Figures 10 and 11: ElasticStream's line fails where there is a bottleneck, the mean wherever there is scaling."""
    for app in mst_data.PHASE_2:
        samples = measurements(origin)[app]
        errors = mst.prediction_errors(samples)
        assert errors["own mean"] <= errors["selected"] + 0.1, app  # no single number per count is much better
        beyond = mst.errors_beyond(samples)
        if app in BENT:
            assert beyond["linear"] > 1.5 * min(beyond["model1"], beyond["model2"]), app
        if app != "vhtree":
            assert errors["mean"] > 3 * errors["selected"], app
            validated = mst.selected(samples, (*PAPER_FAMILIES, LINEAR, MEAN)).errors
            assert validated["mean"] > 2 * min(validated["model1"], validated["model2"]), app


def test_published_errors_of_figure_11() -> None:
    measured = measurements(PUBLISHED)
    errors = [mst.prediction_errors(measured[app]) for app in mst_data.PHASE_2]
    assert max(error["selected"] for error in errors) == pytest.approx(15.8, abs=0.5)
    assert max(error["own mean"] for error in errors) == pytest.approx(6.9, abs=0.2)


# ---- ways to choose a model


@both
def test_the_training_error_selects_model_2_where_the_paper_had_no_validation_counts(origin: str) -> None:
    samples = measurements(origin)["vhtree"].only(mst_data.TRAIN)
    model = fit_mst(samples, max_vms=128, families=PAPER_FAMILIES, choose="training", resamples=50)
    assert model.selection.chosen.family is MODEL2
    assert sorted(model.selection.shares) == [0.0, 1.0]


@both
@pytest.mark.parametrize("choose", ["training", "leave-one-out"])
def test_a_model_chosen_without_validation_is_the_one_with_the_least_error_by_hand(origin: str, choose: str) -> None:
    samples = measurements(origin)["grep"].only(mst_data.TRAIN)
    families = (MODEL1, MODEL2, LINEAR, MEAN)
    model = fit_mst(samples, max_vms=128, families=families, choose=choose, resamples=50)  # type: ignore[arg-type]
    for family in families:
        squares = []
        for left in samples.vms:
            rest = samples if choose == "training" else samples.without([left])
            predicted = fit_mst(rest, max_vms=128, families=(family,), choose="training", resamples=2).selection.chosen
            values = np.array(samples.only([left]).throughput[0])
            squares.append(np.mean((predicted.predict([left])[0] / values - 1) ** 2))
        assert model.selection.errors[family.name] == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-9)
    assert model.selection.errors[model.selection.chosen.name] <= 1.001 * min(model.selection.errors.values())


@both
def test_leave_one_out_never_selects_the_mean_of_an_application_that_scales(origin: str) -> None:
    for app in ("grep", "visitor", "pv"):
        samples = measurements(origin)[app].only(mst_data.TRAIN)
        model = fit_mst(samples, max_vms=128, families=(MODEL1, MEAN), choose="leave-one-out", resamples=50)
        assert model.selection.chosen.family is MODEL1
        held = measurements(origin)[app].only([48, 64])
        assert mape(model.curve[[47, 63]], held) < 30.0


# ---- table 3, the saving, and figure 12


@both
@pytest.mark.parametrize("whole", [False, True], ids=["busiest", "whole"])
@pytest.mark.parametrize("app", mst_data.PHASE_2)
def test_the_policies_of_table_3_have_the_published_order(origin: str, app: str, whole: bool) -> None:
    load = scheduled(origin, app, whole=whole)
    cost = {name: outcome.cost_per_h for name, outcome in load.outcomes.items()}
    violations = {name: outcome.violations for name, outcome in load.outcomes.items()}
    assert violations["static peak"] == violations["ground truth"] == 0.0
    assert violations["<1% violations"] < 0.01
    assert cost["+0%"] <= cost["+5%"] <= cost["+10%"] <= cost["+20%"]
    if app == "vhtree":  # one VM suffices; more of them are slower
        assert load.percent == 0 and cost["static peak"] == pytest.approx(0.1)
        return
    assert cost["static average"] < cost["static peak"]
    assert cost["ground truth"] < cost["static peak"]
    assert violations["static average"] > 0.04  # the published values are 28 to 46 %
    assert violations["+20%"] < violations["+0%"]
    assert cost["ground truth"] <= cost["<1% violations"]
    assert load.saving >= 0.36  # the published least saving


def test_published_static_peak_and_the_step_back_of_grep() -> None:
    """More VMs than needed can be too many: 80 and 96 VMs are slower than 64, so 10 % violates more than 5 %."""
    for number, app in enumerate(mst_data.PHASE_2):
        load = scheduled(PUBLISHED, app, whole=False)
        assert load.outcomes["static peak"].cost_per_h == pytest.approx(mst.TABLE_3["static peak"][number][0])
    grep = scheduled(PUBLISHED, "grep", whole=False).outcomes
    assert grep["+10%"].violations > grep["+5%"].violations > grep["+20%"].violations


def test_published_vms_of_rolling_count() -> None:
    """Figure 12 (b): the ground truth has 43 VMs where the model requests 128."""
    if not mst_data.SAMPLES.exists():
        pytest.skip(f"the authors' measurements are not at {mst_data.SAMPLES}")
    assert mst._at_7_22() == "43 and 128 VMs"


@both
def test_model_1_of_rolling_count_requests_more_than_the_ground_truth(origin: str) -> None:
    load = scheduled(origin, "rcount", whole=False)
    true, planned = load.schedules["ground truth"].vms, load.schedules["+0%"].vms
    assert planned.mean() > (1.0 if origin == PUBLISHED else 0.8) * true.mean()
    assert np.corrcoef(true, planned)[0, 1] > 0.8  # both follow the load
