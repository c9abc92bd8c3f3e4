"""Routing by capacity: the share of each stream that one slot sends to another.

Shuffle grouping gives all threads the same rate, although threads on a crowded slot process fewer rows. Shukla and
Simmhan (JPDC 2018) leave better routing as future work. Here each slot of an operator receives rows in proportion to
its capacity. Subject to that, each sender keeps as many rows as possible on its own slot, then its VM, then its rack.

Slots, VMs and racks form a tree. Matching supply and demand from the leaves upwards is optimal there: sending rows
further than necessary gains nothing elsewhere. Within one level all matches are equally good. Pairing senders and
receivers in order gives at most senders + receivers entries, so the table stays small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from penstock.models.curve import Curve
from penstock.models.flow import Flow
from penstock.planning.allocation import curve_of
from penstock.planning.placement import Placement
from penstock.planning.placement_prediction import Routing, shares

ROUNDING = 1e-12  # smaller shares of a stream are rounding errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The share of the rows of stream `source` -> `target` that goes from one slot to another."""

    source: str
    target: str
    from_slot: int
    to_slot: int
    share: float


def routes(flow: Flow, placement: Placement, curves: Mapping[str, Curve]) -> list[Route]:
    """Return the routes of every stream between two operators."""
    groups = placement.groups()
    share_of = {name: shares(groups[name], curve_of(name, curves), Routing.PROPORTIONAL) for name in flow.operators}
    vm_of, vms = placement.cluster.vm_of_slot, placement.cluster.vms
    levels: tuple[Callable[[int], Hashable], ...] = (
        lambda slot: slot,
        lambda slot: vm_of[slot],
        lambda slot: vms[vm_of[slot]].size.rack,
        lambda _: None,
    )
    table: dict[tuple[str, str], list[Route]] = {}
    for stream in flow.streams:
        if stream.source is None or (stream.source, stream.target) in table:
            continue
        supply, demand = dict(share_of[stream.source]), dict(share_of[stream.target])
        matched: dict[tuple[int, int], float] = defaultdict(float)
        for level in levels:
            for sender, receiver, share in _match(supply, demand, level):
                matched[sender, receiver] += share
        table[stream.source, stream.target] = [
            Route(source=stream.source, target=stream.target, from_slot=sender, to_slot=receiver, share=share)
            for (sender, receiver), share in sorted(matched.items())
        ]
    return [route for stream_routes in table.values() for route in stream_routes]


def _match(
    supply: dict[int, float], demand: dict[int, float], level: Callable[[int], Hashable]
) -> Iterable[tuple[int, int, float]]:
    """Match supply and demand within each group of the level, subtract the matches from both, and yield them."""
    receivers: dict[Hashable, list[int]] = defaultdict(list)
    for slot in demand:
        receivers[level(slot)].append(slot)
    for sender in list(supply):
        near = receivers[level(sender)]
        while near and sender in supply:
            receiver = near[-1]
            share = min(supply[sender], demand[receiver])
            yield sender, receiver, share
            for side, slot in ((supply, sender), (demand, receiver)):
                side[slot] -= share
                if side[slot] <= ROUNDING:
                    del side[slot]
            if receiver not in demand:
                near.pop()


def share_within_vms(table: Iterable[Route], placement: Placement) -> float:
    """Return the share of routed rows that stays on its VM, with equal weight for all streams; 1 without routes."""
    vm_of = placement.cluster.vm_of_slot
    total = local = 0.0
    for route in table:
        total += route.share
        local += route.share if vm_of[route.from_slot] == vm_of[route.to_slot] else 0.0
    return local / total if total else 1.0
