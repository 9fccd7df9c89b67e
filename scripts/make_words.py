"""Make the table of words: which nouns lead to which of the 1,000 ImageNet classes, from WordNet 3.0.

    python scripts/make_words.py WORDNET SYNSETS src/fewtags/words/wordnet.json.gz

WORDNET is the folder of WordNet 3.0 with data.noun, index.noun, noun.exc and cntlist.rev (Debian: package wordnet-base,
folder /usr/share/wordnet); SYNSETS lists the classes in the order of the networks' outputs, one synset such as
n01440764 per line (the package timm has it as timm/data/_info/imagenet_synsets.txt). Kept are the meanings
with classes at or below them, those that have something in common with one, and the words that define a class; the rest
of WordNet says nothing about what a network can see.
"""

import argparse
import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ANIMAL, NATURAL, PERSON = 5, 17, 18  # WordNet's files of meanings
LIKE_RELATIVES = (ANIMAL, NATURAL)  # here a wide family still looks alike
NEAR = 2  # steps up to a more general meaning
DEEP = 7  # steps from `entity` to a meaning that is specific
SMALL, SMALL_FAMILY = 120, 400  # meanings below a specific one, below one of LIKE_RELATIVES
SHOWN = 0.025  # share of the meanings below that must be classes
FEW = 20  # classes below a specific meaning
FEW_PARTS = 3  # classes below a part or a whole
KIND_IN_COMMON, FAMILY_IN_COMMON = 6, 10  # steps from `entity` to what two meanings of a synonym share; of animals
CLEAR = 2  # meanings of a name that hardly misleads
COMMON = 600  # definitions with a word that says nothing (small, family, plant)
COUNTED = 3  # times that a meaning was met in WordNet's texts, to compare it with a more frequent one
PLACES = 3  # least letters of each half of a glued word
HAS_PART, PART_OF = "%p", "#p"
LIFE = re.compile(
    r"^(?:(?:an?|the|any|of|very|young|baby|newborn|immature|adult|mature|male|female|castrated|uncastrated|domestic) )"
    r"+([a-z]+)\b"
)  # `young domestic cat`, `female of domestic cattle`


class Synset(NamedTuple):
    """A meaning."""

    kind: int  # the number of WordNet's file
    lemmas: list[str]
    parents: list[str]
    parts: list[str]
    wholes: list[str]
    gloss: str


