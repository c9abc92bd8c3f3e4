"""Acquire VMs that provide a number of slots, from a list of sizes with slots, prices and racks.

Source: Shukla and Simmhan, JPDC 2018, acquiring VMs: use the largest size as often as the slots fill it, then the
smallest size that holds the remaining slots. A few large VMs keep threads close to each other. If prices are
proportional to slots, no mix is cheaper; otherwise `cheapest_price_per_h` returns the price of the cheapest mix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.dataflow.json_document import decode_json


class VmError(PenstockError):
    """The VM sizes, or the number of slots requested, are invalid."""


class VmSize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of SIZES.json. All VMs of an entry are in its rack. Without a price the cost is unknown."""

    name: str
    slots: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": 10_000})]
    price_per_h: Annotated[float | None, msgspec.Meta(extra_json_schema={"exclusiveMinimum": 0})] = None
    rack: int = 0


SizesFormat = list[VmSize]

MAX_SLOTS = 10_000  # per VM; more slots indicate a wrong unit

ONE_SLOT = VmSize(name="vm", slots=1)  # the default without sizes: one VM of unknown price per slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Vm:
    """An acquired VM."""

    name: str
    size: VmSize


@dataclass(frozen=True, slots=True, kw_only=True)
class VmCluster:
    """VMs in the order of their acquisition. Slots are numbered across VMs, starting with those of the first VM."""

    vms: tuple[Vm, ...]
    first_slot: tuple[int, ...] = field(init=False)  # the first slot of each VM, followed by the total number of slots
    vm_of_slot: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first_slot", tuple(accumulate((vm.size.slots for vm in self.vms), initial=0)))
        owners = tuple(number for number, vm in enumerate(self.vms) for _ in range(vm.size.slots))
        object.__setattr__(self, "vm_of_slot", owners)

    @property
    def slots(self) -> int:
        return self.first_slot[-1]

    @property
    def price_per_h(self) -> float | None:
        """Return the price of all VMs; None if a price is unknown."""
        prices = [vm.size.price_per_h for vm in self.vms]
        return None if None in prices else math.fsum(price for price in prices if price is not None)

    def slot_name(self, slot: int) -> str:
        """Return the name of a slot: the VM and the number of the slot within it."""
        vm = self.vm_of_slot[slot]
        return f"{self.vms[vm].name}/{slot - self.first_slot[vm]}"

    def with_one_slot_vms(self, more: int) -> VmCluster:
        """Return this cluster with `more` additional VMs of one slot each, in the rack of the last VM."""
        rack = self.vms[-1].size.rack if self.vms else 0
        size = msgspec.structs.replace(ONE_SLOT, rack=rack)
        return VmCluster(vms=(*self.vms, *(Vm(name=f"more-{number}", size=size) for number in range(more))))


def check_sizes(sizes: Sequence[VmSize]) -> None:
    """Raise a VmError if there are no sizes, or if slots or prices are out of range."""
    if not sizes:
        raise VmError("No VM sizes are given. Give at least one with its slots and price.")
    for size in sizes:
        if not 1 <= size.slots <= MAX_SLOTS:
            raise VmError(f"VM size '{size.name}' has {size.slots} slots. It must have 1 to {MAX_SLOTS:,}.")
        if size.price_per_h is not None and not (math.isfinite(size.price_per_h) and size.price_per_h > 0):
            raise VmError(f"VM size '{size.name}' costs {size.price_per_h:g} per hour. The price must be above 0.")


def sizes_from_json(text: str | bytes) -> tuple[VmSize, ...]:
    """Parse and check SIZES.json; raise a VmError if it is invalid."""
    try:
        sizes = tuple(decode_json(text, SizesFormat))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise VmError(
            f'The VM sizes are invalid: {error}. Example: [{{"name": "D3", "slots": 4, "price_per_h": 0.4, "rack": 0}}]'
        ) from None
    check_sizes(sizes)
    return sizes


def acquire(slots: int, sizes: Sequence[VmSize]) -> VmCluster:
    """Acquire VMs with at least `slots` slots: the largest size as often as it is filled, then the smallest that fits.

    Among sizes with equal slots the cheapest is used, and among those the first.

    >>> sizes = [VmSize(name=f"D{n}", slots=s, price_per_h=0.1 * s) for n, s in [(1, 1), (2, 2), (3, 4)]]
    >>> [vm.name for vm in acquire(14, sizes).vms], round(acquire(14, sizes).price_per_h, 2)
    (['D3-0', 'D3-1', 'D3-2', 'D2-3'], 1.4)
    >>> [vm.name for vm in acquire(7, sizes).vms]  # 3 slots remain, and D2 has only 2
    ['D3-0', 'D3-1']
    """
    picked = _picked(slots, sizes)
    return VmCluster(vms=tuple(Vm(name=f"{size.name}-{number}", size=size) for number, size in enumerate(picked)))


def slots_acquired(slots: int, sizes: Sequence[VmSize]) -> int:
    """Return the number of slots of `acquire(slots, sizes)`."""
    return sum(size.slots for size in _picked(slots, sizes))


def _picked(slots: int, sizes: Sequence[VmSize]) -> list[VmSize]:
    if slots < 0:
        raise VmError(f"{slots} slots were requested. Request 0 or more.")
    check_sizes(sizes)
    offers = _offers(sizes)
    largest = offers[-1]
    whole, rest = divmod(slots, largest.slots)
    return [largest] * whole + ([next(size for size in offers if size.slots >= rest)] if rest else [])


def cheapest_price_per_h(slots: int, sizes: Sequence[VmSize]) -> float | None:
    """Return the exact price of the cheapest mix of sizes with at least `slots` slots; None if a price is unknown.

    price(s) = min over sizes of (price of the size + price(s - its slots)), price(s <= 0) = 0.

    >>> small, large = VmSize(name="S", slots=1, price_per_h=0.1), VmSize(name="L", slots=4, price_per_h=0.7)
    >>> cheapest_price_per_h(5, [small, large])
    0.5
    """
    check_sizes(sizes)
    offers = [(size.slots, size.price_per_h) for size in _offers(sizes) if size.price_per_h is not None]
    if len(offers) < len(_offers(sizes)):
        return None
    price = [0.0] * (slots + 1)
    for needed in range(1, slots + 1):
        price[needed] = min(vm_price + price[max(0, needed - vm_slots)] for vm_slots, vm_price in offers)
    return price[slots]


def _offers(sizes: Sequence[VmSize]) -> list[VmSize]:
    """Return the cheapest size for each number of slots, in ascending order of slots."""
    best: dict[int, VmSize] = {}
    for size in sizes:
        known = best.get(size.slots)
        if known is None or _price(size) < _price(known):
            best[size.slots] = size
    return [best[slots] for slots in sorted(best)]


def _price(size: VmSize) -> float:
    return math.inf if size.price_per_h is None else size.price_per_h
