"""What the sources of a dataflow are to append: as its behaviour says, else as the dataflow declares it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.dataflow import Dataflow, Kind
from penstock.dataflow.sources import Generate, Replay
from penstock.engines.simulated.behaviour import Behaviour
from penstock.engines.simulated.distributions import BehaviourError, Distribution, Fixed
from penstock.engines.simulated.rates import RateSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class Appending:
    """Of one source."""

    rates: RateSteps | None  # None: all rows at once
    interarrival: Distribution
    batch: Distribution
    rows: int | None  # None: without end


def appending(flow: Dataflow, behaviour: Behaviour) -> dict[str, Appending]:
    found = {}
    for operator in flow.operators:
        if operator.kind is not Kind.SOURCE:
            continue
        given = behaviour.source(operator.name)
        declared = operator.source if isinstance(operator.source, Generate | Replay) else None
        rows = given.rows
        if rows is None and isinstance(declared, Generate):
            rows = declared.rows
        rates: RateSteps | None = None
        if given.rates is not None:
            at, rate = zip(*given.rates, strict=True)
            rates = RateSteps(from_s=at, rows_per_s=rate, repeat_s=given.repeat_s)
        elif declared is not None and declared.rows_per_s is not None:
            rates = RateSteps(from_s=(0.0,), rows_per_s=(declared.rows_per_s,))
        elif rows is None:
            raise BehaviourError(
                f"nothing says how fast source '{operator.name}' appends rows; give its behaviour rates=((0, 100),), "
                "or rows=... for a backlog that is there from the start"
            )
        found[operator.name] = Appending(rates=rates, interarrival=given.interarrival, batch=given.batch, rows=rows)
    return found


def gaps_a_row(one: Appending) -> float:
    """Gaps are drawn with whatever mean their shape has, and each brings a batch of rows."""
    return one.interarrival.mean / one.batch.mean


def laws_of(flow: Dataflow, behaviour: Behaviour, name: str) -> tuple[Distribution, Distribution]:
    """The two distributions of an operator: service time and rows out; of a source gap and batch."""
    if flow[name].kind is Kind.SOURCE:
        return behaviour.source(name).interarrival, behaviour.source(name).batch
    if flow[name].kind is Kind.SINK:
        return behaviour.of(name).service_s, Fixed(value=0.0)
    return behaviour.of(name).service_s, behaviour.selectivity(flow, name)
