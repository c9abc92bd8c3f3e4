"""Text of Nexmark events. All of it is taken from fixed tables, so that many rows are made at once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.apps.seeded_random import random_bits

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
_FIRST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
NAMES = tuple(f"{first} {last}" for first in _FIRST for last in _LAST)
_ENTRIES = 256


class TextTable:
    """A table of strings from which each row takes one."""

    def __init__(self, strings: tuple[str, ...]) -> None:
        self._strings = pa.array(strings, pa.string())

    def take(self, bits: Any) -> pa.Array:
        """Return one string for each of the random numbers."""
        return self._strings.take(pa.array((bits % len(self._strings)).astype("int64")))


def letters(seed: int, entry: int, length: int) -> str:
    """Return a word of lower-case letters.

    >>> letters(seed=1, entry=0, length=5)
    'ttodf'
    """
    words = (random_bits(entry * 1_000 + position, seed) for position in range(length))
    return "".join(chr(ord("a") + bits % 26) for bits in words)


def filler(seed: int, mean_bytes: int) -> TextTable:
    """Return strings whose lengths are within 20 % of the mean; they give a row the size that Nexmark defines."""
    low, span = mean_bytes * 4 // 5, mean_bytes * 2 // 5
    return TextTable(tuple(letters(seed, i, low + random_bits(i, seed ^ 0xFF) % (span + 1)) for i in range(_ENTRIES)))


def emails(seed: int) -> TextTable:
    return TextTable(tuple(f"{letters(seed, i, 7)}@{letters(seed ^ 0xFF, i, 5)}.com" for i in range(_ENTRIES)))


def credit_cards(seed: int) -> TextTable:
    def card(entry: int) -> str:
        return " ".join(f"{random_bits(4 * entry + group, seed) % 10_000:04d}" for group in range(4))

    return TextTable(tuple(card(entry) for entry in range(_ENTRIES)))