class WordNet:
    """Its nouns, and the classes among them."""

    def __init__(self, folder: Path, classes: list[str]) -> None:
        self.synsets = read_synsets(folder / "data.noun")
        self.senses = read_senses(folder / "index.noun")
        self.irregular = [line.split() for line in read_lines(folder / "noun.exc")]
        self.met = read_counts(folder / "cntlist.rev")
        self.classes = classes
        self.below: dict[str, set[int]] = defaultdict(set)  # meaning -> classes at or below it
        self.children: dict[str, list[str]] = defaultdict(list)
        self.size: dict[str, int] = defaultdict(int)  # meaning -> meanings at or below it
        for number, one in enumerate(classes):
            for ancestor in self.ancestors(one):
                self.below[ancestor].add(number)
        for one, synset in self.synsets.items():
            for parent in synset.parents:
                self.children[parent].append(one)
            for ancestor in self.ancestors(one):
                self.size[ancestor] += 1
        in_glosses = Counter(word for one in self.synsets for word in self.defining_nouns(one))
        self.common = {word for word, count in in_glosses.items() if count > COMMON}
        self.named: dict[str, list[str]] = defaultdict(list)  # lemma -> classes of that name
        self.ending: dict[str, list[str]] = defaultdict(list)  # last word -> classes
        for one in classes:
            for lemma in self.synsets[one].lemmas:
                self.named[lemma.lower()].append(one)
                self.ending[lemma.lower().rpartition("_")[2]].append(one)

    def ancestors(self, start: str, most: int = 100) -> dict[str, int]:
        """More general meanings -> steps up, itself included."""
        found, layer = {start: 0}, [start]
        for steps in range(1, most + 1):
            layer = [parent for one in layer for parent in self.synsets[one].parents if parent not in found]
            if not layer:
                break
            found |= dict.fromkeys(layer, steps)
        return found

    def depth(self, one: str) -> int:
        """Steps up to `entity`."""
        return max(self.ancestors(one).values())

    def is_specific(self, one: str) -> bool:
        """Whether what lies below a meaning looks alike, as far as WordNet can tell."""
        shown = len(self.below.get(one, ()))
        if not 0 < shown <= FEW or shown < SHOWN * self.size[one]:
            return False
        if self.synsets[one].kind in LIKE_RELATIVES:
            return self.size[one] <= SMALL_FAMILY
        return self.size[one] <= SMALL and self.depth(one) >= DEEP

    def akin(self, one: str) -> list[str]:
        """Meanings with classes that a meaning without classes points to, in a fixed order."""
        ways = (self._parts(one), self._namesakes(one), self._same_kind(one), self._ages(one))
        return sorted({other for way in ways for other in way})

    def _parts(self, one: str) -> Iterator[str]:
        """`toilet` has the part `toilet seat`, `beach` is a part of `shore`; other wholes show too much."""
        synset = self.synsets[one]
        yield from (part for part in synset.parts if 0 < len(self.below.get(part, ())) <= FEW_PARTS)
        for whole in synset.wholes:
            few = 0 < len(self.below.get(whole, ())) <= FEW_PARTS
            if few and (synset.kind == NATURAL or set(synset.lemmas) & set(self.synsets[whole].lemmas)):
                yield whole

    def _namesakes(self, one: str) -> Iterator[str]:
        """A class with the name of a meaning just below and alike by definition: `sink`, which may be a washbasin."""
        for below in self.children[one]:
            own = set(self.defining_nouns(below)) - self.common
            for lemma in self.synsets[below].lemmas:
                for other in self.named[lemma.lower()] if len(self.senses.get(lemma.lower(), ())) <= CLEAR else ():
                    if self.synsets[other].kind == self.synsets[one].kind and own & set(self.defining_nouns(other)):
                        yield other

    def _same_kind(self, one: str) -> Iterator[str]:
        """Another meaning of a synonym, of the same kind: `suitcase` is also a `bag`, and that a container too; a class
        of the same kind whose name ends with it: `comic book`."""
        for lemma in self.synsets[one].lemmas:
            for other in (*self.senses.get(lemma.lower(), ()), *self.ending[lemma.lower()]):
                if 0 < len(self.below.get(other, ())) <= FEW and self._are_alike(one, other):
                    yield other

    def _are_alike(self, one: str, other: str) -> bool:
        shared = self.ancestors(one).keys() & self.ancestors(other).keys()
        needed = FAMILY_IN_COMMON if self.synsets[one].kind == ANIMAL else KIND_IN_COMMON
        return max((self.depth(up) for up in shared), default=0) >= needed

    def _ages(self, one: str) -> Iterator[str]:
        """`kitten`: young domestic cat."""
        synset = self.synsets[one]
        found = LIFE.match(synset.gloss.lower()) if synset.kind == ANIMAL else None
        grown = self.senses.get(found[1], [one])[0] if found else one
        if grown in self.below and self.depth(grown) >= DEEP:
            yield grown

    def defining_nouns(self, one: str) -> list[str]:
        """The nouns of a definition, examples left out; the plural in s is brought to the singular."""
        words = re.findall(r"[a-z]{3,}", re.sub(r'"[^"]*"', "", self.synsets[one].gloss).lower())
        singular = (word[:-1] if word.endswith("s") and word[:-1] in self.senses else word for word in words)
        return sorted({word for word in singular if word in self.senses})

    def is_proper(self, lemma: str) -> bool:
        """Whether a noun is first of all a name with a capital letter."""
        return lemma not in self.synsets[self.senses[lemma][0]].lemmas


def read_lines(file: Path) -> list[str]:
    """The lines of one of WordNet's files, without its licence."""
    return [line for line in file.read_text(encoding="latin-1").splitlines() if not line.startswith("  ")]


def read_synsets(file: Path) -> dict[str, Synset]:
    """Offset -> synset, of data.noun."""
    found = {}
    for line in read_lines(file):
        about, _, gloss = line.partition(" | ")
        fields = about.split()
        count = int(fields[3], 16)
        lemmas = [fields[4 + 2 * place] for place in range(count)]
        start = 5 + 2 * count
        pointers = [fields[start + 4 * n : start + 4 * n + 3] for n in range(int(fields[start - 1]))]

        def pointed(*signs: str, pointers: list[list[str]] = pointers) -> list[str]:
            return [target for sign, target, kind in pointers if sign in signs and kind == "n"]

        parents, parts, wholes = pointed("@", "@i"), pointed(HAS_PART), pointed(PART_OF)
        found[fields[0]] = Synset(int(fields[1]), lemmas, parents, parts, wholes, gloss)
    return found


def read_senses(file: Path) -> dict[str, list[str]]:
    """Lemma -> its synsets, the most frequent meaning first, of index.noun."""
    rows = (line.split() for line in read_lines(file))
    return {fields[0]: fields[-int(fields[2]) :] for fields in rows}


