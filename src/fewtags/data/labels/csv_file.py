"""The parser of labels.csv: header and rows with line numbers; problems are collected, none stops the reading."""

import csv
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fewtags.data.catalogue import UNKNOWN
from fewtags.errors import UserError, nearest

KEPT = 1000  # problems kept as text; more are only counted, to save memory
SHOWN = 20  # problems shown in an error message

_CODES = {"1": 1, "0": 0, "": UNKNOWN}
_FORMS = "`image,tags` (tags separated by |) or `image,<tag>,<tag>,…` (cells 1, 0 or empty)"
RESERVED = ("image", "split", "tags")  # columns that are not tags
SINGULAR = ("tag", "label", "labels", "class", "classes")  # a single column of this name should be `tags`


class Problems:
    """Problems of a data set, each with its file and line."""

    def __init__(self) -> None:
        self.count = 0
        self.texts: list[str] = []

    def add(self, where: Path, text: str, line: int | None = None) -> None:
        """Record one problem."""
        self.count += 1
        if len(self.texts) < KEPT:
            place = f"{where}" if line is None else f"{where}, line {line}"
            self.texts.append(f"{place}: {text}")

    def raise_any(self) -> None:
        """Raise one UserError with the first problems, if there are any."""
        if self.count == 1:
            raise UserError(self.texts[0])
        if self.count:
            more = self.count - SHOWN
            rest = [f"… and {more} more; `fewtags check` lists them"] if more > 0 else []
            raise UserError("\n  ".join([f"{self.count} problems:", *self.texts[:SHOWN], *rest]))


@dataclass(frozen=True)
class Header:
    """The columns. The long form has one column `tags`, the wide form one column per tag."""

    width: int
    image: int
    split: int | None
    tags: int | None  # the long form's column
    columns: tuple[int, ...]  # the wide form's
    names: tuple[str, ...]  # the wide form's tags, in the order of columns


class Row(NamedTuple):
    """One row of the file: the labels of one image."""

    line: int
    image: str
    test: bool
    tags: frozenset[str]  # long form: those present
    cells: list[int]  # wide form: one code per tag


class LabelFile:
    """A labels.csv, read line by line as often as needed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def header(self, problems: Problems) -> Header | None:
        """The columns, or None if the header is invalid."""
        before = problems.count
        for line, columns in self._lines(problems):
            if problems.count > before:
                return None  # the header itself was unreadable: this is a later line
            return _header([clean_tag(column) for column in columns], self.path, line, problems)
        if problems.count == before:
            problems.add(self.path, f"the file is empty; its first line must be {_FORMS}")
        return None

    def rows(self, header: Header, problems: Problems) -> Iterator[Row]:
        """The valid rows, in the order of the file."""
        lines = self._lines(problems)
        next(lines, None)  # the header
        for line, fields in lines:
            faults: list[str] = []
            if len(fields) != header.width:
                faults.append(f"{len(fields)} cells, the header has {header.width}; quote names with commas")
            else:
                row = _row(header, line, fields, faults)
                if not faults:
                    yield row
            for fault in faults:
                problems.add(self.path, fault, line)

    def _lines(self, problems: Problems) -> Iterator[tuple[int, list[str]]]:
        """The line number and fields of each row; empty lines are skipped."""
        try:
            with self.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
                reader = csv.reader(file, strict=True)
                while True:
                    line = reader.line_num + 1
                    try:
                        fields = next(reader)
                    except StopIteration:
                        return
                    except csv.Error as error:
                        problems.add(self.path, f"not CSV: {error}; check the quotes", line)
                        continue
                    if not _is_text(fields):
                        problems.add(self.path, "not UTF-8; save the file as `CSV UTF-8`", line)
                    elif fields:
                        yield line, fields
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror or error}") from error


def _is_text(fields: list[str]) -> bool:
    try:
        "".join(fields).encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8 were decoded as lone surrogates
        return False
    return True


@lru_cache(maxsize=4096)  # the same few tags come back in every row
def clean_tag(tag: str) -> str:
    """The tag in Unicode normal form C, without surrounding spaces."""
    return unicodedata.normalize("NFC", tag.strip())


@lru_cache(maxsize=4096)
def tag_error(tag: str) -> str | None:
    """Why a tag is invalid, or None."""
    if not tag:
        return "a tag without a name"
    if "|" in tag or any(unicodedata.category(letter) == "Cc" for letter in tag):
        return f"tag {tag!r} contains | or a control character; rename it"
    return None


def _header(columns: list[str], path: Path, line: int, problems: Problems) -> Header | None:
    def place(name: str) -> int | None:
        return columns.index(name) if name in columns else None

    image, split, tags = place("image"), place("split"), place("tags")
    if image is None:
        image = place("id")  # what vectors are called by
    others = [column for column, name in enumerate(columns) if column not in (image, split, tags)]
    faults: list[str] = []
    if image is None:
        semicolons = "; separate the columns with commas" if len(columns) == 1 and ";" in columns[0] else ""
        hint = semicolons or nearest("image", columns)
        faults.append(f"the header {','.join(columns)!r} has no column `image`{hint}; it must be {_FORMS}")
    elif tags is not None:
        faults += [f"column {columns[c]!r} beside `tags`; remove it, the form is {_FORMS}" for c in others]
    elif not others:
        faults.append(f"the header has no column for tags; it must be {_FORMS}")
    elif len(others) == 1 and columns[others[0]].lower() in (*SINGULAR, "tags"):
        faults.append(f"column {columns[others[0]]!r}: call it `tags`; the header must be {_FORMS}")
    else:
        faults += [f"{fault} in the header" for c in others if (fault := tag_error(columns[c]))]
        repeated = sorted({columns[c] for c in others if columns[c] and columns.count(columns[c]) > 1})
        faults += [f"the header names {name!r} more than once" for name in repeated]
    for fault in faults:
        problems.add(path, fault, line)
    if faults or image is None:
        return None
    wide = tuple(others) if tags is None else ()
    return Header(len(columns), image, split, tags, wide, tuple(columns[c] for c in wide))


def _row(header: Header, line: int, fields: list[str], faults: list[str]) -> Row:
    """One row; its problems are added to faults."""
    split = "train" if header.split is None else fields[header.split].strip() or "train"
    if split not in ("train", "test"):
        faults.append(f"split {split!r}; write train or test{nearest(split, ['train', 'test'])}")
    tags: frozenset[str] = frozenset()
    cells: list[int] = []
    if header.tags is not None:
        text = fields[header.tags].strip()
        tags = frozenset(clean_tag(tag) for tag in text.split("|")) if text else tags
        faults += [f"{fault} in {text!r}" for tag in sorted(tags) if (fault := tag_error(tag))]
    else:
        texts = [fields[column].strip() for column in header.columns]
        cells = [_CODES[text] for text in texts if text in _CODES]
        if len(cells) < len(texts):
            for tag, text in zip(header.names, texts, strict=True):
                if text not in _CODES:
                    faults.append(f"cell {text!r} under {tag!r}; write 1, 0 or nothing (unknown)")
    return Row(line, fields[header.image], split == "test", tags, cells)
