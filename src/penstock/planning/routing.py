"""A routing table that knows the mapping: which slot sends which part of its rows to which slot.

Shukla and Simmhan (JPDC 2018) leave it as future work: shuffle grouping sends every thread as many rows, though threads
on a crowded slot do less. Here every slot of an operator gets rows in proportion to its capacity, whoever sends them;
within that, each sender keeps as many rows as it can on its own slot, then on its VM, then in its rack.

Slots within VMs within racks are a tree, on which matching supply with demand from the leaves up is optimal: rows that
could stay below and are sent above gain nothing elsewhere. Within one level any match is as good as any other; pairing
them off in turn gives one with at most senders + receivers entries, so the table stays small.
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

ROUNDING = 1e-12  # of all rows of a stream: less than this is no row


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Of all rows of the stream source -> target, `share` go from one slot to the other."""

    source: str
    target: str
    from_slot: int
    to_slot: int
    share: float


def thread_weights(placement: Placement, curves: Mapping[str, Curve]) -> dict[str, tuple[float, ...]]:
    """The part of an operator's rows for each of its threads: w(n_s) / n_s over the sum of w, which adds up to 1."""
    weights = {}
    for operator, groups in placement.groups().items():
        part = shares(groups, curve_of(operator, curves), Routing.PROPORTIONAL)
        weights[operator] = tuple(part[slot] / groups[slot] for slot in placement.slot_of[operator])
    return weights


def routes(flow: Flow, placement: Placement, curves: Mapping[str, Curve]) -> list[Route]:
    """For every stream between operators; rows from outside go by `thread_weights` alone."""
    groups = placement.groups()
    part = {name: shares(groups[name], curve_of(name, curves), Routing.PROPORTIONAL) for name in flow.operators}
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
        left, wanted = dict(part[stream.source]), dict(part[stream.target])
        found: dict[tuple[int, int], float] = defaultdict(float)
        for level in levels:
            for sender, receiver, share in _match(left, wanted, level):
                found[sender, receiver] += share
        table[stream.source, stream.target] = [
            Route(source=stream.source, target=stream.target, from_slot=sender, to_slot=receiver, share=share)
            for (sender, receiver), share in sorted(found.items())
        ]
    return [route for stream_routes in table.values() for route in stream_routes]


def _match(
    left: dict[int, float], wanted: dict[int, float], level: Callable[[int], Hashable]
) -> Iterable[tuple[int, int, float]]:
    """Matches what is left with what is wanted inside each part of the level, and takes it off both."""
    receivers: dict[Hashable, list[int]] = defaultdict(list)
    for slot in wanted:
        receivers[level(slot)].append(slot)
    for sender in list(left):
        near = receivers[level(sender)]
        while near and sender in left:
            receiver = near[-1]
            share = min(left[sender], wanted[receiver])
            yield sender, receiver, share
            for side, slot in ((left, sender), (wanted, receiver)):
                side[slot] -= share
                if side[slot] <= ROUNDING:
                    del side[slot]
            if receiver not in wanted:
                near.pop()


def local_share(found: Iterable[Route], placement: Placement) -> float:
    """The part of all routed rows that stays on its VM, streams counted alike; 1 where nothing is routed."""
    vm_of = placement.cluster.vm_of_slot
    total = near = 0.0
    for route in found:
        total += route.share
        near += route.share if vm_of[route.from_slot] == vm_of[route.to_slot] else 0.0
    return near / total if total else 1.0