def read_counts(file: Path) -> dict[str, dict[int, int]]:
    """Noun -> number of the sense, from 1 -> how often it was met, of cntlist.rev."""
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for line in read_lines(file):
        key, sense, count = line.split()
        lemma, _, rest = key.partition("%")
        if rest.startswith("1:"):
            found[lemma][int(sense)] = int(count)
    return found


def class_names(net: WordNet) -> list[str]:
    """First names; a name that two classes have says in parentheses what each is: `crane (wading bird)`."""
    first = [net.synsets[one].lemmas[0].replace("_", " ") for one in net.classes]
    lower = [name.lower() for name in first]
    kinds = [net.synsets[net.synsets[one].parents[0]].lemmas[0].replace("_", " ") for one in net.classes]
    return [f"{a} ({kind})" if lower.count(a.lower()) > 1 else a for a, kind in zip(first, kinds, strict=True)]


def make_table(net: WordNet) -> dict[str, object]:
    """What src/fewtags/words/table.py reads."""
    specific = {one for one in net.below if net.is_specific(one)}
    akin = {one: found for one in net.synsets if one not in net.below and (found := net.akin(one))}
    kept = [
        one
        for one in sorted(net.synsets)
        if one in net.below or one in akin or specific & net.ancestors(one, NEAR).keys()
    ]
    place = {one: number for number, one in enumerate(kept)}
    words = {lemma: [place.get(one, -1) for one in some] for lemma, some in net.senses.items()}
    words = {lemma: some for lemma, some in words.items() if any(number >= 0 for number in some)}
    glosses = [net.defining_nouns(one) for one in net.classes]
    people = [lemma for lemma in net.senses if is_person(net, lemma)]
    seen = {lemma: some for lemma in words if (some := class_senses(net, lemma))}
    return {
        "classes": [place[one] for one in net.classes],
        "names": class_names(net),
        "kinds": [net.synsets[one].kind for one in net.classes],
        "lemmas": [[lemma.lower() for lemma in net.synsets[one].lemmas] for one in net.classes],
        "glosses": glosses,
        "common": sorted(net.common & {word for some in glosses for word in some}),
        "parents": [[place[up] for up in net.synsets[one].parents if up in place] for one in kept],
        "specific": sorted(place[one] for one in specific),
        "akin": {place[one]: [place[other] for other in found] for one, found in akin.items()},
        "words": words,
        "met": {lemma: found for lemma, some in seen.items() if (found := comparable(net, lemma, some))},
        "known": known_compounds(net, words, seen),
        "people": people,
        "irregular": {row[0]: row[1] for row in net.irregular if row[1:] and row[1] in words.keys() | set(people)},
    }


def class_senses(net: WordNet, lemma: str) -> list[int]:
    """The numbers, from 1, of the meanings that have classes."""
    return [number for number, one in enumerate(net.senses[lemma], 1) if one in net.below]


def comparable(net: WordNet, lemma: str, senses: list[int]) -> list[float]:
    """How often the meanings with classes were met, relative to the first of them; nothing where it is not known."""
    counts = [net.met.get(lemma, {}).get(number, 0) for number in senses]
    if not any(count >= COUNTED for count in counts[1:]):
        return []
    return [round(min(1.0, count / counts[0]), 2) if count >= COUNTED else 0.0 for count in counts]


def known_compounds(net: WordNet, words: dict[str, list[int]], seen: dict[str, list[int]]) -> list[str]:
    """Nouns without classes that end like one with classes: a rainbow is no bow, and WordNet would know."""

    def ends_like_one(lemma: str) -> bool:
        return any(lemma[start:].lstrip("_") in seen for start in range(PLACES, len(lemma) - PLACES + 1))

    return [lemma for lemma in net.senses if lemma not in words and not net.is_proper(lemma) and ends_like_one(lemma)]


def is_person(net: WordNet, lemma: str) -> bool:
    """Whether a noun first of all means a person, by no proper name."""
    first = net.senses[lemma][0]
    is_one = net.synsets[first].kind == PERSON and net.senses["person"][0] in net.ancestors(first)
    return is_one and not net.is_proper(lemma)


def main() -> None:
    """Read WordNet, write the table."""
    parser = argparse.ArgumentParser()
    for name in ("wordnet", "synsets", "out"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    classes = [line.removeprefix("n") for line in given.synsets.read_text(encoding="utf-8").split()]
    table = make_table(WordNet(given.wordnet, classes))
    content = json.dumps(table, separators=(",", ":"), ensure_ascii=True).encode()
    given.out.write_bytes(gzip.compress(content, 9, mtime=0))
    size = given.out.stat().st_size / 1e6
    print(f"{len(content) / 1e6:.1f} MB, {size:.2f} MB packed")


if __name__ == "__main__":
    main()
