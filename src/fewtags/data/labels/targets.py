"""Targets and roles of named images from the rows of a label file: one rule for repeated rows, one for names."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewtags.data.catalogue import UNKNOWN, Role
from fewtags.data.labels.csv_file import SHOWN, Header, LabelFile, Problems, Row
from fewtags.errors import nearest

_HINTED = 2000  # images; in larger folders no similar name is suggested for a missing one


def merge(before: ArrayLike, new: ArrayLike) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Two rows of codes [K] about one image: what they say together, and the columns that contradict each other.

    A second row may extend the first, not contradict it.
    """
    one, other = np.asarray(before, np.int8), np.asarray(new, np.int8)
    clash = (one != other) & (one != UNKNOWN) & (other != UNKNOWN)
    return np.maximum(one, other), np.flatnonzero(clash)  # UNKNOWN is below 0 and 1


def blank(images: int, tags: int) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Targets [N, K] and roles [N] of images nobody has looked at."""
    return np.full((images, tags), UNKNOWN, np.int8), np.full(images, Role.UNLABELLED, np.int8)


def read_table(
    file: LabelFile,
    header: Header,
    names: Sequence[str],
    problems: Problems,
    where: Path,
    why_not: Callable[[str], str] = lambda name: "",
    tags: Sequence[str] = (),
) -> "Table":
    """All rows of a file, laid over the names of the images in `where`; `why_not` may say more of an unknown name.

    tags: names beside those of the file. A file in the wide form names tags by its header alone.
    """
    table = Table(file, header, names, problems, where, why_not, tags)
    for row in file.rows(header, problems):
        table.add(row)
    if not problems.count and not table.tags:
        problems.add(file.path, "no row names a tag; write some, separated by |, or name tags with --tags")
    return table


class Table:
    """Targets and roles of the images of a folder, filled row by row."""

    def __init__(
        self,
        file: LabelFile,
        header: Header,
        names: Sequence[str],
        problems: Problems,
        where: Path,
        why_not: Callable[[str], str],
        tags: Sequence[str] = (),
    ) -> None:
        self.file, self.problems, self.names = file, problems, names
        self._where, self._reason = where, why_not
        self.index = _Index(where.resolve().name, names)
        self.long = header.tags is not None
        # A first pass for the tags of the long form keeps memory at one byte per cell.
        unseen = Problems()
        found = {tag for row in file.rows(header, unseen) for tag in row.tags} if self.long else ()
        own = tuple(sorted(found)) if self.long else header.names
        self.tags = (*own, *(tag for tag in tags if tag not in own))
        self.own = len(own)  # of the file; nobody has looked for the others
        self.column = {tag: column for column, tag in enumerate(self.tags)}
        self.targets, self.roles = blank(len(names), len(self.tags))
        self.lines = np.zeros(len(names), np.int32)  # the first line with this image, 0 for none
        self.merged = 0

    def add(self, row: Row) -> None:
        """Add a row to the table, or record its problem."""
        number = self.index.find(row.image)
        if number is None:
            self.problems.add(self.file.path, self._missing_reason(row.image), row.line)
            return
        cells = self._cells(row)
        # In the long form an empty cell means that no tag applies, so every row is a label.
        known = self.long or any(code != UNKNOWN for code in row.cells)
        role = Role.TEST if row.test else Role.LABELLED if known else Role.UNLABELLED
        if self.lines[number]:
            self._merge(number, row, cells, role)
            return
        self.lines[number], self.roles[number] = row.line, role
        self.targets[number] = cells

    def _cells(self, row: Row) -> NDArray[np.int8]:
        cells = np.full(len(self.tags), UNKNOWN, np.int8)
        if not self.long:
            cells[: self.own] = row.cells
            return cells
        cells[: self.own] = 0
        cells[[self.column[tag] for tag in row.tags]] = 1
        return cells

    def _merge(self, number: int, row: Row, cells: NDArray[np.int8], role: Role) -> None:
        """A second row of an image may extend the first, not contradict it."""
        first = self.lines[number]
        merged, clash = merge(self.targets[number], cells)
        if (self.roles[number] == Role.TEST) != (role == Role.TEST):
            self.problems.add(self.file.path, f"{row.image!r}: another split than in line {first}", row.line)
        elif len(clash):
            tags = ", ".join(self.tags[column] for column in clash[:3])
            text = f"{row.image!r}: disagrees with line {first} about {tags}; keep one of them"
            self.problems.add(self.file.path, text, row.line)
        else:
            self.merged += 1
            self.targets[number] = merged
            self.roles[number] = min(self.roles[number], role)  # LABELLED is below UNLABELLED

    def _missing_reason(self, name: str) -> str:
        if not name.strip():
            return "a row without an image; write its name or delete the row"
        if reason := self._reason(name):
            return reason
        hint = self._hint(name) or "; correct the name or delete the row"
        return f"no image {name!r} in {self._where}{hint}"

    def _hint(self, name: str) -> str:
        """A suggestion for a wrong name, if the problem will be shown and the folder is small."""
        if self.problems.count >= SHOWN or len(self.names) > _HINTED:
            return ""
        same = [known for known in self.names if known.casefold() == name.casefold()]
        return nearest(name, same or list(self.names))

    def notes(self) -> tuple[str, ...]:
        """Messages to the user about this file."""
        notes = []
        if self.merged:
            notes.append(f"{self.file.path}: {self.merged} repeated rows agree and were merged")
        if alike := _case_variants(self.tags):
            notes.append(f"{self.file.path}: tags that differ only in capitals: {', '.join(alike)}")
        return tuple(notes)


class _Index:
    """Finds the number of an image by name, with any kind of slashes and Unicode normal form."""

    def __init__(self, folder: str, names: Sequence[str]) -> None:
        self.folder = folder
        self.numbers = {name: number for number, name in enumerate(names)}
        # Only names not in normal form C need their own entry.
        self.composed = {
            composed: number
            for number, name in enumerate(names)
            if (composed := unicodedata.normalize("NFC", name)) != name
        }

    def find(self, name: str) -> int | None:
        """The number of the image, or None."""
        if name in self.numbers:
            return self.numbers[name]
        slashed = name.strip().replace("\\", "/").removeprefix("./")
        for spelling in (slashed, slashed.removeprefix(f"{self.folder}/")):
            composed = unicodedata.normalize("NFC", spelling)
            for table, key in ((self.numbers, spelling), (self.numbers, composed), (self.composed, composed)):
                if key in table:
                    return table[key]
        return None


def _case_variants(tags: Iterable[str]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for tag in tags:
        groups.setdefault(tag.casefold(), []).append(tag)
    return ["/".join(group) for group in groups.values() if len(group) > 1]
