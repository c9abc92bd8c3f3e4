"""Plan the processors of a STATIONS.json: operators as GI/G/k stations, with rates or with streams between them."""

from __future__ import annotations

import math

import msgspec

from penstock.dataflow.errors import PlanError
from penstock.dataflow.json_document import decode_json
from penstock.models.network import Traffic, TrafficStream, Visits, propagated_scv, solve_traffic
from penstock.models.queueing import GIGk, ModelError
from penstock.planning.processors import Assignment, OperatorNetwork, OperatorStation, assign_processors, min_processors

QUANTILES = (0.5, 0.95, 0.99, 0.999)
_MAX_ROUNDS = 10  # the SCVs depend on the plan and the plan on the SCVs; two or three rounds usually suffice


class StationSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operator.

    A null `arrival_scv` is propagated along the streams (QNA). `max` is 1 if it cannot run in parallel.
    """

    service_per_s: float
    arrival_per_s: float | None = None
    arrival_scv: float | None = 1.0
    service_scv: float = 1.0
    min: int = 1
    max: int | None = None


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream that carries `gain` rows to `to` per row of `from`; a null `from` is the external source."""

    source: str | None = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    gain: float = 1.0


class StationsDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of STATIONS.json. Either every station has an `arrival_per_s`, or `streams` determine the rates."""

    external_per_s: float
    stations: dict[str, StationSpec]
    streams: list[StreamSpec] | None = None

    @staticmethod
    def from_json(text: str | bytes) -> StationsDocument:
        """Parse and check the document; raise a PlanError if it is invalid."""
        try:
            return decode_json(text, StationsDocument)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PlanError(
                f'The stations document is invalid: {error}. Example: {{"external_per_s": 8.0, "stations": '
                '{"split": {"arrival_per_s": 8.0, "service_per_s": 9.6}}}. See `penstock schema stations`.'
            ) from None


class NeedsResult(msgspec.Struct, frozen=True, kw_only=True):
    """The processors that the demand needs without budget and bounds; null if no number suffices."""

    processors: dict[str, int] | None
    total: int | None
    reason: str


class AssignmentResult(msgspec.Struct, frozen=True, kw_only=True):
    """The planned processors and their latency.

    `latency_s` is null if the plan is unstable. `needs` is present only if the plan is not feasible.
    """

    processors: dict[str, int]
    total: int
    latency_s: float | None
    quantiles_s: dict[str, float]
    bottleneck: str
    max_external_per_s: float | None
    feasible: bool
    binding: str | None
    needs: NeedsResult | msgspec.UnsetType = msgspec.UNSET


def plan_stations(
    stations: StationsDocument,
    *,
    processors: int | None = None,
    latency_s: float | None = None,
    quantile: float | None = None,
) -> AssignmentResult:
    """Return the plan with the lowest latency within `processors`, or with the fewest processors for `latency_s`.

    `latency_s` applies to the mean latency, or to its `quantile` if one is given.

    >>> split = StationSpec(arrival_per_s=8.0, service_per_s=9.6)
    >>> count = StationSpec(arrival_per_s=24.0, service_per_s=10.0)
    >>> two = StationsDocument(external_per_s=8.0, stations={"split": split, "count": count})
    >>> plan_stations(two, processors=6).processors
    {'split': 2, 'count': 4}
    """
    if (processors is None) == (latency_s is None):
        raise PlanError("Give either a number of processors or a latency target, not both.")

    def plan(network: OperatorNetwork) -> Assignment:
        if processors is not None:
            return assign_processors(network, processors)
        return min_processors(network, latency_s or 0.0, quantile)

    traffic = _traffic(stations)
    law = traffic.visit_law() if traffic else None
    arrival_per_s = traffic.arrival_per_s if traffic else _given_rates(stations)
    if traffic is None or all(spec.arrival_scv is not None for spec in stations.stations.values()):
        return _result(plan(_network(stations, arrival_per_s, {}, law)), quantile)
    counts = {name: spec.min for name, spec in stations.stations.items()}
    seen: set[tuple[int, ...]] = set()
    for _ in range(_MAX_ROUNDS):
        assignment = plan(_network(stations, arrival_per_s, _propagated(stations, traffic, counts), law))
        if assignment.counts in seen:
            break
        seen.add(assignment.counts)
        counts = assignment.processors
    return _result(assignment, quantile)


def _traffic(stations: StationsDocument) -> Traffic | None:
    if not stations.stations:
        raise PlanError("The document has no stations. Give at least one.")
    if stations.streams is None:
        return None
    if both := [name for name, spec in stations.stations.items() if spec.arrival_per_s is not None]:
        raise PlanError(
            f"Station '{both[0]}' has an arrival_per_s, but the streams already determine it. Remove one of them."
        )
    streams = [TrafficStream(source=s.source, target=s.target, gain=s.gain) for s in stations.streams]
    return solve_traffic(list(stations.stations), streams, stations.external_per_s)


def _given_rates(stations: StationsDocument) -> dict[str, float]:
    rates = {}
    for name, spec in stations.stations.items():
        if spec.arrival_per_s is None:
            raise PlanError(f"Station '{name}' has no arrival_per_s. Give it, or give streams for all stations.")
        if spec.arrival_scv is None:
            raise PlanError(
                f"Station '{name}' has a null arrival_scv, which is propagated along streams. Give the streams."
            )
        rates[name] = spec.arrival_per_s
    return rates


def _propagated(stations: StationsDocument, traffic: Traffic, counts: dict[str, int]) -> dict[str, float]:
    rates = traffic.arrival_per_s
    return propagated_scv(
        traffic,
        service_scv={name: spec.service_scv for name, spec in stations.stations.items()},
        utilisation={name: rates[name] / (counts[name] * s.service_per_s) for name, s in stations.stations.items()},
        servers=counts,
    )


def _network(
    stations: StationsDocument, rates: dict[str, float], scvs: dict[str, float], law: Visits | None
) -> OperatorNetwork:
    operators = []
    for name, spec in stations.stations.items():
        try:
            station = GIGk(
                arrival_per_s=rates[name],
                service_per_s=spec.service_per_s,
                arrival_scv=scvs[name] if spec.arrival_scv is None else spec.arrival_scv,
                service_scv=spec.service_scv,
            )
        except ModelError as error:
            raise PlanError(f"Station '{name}': {error}") from None
        operators.append(OperatorStation(name=name, station=station, min_processors=spec.min, max_processors=spec.max))
    return OperatorNetwork(external_per_s=stations.external_per_s, operators=tuple(operators), visit_law=law)


def _result(assignment: Assignment, quantile: float | None) -> AssignmentResult:
    latency = assignment.latency()
    quantiles = sorted({*QUANTILES, *([quantile] if quantile is not None else [])})
    max_external_per_s = assignment.max_external_per_s
    needs = assignment.needs
    return AssignmentResult(
        processors=assignment.processors,
        total=assignment.total,
        latency_s=latency.mean_s if latency else None,
        quantiles_s={f"{p}": latency.quantile_s(p) for p in quantiles} if latency else {},
        bottleneck=assignment.bottleneck,
        max_external_per_s=max_external_per_s if math.isfinite(max_external_per_s) else None,
        feasible=assignment.feasible,
        binding=assignment.binding,
        needs=msgspec.UNSET
        if needs is None
        else NeedsResult(processors=needs.processors, total=needs.total, reason=needs.reason),
    )
