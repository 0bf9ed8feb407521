"""Ranks texts by their relevance to a query with Okapi BM25.

Robertson, Zaragoza: The Probabilistic Relevance Framework (2009), with the usual constants: a word
counts more the fewer texts contain it, and less the longer its text is.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

_SATURATION, _LENGTH = 1.2, 0.75
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_a-zA-Z]+")
_SHORTEST_STEM = 4  # letters; a shorter word keeps its ending


def words_of(text: str) -> list[str]:
    """Split a text into lower-case words; identifiers are split, too (`getUserId`, `get_user`).

    Endings of English plurals and of some verbs are removed, so that "files" finds "file".
    """
    return [_stem(word.lower()) for word in _WORD.findall(text)]


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "es", "ed", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM - 1:
            return word.removesuffix(ending)
    return word


class Ranking:
    """An index of texts by name; building it takes time linear in the length of the texts.

    Args:
        texts: name -> the words of its text, more important ones repeated.
    """

    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        self._counts = {name: Counter(words) for name, words in texts.items()}
        self._lengths = {name: len(words) for name, words in texts.items()}
        self._average = sum(self._lengths.values()) / len(texts) if texts else 0.0
        self._holders = Counter(word for counts in self._counts.values() for word in counts)

    def best(self, query: str, limit: int) -> list[str]:
        """Return the names that match `query`, the best first; ties keep the given order."""
        wanted = set(words_of(query))
        scores = {name: self._score(name, wanted) for name in self._counts}
        found = sorted((name for name in scores if scores[name] > 0), key=lambda n: -scores[n])
        return found[:limit]

    def _score(self, name: str, wanted: set[str]) -> float:
        counts, score = self._counts[name], 0.0
        weight = 1 - _LENGTH + _LENGTH * self._lengths[name] / (self._average or 1)
        for word in wanted & counts.keys():
            often, holders = counts[word], self._holders[word]
            rarity = math.log(1 + (len(self._counts) - holders + 0.5) / (holders + 0.5))
            score += rarity * often * (_SATURATION + 1) / (often + _SATURATION * weight)
        return score
