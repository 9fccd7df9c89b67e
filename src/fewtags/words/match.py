"""From a tag's name to weights over ImageNet classes; a weight says how sure it is that the class shows the tag."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewtags.words.spelling import LONGEST, plain, readings, splits, stems
from fewtags.words.table import ANIMAL, ARTIFACT, CLASSES, WordTable, word_table

LOWER_SENSE = 0.25  # factor for every more frequent meaning that has classes too
LOWER_GUESS, SENSES = 0.5, 2  # the same where no meaning has classes and relatives are asked, of so many meanings
AKIN, UP = 0.5, 0.3  # of a part or namesake, of each step to a more general meaning
STEPS = 2  # to more general animals; to more general things of other kinds it is one
FEW_RELATIVES = 5  # classes below a more general meaning; more share the weight of so many
OF_BEST = 0.5  # relatives much further away than the nearest are left out
LAST_WORDS = 0.5  # of a tag whose last words name a class, or whose words name and define one
MODIFIER = 0.3  # of a first word that names a made thing too: `tv monitor`
PERSON = 0.1  # of the classes that show people, for a word that means some person
MENTIONED, MOST_MENTIONED = 0.2, 20  # of a class whose definition has the word; more classes than that say nothing
LEAST = 0.05  # a weight below this says nothing

Weights = dict[int, float]  # class -> weight
How = Literal["direct", "related", "in part", "mentioned", "nothing", "off"]

_ENDS_OF_LINES = {
    "related": " (related things)",
    "in part": " (from part of the name)",
    "mentioned": " (things that go with it)",
}


class Match(NamedTuple):
    """What was found for a name."""

    name: str
    words: tuple[str, ...]  # the nouns that were found
    how: How
    weights: Weights  # class -> 0..1

    def __bool__(self) -> bool:
        return bool(self.weights)

    @property
    def classes(self) -> list[tuple[str, float]]:
        """Names of classes with their weights, the largest first."""
        names = word_table().class_names
        return [(names[one], weight) for one, weight in sorted(self.weights.items(), key=lambda pair: (-pair[1], pair))]

    def line(self, shown: int = 2) -> str:
        """What was found, on one line: `dog: Chihuahua, Japanese spaniel and 116 more`."""
        if self.how == "off":
            return f"{self.name}: words switched off; learned from labels alone"
        if not self.weights:
            return f"{self.name}: nothing found; learned from labels alone"
        names = [name for name, _ in self.classes]
        if len(names) > shown + 1:
            names[shown:] = [f"{len(names) - shown} more"]
        listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        return f"{self.name}: {listed}{_ENDS_OF_LINES.get(self.how, '')}"


def tag_weights(tags: Sequence[str], own: Mapping[str, Sequence[str]] | None = None) -> list[Match]:
    """What is found for each tag; `own`: the person's words as `parse_words` reads them, classes with a minus off."""
    return [_with_own(tag, (own or {}).get(tag, ())) for tag in tags]


def weight_matrix(matches: Sequence[Match]) -> NDArray[np.float32]:
    """The weights as a matrix [1000, K]."""
    found = np.zeros((CLASSES, len(matches)), np.float32)
    for column, one in enumerate(matches):
        found[list(one.weights), column] = list(one.weights.values())
    return found


def match(name: str, words: Sequence[str] | None = None, without: Iterable[str] = ()) -> Match:
    """The classes that a tag's name leads to, or the person's own words for it; `without`: classes switched off.

    >>> match("TV-Monitor").words
    ('tv monitor',)
    """
    table = word_table()
    found = [_read(table, word) for word in ([name] if words is None else words)]
    weights: Weights = {}
    for one in found:
        _keep_largest(weights, one.weights.items())
    if not weights:
        return Match(name, (), "nothing", {})
    off = {one for word in without for one in table.by_name.get(plain(word), ())}
    weights = {one: weight for one, weight in weights.items() if one not in off}
    if not weights:
        return Match(name, (), "off", {})
    best = max(found, key=lambda one: max(one.weights.values(), default=0.0))
    return Match(name, tuple(noun.replace("_", " ") for one in found for noun in one.words), best.how, weights)


def _with_own(tag: str, own: Sequence[str]) -> Match:
    if "-" in own:
        return Match(tag, (), "off", {})
    words = [word for word in own if not word.startswith("-")]
    return match(tag, words or None, [word[1:] for word in own if word.startswith("-")])


def _read(table: WordTable, name: str) -> Match:
    """The first way that leads anywhere: the whole name, a name taken apart, a definition with all its words, its last
    words, definitions that mention it."""
    if len(name) > LONGEST:
        return Match(name, (), "nothing", {})
    forms = readings(name)
    if "(" in name and len(exact := table.by_name.get(plain(name), [])) == 1:
        return Match(name, (name,), "direct", dict.fromkeys(exact, 1.0))
    for words in forms:
        if found := _whole(table, words):
            return found._replace(name=name)
    is_known = any(noun in table.known or noun in table.senses for words in forms for noun in table.nouns(words))
    for words in forms if not is_known else ():
        parts = words if len(words) > 1 else _taken_apart(table, words[0])
        if len(parts) > 1 and (weights := _by_definition(table, parts) or _by_last_words(table, parts)):
            return Match(name, tuple(parts), "in part", weights)
    for words in forms:
        is_person = any(noun in table.people for noun in table.nouns(words))
        person = dict.fromkeys(_direct(table, "person"), PERSON) if is_person else {}
        if len(words) == 1 and (weights := _by_mention(table, words[0])):
            return Match(name, tuple(words), "mentioned", person | weights)
        if person:
            return Match(name, ("person",), "related", person)
    return Match(name, (), "nothing", {})


