"""Quiet hours: no plan is changed in them, neither by the policy nor by a roll-back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.policy_options import OptionError, PolicyOptions, create_policy
from penstock.control.guards import Bounded, Cooldown, forbidden
from penstock.control.policy import Change, Hold, Reason, Situation
from penstock.control.quiet_hours import Quiet, QuietHours, QuietHoursError
from tests.support.scripted import changing
from tests.support.situations import situation_of

NIGHT = QuietHours.parse("22:00-06:00")


def situation_at(hour: int, minute: int = 0) -> Situation:
    """A situation whose load needs another plan, at this time of a day in UTC."""
    moment = datetime(2026, 3, 1, hour, minute, tzinfo=UTC)
    return replace(situation_of("video", (1, 1, 1), 6.0, 12), now_s=moment.timestamp())


@pytest.mark.parametrize(
    ("hour", "minute", "is_quiet"), [(21, 59, False), (22, 0, True), (0, 0, True), (5, 59, True), (6, 0, False)]
)
def test_changes_are_forbidden_in_quiet_hours_only(hour: int, minute: int, is_quiet: bool) -> None:
    decision, _ = Quiet(changing(extract=2), hours=NIGHT, zone=UTC).decide(situation_at(hour, minute), {})
    if not is_quiet:
        assert isinstance(decision, Change)
        return
    assert isinstance(decision, Hold) and decision.reason_code is Reason.QUIET_HOURS
    assert decision.reason == f"It is {hour:02}:{minute:02}, and no plan is changed in the quiet hours 22:00-06:00."
    assert decision.alternatives[0].replicas["extract"] == 2  # what the policy proposed


def test_a_roll_back_in_quiet_hours_is_forbidden_too() -> None:
    policy = Quiet(Cooldown(Bounded(changing(extract=2), max_slots=12), seconds=0.0), hours=NIGHT, zone=UTC)
    plan = situation_at(23).plan
    veto = forbidden(policy, plan, situation_at(23))
    assert veto is not None and veto[0] is Reason.QUIET_HOURS
    assert forbidden(policy, plan, situation_at(12)) is None


@given(st.times(), st.times(), st.times())
def test_a_time_is_in_the_hours_or_in_the_rest_of_the_day(begin: time, end: time, moment: time) -> None:
    if begin != end:
        assert QuietHours(begin, end).contain(moment) != QuietHours(end, begin).contain(moment)


@pytest.mark.parametrize("text", ["22:00", "22-06", "22:00-22:00", "25:00-06:00", "", "night"])
def test_invalid_hours_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(QuietHoursError, match=r"such as 22:00-06:00"):
        PolicyOptions(policy="ds2", quiet_hours=text).check()


def test_quiet_hours_need_a_policy_and_are_its_outermost_guard() -> None:
    with pytest.raises(OptionError, match="the quiet hours"):
        PolicyOptions(quiet_hours="22:00-06:00").check()
    policy = create_policy(PolicyOptions(policy="ds2", quiet_hours="22:00-06:00"))
    assert isinstance(policy, Quiet) and policy.hours == NIGHT
