from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.planning.vms import VmError, VmSize, acquire, cheapest_price_per_h, sizes_from_json, slots_acquired

D = [VmSize(name=f"D{n}", slots=2 ** (n - 1), price_per_h=0.1 * 2 ** (n - 1)) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("slots", "names"),
    [
        (0, []),
        (1, ["D1"]),
        (2, ["D2"]),
        (3, ["D3"]),  # there is no size of 3, so the smallest sufficient size is used
        (4, ["D3"]),
        (5, ["D3", "D1"]),
        (14, ["D3", "D3", "D3", "D2"]),
        (20, ["D3"] * 5),  # the paper's five D3 for 20 slots
    ],
)
def test_largest_first_then_the_smallest_that_holds_the_rest(slots: int, names: list[str]) -> None:
    cluster = acquire(slots, D)
    assert [vm.size.name for vm in cluster.vms] == names
    assert cluster.price_per_h == pytest.approx(0.1 * cluster.slots)


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 6))
def test_sizes_in_powers_of_two_waste_less_than_half_the_last_vm(slots: int, kinds: int) -> None:
    sizes = [VmSize(name=str(k), slots=2**k, price_per_h=2.0**k) for k in range(kinds)]
    cluster = acquire(slots, sizes)
    assert cluster.slots == slots_acquired(slots, sizes)
    assert 0 <= cluster.slots - slots < max(1, cluster.vms[-1].size.slots / 2)


def test_slots_are_named_by_their_vm() -> None:
    cluster = acquire(5, D)
    assert [cluster.slot_name(slot) for slot in range(5)] == ["D3-0/0", "D3-0/1", "D3-0/2", "D3-0/3", "D1-1/0"]


def test_the_cheaper_and_then_the_first_of_equal_sizes_is_used() -> None:
    near, far, dear = (
        VmSize(name="near", slots=4, price_per_h=1.0, rack=0),
        VmSize(name="far", slots=4, price_per_h=1.0, rack=1),
        VmSize(name="dear", slots=4, price_per_h=2.0, rack=2),
    )
    assert {vm.size.name for vm in acquire(9, [dear, near, far]).vms} == {"near"}


def test_unknown_price_is_not_zero() -> None:
    assert acquire(2, [VmSize(name="x", slots=1)]).price_per_h is None
    assert cheapest_price_per_h(2, [VmSize(name="x", slots=1), *D]) is not None  # D1 has the same size and a price
    assert cheapest_price_per_h(2, [VmSize(name="x", slots=8), *D]) is None


@settings(deadline=None)
@given(st.integers(0, 12), st.lists(st.tuples(st.integers(1, 5), st.integers(1, 20)), min_size=1, max_size=3))
def test_cheapest_mix_against_all_mixes(slots: int, offers: list[tuple[int, int]]) -> None:
    sizes = [VmSize(name=str(n), slots=held, price_per_h=float(price)) for n, (held, price) in enumerate(offers)]
    mixes = product(range(slots + 1), repeat=len(offers))
    prices = [
        sum(count * price for count, (_, price) in zip(mix, offers, strict=True))
        for mix in mixes
        if sum(count * held for count, (held, _) in zip(mix, offers, strict=True)) >= slots
    ]
    assert cheapest_price_per_h(slots, sizes) == min(prices)
    assert (acquire(slots, sizes).price_per_h or 0) >= min(prices)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "No VM sizes are given"),
        ('[{"name": "a", "slots": 0, "price_per_h": 1}]', "'a' has 0 slots"),
        ('[{"name": "a", "slots": 1000000000, "price_per_h": 1}]', "It must have 1 to 10,000"),
        ('[{"name": "a", "slots": 1, "price_per_h": 0}]', "'a' costs 0 per hour. The price must be above 0"),
        ('[{"name": "a", "slots": 1, "price_per_h": -0.5}]', "'a' costs -0.5 per hour"),
        ('[{"name": "a", "slots": 1, "price_per_h": 1, "cores": 2}]', "unknown field `cores`"),
        ('[{"name": "a"}]', "missing required field `slots`"),
        ('[{"name": "a", "slots": 1.5, "price_per_h": 1}]', "The VM sizes are invalid"),
        ('{"name": "a"}', "The VM sizes are invalid"),
        ('[{"name": "a", "slots": 1, "slots": 2}]', "'slots' is given twice"),
        ("nonsense", "The VM sizes are invalid"),
    ],
)
def test_invalid_sizes_are_refused(text: str, message: str) -> None:
    with pytest.raises(VmError, match=message):
        sizes_from_json(text)


def test_a_price_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(VmError, match="must be above 0"):
        acquire(1, [VmSize(name="a", slots=1, price_per_h=math.nan)])


def test_negative_slots_are_refused() -> None:
    with pytest.raises(VmError, match="-1 slots"):
        acquire(-1, D)
