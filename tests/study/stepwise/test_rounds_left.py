"""The forecast of the remaining rounds, for studies whose rounds are known."""

from __future__ import annotations

import msgspec
import pytest

from penstock.plan import Plan
from penstock.study.stepwise.profile import ProfileRound
from penstock.study.stepwise.rounds_left import rounds_left

ROUND = ProfileRound(
    number=1,
    step="platform",
    change="first",
    reason="",
    plan=Plan(dataflow="wc", slots=1),
    source_tasks=1,
    throttle=1.0,
    rows_per_s=1.0,
    low_rows_per_s=1.0,
    high_rows_per_s=1.0,
    latency_s=0.1,
    verdict=None,
    compared_with=None,
    gain=None,
    kept=True,
    seconds=10.0,
    saved_s=0.0,
)


def rounds_of(text: str) -> list[ProfileRound]:
    """Return rounds: p of step 2, k and r of step 3, kept and revoked."""
    return [
        msgspec.structs.replace(ROUND, step="platform" if each == "p" else "capacity", kept=each != "r")
        for each in text
    ]


@pytest.mark.parametrize(
    ("rounds", "left"),
    [("p", 7), ("pppp", 4), ("pppppp", 3), ("p" * 12, 3), ("ppppppr", 1), ("pppppprk", 2), ("pppppprr", 0)],
)
def test_the_forecast_follows_the_typical_study_and_the_stop_rule_of_step_3(rounds: str, left: int) -> None:
    assert rounds_left(rounds_of(rounds), max_rounds=40) == left


def test_no_forecast_exceeds_the_limit_of_rounds() -> None:
    assert rounds_left(rounds_of("pppp"), max_rounds=5) == 1
    assert rounds_left(rounds_of("pppp"), max_rounds=4) == 0


def test_the_forecast_is_closer_than_the_limit_for_studies_of_4_to_16_rounds() -> None:
    """The lengths of the studies of the paper's figures: step 2 takes 4 to 16 rounds and step 3 up to 4."""
    for platform in range(4, 17):
        for capacity in ("", "rr", "krr", "rkrr"):
            study = rounds_of("p" * platform + capacity)
            errors = [
                abs(rounds_left(study[:made], max_rounds=40) - (len(study) - made)) for made in range(1, len(study))
            ]
            assert max(errors) <= 12 and sum(errors) / len(errors) < 8
