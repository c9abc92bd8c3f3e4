"""Tweets in four languages as JSON, with places, hashtags and event time. Half of them are in English.

Event time follows the row number and is out of order by less than the delay of the watermark, so no row is late in any
batch. A finite stream ends with tweets far in the future: they move the watermark past all earlier windows, and their
own windows stay open.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from penstock.apps.seeded_random import random_bits, zipf_table
from penstock.apps.stepwise.languages import SAMPLES
from penstock.apps.stepwise.lexicon import VALENCES

TWEET_EVERY_MS = 100  # event time between two tweets, independent of the arrival rate
DISORDER_MS = 4_000
WATERMARK_DELAY_S = 5
FLUSH_ROWS = 3
FLUSH_TAG = "#end"
PLACES = ("lisbon", "oslo", "quito", "hanoi", "accra", "perth", "leeds", "turin", "malmo", "osaka", "lima", "bern")
_FLUSH_AHEAD_S = 24 * 3600
_SEED = 0x74736131
_START = datetime(2026, 1, 1, tzinfo=UTC)
_LANGUAGES = ("en",) * 8 + ("de",) * 3 + ("es",) * 3 + ("fr",) * 2
_TOPICS = ("rain", "match", "music", "vote", "train", "film", "bread", "moon", "coast", "chess")
DISTINCT_TAGS = 200
_TAGS = zipf_table([f"#{_TOPICS[rank % 10]}{rank // 10 + 1}" for rank in range(DISTINCT_TAGS)], bits=10)
_WORDS = {language: tuple(sample.split()) for language, sample in SAMPLES.items()}
_FEELINGS = tuple(VALENCES)


def language_of(n: int) -> str:
    """Return the language in which tweet n is written."""
    return _LANGUAGES[random_bits(n, _SEED) & 15]


def generator(n: int, rows: int | None = None) -> str:
    """Return tweet n of `rows` tweets: 4 to 19 words, and up to three hashtags. The last ones flush the windows.

    >>> sorted(json.loads(generator(0)))
    ['created_at', 'id', 'place', 'text', 'user']
    """
    bits = random_bits(n, _SEED)
    language, length, tags = language_of(n), 4 + (bits >> 4 & 15), bits >> 8 & 3
    at_ms = n * TWEET_EVERY_MS + (bits >> 16 & 0xFFFF) % DISORDER_MS
    words = [_word(n, number, language) for number in range(length)]
    words += [_TAGS[bits >> 32 + 10 * number & 0x3FF] for number in range(tags)]
    if rows is not None and n >= rows - FLUSH_ROWS:
        at_ms, words = rows * TWEET_EVERY_MS + _FLUSH_AHEAD_S * 1000, ["this", "is", "the", "last", "one", FLUSH_TAG]
    return json.dumps(
        {
            "id": n,
            "created_at": (_START + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds"),
            "user": bits >> 40 & 0xFFF,
            "place": PLACES[(bits >> 52) % len(PLACES)],
            "text": " ".join(words),
        }
    )


def _word(n: int, number: int, language: str) -> str:
    """Return a word of the language. Every fourth word of an English tweet, on average, expresses a feeling."""
    bits = random_bits(32 * n + number, _SEED + 1)
    if language == "en" and bits & 3 == 0:
        return _FEELINGS[(bits >> 2) % len(_FEELINGS)]
    words = _WORDS[language]
    return words[(bits >> 2) % len(words)]
