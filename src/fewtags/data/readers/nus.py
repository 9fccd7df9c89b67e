"""NUS-WIDE: the npy arrays of the papers, or the official lists, with the images in Flickr."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewtags.data.catalogue import Catalogue, Names, Role
from fewtags.data.images import FolderImages
from fewtags.data.readers import existing_folder
from fewtags.data.readers.npy import read_arrays
from fewtags.data.text import read_lines
from fewtags.errors import UserError

_LABELS = Path("Groundtruth", "TrainTestLabels")


def read(place: str, labels: Path | None = None, seed: int = 1) -> Catalogue:
    """See fewtags.data.readers."""
    return read_nuswide(existing_folder("nus", place))


def read_nuswide(path: Path) -> Catalogue:
    """Train images are labelled, test images are for testing, in the order of the lists.

    Only the npy files have the papers' splits; the official lists cannot reproduce them.
    """
    if (path / "formatted_train_images.npy").is_file():
        return read_arrays(path, _concepts(path))
    if not (path / _LABELS).is_dir() or not (path / "Flickr").is_dir():
        layouts = "formatted_*.npy with Flickr, or ImageList, Groundtruth/TrainTestLabels and Flickr"
        raise UserError(f"{path}: not NUS-WIDE; it holds either {layouts}")
    tags = _official_tags(path)
    names: list[str] = []
    targets, roles = [], []
    missing = 0
    for part, role in (("Train", Role.LABELLED), ("Test", Role.TEST)):
        listed, table = _read_part(path, tags, part)
        there = np.array([(path / "Flickr" / name).is_file() for name in listed], dtype=bool)
        names += [name for name, kept in zip(listed, there, strict=True) if kept]
        targets.append(table[there])
        roles.append(np.full(there.sum(), role, np.int8))
        missing += int((~there).sum())
    if not names:
        raise UserError(f"{path / 'Flickr'}: holds none of the listed images; put them there as <folder>/<name>")
    notes = (f"{missing} images of the lists are not in {path / 'Flickr'} and were left out",) if missing else ()
    images = FolderImages(path / "Flickr")
    return Catalogue(tags, Names(names), np.concatenate(targets), np.concatenate(roles), images, notes)


def _concepts(path: Path) -> Path | None:
    """The file that lists the tags in their order."""
    places = (path, path / "ConceptsList", path / "Groundtruth")
    return next((file for place in places if (file := place / "Concepts81.txt").is_file()), None)


def _official_tags(path: Path) -> tuple[str, ...]:
    if file := _concepts(path):
        return tuple(line.strip() for line in read_lines(file))
    found = sorted((path / _LABELS).glob("Labels_*_Train.txt"))
    if not found:
        raise UserError(f"{path / _LABELS}: no Labels_<tag>_Train.txt; unpack the ground truth of NUS-WIDE")
    return tuple(file.name.removeprefix("Labels_").removesuffix("_Train.txt") for file in found)


def _read_part(path: Path, tags: tuple[str, ...], part: str) -> tuple[list[str], NDArray[np.int8]]:
    """Names with forward slashes and targets [n, K] of one list."""
    names = [line.strip().replace("\\", "/") for line in read_lines(path / "ImageList" / f"{part}Imagelist.txt")]
    targets = np.zeros((len(names), len(tags)), np.int8)
    for column, tag in enumerate(tags):
        file = path / _LABELS / f"Labels_{tag}_{part}.txt"
        values = [line.strip() for line in read_lines(file)]
        if len(values) != len(names):
            raise UserError(f"{file}: {len(values)} lines for the {len(names)} images of {part}Imagelist.txt")
        if not set(values) <= {"0", "1"}:
            line = next(number for number, value in enumerate(values, 1) if value not in ("0", "1"))
            raise UserError(f"{file}, line {line}: {values[line - 1]!r} is neither 0 nor 1; download it again")
        targets[:, column] = np.array(values, dtype="U1").astype(np.int8)
    return names, targets
