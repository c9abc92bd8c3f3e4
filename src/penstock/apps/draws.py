"""Random numbers that depend on the row number alone, so that every process draws the same for the same row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = 0xFFFFFFFFFFFFFFFF


def draw(n: int, seed: int) -> int:
    """64 random bits: output n of SplitMix64 started at `seed`.

    Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. Its n-th state is
    seed + (n + 1) * gamma, hence any output can be had without those before it.

    >>> draw(0, seed=1234567)
    6457827717110365317
    """
    z = (seed + (n + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def zipf_table(values: Sequence[T], *, bits: int) -> tuple[T, ...]:
    """2**bits entries in which value r (from 1) stands about 1/r as often as the first: index it by that many bits.

    Whole numbers only: powers and logarithms may differ in the last digit from one machine to the next.

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
