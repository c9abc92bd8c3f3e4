"""The demand: the rows/s that must enter each region, and the cost of a row there. Most policies start from it.

Measured arrivals are too low behind an operator that does not keep up. The demand is therefore computed from the rows
appended at the sources and the measured selectivities by the traffic equations, including loops.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import msgspec

from penstock.control.policy import Decision, Hold, Inputs, Memory, Reason, Situation
from penstock.control.topology import Topology
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import Region
from penstock.measure.load import Load
from penstock.measure.window import OperatorWindow, Window
from penstock.models.network import Traffic, TrafficStream, solve_traffic
from penstock.models.queueing.errors import UnstableError

Gains = dict[tuple[str, str], float]

_NEGLIGIBLE = 1e-12  # arrivals per external row that are a rounding error
_FEW = 5  # expected rows per window up to which a region without rows has no missing metrics


class RegionLoad(msgspec.Struct, frozen=True, kw_only=True):  # a Struct: faster to create than a dataclass
    region: str
    arrival_per_s: float
    row_s: float  # busy seconds of a replica per row that enters
    replicas: int
    max_replicas: int | None  # 1 if the region cannot be replicated
    arrival_scv: float | None = None
    service_scv: float | None = None

    @property
    def work(self) -> float:
        """Return the replicas that the input keeps busy: arrivals x seconds per row."""
        return self.arrival_per_s * self.row_s

    @property
    def spread_s(self) -> float:
        """Return the standard deviation of the work of a row; 0 if it was not measured."""
        return self.row_s * math.sqrt(self.service_scv or 0.0)

    @property
    def utilisation(self) -> float:
        return self.work / self.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    external_per_s: float
    loads: dict[str, RegionLoad]  # regions with arrivals and known work
    idle: tuple[str, ...]  # all other regions
    arrivals: dict[str, float]  # rows/s of all regions
    entering: dict[str, float]  # rows/s of all sources
    gains: Gains  # (region, consumer) -> rows per input row of the region; 0 if unknown and not needed

    def inputs(self, window: Window) -> Inputs:
        """Return the numbers that a decision is based on, for its record."""
        inputs: Inputs = {"external_rows_per_s": self.external_per_s}
        if window.latency is not None:
            inputs["latency_mean_s"] = window.latency.mean_s
        for name, load in self.loads.items():
            inputs[f"{name}.arrival_rows_per_s"] = load.arrival_per_s
            inputs[f"{name}.seconds_per_row"] = load.row_s
        return inputs


def load_of(situation: Situation) -> Load:
    """Return the load of the run, which does not depend on the plan."""
    demand = demand_of(situation)
    if isinstance(demand, Hold):
        external = None if situation.window is None else situation.window.external_rows_per_s
        return Load(rows_per_s=external, work=0.0 if demand.reason_code is Reason.IDLE else None)
    return Load(rows_per_s=demand.external_per_s, work=math.fsum(load.work for load in demand.loads.values()))


def demand_of(situation: Situation) -> Demand | Hold:
    """Return the demand, or the Hold for missing metrics, for no input, or for a loop that multiplies rows."""
    demand: Demand | Hold | None = situation.cache.get("demand")
    if demand is None:
        demand = situation.cache["demand"] = _demand_of(situation)
    return demand


def _demand_of(situation: Situation) -> Demand | Hold:
    measured = situation.measured()
    if isinstance(measured, Hold):
        return measured
    window, _ = measured
    seen = {operator.operator: operator for operator in window.operators}
    entering = _entering(situation, window, seen)
    if isinstance(entering, Hold):
        return entering
    external = math.fsum(entering.values())
    if external <= 0:
        return Hold(
            reason_code=Reason.IDLE, reason="No rows arrive at the sources.", inputs={"external_rows_per_s": external}
        )
    # An unknown gain counts as 0 here; `_load` reports it as missing if the region has arrivals.
    regions = {region.name: region for region in situation.topology.regions}
    made = {name: _gain(region, seen) or 0.0 for name, region in regions.items()}
    gains = {
        (before, after): made[before] * _share_for(regions[before].operators[-1], after, seen)
        for before, after in situation.topology.streams
        if before in made
    }
    try:
        arrivals = _arrivals(situation.topology, entering, gains)
    except UnstableError as error:  # a loop that multiplies rows: no plan is stable
        return Hold(reason_code=Reason.AT_LIMIT, reason=str(error))
    loads: dict[str, RegionLoad] = {}
    idle: list[str] = []
    missing: list[str] = []
    for name, region in regions.items():
        arrival = arrivals[name]
        is_negligible = arrival <= _NEGLIGIBLE * external
        load = None if is_negligible else _load_unless_idle(situation, region, seen, arrival)
        if load is None:
            idle.append(name)
        elif isinstance(load, list):
            missing += load
        else:
            loads[name] = load
    if missing:
        return Hold(reason_code=Reason.MISSING, reason=f"Not measured yet: {', '.join(missing)}.")
    if not loads:
        return Hold(reason_code=Reason.MISSING, reason="No operator has a measured cost per row yet.")
    return Demand(
        external_per_s=external, loads=loads, idle=tuple(idle), arrivals=arrivals, entering=entering, gains=gains
    )


def _entering(situation: Situation, window: Window, seen: dict[str, OperatorWindow]) -> dict[str, float] | Hold:
    """Return the rows/s appended at each source."""
    sources = situation.topology.sources
    if len(sources) == 1 and window.external_rows_per_s is not None:
        return {sources[0]: window.external_rows_per_s}
    rates: dict[str, float] = {}
    for name in sources:
        rate = seen[name].input_rows_per_s if name in seen else None
        if rate is None:
            return Hold(reason_code=Reason.MISSING, reason=f"The input rate of source '{name}' is not measured yet.")
        rates[name] = rate
    if window.external_rows_per_s is not None and (total := math.fsum(rates.values())) > 0:
        # The total of all sources is the most accurate rate; the rate of each source gives its share.
        rates = {name: rate * window.external_rows_per_s / total for name, rate in rates.items()}
    return rates


def traffic_of(topology: Topology, entering: dict[str, float], gains: Gains) -> Traffic:
    """Solve the traffic equations between regions."""
    external = math.fsum(entering.values())
    streams = [
        TrafficStream(source=None, target=after, gain=entering[before] / external)
        if before in entering
        else TrafficStream(source=before, target=after, gain=gains[before, after])
        for before, after in topology.streams
    ]
    return solve_traffic([region.name for region in topology.regions], streams, external)


def _arrivals(topology: Topology, entering: dict[str, float], gains: Gains) -> dict[str, float]:
    """Return the rows/s that must enter each region. Without a loop this needs no matrix."""
    arrivals = {region.name: 0.0 for region in topology.regions}
    rank = {name: place for place, name in enumerate(arrivals)}
    if any(before in rank and rank[before] >= rank[after] for before, after in topology.streams):
        return traffic_of(topology, entering, gains).arrival_per_s
    # Streams are ordered by their target, so the arrivals of their origin are complete.
    for before, after in topology.streams:
        arrivals[after] += entering[before] if before in entering else arrivals[before] * gains[before, after]
    return arrivals


def _share_for(operator: str, consumer: str, seen: dict[str, OperatorWindow]) -> float:
    return seen[operator].share_for(consumer) if operator in seen else 1.0


def _gain(region: Region, seen: dict[str, OperatorWindow]) -> float | None:
    """Return the rows out per row in. A region is a chain of operators."""
    gain = 1.0
    for name in region.operators:
        operator = seen.get(name)
        selectivity = None if operator is None else operator.selectivity
        if selectivity is None:
            return None
        gain *= selectivity
    return gain


def _load_unless_idle(
    situation: Situation, region: Region, seen: dict[str, OperatorWindow], arrival: float
) -> RegionLoad | list[str] | None:
    """Return the load of a region, the names of missing metrics, or None if the region has no work."""
    load = _load(situation, region, seen, arrival)
    if isinstance(load, RegionLoad):
        return load if load.row_s > 0 else None
    assert situation.window is not None
    expected_rows = arrival * (situation.window.end_s - situation.window.start_s)
    has_rows = region.name in seen and seen[region.name].rows_in
    return load if has_rows or expected_rows >= _FEW else None


def _load(
    situation: Situation, region: Region, seen: dict[str, OperatorWindow], arrival: float
) -> RegionLoad | list[str]:
    """Return the load of a region, or the names of missing metrics. A sink without a measured cost costs nothing."""
    operators = situation.topology.operators
    missing: list[str] = []
    row_s = variance_s2 = 0.0
    gain: float | None = 1.0
    scv_known = True
    for name in region.operators:
        operator = seen.get(name)
        cost, selectivity = (None, None) if operator is None else (operator.seconds_per_row, operator.selectivity)
        if cost is None and operators[name].kind is not Kind.SINK:
            missing.append(f"the cost per row of '{name}'")
        if gain is not None and cost is not None and operator is not None:
            row_s += gain * cost
            scv_known = scv_known and operator.service_scv is not None
            variance_s2 += gain * (operator.service_scv or 0.0) * cost**2
        if selectivity is None and operators[name].kind is not Kind.SINK:
            missing.append(f"the selectivity of '{name}'")
        gain = None if gain is None or selectivity is None else gain * selectivity
    if missing:
        return missing
    entrance = region.name
    first = seen.get(entrance)
    return RegionLoad(
        region=entrance,
        arrival_per_s=arrival,
        row_s=row_s,
        replicas=situation.plan.replicas[entrance],
        max_replicas=None if region.replicable else 1,
        arrival_scv=None if first is None else first.arrival_scv,
        service_scv=variance_s2 / row_s**2 if scv_known and row_s > 0 else None,
    )


class DemandPolicy(ABC):
    """Base class of policies that decide by the current demand and learn nothing."""

    __slots__ = ()

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        demand = demand_of(situation)
        return demand if isinstance(demand, Hold) else self.decide_for(demand, situation), memory

    @abstractmethod
    def decide_for(self, demand: Demand, situation: Situation) -> Decision:
        """Decide for a demand that is known; `situation.window` is not None then."""
