"""FiftyOne's labels.json for classification (its documentation: “Exporting FiftyOne Datasets”,
FiftyOneImageClassificationDataset).

`labels` maps an image's name, without its suffix, to a tag, a list of tags or null; tags are numbers if `classes`
lists them, and may be objects with a `label`.
"""

import json
from pathlib import Path, PurePosixPath
from typing import Any

from fewtags.data.images import IMAGE_SUFFIXES, list_images
from fewtags.data.labels.csv_file import tag_error
from fewtags.data.labels.table import Table, partly_known_text
from fewtags.errors import UserError


def read(content: dict[str, Any], path: Path, images: Path | None) -> Table:
    """Tags that are not listed for an image are absent; null leaves all unknown."""
    classes, labels = content.get("classes"), content["labels"]
    if classes is not None and not (isinstance(classes, list) and all(isinstance(one, str) for one in classes)):
        raise UserError(f"{path}, classes: must be a list of names")
    if not isinstance(labels, dict):
        raise UserError(f"{path}, labels: must map images to tags; export a FiftyOneImageClassificationDataset")
    found = {key: _tags(value, classes, f"{path}, labels[{key!r}]") for key, value in labels.items()}
    tags = classes or sorted({tag for some in found.values() if some is not None for tag in some})
    for tag in tags:
        if fault := tag_error(tag):
            raise UserError(f"{path}: {fault}")
    table = Table(list(tags))
    endings = _endings(path.parent / "data") or (_endings(images) if images else {})
    for key, some in found.items():
        known = {} if some is None else {tag: int(tag in some) for tag in tags}
        table.add(_whole_name(key, endings, path), known, test=False, where=f"{path}, labels[{key!r}]")
    return table.non_empty(path)


def write(table: Table, target: Path) -> tuple[str, list[str]]:
    """labels.json with indices into `classes`; images with some unknown tags are written as null."""
    number = {tag: place for place, tag in enumerate(table.tags)}
    labels: dict[str, list[int] | None] = {}
    in_part = 0
    for image in table.images:
        key = str(PurePosixPath(image).with_suffix("")) if image.lower().endswith(IMAGE_SUFFIXES) else image
        if key in labels:
            raise UserError(
                f"{target}: FiftyOne names images without their ending, and two are called {key!r}; rename one"
            )
        unknown = table.unknown(image)
        in_part += 0 < len(unknown) < len(table.tags)
        labels[key] = None if unknown else [number[tag] for tag in table.present(image)]
    notes = []
    if in_part:
        notes.append(f"{partly_known_text(in_part)}, which FiftyOne cannot express: written as unlabelled")
    if table.test:
        notes.append("the column `split` is left out: this format has no splits")
    return json.dumps({"classes": table.tags, "labels": labels}, indent=1, ensure_ascii=False) + "\n", notes


def _tags(value: Any, classes: list[str] | None, where: str) -> set[str] | None:
    if value is None:
        return None
    return {_tag(one, classes, where) for one in (value if isinstance(value, list) else [value])}


def _tag(value: Any, classes: list[str] | None, where: str) -> str:
    """A tag given by number, by name, or as an object with a label."""
    if isinstance(value, dict):
        if "bounding_box" in value:
            raise UserError(f"{where}: holds boxes; fewtags reads classifications")
        value = value.get("label")
    if isinstance(value, str) and (classes is None or value in classes):
        return value
    if type(value) is int and classes is not None and 0 <= value < len(classes):
        return classes[value]
    raise UserError(f"{where}: {value!r} is not a tag; it must be a name or an index into `classes`")


def _endings(folder: Path) -> dict[str, list[str]]:
    """Names without suffix -> the image files of a folder with that name."""
    found: dict[str, list[str]] = {}
    for name in list_images(folder) if folder.is_dir() else []:
        found.setdefault(str(PurePosixPath(name).with_suffix("")), []).append(name)
    return found


def _whole_name(key: str, endings: dict[str, list[str]], path: Path) -> str:
    files = endings.get(key, [])
    if len(files) > 1:
        raise UserError(f"{path}, labels[{key!r}]: may be {files[0]} or {files[1]}; rename one of the files")
    return files[0] if files else key
