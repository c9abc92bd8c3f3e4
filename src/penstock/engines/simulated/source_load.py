"""The rows that sources append: a rate over time, and the pattern of arrivals."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from itertools import accumulate

from penstock.dataflow import Dataflow, Kind
from penstock.dataflow.sources import Generate, Replay
from penstock.engines.simulated.behaviour import Behaviour
from penstock.engines.simulated.distributions import BehaviourError, Distribution, Fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSteps:
    """The rate is `rows_per_s[i]` from `from_s[i]` on. The steps start again every `repeat_s` seconds, if given.

    >>> steps = RateSteps(from_s=(0.0, 10.0), rows_per_s=(5.0, 1.0), repeat_s=20.0)
    >>> steps.rows_between(5.0, 25.0)
    60.0
    """

    from_s: tuple[float, ...]
    rows_per_s: tuple[float, ...]
    repeat_s: float | None = None
    _rows_before: tuple[float, ...] = field(init=False, repr=False, compare=False)  # rows before each step

    def __post_init__(self) -> None:
        lengths = (end - start for start, end in zip(self.from_s, self.from_s[1:], strict=False))
        rows = (length * rate for length, rate in zip(lengths, self.rows_per_s, strict=False))
        object.__setattr__(self, "_rows_before", tuple(accumulate(rows, initial=0.0)))

    @staticmethod
    def constant(rows_per_s: float) -> RateSteps:
        return RateSteps(from_s=(0.0,), rows_per_s=(rows_per_s,))

    def rows_between(self, start_s: float, end_s: float) -> float:
        """Return the expected number of rows between two times."""
        return self._rows_until(end_s) - self._rows_until(start_s)

    def _rows_until(self, time_s: float) -> float:
        whole = 0.0
        if self.repeat_s is not None:
            rounds, time_s = divmod(time_s, self.repeat_s)
            whole = rounds * self._rows_in_first_round(self.repeat_s) if rounds else 0.0
        return whole + self._rows_in_first_round(time_s)

    def _rows_in_first_round(self, time_s: float) -> float:
        step = max(0, bisect.bisect_right(self.from_s, time_s) - 1)
        return self._rows_before[step] + self.rows_per_s[step] * max(0.0, time_s - self.from_s[step])


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLoad:
    """The rows that one source appends."""

    rates: RateSteps | None  # None: all rows are there from the start
    interarrival: Distribution  # only its shape matters: the rate sets the mean
    batch: Distribution  # rows that arrive together
    rows: int | None  # None: unlimited

    @property
    def gaps_per_row(self) -> float:
        """Expected arrivals per row, in units of the drawn gaps: each gap ends with a batch of rows."""
        return self.interarrival.mean / self.batch.mean


def source_loads(flow: Dataflow, behaviour: Behaviour) -> dict[str, SourceLoad]:
    """Return the load of each source. The behaviour takes precedence over the dataflow's declaration.

    Raises BehaviourError if neither gives a rate or a number of rows.
    """
    loads = {}
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
            from_s, rows_per_s = zip(*given.rates, strict=True)
            rates = RateSteps(from_s=from_s, rows_per_s=rows_per_s, repeat_s=given.repeat_s)
        elif declared is not None and declared.rows_per_s is not None:
            rates = RateSteps.constant(declared.rows_per_s)
        elif rows is None:
            raise BehaviourError(
                f"Source '{operator.name}' has no rate. Set rates=((0, 100),) in its SourceBehaviour, or rows=... for "
                "a backlog that exists from the start."
            )
        loads[operator.name] = SourceLoad(rates=rates, interarrival=given.interarrival, batch=given.batch, rows=rows)
    return loads


def operator_distributions(flow: Dataflow, behaviour: Behaviour) -> list[Distribution]:
    """Return two distributions per operator: service time and rows out; for a source: gap and rows per arrival."""
    result: list[Distribution] = []
    for operator in flow.operators:
        name = operator.name
        if operator.kind is Kind.SOURCE:
            result += (behaviour.source(name).interarrival, behaviour.source(name).batch)
        elif operator.kind is Kind.SINK:
            result += (behaviour.of(name).service_s, Fixed(value=0.0))
        else:
            is_scheduled = behaviour.schedule(flow, name) is not None
            emitted = behaviour.of(name).emitted if is_scheduled else behaviour.selectivity(flow, name)
            result += (behaviour.of(name).service_s, emitted)
    return result
