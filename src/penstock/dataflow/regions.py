"""Regions: the longest runs of operators that can be replicated as a whole (Joker, section 3.2).

Kahveci and Gedik, "Joker: Elastic stream processing with organic adaptation", JPDC 2020. Their rules, on any graph:

- a source is a region of its own;
- a region has one entry and one exit: it ends at a branch and starts anew behind one;
- a keyed region takes its keys from its first keyed operator; a later keyed operator stays in it if its own keys
  contain the region's, a stateless one (before or behind) if the columns that it receives contain them;
- an operator with global state has one replica.

Two departures, because Spark keeps no order between rows of different keys: a run of stateless operators may be
replicated by itself, and so is not folded into the single-replica region of a neighbour with global state.
A stateless operator whose columns are not known is taken not to carry the keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind, Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    kind: Kind  # source, stateless, keyed or global_state
    operators: tuple[str, ...]
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its first operator: what plans call it."""
        return self.operators[0]

    @property
    def replicable(self) -> bool:
        return self.kind is not Kind.GLOBAL_STATE


def regions(flow: Dataflow) -> tuple[Region, ...]:
    """All regions, upstream first; every operator is in exactly one."""
    return tuple(region for run in _runs(flow) for region in _regions_of(run))


def region_of(flow: Dataflow, operator: str) -> Region:
    flow[operator]  # raises for an unknown name
    return next(region for region in regions(flow) if operator in region.operators)


def _runs(flow: Dataflow) -> Iterator[list[Operator]]:
    """Maximal chains without a branch; a source is a chain of one."""
    run_of: dict[str, list[Operator]] = {}
    runs: list[list[Operator]] = []
    for operator in flow.operators:
        before = operator.inputs[0] if len(operator.inputs) == 1 and not operator.feedback else None
        follows = before is not None and flow[before].kind is not Kind.SOURCE and len(flow.consumers(before)) == 1
        if follows and before is not None:
            run = run_of[before]
        else:
            run = []
            runs.append(run)
        run.append(operator)
        run_of[operator.name] = run
    yield from runs


def _regions_of(run: list[Operator]) -> Iterator[Region]:
    kind: Kind = Kind.STATELESS
    current: list[Operator] = []
    keys: tuple[str, ...] = ()

    def close() -> Iterator[Region]:
        if current:
            yield Region(kind=kind, operators=tuple(one.name for one in current), keys=keys)

    for operator in run:
        if operator.kind is Kind.KEYED and kind is Kind.STATELESS:
            # The stateless operators just before it that carry its keys belong to its region.
            split = len(current)
            while split > 0 and _carries(current[split - 1], operator.keys):
                split -= 1
            tail = current[split:]
            del current[split:]
            yield from close()
            kind, current, keys = Kind.KEYED, [*tail, operator], operator.keys
        elif operator.kind is Kind.SINK or (
            {kind, operator.kind} <= {Kind.STATELESS, Kind.KEYED} and _carries(operator, keys)
        ):
            current.append(operator)
        else:
            yield from close()
            kind = operator.kind
            current, keys = [operator], operator.keys
    yield from close()


def _carries(operator: Operator, keys: tuple[str, ...]) -> bool:
    """Whether all rows that this operator gets hold the keys, so that it can work where those keys are."""
    if not keys:
        return True
    if operator.kind is Kind.KEYED:
        return set(keys) <= set(operator.keys)
    return operator.fields is not None and set(keys) <= operator.fields
