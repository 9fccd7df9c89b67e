"""PASCAL VOC 2012: ImageSets/Main/<tag>_{train,val}.txt and JPEGImages."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewtags.data.catalogue import Catalogue, Names, Role
from fewtags.data.images import FolderImages
from fewtags.data.readers import existing_folder
from fewtags.data.text import read_lines
from fewtags.errors import UserError

_LISTS = Path("ImageSets", "Main")


def read(place: str, labels: Path | None = None, seed: int = 1) -> Catalogue:
    """See fewtags.data.readers."""
    return read_voc(existing_folder("voc", place))


def read_voc(path: Path) -> Catalogue:
    """The official train (labelled) and val (test) splits of VOC.

    Names and tags are sorted, as in the papers, so that a seed gives the papers' split. Entry 1
    means present; -1 and 0 (only difficult objects) mean absent.
    """
    places = [path / "VOCdevkit" / "VOC2012", path / "VOC2012", path]
    root = next((place for place in places if (place / _LISTS).is_dir()), None)
    if root is None or not (root / "JPEGImages").is_dir():
        raise UserError(f"{path}: no VOC2012 with ImageSets/Main and JPEGImages in it; name the folder that holds it")
    tags = tuple(sorted(file.name.removesuffix("_train.txt") for file in (root / _LISTS).glob("*_train.txt")))
    if not tags:
        raise UserError(f"{root / _LISTS}: no <tag>_train.txt; unpack the archive of VOC 2012 again")
    names: list[str] = []
    targets, roles = [], []
    for part, role in (("train", Role.LABELLED), ("val", Role.TEST)):
        ids, table = _read_part(root / _LISTS, tags, part)
        names += [f"{image}.jpg" for image in ids]
        targets.append(table)
        roles.append(np.full(len(ids), role, np.int8))
    return Catalogue(
        tags, Names(names), np.concatenate(targets), np.concatenate(roles), FolderImages(root / "JPEGImages")
    )


def _read_part(folder: Path, tags: tuple[str, ...], part: str) -> tuple[list[str], NDArray[np.int8]]:
    """Sorted ids of the images that have a tag, and their targets [n, K]."""
    columns = [_read_list(folder / f"{tag}_{part}.txt") for tag in tags]
    listed = sorted(columns[0])
    for tag, column in zip(tags, columns, strict=True):
        if column.keys() != columns[0].keys():
            other = f"{tags[0]}_{part}.txt"
            raise UserError(f"{folder / f'{tag}_{part}.txt'}: lists other images than {other}; unpack VOC again")
    table = np.array([[column[image] for column in columns] for image in listed], np.int8)
    table = table.reshape(len(listed), len(tags))
    some = np.flatnonzero(table.any(axis=1))
    return [listed[row] for row in some], table[some]


def _read_list(file: Path) -> dict[str, int]:
    """Image id -> 1 present, 0 absent."""
    entries: dict[str, int] = {}
    for number, line in enumerate(read_lines(file), 1):
        fields = line.split()
        if len(fields) != 2 or fields[1] not in ("1", "0", "-1"):
            raise UserError(f"{file}, line {number}: {line!r} is not `<image> 1|0|-1`; unpack VOC again")
        entries[fields[0]] = int(fields[1] == "1")
    return entries
