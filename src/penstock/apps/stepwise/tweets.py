"""Tweets as JSON: an id, a user and a text of varying length."""

from __future__ import annotations

import json

from penstock.apps import wordcount
from penstock.apps.seeded_random import random_bits

SCHEMA = "id bigint, user bigint, topic bigint, place bigint, value string"
COLUMNS = ("id", "user", "topic", "place", "value")
WORDS_PER_TWEET = 8.0  # four, eight or twelve, in turn
_SEED = 0x7477656574


def tweet(n: int) -> str:
    """Return tweet n.

    >>> sorted(json.loads(tweet(5)))
    ['id', 'text', 'user']
    """
    return json.dumps({"id": n, "user": random_bits(n, _SEED) % 1000, "text": wordcount.generator(n)})


def text_of(value: str) -> str:
    """Return the text of a tweet.

    >>> text_of('{"id": 1, "user": 2, "text": "to be"}')
    'to be'
    """
    text: str = json.loads(value)["text"]
    return text


def generator(n: int) -> tuple[int, int, int, int, str]:
    """Return row n: the tweet, and three keys by which operators can be partitioned."""
    bits = random_bits(n, _SEED)
    return n, bits % 1000, (bits >> 16) % 500, (bits >> 32) % 200, tweet(n)
