"""A person's own words for tags: a CSV file, text such as `sofa=couch|settee; crane=-crane (wading bird)`, or `off`."""

import csv
import io
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fewtags.errors import UserError, nearest
from fewtags.words.match import match
from fewtags.words.spelling import plain
from fewtags.words.table import word_table

MOST_BYTES = 1_000_000  # of a file of words
_LONGEST_PATH = 4096
_HEADER = "tag,words\n"
OFF = "off"  # no words for any tag
_FORM = "off, a CSV file with the header `tag,words`, or text such as `sofa=couch|settee; tv=television`"


def parse_words(text: str, tags: Sequence[str]) -> dict[str, list[str]]:
    """What `--words` was given, as tag -> words; a word with a minus is a class that is switched off, `-` alone is all.

    >>> parse_words("sofa=couch|-studio couch; tv=-", ["sofa", "tv"])
    {'sofa': ['couch', '-studio couch'], 'tv': ['-']}
    """
    path = _as_path(text)
    if path is None and text.strip() == OFF:
        return {tag: ["-"] for tag in tags}
    said = _of_table("--words", text) if text.startswith(_HEADER) else _of_text(text)
    entries = _of_file(path) if path else said
    known = {_clean(tag): tag for tag in tags}
    found: dict[str, list[str]] = {}
    for where, tag, words in entries:
        if tag not in known:
            raise UserError(f"{where}: there is no tag {tag!r}{nearest(tag, list(known))}")
        if known[tag] in found:
            raise UserError(f"{where}: {tag!r} comes twice; write all its words in one place, separated by |")
        found[known[tag]] = _words(where, tag, words)
    return found


def own_names(words: Sequence[str]) -> list[str]:
    """The words for a tag that switch nothing off."""
    return [word for word in words if not word.startswith("-")]


def words_text(own: Mapping[str, Sequence[str]]) -> str:
    """What `parse_words` reads these words from; a table where a name has the signs of the other form."""
    rows = [(tag, "|".join(words)) for tag, words in own.items()]
    if not any(set(tag) & set(";=") or set(words) & set(";\r\n") for tag, words in rows):
        return "; ".join(f"{tag}={words}" for tag, words in rows)
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([_HEADER.strip().split(","), *rows])
    return table.getvalue()


def _clean(name: str) -> str:
    return unicodedata.normalize("NFC", name.strip())


def _words(where: str, tag: str, text: str) -> list[str]:
    """The words of one tag, checked: what is switched off must be a class."""
    words = [_clean(word) for word in text.split("|")]
    words = [f"-{word[1:].strip()}" if word.startswith("-") else word for word in words if word]
    if not words:
        raise UserError(f"{where}: {tag!r} has no words; write some, or - to learn it from labels alone")
    if "-" in words and len(words) > 1:
        raise UserError(f"{where}: {tag!r} has - and other words; - alone switches everything off")
    table = word_table()
    for word in words:
        if word.startswith("-") and word != "-" and plain(word) not in table.by_name:
            found = [name.partition(" (")[0] for name, _ in match(tag).classes]
            hint = nearest(word[1:], found) or nearest(word[1:], table.class_names)
            raise UserError(
                f"{where}: no class is called {word[1:]!r}{hint}; `fewtags words {tag}` lists what it finds"
            )
    return words


def _as_path(text: str) -> Path | None:
    """The file that the text names, if it names one."""
    try:
        if not text.strip() or len(text) > _LONGEST_PATH or not Path(text).exists():
            return None
    except (OSError, ValueError):  # no name that a file could have
        return None
    path = Path(text)
    if not path.is_file():
        raise UserError(f"{path}: not a file; --words takes {_FORM}")
    if path.stat().st_size > MOST_BYTES:
        raise UserError(f"{path}: larger than {MOST_BYTES // 1_000_000} MB; is it a list of words?")
    return path


def _of_text(text: str) -> Iterator[tuple[str, str, str]]:
    """Where, tag and words of each part between semicolons."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not parts:
        raise UserError(f"--words is empty; it takes {_FORM}")
    for part in parts:
        tag, equals, words = part.partition("=")
        if not equals:
            no_file = "there is no such file, and it" if len(parts) == 1 else "it"
            raise UserError(f"--words {part!r}: {no_file} has no =; --words takes {_FORM}")
        yield f"--words {part!r}", _clean(tag), words


def _of_file(path: Path) -> Iterator[tuple[str, str, str]]:
    """Where, tag and words of each row."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8; save the file as `CSV UTF-8`") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    yield from _of_table(str(path), text)


def _of_table(path: str, text: str) -> Iterator[tuple[str, str, str]]:
    """The same of a file's content."""
    rows = _rows(path, text)
    line, header = next(rows, (1, []))
    columns = [_clean(column).lower() for column in header]
    if not columns:
        raise UserError(f"{path}: the file is empty; its first line must be `tag,words`")
    for needed in ("tag", "words"):
        if needed not in columns:
            semicolons = "; separate the columns with commas" if len(columns) == 1 and ";" in columns[0] else ""
            hint = semicolons or nearest(needed, columns)
            raise UserError(f"{path}, line {line}: no column `{needed}`{hint}; the header must be `tag,words`")
    empty = True
    for line, fields in rows:
        where = f"{path}, line {line}"
        if len(fields) != len(columns):
            remedy = "separate words with |, quote names with commas"
            raise UserError(f"{where}: {len(fields)} cells, the header has {len(columns)}; {remedy}")
        yield where, _clean(fields[columns.index("tag")]), fields[columns.index("words")]
        empty = False
    if empty:
        raise UserError(f"{path}: no rows; write one such as `sofa,couch|settee`")


def _rows(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the first line and the fields of each row; empty lines are skipped."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(f"{path}, line {line}: not CSV: {error}; check the quotes") from error
        if any(field.strip() for field in fields):
            yield line, fields
