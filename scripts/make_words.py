"""Make the table of words: which nouns lead to which of the 1,000 ImageNet classes, from WordNet 3.0.

    python scripts/make_words.py WORDNET SYNSETS src/fewtags/words/wordnet.json.gz

WORDNET is the folder of WordNet 3.0 with data.noun, index.noun and noun.exc (Debian: package wordnet-base, folder
/usr/share/wordnet); SYNSETS lists the classes in the order of the networks' outputs, one synset such as n01440764 per
line (the package timm has it as timm/data/_info/imagenet_synsets.txt). Kept are the synsets that have classes below
them, and those that are close to one with few; the rest of WordNet says nothing about what a network can see.
"""

import argparse
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

FEW = 20  # classes below an ancestor that is near enough to say something
NEAR = 4  # steps up to such an ancestor
PARTS = ("%p", "#p")  # part of, has part


class Synset(NamedTuple):
    """A meaning."""

    lemmas: list[str]
    parents: list[str]
    parts: list[str]


def read_synsets(file: Path) -> dict[str, Synset]:
    """Offset -> synset, of data.noun."""
    found = {}
    for line in file.read_text(encoding="latin-1").splitlines():
        if line.startswith("  "):
            continue  # the licence
        fields = line.partition(" | ")[0].split()
        count = int(fields[3], 16)
        lemmas = [fields[4 + 2 * place] for place in range(count)]
        start = 5 + 2 * count
        pointers = [fields[start + 4 * n : start + 4 * n + 3] for n in range(int(fields[start - 1]))]
        parents = [target for sign, target, kind in pointers if sign in ("@", "@i") and kind == "n"]
        parts = [target for sign, target, kind in pointers if sign in PARTS and kind == "n"]
        found[fields[0]] = Synset(lemmas, parents, parts)
    return found


def read_senses(file: Path) -> dict[str, list[str]]:
    """Lemma -> its synsets, the most frequent meaning first, of index.noun."""
    found = {}
    for line in file.read_text(encoding="latin-1").splitlines():
        if not line.startswith("  "):
            fields = line.split()
            found[fields[0]] = fields[-int(fields[2]) :]
    return found


def ancestors(start: str, synsets: dict[str, Synset], most: int) -> dict[str, int]:
    """Synset -> steps up to it, itself included."""
    found, layer = {start: 0}, [start]
    for steps in range(1, most + 1):
        layer = [parent for one in layer for parent in synsets[one].parents if parent not in found]
        found |= dict.fromkeys(layer, steps)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("wordnet", "synsets", "out"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    synsets, senses = read_synsets(given.wordnet / "data.noun"), read_senses(given.wordnet / "index.noun")
    classes = [line.strip().removeprefix("n") for line in given.synsets.read_text().split()]
    below: dict[str, set[int]] = defaultdict(set)
    for number, one in enumerate(classes):
        for ancestor in ancestors(one, synsets, 100):
            below[ancestor].add(number)

    def is_near(one: str) -> bool:
        return any(0 < len(below[up]) <= FEW for up in ancestors(one, synsets, NEAR) if up in below)

    kept = [one for one in sorted(synsets) if one in below or is_near(one) or any(p in below for p in synsets[one].parts)]
    place = {one: number for number, one in enumerate(kept)}
    words = {lemma: [place.get(one, -1) for one in some] for lemma, some in senses.items()}
    words = {lemma: some for lemma, some in words.items() if any(number >= 0 for number in some)}
    irregular = {}
    for line in (given.wordnet / "noun.exc").read_text(encoding="latin-1").splitlines():
        plural, *singular = line.split()
        if singular and singular[0] in words:
            irregular[plural] = singular[0]
    table = {
        "classes": [place[one] for one in classes],
        "names": [synsets[one].lemmas[0].replace("_", " ") for one in classes],
        "parents": [[place[up] for up in synsets[one].parents if up in place] for one in kept],
        "parts": {place[one]: near for one in kept if (near := [place[p] for p in synsets[one].parts if p in place])},
        "words": words,
        "irregular": irregular,
    }
    content = json.dumps(table, separators=(",", ":"), ensure_ascii=True).encode()
    given.out.write_bytes(gzip.compress(content, 9, mtime=0))
    print(f"{len(kept):,} synsets, {len(words):,} words, {len(content) / 1e6:.1f} MB, {given.out.stat().st_size / 1e6:.2f} MB packed")


if __name__ == "__main__":
    main()
