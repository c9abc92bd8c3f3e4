"""Every branch of the seven algorithms, with scripted metrics. Expected configurations follow from the paper's text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.policies.adaptation_parameters import AdaptationParameters, Variant
from penstock.control.policies.organic.adaptation import Action
from tests.support.organic_periods import GLOBAL, KEYED, STATELESS, STRICT, Script, pipeline, region

BALANCED = {"a": 0.45, "b": 0.40}
UNBALANCED = {"a": 0.75, "b": 0.10}


# ---- algorithms 2 to 4: bottlenecks and changes


def test_nothing_happens_without_a_bottleneck() -> None:
    script = Script({"a": KEYED})
    assert script.period(region(pipeline(BALANCED, busy=0.79))).action is Action.NOTHING
    assert script.now("a") == (1, ())


def test_a_balanced_bottleneck_is_split() -> None:
    script = Script({"a": KEYED})
    assert script.period(region(pipeline(BALANCED, busy=0.8))).action is Action.ADAPT
    assert script.now("a") == (1, ("a",))


def test_an_unbalanced_bottleneck_gets_a_replica() -> None:
    script = Script({"a": KEYED})
    script.period(region(pipeline(UNBALANCED)))
    assert script.now("a") == (2, ())


def test_a_lower_split_threshold_splits_the_unbalanced_one() -> None:
    script = Script({"a": KEYED}, parameters=replace(STRICT, split_gain=0.1))
    script.period(region(pipeline(UNBALANCED)))
    assert script.now("a") == (1, ("a",))


def test_a_higher_split_threshold_splits_nothing() -> None:
    script = Script({"a": KEYED}, parameters=replace(STRICT, split_gain=0.9))
    script.period(region(pipeline(BALANCED)))
    assert script.now("a") == (2, ())


def test_one_bottleneck_pipeline_that_cannot_be_split_prevents_all_splits() -> None:
    script = Script({"a": KEYED}, cuts={"a": ("b",)})
    script.period(region(pipeline({"a": 0.5, "b": 0.5}), pipeline({"c": 1.0})))
    assert script.now("a") == (2, ("b",))


def test_all_bottleneck_pipelines_of_a_region_are_split_together() -> None:
    script = Script({"a": KEYED}, cuts={"a": ("b",)})
    script.period(region(pipeline({"a": 0.5, "b": 0.5}), pipeline({"c": 0.5, "d": 0.5})))
    assert script.now("a") == (1, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("kind", "strict", "replicas"),
    [(KEYED, True, 2), (STATELESS, True, 1), (STATELESS, False, 2), (GLOBAL, True, 1), (GLOBAL, False, 1)],
)
def test_which_regions_get_replicas(kind: object, strict: bool, replicas: int) -> None:
    script = Script({"a": kind}, parameters=AdaptationParameters(strict=strict))  # type: ignore[dict-item]
    result = script.period(region(pipeline({"a": 1.0})))
    assert script.now("a") == (replicas, ())
    assert (result.action is Action.ADAPT) == (replicas == 2)


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        (Variant.FUSION_FIRST, (1, ("a",))),
        (Variant.FISSION_FIRST, (2, ())),
        (Variant.FUSION_ONLY, (1, ("a",))),
        (Variant.FISSION_ONLY, (2, ())),
    ],
)
def test_variants(variant: Variant, expected: tuple[int, tuple[str, ...]]) -> None:
    script = Script({"a": KEYED}, parameters=replace(STRICT, variant=variant))
    script.period(region(pipeline(BALANCED)))
    assert script.now("a") == expected


@pytest.mark.parametrize("variant", [Variant.FUSION_ONLY, Variant.FISSION_ONLY])
def test_a_variant_with_one_kind_of_change_does_not_try_the_other(variant: Variant) -> None:
    script = Script({"a": KEYED}, parameters=replace(STRICT, variant=variant))
    same = region(pipeline(BALANCED))
    script.period(same)
    assert script.period(same).action is Action.REVERT
    assert script.period(same).action is Action.NOTHING
    assert script.now("a") == (1, ())


def test_the_limit_of_replicas_and_of_slots_holds() -> None:
    profile = region(pipeline({"a": 1.0}))
    limited = Script({"a": KEYED}, parameters=replace(STRICT, max_replicas=3), replicas={"a": 3})
    assert limited.period(profile).action is Action.NOTHING
    full = Script({"a": KEYED}, slots=3, replicas={"a": 3})
    result = full.period(profile)
    assert result.action is Action.NOTHING
    assert result.bottlenecks is not None and str(result.bottlenecks["a"].beyond_slots) == "4 replicas"


def test_the_slots_are_given_to_upstream_bottlenecks_first() -> None:
    script = Script({"a": KEYED, "b": KEYED}, upstream={"b": ["a"]}, slots=3)
    result = script.period(region(pipeline({"a": 1.0})), region(pipeline({"b": 1.0})))
    assert (script.now("a"), script.now("b")) == ((2, ()), (1, ()))
    assert result.regions == ("a",) and list(result.bottlenecks or {}) == ["b"]


# ---- algorithms 1, 5 and 6: evaluation


def test_a_change_that_raises_the_throughput_is_finalised() -> None:
    script = Script({"a": KEYED})
    script.period(region(pipeline(BALANCED)))
    result = script.period(region(pipeline({"a": 0.75}), pipeline({"b": 0.7}), rate=111.0))
    assert (result.action, result.regions) == (Action.FINALISE, ("a",))
    assert script.now("a") == (1, ("a",)) and not script.state.adapting
    assert script.state.references["a"].rows_per_s == 111.0


def test_an_increase_that_only_reaches_the_threshold_is_not_enough() -> None:
    script = Script({"a": KEYED})
    script.period(region(pipeline(BALANCED)))
    assert script.period(region(pipeline(BALANCED), rate=110.0)).action is Action.RETRY


def test_a_useless_split_is_reverted_blacklisted_and_replaced_by_a_replica() -> None:
    script = Script({"a": KEYED})
    script.period(region(pipeline(BALANCED)))
    result = script.period(region(pipeline({"a": 0.9}), pipeline({"b": 0.9}), rate=104.0))
    assert (result.action, result.failed) == (Action.RETRY, "a")
    assert script.now("a") == (2, ())
    assert script.blacklist("a") == {"a": ["1 replica, cut after a"]}
    # The throughput is compared with the one before the adaptation, not with that of the reverted change.
    assert script.period(region(pipeline(BALANCED), rate=111.0)).action is Action.FINALISE
    assert script.blacklist("a") == {}


def test_the_whole_period_is_reverted_if_no_change_is_left() -> None:
    script = Script({"a": KEYED})
    same = region(pipeline(BALANCED))
    actions = [script.period(same).action for _ in range(4)]
    assert actions == [Action.ADAPT, Action.RETRY, Action.REVERT, Action.NOTHING]
    assert script.now("a") == (1, ())
    assert script.blacklist("a") == {"a": ["1 replica, cut after a", "2 replicas"]}


def test_parallel_bottlenecks_are_resolved_together_and_reverted_together() -> None:
    script = Script({"left": KEYED, "right": KEYED})
    both = region(pipeline({"left": 1.0})), region(pipeline({"right": 1.0}))
    assert script.period(*both).regions == ("left", "right")
    assert (script.now("left"), script.now("right")) == ((2, ()), (2, ()))
    # Only one of them improves: it cannot be kept alone.
    result = script.period(region(pipeline({"left": 1.0}), rate=150.0), region(pipeline({"right": 1.0})))
    assert (result.action, result.failed, result.regions) == (Action.REVERT, "right", ("left", "right"))
    assert (script.now("left"), script.now("right")) == ((1, ()), (1, ()))
    assert script.blacklist("left") == {"left": ["2 replicas"]}


def test_only_the_adapting_regions_nearest_to_the_sources_are_evaluated() -> None:
    script = Script({"a": KEYED, "b": KEYED}, upstream={"b": ["a"]})
    script.period(region(pipeline({"a": 1.0})), region(pipeline({"b": 1.0})))
    result = script.period(region(pipeline({"a": 1.0}), rate=150.0), region(pipeline({"b": 1.0}), rate=100.0))
    assert result.action is Action.FINALISE


def test_a_retried_region_keeps_the_changes_of_the_others() -> None:
    split, single = region(pipeline(BALANCED)), region(pipeline({"c": 1.0}))
    script = Script({"a": KEYED, "c": KEYED})
    script.period(split, single)
    result = script.period(split, region(pipeline({"c": 1.0}), rate=200.0))
    assert (result.action, result.failed) == (Action.RETRY, "a")
    assert (script.now("a"), script.now("c")) == ((2, ()), (2, ()))


# ---- algorithm 7: metrics and changes of the load


def test_a_blacklisted_change_is_not_repeated_until_the_load_changes() -> None:
    script = Script({"a": KEYED}, parameters=replace(STRICT, stable_periods=100))
    same = region(pipeline({"a": 1.0}))
    script.period(same)
    script.period(same)
    for rate in (100.0, 119.0, 81.0):
        assert script.period(region(pipeline({"a": 1.0}), rate=rate)).action is Action.NOTHING
    result = script.period(region(pipeline({"a": 1.0}), rate=121.0))
    assert (result.action, result.load_changed) == (Action.ADAPT, ("a",))
    assert script.now("a") == (2, ())


def test_another_utilisation_is_a_change_of_the_load_as_well() -> None:
    script = Script({"a": KEYED}, parameters=replace(STRICT, bottleneck=0.5))
    script.period(region(pipeline({"a": 1.0}, busy=0.6)))
    script.period(region(pipeline({"a": 1.0}, busy=0.6)))
    assert script.blacklist("a") == {"a": ["2 replicas"]}
    assert script.period(region(pipeline({"a": 1.0}, busy=0.65))).action is Action.NOTHING
    assert script.period(region(pipeline({"a": 1.0}, busy=0.73))).action is Action.ADAPT


def test_metrics_of_other_regions_are_not_updated_during_an_adaptation() -> None:
    """A change that fails would otherwise clear their blacklists."""
    script = Script({"a": KEYED, "z": KEYED}, parameters=replace(STRICT, variant=Variant.FISSION_ONLY))
    busy, calm = region(pipeline({"a": 1.0})), region(pipeline({"z": 1.0}, busy=0.5), rate=50.0)
    script.period(busy, calm)
    script.period(busy, region(pipeline({"z": 1.0}, busy=0.1), rate=10.0))  # the revert
    assert script.state.references["z"].rows_per_s == 50.0
    assert script.period(busy, calm).load_changed == ()


def test_adaptation_stops_after_stable_periods_and_continues_when_the_load_changes() -> None:
    script = Script({"a": KEYED}, parameters=replace(STRICT, stable_periods=2))
    calm = region(pipeline({"a": 1.0}, busy=0.75))
    assert [script.period(calm).action for _ in range(3)] == [Action.NOTHING, Action.NOTHING, Action.STABLE]
    assert script.period(region(pipeline({"a": 1.0}, busy=0.85))).action is Action.STABLE  # noise
    assert script.period(region(pipeline({"a": 1.0}, busy=0.95))).action is Action.ADAPT


# ---- extensions


EXTENDED = AdaptationParameters()


@pytest.mark.parametrize(("strict", "changed"), [(True, ("z",)), (False, ())])
def test_a_different_load_of_an_idle_region_is_noise(strict: bool, changed: tuple[str, ...]) -> None:
    """1.3 instead of 1.0 % busy is 30 % more, and would clear blacklists and keep adaptation awake."""
    parameters = AdaptationParameters(strict=strict, stable_periods=4)
    script = Script({"a": GLOBAL, "z": KEYED}, parameters=parameters)
    busy = region(pipeline({"a": 0.5, "b": 0.5}))
    rare = [region(pipeline({"z": 1.0}, busy=share), rate=10_000.0 * share) for share in (0.010, 0.013)]
    assert script.period(busy, rare[0]).action is Action.ADAPT  # a split, which does not help
    assert script.period(busy, rare[0]).action is Action.REVERT
    results = [script.period(busy, rare[number % 2]) for number in (1, 0)]
    assert results[0].load_changed == changed
    assert script.blacklist("a") == {"a": ["1 replica, cut after a"]}
    assert script.state.stable_periods == (1 if strict else 2)


def test_an_idle_region_that_becomes_busy_is_a_change_of_the_load() -> None:
    script = Script({"a": KEYED}, parameters=EXTENDED)
    for busy, changed in ((0.01, ()), (0.05, ()), (0.09, ()), (0.11, ("a",)), (0.12, ())):
        result = script.period(region(pipeline({"a": 1.0}, busy=busy), rate=1_000.0 * busy))
        assert result.load_changed == changed, busy


def test_the_load_of_a_region_that_stays_saturated_is_offered_to_it() -> None:
    """Its throughput varies with its batches. More rows that wait in front of it are another load."""
    script = Script({"a": KEYED}, parameters=EXTENDED)
    same = region(pipeline({"a": 1.0}), rate=100.0, offered=150.0)
    assert [script.period(same).action for _ in range(3)] == [Action.ADAPT, Action.REVERT, Action.NOTHING]
    slower = region(pipeline({"a": 1.0}), rate=70.0, offered=150.0)
    assert script.period(slower).action is Action.NOTHING and script.blacklist("a") == {"a": ["2 replicas"]}
    result = script.period(region(pipeline({"a": 1.0}), rate=100.0, offered=190.0))
    assert (result.action, result.load_changed) == (Action.ADAPT, ("a",))


def test_an_idle_pipeline_of_a_busy_region_is_noise() -> None:
    script = Script({"a": KEYED}, parameters=EXTENDED, cuts={"a": ("a",)})
    for busy, changed in ((0.010, ()), (0.013, ()), (0.029, ()), (0.031, ("a",))):  # 0.02 is 20 % of the floor of 0.1
        profile = region(pipeline({"a": 1.0}, busy=0.7), pipeline({"b": 1.0}, busy=busy))
        assert script.period(profile).load_changed == changed, busy


@pytest.mark.parametrize(("strict", "expected"), [(True, Action.REVERT), (False, Action.FINALISE)])
def test_a_backlog_that_stops_growing_is_a_success(strict: bool, expected: Action) -> None:
    """Under a paced load of 105 rows/s the throughput cannot rise by more than 5 %."""
    script = Script({"a": KEYED}, parameters=AdaptationParameters(strict=strict))
    script.period(region(pipeline({"a": 1.0}), rate=100.0, offered=105.0))
    assert script.period(region(pipeline({"a": 1.0}, busy=0.6), rate=105.0)).action is expected


def test_a_backlog_that_still_grows_is_no_success() -> None:
    script = Script({"a": KEYED})
    script.period(region(pipeline({"a": 1.0}), rate=100.0, offered=120.0))
    assert script.period(region(pipeline({"a": 1.0}), rate=105.0, offered=120.0)).action is Action.REVERT


@pytest.mark.parametrize(("strict", "action"), [(True, Action.ADAPT), (False, Action.NOTHING)])
def test_a_draining_backlog_is_no_bottleneck(strict: bool, action: Action) -> None:
    """The replicas are busy with old rows; the arriving rows keep them 60 % busy."""
    script = Script({"a": KEYED}, parameters=AdaptationParameters(strict=strict))
    assert script.period(region(pipeline({"a": 1.0}), rate=100.0, offered=60.0)).action is action


@pytest.mark.parametrize(("strict", "replicas"), [(True, 5), (False, 8)])
def test_a_large_shortfall_adds_several_replicas_at_once(strict: bool, replicas: int) -> None:
    parameters = AdaptationParameters(strict=strict)
    script = Script({"a": KEYED}, parameters=parameters, replicas={"a": 4})
    script.period(region(pipeline({"a": 1.0}), rate=100.0, offered=300.0))
    assert script.now("a") == (replicas, ())


def test_fewer_replicas_are_tried_if_many_do_not_fit_or_did_not_help() -> None:
    short = region(pipeline({"a": 1.0}), rate=100.0, offered=300.0)
    few_slots = Script({"a": KEYED}, parameters=EXTENDED, replicas={"a": 4}, slots=6)
    few_slots.period(short)
    assert few_slots.now("a") == (6, ())
    script = Script({"a": KEYED}, parameters=EXTENDED, replicas={"a": 4})
    script.period(short)
    tried = [script.now("a")[0]]
    while script.period(short).action is Action.RETRY:
        tried.append(script.now("a")[0])
    assert tried == [8, 6, 5] and script.now("a") == (4, ())


def test_the_replicas_to_add_suffice_for_the_required_increase() -> None:
    """One replica more than 20 would add 5 %, so 3 are added. A shortfall of 40 % needs 8 more."""
    for offered, expected in ((100.0, 23), (140.0, 28)):
        script = Script({"a": KEYED}, parameters=EXTENDED, replicas={"a": 20}, slots=40)
        script.period(region(pipeline({"a": 1.0}), rate=100.0, offered=offered))
        assert script.now("a") == (expected, ())


def test_a_large_shortfall_makes_several_cuts_at_once() -> None:
    quarter = pipeline(dict.fromkeys("abcd", 0.25))
    script = Script({"a": KEYED}, parameters=EXTENDED)
    script.period(region(quarter, rate=100.0, offered=400.0))
    assert script.now("a") == (1, ("a", "b", "c"))
    strict = Script({"a": KEYED})
    strict.period(region(quarter, rate=100.0, offered=400.0))
    assert strict.now("a") == (1, ("b",))


def test_under_utilised_pipelines_are_merged_and_then_lose_replicas() -> None:
    script = Script({"a": KEYED}, parameters=EXTENDED, cuts={"a": ("a",)}, replicas={"a": 4})
    calm = region(pipeline({"a": 1.0}, busy=0.1), pipeline({"b": 1.0}, busy=0.1))
    actions = [script.period(calm).action for _ in range(3)]
    assert actions == [Action.NOTHING, Action.NOTHING, Action.RELEASE]
    assert script.now("a") == (4, ())  # a merge moves no state, so it comes first
    merged = region(pipeline({"a": 0.5, "b": 0.5}, busy=0.2))
    assert script.period(merged).action is Action.FINALISE
    assert [script.period(merged).action for _ in range(3)][-1] is Action.RELEASE
    assert script.now("a") == (2, ())  # 4 x 0.2 / 2 = 0.4 busy; one replica would be 0.8 busy
    assert script.period(region(pipeline({"a": 0.5, "b": 0.5}, busy=0.4))).action is Action.FINALISE


def test_the_last_pipeline_of_a_region_is_merged_with_the_next_region() -> None:
    script = Script({"a": KEYED, "b": KEYED}, parameters=EXTENDED, cuts={"a": ("a",)})
    script.followers = {"a": "b"}
    calm = region(pipeline({"a": 1.0}, busy=0.3)), region(pipeline({"b": 1.0}, busy=0.3))
    assert [script.period(*calm).action for _ in range(3)][-1] is Action.RELEASE
    assert script.now("a") == (1, ())
    busier = Script({"a": KEYED, "b": KEYED}, parameters=EXTENDED, cuts={"a": ("a",)})
    busier.followers = {"a": "b"}
    calm = region(pipeline({"a": 1.0}, busy=0.35)), region(pipeline({"b": 1.0}, busy=0.35))
    assert Action.RELEASE not in [busier.period(*calm).action for _ in range(4)]  # 0.7 busy together


def test_a_release_that_makes_a_bottleneck_is_reverted_and_not_repeated() -> None:
    script = Script({"a": KEYED}, parameters=EXTENDED, replicas={"a": 2})
    calm = region(pipeline({"a": 1.0}, busy=0.25))
    assert [script.period(calm).action for _ in range(3)][-1] is Action.RELEASE
    result = script.period(region(pipeline({"a": 1.0}, busy=0.9)))
    assert (result.action, script.now("a")) == (Action.REVERT, (2, ()))
    assert [script.period(calm).action for _ in range(5)][-1] is Action.STABLE


def test_strict_adaptation_releases_nothing() -> None:
    script = Script({"a": KEYED}, cuts={"a": ("a",)}, replicas={"a": 4})
    calm = region(pipeline({"a": 1.0}, busy=0.01), pipeline({"b": 1.0}, busy=0.01))
    assert {script.period(calm).action for _ in range(8)} == {Action.NOTHING, Action.STABLE}
