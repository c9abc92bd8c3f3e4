"""Random numbers that depend only on the row number, so that every process generates the same row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_MASK = 0xFFFFFFFFFFFFFFFF


def random_bits(n: int, seed: int) -> int:
    """Return 64 random bits: output n of SplitMix64 started at `seed`.

    Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. The n-th state is
    seed + (n + 1) * gamma, so each output can be computed without the previous ones.

    >>> random_bits(0, seed=1234567)
    6457827717110365317
    """
    z = (seed + (n + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def random_bits_array(n: Any, seed: int) -> Any:
    """Return `random_bits` of each number of a NumPy array, as unsigned 64-bit integers.

    >>> random_bits_array(np.arange(2), seed=1234567).tolist() == [random_bits(n, seed=1234567) for n in range(2)]
    True
    """
    z = np.asarray(n).astype(np.uint64)  # its arithmetic is modulo 2**64
    z = np.uint64(seed & _MASK) + (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def zipf_table(values: Sequence[T], *, bits: int) -> tuple[T, ...]:
    """Return 2**bits entries in which the value of rank r occurs about 1/r as often as the first; index it with bits.

    Only integers are used, because powers and logarithms may differ in the last digit between machines.

    >>> [zipf_table("abc", bits=4).count(letter) for letter in "abc"]
    [9, 4, 3]
    """
    size = 1 << bits
    weights = [(1 << 32) // rank for rank in range(1, len(values) + 1)]
    total = sum(weights)
    table: list[T] = []
    below = 0
    for value, weight in zip(values, weights, strict=True):
        below += weight
        table += [value] * ((2 * below * size + total) // (2 * total) - len(table))  # up to below / total, rounded
    return tuple(table)
