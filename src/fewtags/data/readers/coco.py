"""MS COCO 2014: annotations/instances_{train,val}2014.json, train2014 and val2014."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewtags.data.catalogue import Catalogue, Names, Role
from fewtags.data.images import FolderImages
from fewtags.data.readers import existing_folder
from fewtags.errors import UserError


def read(place: str, labels: Path | None = None, seed: int = 1) -> Catalogue:
    """See fewtags.data.readers."""
    return read_coco(existing_folder("coco", place))


def read_coco(path: Path) -> Catalogue:
    """The train (labelled) and val (test) images that have an annotation, crowds included.

    As in the papers: ids are sorted as strings, tags are in the order of `categories`.
    """
    tags: tuple[str, ...] = ()
    names: list[str] = []
    targets, roles = [], []
    for part, role in (("train2014", Role.LABELLED), ("val2014", Role.TEST)):
        file = path / "annotations" / f"instances_{part}.json"
        if not (path / part).is_dir() or not file.is_file():
            raise UserError(f"{path}: needs {part} and annotations/{file.name}; name the folder that holds both")
        found, files, table = _read_part(file)
        if tags and found != tags:
            raise UserError(f"{file}: other categories than those of train2014; download both again")
        tags = found
        names += [f"{part}/{name}" for name in files]
        targets.append(table)
        roles.append(np.full(len(files), role, np.int8))
    return Catalogue(tags, Names(names), np.concatenate(targets), np.concatenate(roles), FolderImages(path))


def _read_part(file: Path) -> tuple[tuple[str, ...], list[str], NDArray[np.int8]]:
    """Tags, file names and targets [n, K] of one split."""
    try:
        content = json.loads(file.read_bytes(), object_hook=_needed)
        column = {category["id"]: number for number, category in enumerate(content["categories"])}
        tags = tuple(str(category["name"]) for category in content["categories"])
        files = {image["id"]: str(image["file_name"]) for image in content["images"]}
        pairs = set(content["annotations"])
        ids = sorted({image for image, _ in pairs}, key=str)
        row = {image: number for number, image in enumerate(ids)}
        targets = np.zeros((len(ids), len(tags)), np.int8)
        for image, category in pairs:
            targets[row[image], column[category]] = 1
        return tags, [files[image] for image in ids], targets
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        fault = f"{type(error).__name__}: {str(error)[:100]}"
        raise UserError(f"{file}: not the instances file of COCO ({fault}); download it again") from error


def _needed(entry: dict[str, Any]) -> Any:
    """The needed keys of a JSON object: segmentation outlines are most of the file and would fill the memory."""
    if "image_id" in entry:
        return entry["image_id"], entry["category_id"]
    if "file_name" in entry:
        return {"id": entry["id"], "file_name": entry["file_name"]}
    return entry
