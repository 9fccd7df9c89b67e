"""A folder of images with labels.csv inside it or beside it."""

import unicodedata
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewtags.data.catalogue import UNKNOWN, Catalogue, Names, Role
from fewtags.data.images import IMAGE_SUFFIXES, FolderImages, list_images, path_within
from fewtags.data.labels.csv_file import SHOWN, Header, LabelFile, Problems, Row
from fewtags.errors import BadImage, UserError, nearest

LABELS = "labels.csv"
TAKES_LABELS = True
_HINTED = 2000  # images; in larger folders no similar name is suggested for a missing one


def read(place: str, labels: Path | None = None, seed: int = 1) -> Catalogue:
    """See fewtags.data.readers."""
    return read_folder(Path(place), labels)


def read_folder(root: Path, labels: Path | None = None) -> Catalogue:
    """The images of a folder with the labels of labels.csv. Raises one UserError with all problems."""
    catalogue, problems = scan_folder(root, labels)
    problems.raise_any()
    return catalogue


def scan_folder(root: Path, labels: Path | None = None) -> tuple[Catalogue, Problems]:
    """As read_folder, but problems are returned; rows with problems are left out of the catalogue."""
    check_folder(root)
    names, problems = list_images(root), Problems()
    if not names:
        kinds = " ".join(suffix[1:] for suffix in IMAGE_SUFFIXES)
        problems.add(root, f"no image in this folder; fewtags reads {kinds}")
    file = _label_file(root, labels, problems)
    header = file.header(problems) if file else None
    if file is None or header is None:
        return _catalogue(root, (), names, *_blank(len(names), 0)), problems
    table = _Table(root, file, header, names, problems)
    for row in file.rows(header, problems):
        table.add(row)
    if not problems.count and not (table.roles == Role.LABELLED).any():
        problems.add(file.path, "no labelled training image; write a row with tags for some of them")
    elif not problems.count and not table.tags:
        problems.add(file.path, "no row names a tag; write some, separated by |")
    notes = table.notes()
    return _catalogue(root, table.tags, names, table.targets, table.roles, notes), problems


def check_folder(root: Path) -> None:
    """Raise UserError unless root is a folder that can be listed."""
    try:
        next(root.iterdir(), None)
    except NotADirectoryError as error:
        raise UserError(f"{root}: is a file; name the folder that holds the images") from error
    except FileNotFoundError as error:
        raise UserError(f"{root}: there is no such folder; check the spelling") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{root}: cannot be read: {error}") from error


def _label_file(root: Path, labels: Path | None, problems: Problems) -> LabelFile | None:
    places = [labels] if labels else [root / LABELS, root.resolve().parent / LABELS]
    for place in places:
        if place.is_file():
            return LabelFile(place)
    if labels:
        problems.add(labels, "there is no such file; --labels names a CSV with the tags")
    else:
        problems.add(root, f"no {LABELS} in it or beside it; write one that starts `image,tags` or use --labels")
    return None


def _blank(images: int, tags: int) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Targets [N, K] and roles [N] of unlabelled images."""
    return np.full((images, tags), UNKNOWN, np.int8), np.full(images, Role.UNLABELLED, np.int8)


def _catalogue(
    root: Path,
    tags: tuple[str, ...],
    names: list[str],
    targets: NDArray[np.int8],
    roles: NDArray[np.int8],
    notes: tuple[str, ...] = (),
) -> Catalogue:
    return Catalogue(tags, Names(names), targets, roles, FolderImages(root), notes)


class _Table:
    """Targets and roles of the images of a folder, filled row by row."""

    def __init__(self, root: Path, file: LabelFile, header: Header, names: list[str], problems: Problems) -> None:
        self.root, self.file, self.problems = root, file, problems
        self.names = names
        self.index = _Index(root.resolve().name, names)
        self.long = header.tags is not None
        # A first pass for the tags of the long form keeps memory at one byte per cell.
        unseen = Problems()
        found = {tag for row in file.rows(header, unseen) for tag in row.tags} if self.long else ()
        self.tags = tuple(sorted(found)) if self.long else header.names
        self.column = {tag: column for column, tag in enumerate(self.tags)}
        self.targets, self.roles = _blank(len(names), len(self.tags))
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
        if not self.long:
            return np.array(row.cells, np.int8)
        cells = np.zeros(len(self.tags), np.int8)
        cells[[self.column[tag] for tag in row.tags]] = 1
        return cells

    def _merge(self, number: int, row: Row, cells: NDArray[np.int8], role: Role) -> None:
        """A second row of an image may extend the first, not contradict it."""
        before, first = self.targets[number], self.lines[number]
        clash = (before != cells) & (before != UNKNOWN) & (cells != UNKNOWN)
        if (self.roles[number] == Role.TEST) != (role == Role.TEST):
            self.problems.add(self.file.path, f"{row.image!r}: another split than in line {first}", row.line)
        elif clash.any():
            tags = ", ".join(self.tags[column] for column in np.flatnonzero(clash)[:3])
            text = f"{row.image!r}: disagrees with line {first} about {tags}; keep one of them"
            self.problems.add(self.file.path, text, row.line)
        else:
            self.merged += 1
            self.targets[number] = np.maximum(before, cells)  # UNKNOWN is below 0 and 1
            self.roles[number] = min(self.roles[number], role)  # LABELLED is below UNLABELLED

    def _missing_reason(self, name: str) -> str:
        if not name.strip():
            return "a row without an image; write its name or delete the row"
        try:
            exists = path_within(self.root, name.strip()).is_file()
        except BadImage as reason:
            return f"image {name[:100]!r}: {reason}"
        except OSError:  # not a valid file name
            return f"no image {name[:100]!r}…; correct the name or delete the row"
        if exists:
            return f"image {name!r} is hidden, in a linked folder or of an unknown kind; move or convert it"
        hint = self._hint(name) or "; correct the name or delete the row"
        return f"no image {name!r} in {self.root}{hint}"

    def _hint(self, name: str) -> str:
        """A suggestion for a wrong name, if the problem will be shown and the folder is small."""
        if self.problems.count >= SHOWN or len(self.names) > _HINTED:
            return ""
        same = [known for known in self.names if known.casefold() == name.casefold()]
        return nearest(name, same or self.names)

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

    def __init__(self, folder: str, names: list[str]) -> None:
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