def _whole(table: WordTable, words: list[str]) -> Match | None:
    """By a noun that is the whole name; a name in one word may be a noun of two."""
    for reading in (words, *(splits(words[0], least=2) if len(words) == 1 else ())):
        nouns = [noun for noun in table.nouns(reading) if noun in table.senses]
        for noun in nouns:
            if weights := _direct(table, noun):
                return Match("", (noun,), "direct", weights)
        for noun in nouns:
            if weights := _related(table, noun):
                return Match("", (noun,), "related", weights | _by_modifiers(table, reading, weights))
    if named := table.by_name.get(" ".join(words), []):
        return Match("", tuple(words), "direct", dict.fromkeys(named, 1.0))
    return None


def _taken_apart(table: WordTable, word: str) -> list[str]:
    """A glued name as two words: the second a noun with classes, as long as possible, the first a known word too."""
    for first, second in splits(word, least=3):
        known = any(True for stem in stems(first) for _ in table.nouns([stem])) or table.classes_mentioning(first)
        if known and any(noun in table.senses and _direct(table, noun) for noun in table.nouns([second])):
            return [first, second]
    return [word]


def _by_definition(table: WordTable, words: list[str]) -> Weights:
    """Few classes with one of the words in the name and all in the definition: `potted plant` -> a pot for plants."""
    forms = [stems(word) for word in words]
    every = [set().union(*(table.classes_mentioning(stem) for stem in some)) for some in forms]
    named = set().union(*(table.classes_named(stem) for some in forms for stem in some))
    found: set[int] = named.intersection(*every)
    return dict.fromkeys(found, LAST_WORDS) if len(found) <= MOST_MENTIONED else {}


def _by_last_words(table: WordTable, words: list[str]) -> Weights:
    """`sports ball` -> ball."""
    for start in range(1, len(words)):
        for noun in table.nouns(words[start:]):
            if noun in table.senses and (weights := _direct(table, noun) or _related(table, noun)):
                found = {one: LAST_WORDS * weight for one, weight in weights.items() if LAST_WORDS * weight >= LEAST}
                return found | _by_modifiers(table, words, found)
    return {}


def _by_modifiers(table: WordTable, words: list[str], beside: Weights) -> Weights:
    """Made things that the first words of a name of a made thing name: they are seen together."""
    if any(table.kinds[one] != ARTIFACT for one in beside):
        return {}
    found: Weights = {}
    for word in words[:-1]:
        noun = next((one for one in table.nouns([word]) if one in table.senses), None)
        made = _direct(table, noun) if noun else {}
        _keep_largest(found, ((one, MODIFIER * w) for one, w in made.items() if table.kinds[one] == ARTIFACT))
    return {one: weight for one, weight in found.items() if weight >= LEAST and one not in beside}


def _by_mention(table: WordTable, word: str) -> Weights:
    """Few classes named or defined with a word; of animals that only says where they live."""
    found = [one for one in table.classes_mentioning(word, common=False) if table.kinds[one] != ANIMAL]
    return dict.fromkeys(found, MENTIONED) if len(found) <= MOST_MENTIONED else {}


def _direct(table: WordTable, noun: str) -> Weights:
    """The classes at or below the meanings of a noun."""
    found: Weights = {}
    below = [classes for meaning in table.senses[noun] if (classes := table.classes_below.get(meaning))]
    met = table.met.get(noun, [0.0] * len(below))
    for rank, classes in enumerate(below):
        weight = max(LOWER_SENSE**rank, met[rank])
        _keep_largest(found, ((one, weight) for one in classes))
    return {one: weight for one, weight in found.items() if weight >= LEAST}


def _related(table: WordTable, noun: str) -> Weights:
    """What a noun without classes is akin to, and specific things that it is a kind of."""
    found: Weights = {}
    for rank, meaning in enumerate(table.senses[noun][:SENSES]):
        near = [(other, AKIN) for other in table.akin.get(meaning, ())]
        for up, steps in table.ancestors(meaning, STEPS).items() if meaning >= 0 else ():
            below = table.classes_below.get(up, set())
            if up in table.specific and (steps == 1 or all(table.kinds[one] == ANIMAL for one in below)):
                near.append((up, UP**steps * min(1.0, FEW_RELATIVES / len(below))))
        for other, weight in near:
            _keep_largest(found, ((one, weight * LOWER_GUESS**rank) for one in table.classes_below[other]))
    best = max(found.values(), default=0.0)
    return {one: weight for one, weight in found.items() if weight >= LEAST and weight > OF_BEST * best}


def _keep_largest(weights: Weights, new: Iterable[tuple[int, float]]) -> None:
    for one, weight in new:
        weights[one] = max(weight, weights.get(one, 0.0))
