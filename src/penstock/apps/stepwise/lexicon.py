"""A small lexicon of English words with their sentiment, from -5 (negative) to 5 (positive)."""

from __future__ import annotations

import re

VALENCES = {
    word: valence
    for valence, words in {
        5: "superb outstanding",
        4: "wonderful fantastic amazing brilliant",
        3: "great happy love excellent delighted",
        2: "good nice enjoy win kind fun",
        1: "fine calm fresh useful fair",
        -1: "slow tired odd dull late",
        -2: "bad sad poor lose broken wrong",
        -3: "angry hate awful ugly fail",
        -4: "horrible terrible cruel disgusting",
        -5: "catastrophic vile",
    }.items()
    for word in words.split()
}
_NEGATIONS = frozenset({"not", "never", "no"})


def sentiment(text: str) -> int:
    """Return the sum of the valences of all words. A negation directly before a word reverses its sign.

    >>> sentiment("Good train, awful weather"), sentiment("not good"), sentiment("where is it")
    (-1, -2, 0)
    """
    total, before = 0, ""
    for word in re.findall(r"[a-z]+", text.lower()):
        valence = VALENCES.get(word, 0)
        total += -valence if before in _NEGATIONS else valence
        before = word
    return total
