"""Studies of simulated operators with known curves find the peak within the resolution and end by the right rule."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.api.curve_trials import session_fingerprint
from penstock.cli.main import cli
from penstock.dataflow import Dataflow
from penstock.engines.simulated import (
    Behaviour,
    Exponential,
    Fixed,
    OperatorBehaviour,
)
from penstock.models.curve import Curve, CurvePoint, curves_from_json
from penstock.study.curves.function_fingerprint import input_fingerprint, operator_fingerprint
from penstock.study.curves.measured_curve import CurveStudyError, CurveTrial, MeasuredCurve, save
from penstock.study.curves.peak_search import next_rate, peak_rate
from penstock.study.curves.study import CurveProgress

COUNTS = (1, 2, 4, 8, 16, 32)
SHAPES: dict[str, Callable[[int], float]] = {
    "flat": lambda threads: 80.0,
    "bell-shaped": lambda threads: 80.0 * threads * math.exp(-threads / 8.0),
    "linear": lambda threads: 12.0 * threads,
    "falling": lambda threads: 90.0 / threads**0.5,
}


def double(row: dict[str, int]) -> dict[str, int]:
    return {"n": 2 * row["n"]}


def flow_with(function: Callable[..., object] = double) -> Dataflow:
    flow = penstock.Dataflow("shop")
    numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=10))
    numbers.rows("lookup", function, "n bigint", threads=2).sink("out", penstock.noop())
    return flow


def with_curve(rate: Callable[[int], float]) -> Behaviour:
    curve = {str(n): CurvePoint(rows_per_s=rate(n), cpu=min(100.0, 2.0 * n), memory=10.0) for n in COUNTS}
    return Behaviour(operators={"lookup": OperatorBehaviour(service_s=Fixed(value=1 / rate(1)), curve=curve)})


def measured(rate: Callable[[int], float], at: Path, **options: object) -> MeasuredCurve:
    behaviour = with_curve(rate)
    (curve,) = penstock.measure_curves(flow_with(), threads=COUNTS, behaviour=behaviour, at=at, **options)  # type: ignore[arg-type]
    return curve


@pytest.mark.parametrize(
    ("shape", "counts", "ends"),
    [
        ("flat", (1, 2, 4), "the peak rate is flat over 1, 2, 4 threads"),
        ("bell-shaped", (1, 2, 4, 8, 16), "the peak rate falls over 4, 8, 16 threads"),
        ("linear", COUNTS, "32 threads are the largest number to try"),
        ("falling", (1, 2, 4), "the peak rate falls over 1, 2, 4 threads"),
    ],
)
def test_the_peaks_of_known_curves(shape: str, counts: tuple[int, ...], ends: str, tmp_path: Path) -> None:
    rate = SHAPES[shape]
    curve = measured(rate, tmp_path)
    assert tuple(peak.threads for peak in curve.peaks) == counts
    assert curve.ended is not None and curve.ended.startswith(ends)
    for peak in curve.peaks:
        assert peak.rows_per_s == pytest.approx(rate(peak.threads), rel=0.05)
        assert peak.unstable_rows_per_s is not None
        assert peak.unstable_rows_per_s - peak.rows_per_s <= 0.05 * peak.unstable_rows_per_s
        assert peak.cpu == pytest.approx(2.0 * peak.threads, rel=0.1)
        assert peak.cpu_interval is not None and peak.cpu_interval[0] <= peak.cpu <= peak.cpu_interval[1]
    best = max(peak.rows_per_s for peak in curve.peaks)
    assert best == pytest.approx(max(rate(threads) for threads in COUNTS), rel=0.05)
    trials_per_peak = len(curve.trials) / len(curve.peaks)
    assert trials_per_peak <= 9  # a linear increase by 5 % of the peak would need 20


def test_random_service_times_do_not_prevent_the_peak(tmp_path: Path) -> None:
    behaviour = Behaviour(operators={"lookup": OperatorBehaviour(service_s=Exponential(mean=0.01), cpu_share=0.0)})
    (curve,) = penstock.measure_curves(
        flow_with(), threads=(1, 4), behaviour=behaviour, at=tmp_path, window_s=20.0, seed=3
    )
    assert [peak.rows_per_s for peak in curve.peaks] == [pytest.approx(100.0, rel=0.1), pytest.approx(400.0, rel=0.1)]


@pytest.mark.long
def test_a_rate_of_few_rows_per_minute_is_found(tmp_path: Path) -> None:
    curve = measured(lambda threads: 0.04 * threads, tmp_path)
    for peak in curve.peaks:
        assert peak.rows_per_s == pytest.approx(0.04 * peak.threads, rel=0.05)


def test_the_file_is_the_input_of_allocate(tmp_path: Path) -> None:
    curve = measured(SHAPES["linear"], tmp_path / "study")
    parsed = curves_from_json((tmp_path / "study" / "curves.json").read_text())
    assert parsed["lookup"] == Curve(
        threads=COUNTS,
        points=tuple(CurvePoint(rows_per_s=p.rows_per_s, cpu=p.cpu, memory=p.memory) for p in curve.peaks),
    )
    report = penstock.allocate(flow_with(), rate=100.0, curves=tmp_path / "study")
    assert report.plan is not None and report.plan.threads["lookup"] == 9  # 100 rows/s need 8.3 threads
    assert penstock.measured_curves(tmp_path / "study") == [curve]
    page = penstock.plot_curves([curve], tmp_path / "curves.html").read_text()
    for title in ("peak rate, rows/s", "CPU at the peak", "memory at the peak", "95 % interval"):
        assert title in page


def test_a_trial_keeps_its_windows_and_the_peak_their_intervals(tmp_path: Path) -> None:
    """The interval of the mean of six windows: mean +- t(0.975, 5) s / sqrt(6), with t = 2.571 from a table."""
    behaviour = Behaviour(operators={"lookup": OperatorBehaviour(service_s=Exponential(mean=0.01), cpu_share=0.5)})
    (curve,) = penstock.measure_curves(
        flow_with(), threads=(1,), behaviour=behaviour, at=tmp_path, window_s=5.0, resolution=0.2, seed=5
    )
    peak = curve.peaks[0]
    trial = next(trial for trial in curve.trials if trial.is_stable and trial.rows_per_s == peak.rows_per_s)
    values = [window.cpu for window in trial.windows]
    assert len(values) == 6 and trial.cpu == pytest.approx(fmean(values)) and stdev(values) > 0
    half = 2.571 * stdev(values) / math.sqrt(6)
    assert peak.cpu_interval == pytest.approx((peak.cpu - half, peak.cpu + half), rel=1e-3)
    assert peak.latency_interval_s is not None and peak.latency_s is not None
    assert peak.latency_interval_s[0] < peak.latency_s < peak.latency_interval_s[1]


def test_an_interrupted_study_continues_with_the_same_result(tmp_path: Path) -> None:
    class StudyInterruptedError(Exception):
        pass

    seen: list[CurveProgress] = []

    def interrupt(progress: CurveProgress) -> None:
        seen.append(progress)
        if len(seen) == 7:
            raise StudyInterruptedError

    with pytest.raises(StudyInterruptedError):
        measured(SHAPES["bell-shaped"], tmp_path / "a", on_progress=interrupt)
    (partial,) = penstock.measured_curves(tmp_path / "a")
    assert len(partial.trials) == 6 and partial.ended is None
    continued = measured(SHAPES["bell-shaped"], tmp_path / "a")
    assert continued.trials[:6] == partial.trials
    assert continued.ended is not None
    made: list[CurveProgress] = []
    assert measured(SHAPES["bell-shaped"], tmp_path / "a", on_progress=made.append) == continued and not made
    assert all(progress.remaining_s is None or progress.remaining_s > 0 for progress in seen)


def test_a_changed_function_or_setting_is_refused(tmp_path: Path) -> None:
    behaviour = with_curve(SHAPES["flat"])
    penstock.measure_curves(flow_with(), threads=(1, 2), behaviour=behaviour, at=tmp_path)
    with pytest.raises(CurveStudyError, match="earlier version of 'lookup': its function has changed"):
        penstock.measure_curves(
            flow_with(lambda row: {"n": 3 * row["n"]}), threads=(1, 2), behaviour=behaviour, at=tmp_path
        )
    with pytest.raises(CurveStudyError, match="resolution 0.05 instead of 0.1"):
        penstock.measure_curves(flow_with(), threads=(1, 2), behaviour=behaviour, at=tmp_path, resolution=0.1)


def test_another_input_or_session_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = flow_with()
    conditions = {
        "engine": "spark",
        "threads": "1, 2",
        "resolution": "0.05",
        "window_s": "2",
        "session": session_fingerprint(None),
    }
    stored = MeasuredCurve(
        operator="lookup",
        dataflow="shop",
        function=operator_fingerprint(flow["lookup"]),
        input=input_fingerprint(flow, "lookup"),
        conditions=conditions,
        ended="by hand",
    )
    save(tmp_path, stored)
    assert penstock.measure_curves(flow, threads=(1, 2), at=tmp_path, operators=["lookup"], reuse=()) == [stored]
    save(tmp_path / "input", stored.replace(input="0"))
    with pytest.raises(CurveStudyError, match="'lookup' with another input: a source or an operator before it"):
        penstock.measure_curves(flow, threads=(1, 2), at=tmp_path / "input", reuse=())
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("# mine\nspark.io.compression.codec  zstd\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    with pytest.raises(CurveStudyError, match="trials of 'lookup' with session "):
        penstock.measure_curves(flow, threads=(1, 2), at=tmp_path, reuse=())


def test_a_curve_of_the_same_function_is_reused(tmp_path: Path) -> None:
    first = measured(SHAPES["flat"], tmp_path / "first")
    made: list[CurveProgress] = []
    second = measured(SHAPES["flat"], tmp_path / "second", reuse=[tmp_path / "first"], on_progress=made.append)
    assert not made and second.peaks == first.peaks


def test_curves_in_the_default_place_are_listed_and_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CurveStudyError, match=r"'studies/\*-curves' contains no measured curves"):
        penstock.measured_curves()
    behaviour = with_curve(SHAPES["flat"])
    (first,) = penstock.measure_curves(flow_with(), threads=(1, 2), behaviour=behaviour)
    assert penstock.measured_curves() == [first]
    made: list[CurveProgress] = []
    options: dict[str, Any] = {"threads": (1, 2), "behaviour": behaviour, "on_progress": made.append}
    (second,) = penstock.measure_curves(flow_with(), **options, at="other")
    assert not made and second == first
    (again,) = penstock.measure_curves(flow_with(), **options, at="again", reuse=())
    assert made and again == first
    Path("studies/old-curves/operators").mkdir(parents=True)
    Path("studies/old-curves/operators/x.json").write_text("{}")
    assert penstock.measured_curves() == [first]
    listed = CliRunner().invoke(cli, ["curves", "list", "--json"])
    assert [curve["operator"] for curve in json.loads(listed.output)] == ["lookup"]


@pytest.mark.parametrize("counts", [(2, 4), (1, 4, 2), ()])
def test_impossible_thread_counts_are_refused(counts: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(CurveStudyError, match="give ascending numbers that begin with 1"):
        penstock.measure_curves(flow_with(), threads=counts, behaviour=with_curve(SHAPES["flat"]), at=tmp_path)


@settings(max_examples=200, deadline=None)
@given(
    peak=st.floats(0.01, 1e6),
    first=st.floats(0.1, 1e5),
    resolution=st.floats(0.005, 0.3),
    tells=st.sampled_from([None, 1.0, 0.9, 1.2]),
)
def test_the_search_brackets_any_peak(peak: float, first: float, resolution: float, tells: float | None) -> None:
    """An operator that is stable exactly up to `peak`; an overload shows the peak rate, or something near it."""
    trials: list[CurveTrial] = []
    while (rate := next_rate(trials, first, resolution)) is not None:
        is_stable = rate <= peak
        processed = rate if is_stable else None if tells is None else tells * peak
        trials.append(
            CurveTrial(
                threads=1,
                rows_per_s=rate,
                is_stable=is_stable,
                reason="" if is_stable else "overload",
                processed_rows_per_s=processed,
                latency_s=None,
                latency_slope=0.0,
                cpu=0.0,
                memory=0.0,
                seconds=1.0,
            )
        )
    rate = peak_rate(trials)
    assert rate.unstable_rows_per_s is not None
    assert rate.rows_per_s <= peak < rate.unstable_rows_per_s
    assert rate.unstable_rows_per_s - rate.rows_per_s <= resolution * rate.unstable_rows_per_s
