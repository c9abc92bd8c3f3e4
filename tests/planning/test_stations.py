from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from penstock.dataflow.errors import PenstockError
from penstock.models.queueing import MMk
from penstock.planning.stations import AssignmentResult, StationsDocument, plan_stations

WORDS: dict[str, Any] = {
    "external_per_s": 8.0,
    "stations": {
        "split": {
            "arrival_per_s": 8.0,
            "service_per_s": 9.6,
            "arrival_scv": 1.0,
            "service_scv": 1.0,
            "min": 1,
            "max": None,
        },
        "count": {"arrival_per_s": 24.0, "service_per_s": 10.0},
    },
}
STREAMS = [{"from": None, "to": "split", "gain": 1.0}, {"from": "split", "to": "count", "gain": 3.0}]


def changed(**changes: Any) -> dict[str, Any]:
    return json.loads(json.dumps(WORDS)) | changes


def streamed(**count: Any) -> dict[str, Any]:
    return {
        "external_per_s": 8.0,
        "stations": {"split": {"service_per_s": 9.6}, "count": {"service_per_s": 10.0} | count},
        "streams": STREAMS,
    }


def read(value: dict[str, Any]) -> StationsDocument:
    return StationsDocument.from_json(json.dumps(value))


def test_result_has_the_keys_of_the_format() -> None:
    result = plan_stations(read(WORDS), processors=6)
    keys = json.loads(msgspec.json.encode(result))
    assert list(keys) == [
        "processors",
        "total",
        "latency_s",
        "quantiles_s",
        "bottleneck",
        "max_external_per_s",
        "feasible",
        "binding",
    ]
    by_hand = MMk(arrival_per_s=8, service_per_s=9.6).mean_s(2) + 3 * MMk(arrival_per_s=24, service_per_s=10).mean_s(4)
    assert keys["processors"] == {"split": 2, "count": 4}
    assert keys["latency_s"] == pytest.approx(by_hand)
    assert keys["bottleneck"] == "count"
    assert keys["max_external_per_s"] == pytest.approx(40 / 3)
    assert keys["feasible"] is True and keys["binding"] is None
    assert list(keys["quantiles_s"]) == ["0.5", "0.95", "0.99", "0.999"]


def test_streams_are_another_way_to_give_the_rates() -> None:
    given, solved = plan_stations(read(WORDS), processors=9), plan_stations(read(streamed()), processors=9)
    assert given.processors == solved.processors
    assert given.latency_s == pytest.approx(solved.latency_s)
    assert given.quantiles_s == pytest.approx(solved.quantiles_s)


def test_propagated_variability_sees_the_batches() -> None:
    """Each line makes three words at once. Their arrivals vary more than a Poisson stream and need more processors."""
    poisson = plan_stations(read(streamed()), latency_s=0.5)
    batches = plan_stations(read(streamed(arrival_scv=None)), latency_s=0.5)
    assert batches.feasible and batches.total > poisson.total
    regular = plan_stations(read(streamed(arrival_scv=0.1)), latency_s=0.5)
    assert regular.feasible and regular.total <= poisson.total


def test_target_on_mean_and_on_quantile() -> None:
    mean = plan_stations(read(WORDS), latency_s=0.9)
    tail = plan_stations(read(WORDS), latency_s=0.9, quantile=0.9)
    assert mean.latency_s is not None and mean.latency_s <= 0.9
    assert tail.quantiles_s["0.9"] <= 0.9
    assert mean.total < tail.total


def test_an_infeasible_target_reports_the_required_processors() -> None:
    result = plan_stations(read(WORDS), processors=3)
    assert (result.feasible, result.binding, result.latency_s, result.quantiles_s) == (False, "count", None, {})
    assert result.max_external_per_s == pytest.approx(20 / 3)
    assert isinstance(result.needs, msgspec.Struct)
    assert result.needs.total == 4


def test_a_loop_is_solved() -> None:
    loop = streamed()
    loop["streams"] = [*STREAMS, {"from": "count", "to": "split", "gain": 0.1}]
    result: AssignmentResult = plan_stations(read(loop), processors=20)
    # split gets 8 + 0.1 * 3 split, so 8 / 0.7
    assert result.max_external_per_s is not None
    visits = {"split": 1 / 0.7, "count": 3 / 0.7}
    assert result.max_external_per_s == pytest.approx(
        min(result.processors["split"] * 9.6 / visits["split"], result.processors["count"] * 10 / visits["count"])
    )


