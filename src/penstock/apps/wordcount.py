"""Word count: split lines of text into words and count each word.

Kahveci and Gedik, "Joker", JPDC 2020, section 5.4: a stateless and a keyed operator, with an output row for every
change of a count. The words follow Zipf's law, as in a language: every ninth word is the most frequent one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.apps.comparison import count_differences, last_counts
from penstock.apps.input_output import default_sink, generated_or_files
from penstock.apps.seeded_random import random_bits, zipf_table
from penstock.dataflow.sinks import Sink

VOCABULARY = 5_000
_SEED = 0x776F7264


def _word(rank: int) -> str:
    """Return the word of a rank. Its syllables are the digits of the rank in base 100, so frequent words are short.

    >>> [_word(rank) for rank in (0, 1, 99, 100, 4999)]
    ['ba', 'be', 'zu', 'baba', 'zumo']
    """
    consonants, vowels = "bcdfghjklmnprstvwxyz", "aeiou"
    word = ""
    while rank >= 0:
        word += consonants[rank // 5 % 20] + vowels[rank % 5]
        rank = rank // 100 - 1
    return word


_WORDS = zipf_table([_word(rank) for rank in range(VOCABULARY)], bits=16)


def generator(n: int) -> str:
    """Return line n, which has four, eight or twelve words.

    >>> generator(7) == generator(7), len(generator(7).split()) in (4, 8, 12)
    (True, True)
    """
    words = []
    for part in range(3 * n, 3 * n + 1 + n % 3):
        bits = random_bits(part, _SEED)
        words += [
            _WORDS[bits & 0xFFFF],
            _WORDS[bits >> 16 & 0xFFFF],
            _WORDS[bits >> 32 & 0xFFFF],
            _WORDS[bits >> 48],
        ]
    return " ".join(words)


def split(lines: DataFrame) -> DataFrame:
    words = lines.select(F.explode(F.split("value", r"\s+")).alias("word"))
    return words.where("word != ''")  # an empty line, or one that starts with a blank, yields an empty word


def count(words: DataFrame) -> DataFrame:
    return words.groupBy("word").count()


def flow(
    input: str | None = None,
    output: Sink | None = None,
    *,
    rows: int | None = None,
    rows_per_s: float | None = None,
) -> penstock.Dataflow:
    """Return the dataflow on generated lines, or on the text files that match the glob `input`."""
    flow = penstock.Dataflow("wordcount")
    source = generated_or_files(generator, "value string", input=input, rows=rows, rows_per_s=rows_per_s)
    (
        flow.source("lines", source)
        .stateless("split", split, columns=["word"])
        .keyed("count", count, keys=["word"], columns=["word", "count"])
        .sink("out", default_sink(output, rows))
    )
    return flow


def oracle(rows: int) -> Counter[str]:
    """Return the count of each word in the first `rows` lines."""
    return count_words(generator(n) for n in range(rows))


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Return the count of each word.

    >>> count_words(["to be or", "not to be"])
    Counter({'to': 2, 'be': 2, 'or': 1, 'not': 1})
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line.split())
    return counts


def actual(output: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Return the last count of each word."""
    return last_counts(output, "word")


def check(output: Iterable[Mapping[str, Any]], rows: int) -> list[str]:
    """Return the differences between the output and the oracle."""
    return count_differences(oracle(rows), output, "word")
