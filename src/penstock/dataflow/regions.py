"""Regions: the longest chains of operators that can be replicated together (Joker, section 3.2).

Kahveci and Gedik, "Joker: Elastic stream processing with organic adaptation", JPDC 2020. The rules, on any graph:

- A source is a region of its own.
- A region has one entry and one exit. It ends at a branch, and a new region begins after it.
- A keyed region has the keys of its first keyed operator. A later keyed operator belongs to it if its keys include
  those of the region. A stateless operator before or after it belongs to it if its input columns include the keys.
- An operator with global state has one replica.

There is one difference, because Spark keeps no order between rows of different keys. A chain of stateless operators can
be replicated alone, so it does not join the single-replica region of a neighbour with global state.
A stateless operator with unknown columns is assumed not to carry the keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind, Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A chain of operators that are replicated together."""

    kind: Kind  # source, stateless, keyed or global_state
    operators: tuple[str, ...]
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its first operator, which a validated plan uses for the whole region."""
        return self.operators[0]

    @property
    def replicable(self) -> bool:
        """Whether it can have more than one replica."""
        return self.kind is not Kind.GLOBAL_STATE


def regions(flow: Dataflow) -> tuple[Region, ...]:
    """Return all regions, upstream first. Every operator is in exactly one."""
    return tuple(region for run in _runs(flow) for region in _regions_of(run))


def _runs(flow: Dataflow) -> Iterator[list[Operator]]:
    """Yield the longest chains without a branch. A source is a chain of its own."""
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
            yield Region(kind=kind, operators=tuple(operator.name for operator in current), keys=keys)

    for operator in run:
        if operator.kind is Kind.KEYED and kind is Kind.STATELESS:
            # The stateless operators directly before it that carry its keys belong to its region.
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
    """Return whether all rows that the operator receives contain the keys."""
    if not keys:
        return True
    if operator.kind is Kind.KEYED:
        return set(keys) <= set(operator.keys)
    return operator.fields is not None and set(keys) <= operator.fields