BAD: list[tuple[dict[str, Any], str]] = [
    (changed(extra=1), "unknown field `extra`"),
    (changed(stations={"a": {"service_per_s": 1.0, "arrival_per_s": 1.0, "threads": 3}}), "unknown field `threads`"),
    (changed(stations={"a": {"arrival_per_s": 1.0}}), "missing required field `service_per_s`"),
    (changed(stations={"a": {"arrival_per_s": -1.0, "service_per_s": 1.0}}), r"Station 'a': The arrival rate .* is -1"),
    (
        changed(stations={"a": {"arrival_per_s": 1.0, "service_per_s": 0}}),
        "Station 'a': The service rate of one server",
    ),
    (
        changed(stations={"a": {"arrival_per_s": 1.0, "service_per_s": 1, "service_scv": -1}}),
        "Station 'a': The SCV of the service times is -1",
    ),
    (changed(stations={"a": {"arrival_per_s": 1.0, "service_per_s": 1, "min": 0}}), "Operator 'a' has bounds min 0"),
    (
        changed(stations={"a": {"arrival_per_s": 1e300, "service_per_s": 1e-10}}),
        "Station 'a': The offered load .* is inf",
    ),
    (
        changed(stations={"a": {"arrival_per_s": 1e12, "service_per_s": 1.0}}),
        r"Station 'a': The offered load .* is 1e\+12. .* Check the units",
    ),
    (
        changed(stations={"a": {"arrival_per_s": 1e-300, "service_per_s": 1e-299}}),
        "Station 'a': The service rate of one server is 1e-299 rows/s. .* Check its unit",
    ),
    (
        changed(stations={"a": {"arrival_per_s": 1.0, "service_per_s": 2.0, "arrival_scv": 1e300}}),
        r"Station 'a': The SCV of the times between arrivals is 1e\+300. It must be at most",
    ),
    (changed(stations={"a": {"service_per_s": 1.0}}), "Station 'a' has no arrival_per_s"),
    (changed(stations={}), "has no stations"),
    (changed(external_per_s=0), r"The external rate \(rows/s\) is 0"),
    (changed(external_per_s="8"), "Expected `float`"),
    (changed(streams=STREAMS), "Station 'split' has an arrival_per_s, but the streams"),
    (streamed() | {"streams": [{"from": None, "to": "spilt"}]}, "names the station 'spilt', which does not exist"),
    (
        streamed() | {"streams": [*STREAMS, {"from": "count", "to": "split", "gain": 0.5}]},
        "loop split -> count -> split",
    ),
    (streamed() | {"streams": [{"from": None, "to": "split", "gain": -1.0}]}, "gain of the stream .* is -1"),
    (changed(stations={"a": {"arrival_per_s": 1.0, "service_per_s": 2, "arrival_scv": None}}), "null arrival_scv"),
]


@pytest.mark.parametrize(("value", "says"), BAD)
def test_bad_input_is_one_clear_error(value: dict[str, Any], says: str) -> None:
    with pytest.raises(PenstockError, match=says) as caught:
        plan_stations(read(value), processors=10)
    assert "\n" not in str(caught.value)


def test_a_station_that_is_given_twice_is_named() -> None:
    station = '"split": {"arrival_per_s": 8.0, "service_per_s": 9.6}'
    with pytest.raises(PenstockError, match="The stations document is invalid: 'split' is given twice"):
        StationsDocument.from_json(f'{{"external_per_s": 8.0, "stations": {{{station}, {station}}}}}')


def test_nan_is_not_json_and_not_a_rate() -> None:
    with pytest.raises(PenstockError, match="The stations document is invalid"):
        StationsDocument.from_json('{"external_per_s": NaN, "stations": {}}')
    with pytest.raises(PenstockError, match="The stations document is invalid"):
        StationsDocument.from_json(b"\xff\xfe")


def test_one_question_at_a_time() -> None:
    with pytest.raises(PenstockError, match="not both"):
        plan_stations(read(WORDS), processors=3, latency_s=1.0)
    with pytest.raises(PenstockError, match="not both"):
        plan_stations(read(WORDS))


def test_a_quantile_is_named_by_all_its_digits() -> None:
    result = plan_stations(read(WORDS), latency_s=9.0, quantile=0.9999999)
    assert list(result.quantiles_s) == ["0.5", "0.95", "0.99", "0.999", "0.9999999"]
