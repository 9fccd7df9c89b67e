"""The table of words, read once: nouns, their meanings, and the ImageNet classes at or below each meaning."""

import gzip
import json
from collections.abc import Iterator
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

from fewtags.words.spelling import everyday, plain, singulars, spellings

CLASSES = 1000  # of ImageNet
ANIMAL, ARTIFACT = 5, 6  # kinds of classes, as WordNet numbers them


class WordTable:
    """WordNet's nouns around the classes; meanings and classes are numbers."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.senses: dict[str, list[int]] = content["words"]  # noun -> meanings, the most frequent first; -1: no use
        self.class_names: list[str] = content["names"]  # each differs from the others
        self.kinds: list[int] = content["kinds"]  # of the classes
        self.specific = frozenset(content["specific"])  # meanings below which things look alike
        self.akin = {int(one): some for one, some in content["akin"].items()}  # meaning -> meanings with classes
        self.met: dict[str, list[float]] = content["met"]  # noun -> how frequent its meanings with classes are, 0..1
        self.known = frozenset(content["known"])  # nouns in several words or one that lead nowhere
        self.people = frozenset(content["people"])  # nouns that first of all mean a person
        self._parents: list[list[int]] = content["parents"]
        self._irregular: dict[str, str] = content["irregular"]
        self._lemmas: list[list[str]] = content["lemmas"]
        self._glosses: list[list[str]] = content["glosses"]
        self._common = frozenset(content["common"])  # words of so many definitions that they say nothing alone
        self.classes_below: dict[int, set[int]] = {}
        for number, meaning in enumerate(content["classes"]):
            for ancestor in self.ancestors(meaning, most=100):
                self.classes_below.setdefault(ancestor, set()).add(number)

    def ancestors(self, meaning: int, most: int) -> dict[int, int]:
        """More general meanings -> how many steps up, itself (0) included."""
        found, layer = {meaning: 0}, [meaning]
        for steps in range(1, most + 1):
            layer = [up for one in layer for up in self._parents[one] if up not in found]
            if not layer:
                break
            found |= dict.fromkeys(layer, steps)
        return found

    def nouns(self, words: list[str]) -> Iterator[str]:
        """The nouns that some words spell, in any number, spelling and however they are joined; the likeliest first."""
        for *first, last in spellings(everyday(words)):
            for singular in singulars(last, self._irregular):
                for joint in ("_", "", "-") if first else ("",):
                    spelled = joint.join([*first, singular])
                    if spelled in self.senses or spelled in self.people or spelled in self.known:
                        yield spelled

    @cached_property
    def by_name(self) -> dict[str, list[int]]:
        """Plain name of a class, with and without what it is in parentheses -> the classes of that name; also other
        names that `nouns` cannot spell (`carpenter's plane`)."""
        found: dict[str, list[int]] = {}
        for number, name in enumerate(self.class_names):
            others = [lemma.replace("_", " ") for lemma in self._lemmas[number] if "'" in lemma]
            for one in dict.fromkeys(plain(some) for some in (name, name.partition(" (")[0], *others)):
                found.setdefault(one, []).append(number)
        return found

    def classes_named(self, word: str) -> set[int]:
        """The classes with a word in one of their names."""
        return self._all(self._in_names, word)

    def classes_mentioning(self, word: str, common: bool = True) -> set[int]:
        """The classes with a word in a name or in the definition; `common`: words of very many definitions too."""
        say_nothing = not common and any(one in self._common for one in self._forms(word))
        return self.classes_named(word) | (set() if say_nothing else self._all(self._in_glosses, word))

    def _all(self, index: dict[str, set[int]], word: str) -> set[int]:
        return set().union(*(index.get(one, set()) for one in self._forms(word)))

    def _forms(self, word: str) -> Iterator[str]:
        return (one for (other,) in spellings([word]) for one in singulars(other, self._irregular))

    @cached_property
    def _in_names(self) -> dict[str, set[int]]:
        return _turned([[word for lemma in some for word in (lemma, *lemma.split("_"))] for some in self._lemmas])

    @cached_property
    def _in_glosses(self) -> dict[str, set[int]]:
        return _turned(self._glosses)


def _turned(words: list[list[str]]) -> dict[str, set[int]]:
    """Words of each class -> classes of each word."""
    found: dict[str, set[int]] = {}
    for number, some in enumerate(words):
        for word in some:
            found.setdefault(word, set()).add(number)
    return found


@lru_cache(maxsize=1)
def word_table() -> WordTable:
    """The packaged table; see scripts/make_words.py."""
    packed = (files("fewtags.words") / "wordnet.json.gz").read_bytes()
    return WordTable(json.loads(gzip.decompress(packed)))
