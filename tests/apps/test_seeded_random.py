from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.apps.comparison import differences
from penstock.apps.seeded_random import random_bits, zipf_table


def test_draws_are_splitmix64() -> None:
    """The five values published with most implementations of SplitMix64 for this seed."""
    assert [random_bits(n, seed=1234567) for n in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_every_bit_is_set_half_of_the_time() -> None:
    draws = [random_bits(n, seed=5) for n in range(4000)]
    for bit in range(64):
        ones = sum(value >> bit & 1 for value in draws)
        assert abs(ones - 2000) < 5 * 1000**0.5  # five standard deviations of a fair coin


@settings(deadline=None)
@given(values=st.integers(1, 60), bits=st.integers(6, 12))
def test_a_zipf_table_is_full_and_each_share_is_right_to_one_entry(values: int, bits: int) -> None:
    table = zipf_table(range(values), bits=bits)
    assert len(table) == 2**bits
    harmonic = sum(1 / rank for rank in range(1, values + 1))
    counts = Counter(table)
    for rank in range(1, values + 1):
        assert abs(counts[rank - 1] - 2**bits / rank / harmonic) <= 1 + 1e-6


counts = st.dictionaries(st.text("abc", max_size=3), st.integers(1, 5))


@settings(deadline=None)
@given(counts, counts)
def test_differences_are_empty_only_for_equal_counts(first: dict[str, int], second: dict[str, int]) -> None:
    assert (differences(Counter(first), Counter(second)) == []) == (first == second)
