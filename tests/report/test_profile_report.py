"""`penstock report` for a profile: rounds, box plots, the graph of operators, and several platforms."""

from __future__ import annotations

import json
import re
import statistics
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.cli.main import cli
from penstock.engines.simulated import Behaviour, Exponential, OperatorBehaviour
from penstock.report.page.profile_plots import box_values
from tests.support.sample_profiles import plan, profiled, result
from tests.support.sample_runs import HOSTILE


class Text(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.text = re.sub(r"\s+", " ", self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def reported(*words: object) -> str:
    result = CliRunner().invoke(cli, ["report", *map(str, words)])
    assert result.exit_code == 0, result.output
    return result.output


def page_of(at: Path) -> Text:
    reported(at)
    return Text((at / "report.html").read_text())


def test_rounds_operators_and_the_result_are_on_the_page(tmp_path: Path) -> None:
    profiled(tmp_path)
    page = page_of(tmp_path)
    for phrase in (
        "Best throughput200 /s",
        "300 mswithin the target of 500 ms",
        "+100 %",
        "operators by ratio: +100.0 % relative to 1",
        "operator + 1: -25.0 % relative to 2",
        "kept best better",
        "revoked worse",
        "logic-dependent",
        "2 ms per row",
        "4.5 rows in",
        "45.0 %",
        "Throughput by round, rows/s",
        "target 500 ms",
        "cuts after split",
    ):
        assert phrase in page.text, phrase
    assert "Maximum sustainable throughput" not in page.text
    boxes = [attributes["d"] or "" for tag, attributes in page.tags if tag == "path" and "box" in str(attributes)]
    assert [path.count("Z") for path in boxes] == [2, 1]  # two rounds are kept and one is revoked
    assert sum("edge" in str(attributes.get("class")) for tag, attributes in page.tags if tag == "path") == 2 * 3


def test_texts_of_a_study_are_never_markup(tmp_path: Path) -> None:
    profiled(tmp_path, reason=HOSTILE)
    page = page_of(tmp_path)
    assert page.text.count(HOSTILE) == 3
    assert not any(tag == "script" for tag, _ in page.tags)


@pytest.mark.parametrize("rounds", [0, 1])
def test_an_unfinished_study(tmp_path: Path, rounds: int) -> None:
    profiled(tmp_path, rounds=rounds)
    page = page_of(tmp_path)
    assert ("No rounds yet" in page.text) is (rounds == 0)
    assert "workload-dependent" in page.text


def test_the_result_decides_which_round_is_the_best(tmp_path: Path) -> None:
    profiled(tmp_path)
    assert json.loads(reported(tmp_path, "--json"))["profile"]["best"]["round"]["number"] == 2
    result(best=1, used=plan(1, 1), rows_per_s=100.0).write(tmp_path)
    assert json.loads(reported(tmp_path, "--json"))["profile"]["best"]["round"]["number"] == 1


def test_studies_on_several_platforms_are_one_curve(tmp_path: Path) -> None:
    for slots, rate in ((4, 100.0), (8, 190.0), (16, 300.0)):
        profiled(tmp_path / f"slots-{slots}", rate=rate)
    (tmp_path / "slots-32").mkdir()  # not started
    page = page_of(tmp_path / "slots-8")
    assert "Performance against resources" in page.text
    points = json.loads(reported(tmp_path / "slots-8", "--json"))["profile"]["platforms"]
    assert [(point["count"], point["rows_per_s"]) for point in points] == [(4, 200.0), (8, 380.0), (16, 600.0)]
    # The directory of all studies shows the largest one that has a record.
    assert str(tmp_path / "report.html") in reported(tmp_path)
    assert "Throughput by slots" in (tmp_path / "report.html").read_text()
    profiled(tmp_path / "alone")
    assert "Performance against resources" not in page_of(tmp_path / "alone").text


@given(st.lists(st.floats(1.0, 1e6), min_size=2, max_size=30))
def test_boxes_are_quartiles_and_whiskers_end_at_samples(samples: list[float]) -> None:
    least, low, middle, high, most = box_values(samples)
    assert [low, middle, high] == pytest.approx(statistics.quantiles(samples, n=4, method="inclusive"))
    assert least in samples and most in samples
    outside = [value for value in samples if not least <= value <= most]
    assert all(value < low - 1.4 * (high - low) or value > high + 1.4 * (high - low) for value in outside)


def test_the_report_has_the_rounds_of_the_profile(tmp_path: Path) -> None:
    flow = penstock.Dataflow("two")
    rows = flow.source("rows", penstock.generate(int, schema="n bigint", rows_per_s=1))
    rows.stateless("work", lambda df: df).sink("out", penstock.noop())
    costs = Behaviour(operators={"work": OperatorBehaviour(service_s=Exponential(mean=0.01))})
    result = penstock.profile(flow, slots=2, behaviour=costs, at=tmp_path)
    profile = penstock.open_run(tmp_path).report_data().profile
    assert profile is not None and profile.best is not None
    assert tuple(row.round for row in profile.rounds) == result.rounds
    assert profile.best.round.rows_per_s == result.rows_per_s
    assert (profile.operators, profile.latency_target_s) == (result.operators, result.latency_target_s)
    assert "Operators and streams" in page_of(tmp_path).text
