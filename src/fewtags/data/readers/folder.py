"""A folder of images with labels.csv inside it or beside it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewtags.data.catalogue import Catalogue, Names
from fewtags.data.images import IMAGE_SUFFIXES, FolderImages, list_images, path_within
from fewtags.data.labels.csv_file import LabelFile, Problems
from fewtags.data.labels.targets import blank, read_table
from fewtags.errors import BadImage, UserError

LABELS = "labels.csv"
TAKES_LABELS = True
TAKES_TAGS = True


def read(place: str, labels: Path | None = None, seed: int = 1, tags: Sequence[str] = ()) -> Catalogue:
    """See fewtags.data.readers."""
    return read_folder(Path(place), labels, tags)


def read_folder(root: Path, labels: Path | None = None, tags: Sequence[str] = ()) -> Catalogue:
    """The images of a folder with the labels of labels.csv. Raises one UserError with all problems.

    tags: names that need no label; with them there need not be a labels.csv.
    """
    catalogue, problems = scan_folder(root, labels, tags)
    problems.raise_any()
    return catalogue


def scan_folder(root: Path, labels: Path | None = None, tags: Sequence[str] = ()) -> tuple[Catalogue, Problems]:
    """As read_folder, but problems are returned; rows with problems are left out of the catalogue."""
    check_folder(root)
    names, problems = list_images(root), Problems()
    if not names:
        kinds = " ".join(suffix[1:] for suffix in IMAGE_SUFFIXES)
        problems.add(root, f"no image in this folder; fewtags reads {kinds}")
    file = _label_file(root, labels, problems, needed=not tags)
    header = file.header(problems) if file else None
    if file is None or header is None:
        return _catalogue(root, tuple(tags), names, *blank(len(names), len(tags))), problems
    table = read_table(file, header, names, problems, root, lambda name: _why_not(root, name), tags)
    return _catalogue(root, table.tags, names, table.targets, table.roles, table.notes()), problems


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


def _label_file(root: Path, labels: Path | None, problems: Problems, needed: bool) -> LabelFile | None:
    places = [labels] if labels else [root / LABELS, root.resolve().parent / LABELS]
    for place in places:
        if place.is_file():
            return LabelFile(place)
    if labels:
        problems.add(labels, "there is no such file; --labels names a CSV with the tags")
    elif needed:
        remedy = "write one that starts `image,tags`, use --labels, or name tags with --tags"
        problems.add(root, f"no {LABELS} in it or beside it; {remedy}")
    return None


def _catalogue(
    root: Path,
    tags: tuple[str, ...],
    names: list[str],
    targets: NDArray[np.int8],
    roles: NDArray[np.int8],
    notes: tuple[str, ...] = (),
) -> Catalogue:
    return Catalogue(tags, Names(names), targets, roles, FolderImages(root), notes)


def _why_not(root: Path, name: str) -> str:
    """Why no image of the folder has a name that a row gives; empty where the name is simply unknown."""
    try:
        exists = path_within(root, name.strip()).is_file()
    except BadImage as reason:
        return f"image {name[:100]!r}: {reason}"
    except OSError:  # a name no file can have
        return f"no image {name[:100]!r}…; correct the name or delete the row"
    if exists:
        return f"image {name!r} is hidden, in a linked folder or of an unknown kind; move or convert it"
    return ""
