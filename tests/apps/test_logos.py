from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.apps import logos
from penstock.dataflow import regions
from tests.support.spark_runs import engine_for, play

ROWS = 60


@pytest.mark.parametrize(("detector", "detected", "wrong"), [("orb", 0.85, 0.08), ("sift", 0.95, 0.05)])
def test_the_logos_drawn_on_a_frame_are_detected(detector: logos.Detector, detected: float, wrong: float) -> None:
    """The expected logos are the ones that were drawn on the frames; they do not come from the chain under test."""
    seen = {(frame, name) for frame, name, _ in logos.oracle(ROWS, detector=detector)}
    drawn = {(n, name) for n in range(ROWS - logos.FLUSH_ROWS) for name in logos.shown(n)}
    assert len(drawn) > 30
    assert len(seen & drawn) >= detected * len(drawn)
    assert len(seen - drawn) <= wrong * len(drawn)


def test_all_sixteen_logos_are_shown() -> None:
    assert {name for n in range(400) for name in logos.shown(n)} == set(logos.LOGOS)
    assert len(logos.LOGOS) == 16


def test_the_number_of_features_varies_from_frame_to_frame() -> None:
    counts = [len(logos.descriptors(logos.picture(n))) for n in range(40)]
    assert max(counts) > 2 * min(counts)
    assert all(count <= logos.MAX_FEATURES for count in counts)


@pytest.mark.parametrize("detector", logos.DETECTORS)
def test_row_functions_equal_the_oracle_frame_by_frame(detector: logos.Detector) -> None:
    names = ["frame", "ts", "pixels"]
    rows = [dict(zip(names, logos.generator(n, ROWS), strict=True)) for n in range(12)]
    features = [feature for row in rows for feature in logos.extract(row, detector)]
    matches = [match for feature in features if (match := logos.match(feature, detector)) is not None]
    counted: dict[tuple[int, str], int] = {}
    for match in matches:
        counted[match["frame"], match["logo"]] = counted.get((match["frame"], match["logo"]), 0) + 1
    output = [
        {"frame": frame, "logo": name, "matches": matches}
        for (frame, name), matches in counted.items()
        if matches >= logos.MIN_MATCHES
    ]
    assert logos.check(output, 12 + logos.FLUSH_ROWS, detector=detector) == []
    assert logos.check(output[1:], 12 + logos.FLUSH_ROWS, detector=detector) != []


def test_an_unknown_detector_is_refused() -> None:
    with pytest.raises(penstock.PenstockError, match="orb, sift"):
        logos.flow(detector="surf")  # type: ignore[arg-type]


def test_the_flush_lies_behind_all_frames_and_brings_matches() -> None:
    *real, last = [logos.generator(n, ROWS) for n in range(ROWS - logos.FLUSH_ROWS - 1, ROWS)]
    assert (last[1] - real[0][1]).total_seconds() > 1000 * logos.DELAY_S
    row = {"frame": last[0], "ts": last[1], "pixels": last[2]}
    assert any(logos.match(feature) for feature in logos.extract(row))  # otherwise the watermark would not advance


def test_the_dataflow_has_a_stateless_and_a_keyed_region() -> None:
    flow = logos.flow(rows=ROWS)
    flow.check()
    assert [(region.operators, region.keys) for region in regions(flow)][1:] == [
        (("extract", "match"), ()),
        (("aggregate", "out"), ("frame", "logo")),
    ]
    source = pickle.loads(pickle.dumps(flow["frames"].source))
    assert source.fn(3) == logos.generator(3, ROWS)
    logos.flow().check()


def test_a_missing_opencv_is_reported_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(
        penstock.PenstockError, match=r"OpenCV, which is not installed; .* pip install 'penstock\[apps\]'"
    ):
        logos.flow()


@pytest.mark.spark
def test_on_spark_the_logos_are_the_oracle_s_also_through_a_plan_change(spark: Any, tmp_path: Path) -> None:
    flow = logos.flow(rows=ROWS, rows_per_s=20)
    engine = engine_for(flow, spark, tmp_path / "run", penstock.default_plan(flow, slots=2, replicas={"aggregate": 1}))
    try:
        engine.start()
        cut = penstock.rescaled(flow, engine.plan, {"aggregate": 2})
        play(engine, [cut.replace(cuts=cut.cuts | {"extract", "match"})])
        assert logos.check(engine.rows("out"), ROWS) == []
    finally:
        engine.stop()
