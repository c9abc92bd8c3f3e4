"""The analysis that all policies share: what arrives at each region and what a row costs there, or why that is unknown.

Arrivals are not taken as measured, because behind an operator that does not keep up they are too low. They follow from
the rows appended at the sources and the measured selectivities, by the traffic equations (loops included).
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

_LIGHT = 1e-12  # rows a row from outside: what rounding leaves of nothing
_FEW = 5  # rows: where no more were to be expected and none came, nothing is missing


class RegionLoad(msgspec.Struct, frozen=True, kw_only=True):  # made in less time than a dataclass, and there are many
    region: str
    arrival_per_s: float
    row_s: float  # busy seconds of a replica for each row that enters
    replicas: int
    most: int | None  # 1 where it cannot be replicated
    arrival_scv: float | None = None
    service_scv: float | None = None

    @property
    def work(self) -> float:
        """Replicas that are busy on average, or would be: arrivals x seconds a row."""
        return self.arrival_per_s * self.row_s

    @property
    def spread_s(self) -> float:
        """Standard deviation of the work of a row; 0 where nobody measured it."""
        return self.row_s * math.sqrt(self.service_scv or 0.0)

    @property
    def utilisation(self) -> float:
        return self.work / self.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    external_per_s: float
    loads: dict[str, RegionLoad]  # of the regions that rows reach and whose work is known to be some
    idle: tuple[str, ...]  # the other regions
    arrivals: dict[str, float]  # rows/s, of all regions
    entering: dict[str, float]  # rows/s, of all sources
    gains: Gains  # rows of a region for one behind it, for each row in; 0 where not known and not needed

    def inputs(self, window: Window) -> Inputs:
        """The numbers that a decision was made on, for the record."""
        found: Inputs = {"external_rows_per_s": self.external_per_s}
        if window.latency is not None:
            found["latency_mean_s"] = window.latency.mean_s
        for name, load in self.loads.items():
            found[f"{name}.arrival_rows_per_s"] = load.arrival_per_s
            found[f"{name}.seconds_per_row"] = load.row_s
        return found


def load_of(situation: Situation) -> Load:
    """What does not depend on the plan: the same load under another plan is the same load."""
    demand = demand_of(situation)
    if isinstance(demand, Hold):
        external = None if situation.window is None else situation.window.external_rows_per_s
        return Load(rows_per_s=external, work=0.0 if demand.reason is Reason.IDLE else None)
    return Load(rows_per_s=demand.external_per_s, work=math.fsum(load.work for load in demand.loads.values()))


def demand_of(situation: Situation) -> Demand | Hold:
    if (found := situation.cache.get("demand")) is None:
        found = situation.cache["demand"] = _demand_of(situation)
    return found


def _demand_of(situation: Situation) -> Demand | Hold:
    measured = situation.measured()
    if isinstance(measured, Hold):
        return measured
    window, _ = measured
    seen = {one.operator: one for one in window.operators}
    entering = _entering(situation, window, seen)
    if isinstance(entering, Hold):
        return entering
    external = math.fsum(entering.values())
    if external <= 0:
        return Hold(reason=Reason.IDLE, why="no rows arrive", inputs={"external_rows_per_s": external})
    # A gain that is not known counts as 0 here; where rows do come by, `_load` reports it as missing.
    regions = {region.name: region for region in situation.topology.regions}
    made = {name: _gain(region, seen) or 0.0 for name, region in regions.items()}
    gains = {
        (before, after): made[before] * _share_for(regions[before].operators[-1], after, seen)
        for before, after in situation.topology.streams
        if before in made
    }
    try:
        arrivals = _arrivals(situation.topology, entering, gains)
    except UnstableError as error:  # a loop that multiplies rows has no plan
        return Hold(reason=Reason.AT_LIMIT, why=str(error))
    loads: dict[str, RegionLoad] = {}
    idle: list[str] = []
    missing: list[str] = []
    for name, region in regions.items():
        arrival = arrivals[name]
        if arrival <= _LIGHT * external:
            idle.append(name)
            continue
        load = _load(situation, region, seen, arrival)
        if isinstance(load, list) and arrival * (window.end_s - window.start_s) < _FEW and not _came(region, seen):
            idle.append(name)
            continue
        if isinstance(load, list):
            missing += load
        elif load.row_s > 0:
            loads[name] = load
        else:
            idle.append(name)
    if missing:
        return Hold(reason=Reason.MISSING, why=f"not known yet: {', '.join(missing)}")
    if not loads:
        return Hold(reason=Reason.MISSING, why="no operator has a known cost a row yet")
    return Demand(
        external_per_s=external, loads=loads, idle=tuple(idle), arrivals=arrivals, entering=entering, gains=gains
    )


def _came(region: Region, seen: dict[str, OperatorWindow]) -> bool:
    return bool(region.name in seen and seen[region.name].rows_in)


def _entering(situation: Situation, window: Window, seen: dict[str, OperatorWindow]) -> dict[str, float] | Hold:
    """Rows/s appended at each source."""
    sources = situation.topology.sources
    if len(sources) == 1 and window.external_rows_per_s is not None:
        return {sources[0]: window.external_rows_per_s}
    rates: dict[str, float] = {}
    for name in sources:
        rate = seen[name].input_rows_per_s if name in seen else None
        if rate is None:
            return Hold(reason=Reason.MISSING, why=f"not known yet: the rows that arrive at source '{name}'")
        rates[name] = rate
    if window.external_rows_per_s is not None and (total := math.fsum(rates.values())) > 0:
        # What was appended is known best for all sources together; each one's own rate says how it splits.
        rates = {name: rate * window.external_rows_per_s / total for name, rate in rates.items()}
    return rates


def traffic_of(topology: Topology, entering: dict[str, float], gains: Gains) -> Traffic:
    """The traffic equations between regions, solved."""
    external = math.fsum(entering.values())
    streams = [
        TrafficStream(source=None, target=after, gain=entering[before] / external)
        if before in entering
        else TrafficStream(source=before, target=after, gain=gains[before, after])
        for before, after in topology.streams
    ]
    return solve_traffic([region.name for region in topology.regions], streams, external)


def _arrivals(topology: Topology, entering: dict[str, float], gains: Gains) -> dict[str, float]:
    """Without a loop the equations are a walk downstream, which takes no matrix."""
    found = {region.name: 0.0 for region in topology.regions}
    rank = {name: place for place, name in enumerate(found)}
    if any(before in rank and rank[before] >= rank[after] for before, after in topology.streams):
        return traffic_of(topology, entering, gains).arrival_per_s
    # Streams are in the order of the regions that they lead to, so what they come from is complete.
    for before, after in topology.streams:
        found[after] += entering[before] if before in entering else found[before] * gains[before, after]
    return found


def _share_for(operator: str, consumer: str, seen: dict[str, OperatorWindow]) -> float:
    return seen[operator].share_for(consumer) if operator in seen else 1.0


def _gain(region: Region, seen: dict[str, OperatorWindow]) -> float | None:
    """Rows out for each row in: a region is a chain."""
    gain = 1.0
    for name in region.operators:
        one = seen.get(name)
        selectivity = None if one is None else one.selectivity
        if selectivity is None:
            return None
        gain *= selectivity
    return gain


def _load(
    situation: Situation, region: Region, seen: dict[str, OperatorWindow], arrival: float
) -> RegionLoad | list[str]:
    """Or what is missing for it. A sink without a cost is taken to cost nothing: engines seldom know it."""
    operators = situation.topology.operators
    missing: list[str] = []
    row_s = variance_s2 = 0.0
    gain: float | None = 1.0
    scv_known = True
    for name in region.operators:
        one = seen.get(name)
        cost, selectivity = (None, None) if one is None else (one.seconds_per_row, one.selectivity)
        if cost is None and operators[name].kind is not Kind.SINK:
            missing.append(f"the cost of a row in '{name}'")
        if gain is not None and cost is not None and one is not None:
            row_s += gain * cost
            scv_known = scv_known and one.service_scv is not None
            variance_s2 += gain * (one.service_scv or 0.0) * cost**2
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
        most=None if region.replicable else 1,
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
