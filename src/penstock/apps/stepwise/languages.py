"""Language detection with n-gram profiles.

Cavnar and Trenkle, "N-gram-based text categorization", SDAIR 1994: a profile lists the most frequent n-grams of a
language. The language of a text is the one whose profile has the most similar ranks. The profiles are computed from
the short texts below, which were written for this purpose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

SAMPLES: Mapping[str, str] = {
    "en": """
        the weather in the city was cold this morning and we had to wait for the train with all the other people
        she said that there would be enough time to write the report before they went home in the evening
        have you ever thought about what could happen when nobody knows where the road is going
        it should be much easier to find which of these things you would rather keep for yourself
        my brother works at night because his house is quiet then and the children are sleeping
    """,
    "de": """
        das wetter in der stadt war heute morgen kalt und wir mussten mit allen anderen auf den zug warten
        sie hat gesagt dass noch genug zeit bleibt um den bericht zu schreiben bevor wir nach hause gehen
        hast du schon einmal darüber nachgedacht was geschieht wenn niemand weiß wohin die straße führt
        es sollte viel einfacher sein zu finden welche dieser dinge ihr lieber für euch behalten wollt
        mein bruder arbeitet nachts weil sein haus dann ruhig ist und die kinder schlafen
    """,
    "es": """
        el tiempo en la ciudad era frío esta mañana y tuvimos que esperar el tren con toda la gente
        ella dijo que habría bastante tiempo para escribir el informe antes de volver a casa por la tarde
        has pensado alguna vez en lo que puede pasar cuando nadie sabe adónde va el camino
        debería ser mucho más fácil encontrar cuáles de estas cosas quieres guardar para ti
        mi hermano trabaja de noche porque su casa está tranquila y los niños duermen
    """,
    "fr": """
        le temps dans la ville était froid ce matin et nous avons dû attendre le train avec tous les autres
        elle a dit que nous aurions assez de temps pour écrire le rapport avant de rentrer chez nous le soir
        as tu déjà pensé à ce qui peut arriver quand personne ne sait où mène la route
        il devrait être beaucoup plus facile de trouver lesquelles de ces choses vous voulez garder pour vous
        mon frère travaille la nuit parce que sa maison est alors calme et les enfants dorment
    """,
}
_LONGEST = 3  # letters of an n-gram
_PROFILE = 300  # n-grams of a profile


def ranks(text: str) -> dict[str, int]:
    """Return the most frequent n-grams of a text with their ranks. A blank marks the beginning and the end of a word.

    >>> ranks("ab ab c")
    {' ': 0, 'a': 1, 'b': 2, ' a': 3, 'ab': 4, 'b ': 5, ' ab': 6, 'ab ': 7, 'c': 8, ' c': 9, 'c ': 10, ' c ': 11}
    """
    counts: Counter[str] = Counter()
    for word in re.findall(r"[^\W\d_]+", text.lower()):
        padded = f" {word} "
        for length in range(1, _LONGEST + 1):
            counts.update(padded[start : start + length] for start in range(len(padded) - length + 1))
    return {ngram: rank for rank, (ngram, _) in enumerate(counts.most_common(_PROFILE))}


_PROFILES = {language: ranks(sample) for language, sample in SAMPLES.items()}


def detected_language(text: str) -> str:
    """Return the language of a text, or "und" (undetermined) for a text without letters.

    >>> detected_language("where are the keys of this house"), detected_language("wo sind die schlüssel zu diesem haus")
    ('en', 'de')
    >>> detected_language("2026!")
    'und'
    """
    own = ranks(text)
    if not own:
        return "und"
    return min(_PROFILES, key=lambda language: _distance(own, _PROFILES[language]))


def _distance(own: Mapping[str, int], profile: Mapping[str, int]) -> int:
    """Return by how many places the ranks differ in total; a missing n-gram counts as the longest distance."""
    return sum(abs(rank - profile[ngram]) if ngram in profile else _PROFILE for ngram, rank in own.items())
