"""How names are written: apart or in one, British or American, singular or plural."""

import re
import unicodedata
from collections.abc import Iterator, Mapping

LONGEST = 200  # characters of a name; a longer one names nothing
MOST_WORDS = 12  # of a name, from its end
LONGEST_WORD = 40  # letters of a word that may be two in one
_SPELLINGS = {  # British -> American, where no rule helps
    "aeroplane": "airplane", "aluminium": "aluminum", "axe": "ax", "cheque": "check", "cosy": "cozy",
    "doughnut": "donut", "draught": "draft", "gaol": "jail", "grey": "gray", "jewellery": "jewelry", "kerb": "curb",
    "mould": "mold", "moustache": "mustache", "omelette": "omelet", "plough": "plow", "programme": "program",
    "pyjama": "pajama", "pyjamas": "pajamas", "racquet": "racket", "sceptic": "skeptic", "skilful": "skillful",
    "storey": "story", "sulphur": "sulfur", "tyre": "tire", "whisky": "whiskey", "woollen": "woolen",
    "yoghourt": "yogurt", "yoghurt": "yogurt",
}  # fmt: skip
_AMERICAN = {american: british for british, american in _SPELLINGS.items()}
_ENDS = (  # British -> American ends of words
    ("our", "or"), ("tre", "ter"), ("bre", "ber"), ("ence", "ense"), ("ise", "ize"), ("yse", "yze"), ("logue", "log"),
    ("ller", "ler"), ("lling", "ling"), ("lled", "led"), ("aemia", "emia"), ("oured", "ored"), ("ourful", "orful"),
)  # fmt: skip
_PLURALS = (
    ("men", "man"), ("ies", "y"), ("ves", "f"), ("ves", "fe"), ("ches", "ch"), ("shes", "sh"), ("xes", "x"),
    ("zzes", "z"), ("zes", "z"), ("ses", "s"), ("oes", "o"), ("s", ""),
)  # fmt: skip
_EVERYDAY = {  # what photos are tagged with, and the noun that is meant first
    "tv": "television", "telly": "television", "bike": "bicycle", "plane": "airplane", "phone": "telephone",
    "mobile": "cellphone", "smartphone": "cellphone", "fridge": "refrigerator", "people": "person", "auto": "car",
    "pc": "personal computer", "veggie": "vegetable", "kitty": "cat", "doggy": "dog", "lorry": "truck",
}  # fmt: skip


def plain(name: str) -> str:
    """Lower case without accents, words separated by single spaces.

    >>> plain("Café_au-Lait")
    'cafe au lait'
    """
    apart = unicodedata.normalize("NFKD", name)
    letters = "".join(letter for letter in apart if not unicodedata.combining(letter)).casefold()
    return re.sub(r"[\W_]+", " ", re.sub(r"['’]s\b", "", letters)).strip()


def readings(name: str) -> list[list[str]]:
    """The words of a name: taken apart at capitals, as it stands, without digits; each way once.

    >>> readings("DiningTable2")
    [['dining', 'table2'], ['diningtable2'], ['dining', 'table'], ['diningtable']]
    """
    at_capitals = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    spelled = [plain(at_capitals), plain(name)]
    spelled += [" ".join(re.sub(r"\d+", " ", text).split()) for text in spelled]
    return [text.split()[-MOST_WORDS:] for text in dict.fromkeys(spelled) if text]


def american(word: str) -> str:
    """A word in American spelling, for all we know.

    >>> american("colour"), american("tyre"), american("dog")
    ('color', 'tire', 'dog')
    """
    if word in _SPELLINGS:
        return _SPELLINGS[word]
    return next((word.removesuffix(a) + b for a, b in _ENDS if word.endswith(a) and len(word) > len(a) + 1), word)


def british(word: str) -> list[str]:
    """What a word may be in British spelling; most of it are no words at all."""
    found = [_AMERICAN[word]] if word in _AMERICAN else []
    return found + [word.removesuffix(b) + a for a, b in _ENDS if word.endswith(b) and len(word) > len(b) + 1]


def spellings(words: list[str]) -> Iterator[list[str]]:
    """Some words as they stand, in American, in British spelling."""
    yield words
    ours = [american(word) for word in words]
    if ours != words:
        yield ours
    for place, word in enumerate(words):
        yield from ([*words[:place], other, *words[place + 1 :]] for other in british(word))


def singulars(word: str, irregular: Mapping[str, str]) -> list[str]:
    """What a word may be in the singular, itself first."""
    made = [word.removesuffix(a) + b for a, b in _PLURALS if word.endswith(a) and len(word) > len(a) + 1]
    return list(dict.fromkeys([word, irregular.get(word, word), *made]))


def everyday(words: list[str]) -> list[str]:
    """The noun meant by a short form; anything else as it stands.

    >>> everyday(["tv"]), everyday(["bikes"]), everyday(["tv", "tower"])
    (['television'], ['bicycle'], ['tv', 'tower'])
    """
    if len(words) != 1:
        return words
    meant = (_EVERYDAY.get(one) for one in singulars(words[0], {}))
    return next((one.split() for one in meant if one), words)


def stems(word: str) -> list[str]:
    """A word, and the nouns that may be in an adjective: `potted` -> `pot`."""
    found = [word]
    if word.endswith("ed") and len(word) > 4:
        found += [word[:-2], word[:-1]]
        if word[-3] == word[-4]:
            found.append(word[:-3])
    return found


def splits(word: str, least: int) -> Iterator[list[str]]:
    """A word as two, each of at least so many letters; a very long one is left whole."""
    if len(word) <= LONGEST_WORD:
        yield from ([word[:place], word[place:]] for place in range(least, len(word) - least + 1))
