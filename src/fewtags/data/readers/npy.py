"""The common format of the papers: formatted_{train,val}_{images,labels}.npy."""

from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.typing import NDArray

from fewtags.data.catalogue import Catalogue, Names, Role
from fewtags.data.images import FolderImages, path_within
from fewtags.data.readers import existing_folder
from fewtags.data.text import read_lines
from fewtags.errors import BadImage, UserError

_STEP = 65536  # rows converted at a time: float64 labels of a million images are 640 MB


def read(place: str, labels: Path | None = None, seed: int = 1) -> Catalogue:
    """See fewtags.data.readers."""
    return read_arrays(existing_folder("npy", place))


def read_arrays(path: Path, tags_file: Path | None = None) -> Catalogue:
    """Train rows are labelled, val rows are test images, both in the order of the files.

    Names are relative to path, or to a usual sub-folder (Flickr, images, …) if they are found there.
    tags_file, or tags.txt beside the arrays, lists the tags, one per line.
    """
    names: list[str] = []
    targets, roles = [], []
    for part, role in (("train", Role.LABELLED), ("val", Role.TEST)):
        images = _read_names(path / f"formatted_{part}_images.npy")
        labels = _read_labels(path / f"formatted_{part}_labels.npy", len(images))
        prefix = _prefix(path, images, part)
        names += [prefix + name for name in images]
        targets.append(labels)
        roles.append(np.full(len(images), role, np.int8))
    if targets[0].shape[1] != targets[1].shape[1]:
        counts = f"{targets[0].shape[1]} and {targets[1].shape[1]}"
        raise UserError(f"{path}: train and val labels have {counts} columns; they must have one per tag")
    tags = _read_tags(tags_file or path / "tags.txt", targets[0].shape[1])
    return Catalogue(tags, Names(names), np.concatenate(targets), np.concatenate(roles), FolderImages(path))


def _load(file: Path) -> NDArray[np.generic]:
    """The memory-mapped array: a wrong size in the header cannot fill the memory."""
    if not file.is_file():
        raise UserError(f"{file}: there is no such file; npy:PATH needs formatted_{{train,val}}_{{images,labels}}.npy")
    try:
        return np.lib.format.open_memmap(file, mode="r")  # never unpickles
    except (OSError, ValueError, EOFError, SyntaxError, TypeError, OverflowError, TokenError) as error:
        if "object" in str(error):
            raise UserError(f"{file}: holds Python objects, which could run code. {_conversion(file)}") from error
        raise UserError(f"{file}: not a .npy array ({str(error)[:100]}); write it with numpy.save") from error


def _conversion(file: Path) -> str:
    kind = "str" if "images" in file.name else "'int8'"
    return (
        'If you trust it, convert it once: python -c "import numpy as np; '
        f"np.save('{file.name}', np.load('{file.name}', allow_pickle=True).astype({kind}))\""
    )


def _read_names(file: Path) -> list[str]:
    array = _load(file)
    if array.ndim != 1 or array.dtype.kind not in "US" or not len(array):
        raise UserError(f"{file}: {array.dtype} {array.shape}; must be a list of names. {_conversion(file)}")
    try:
        return [str(name) if array.dtype.kind == "U" else name.decode() for name in array]
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: a name is not UTF-8; save the array as text (dtype str)") from error


def _read_labels(file: Path, count: int) -> NDArray[np.int8]:
    """[n, K] of 0 and 1."""
    array = _load(file)
    if array.ndim != 2 or array.dtype.kind not in "biuf" or len(array) != count or not array.shape[1]:
        raise UserError(f"{file}: {array.dtype} {array.shape}; must be {count} rows of numbers, one column per tag")
    targets = np.empty(array.shape, np.int8)
    for start in range(0, count, _STEP):
        values = np.asarray(array[start : start + _STEP])
        if wrong := np.argwhere((values != 0) & (values != 1))[:1].tolist():
            row, column = wrong[0]
            raise UserError(f"{file}: row {start + row}, column {column}: {values[row, column]}; write 0 or 1")
        targets[start : start + _STEP] = values
    return targets


def _prefix(root: Path, names: list[str], part: str) -> str:
    """The sub-folder that the names are relative to, with its slash."""
    places = ("", "Flickr/", "images/", "JPEGImages/", "VOCdevkit/VOC2012/JPEGImages/", f"{part}2014/")
    some = names[:100]  # some files may be missing
    for place in places:
        if any(_exists(root, place + name) for name in some):
            return place
    raise UserError(f"{root}: {names[0]!r} is neither in it nor in Flickr or images below it; put the images there")


def _exists(root: Path, name: str) -> bool:
    try:
        return path_within(root, name).is_file()
    except (BadImage, OSError):
        return False


def _read_tags(file: Path, count: int) -> tuple[str, ...]:
    if not file.is_file():
        return tuple(f"tag_{number:02d}" for number in range(count))
    tags = tuple(line.strip() for line in read_lines(file))
    if len(tags) != count or len(set(tags)) != count or "" in tags:
        raise UserError(f"{file}: {len(set(tags))} different tags for {count} columns; write one tag per line")
    return tags
