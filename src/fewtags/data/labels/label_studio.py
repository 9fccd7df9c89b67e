"""Label Studio's JSON for image classification with choices (its documentation: “Label Studio Task Format”).

A task has `data.image` and `annotations`; results of type `choices` hold the tags of the image.
"""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from fewtags.data.labels.csv_file import tag_error
from fewtags.data.labels.table import Table, partly_known_text
from fewtags.errors import UserError

LOCAL = "/data/local-files/"  # URL of files below the document root of Label Studio: ?d=PATH
_UPLOAD = re.compile(r"^/?data/upload/(?:\d+/)?(?:[0-9a-f]{8}-)?(.+)$")  # uploads get a project number and a hash


def read(tasks: list[Any], path: Path) -> Table:
    """The tasks of an export. A tag on which two annotations of a task disagree is unknown."""
    table = Table()
    tags: dict[str, None] = {}
    found: list[tuple[str, list[set[str]], bool, str]] = []
    for number, task in enumerate(tasks, start=1):
        where = f"{path}, task {number}"
        data = _dict(task, where).get("data")
        if data is None and "image" in task:
            raise UserError(f"{where}: this is the export JSON-MIN; choose JSON in Label Studio")
        data = _dict(data, f"{where}, data")
        image = data.get("image")
        if not isinstance(image, str) or not image:
            raise UserError(f"{where}: no data.image; fewtags reads image classification with choices")
        annotations = [
            chosen
            for place, one in enumerate(_list(task.get("annotations", []), f"{where}, annotations"), start=1)
            if (chosen := _choices(one, f"{where}, annotation {place}")) is not None
        ]
        tags |= dict.fromkeys(tag for chosen in annotations for tag in sorted(chosen))
        found.append((_file_name(image), annotations, data.get("split") == "test", where))
    table.tags = sorted(tags)
    for image, annotations, test, where in found:
        said = {tag: {int(tag in chosen) for chosen in annotations} for tag in table.tags}
        table.add(image, {tag: codes.pop() for tag, codes in said.items() if len(codes) == 1}, test, where)
    return table.non_empty(path)


def write(table: Table) -> tuple[str, list[str]]:
    """Tasks to import: fully known images with an annotation, partly known ones with a prediction to complete."""
    tasks = []
    in_part = 0
    for number, image in enumerate(table.images, start=1):
        data = {"image": f"{LOCAL}?d={quote(image)}"}
        if image in table.test:
            data["split"] = "test"
        unknown = table.unknown(image)
        in_part += 0 < len(unknown) < len(table.tags)
        result = _result(table.present(image), number)
        task: dict[str, Any] = {"data": data, "annotations": [], "predictions": []}
        if not unknown:
            task["annotations"].append({"result": result})
        elif len(unknown) < len(table.tags):
            task["predictions"].append({"model_version": "fewtags", "result": result})
        tasks.append(task)
    notes = [f"labelling interface for it: {_interface(table.tags)}"]
    if in_part:
        notes.append(f"{partly_known_text(in_part)}: written as predictions, to be completed by a person")
    return json.dumps(tasks, indent=1, ensure_ascii=False) + "\n", notes


def _result(chosen: list[str], number: int) -> list[dict[str, Any]]:
    if not chosen:
        return []
    value = {"choices": chosen}
    return [{"id": f"fewtags{number}", "from_name": "choice", "to_name": "image", "type": "choices", "value": value}]


def _choices(annotation: Any, where: str) -> set[str] | None:
    """The tags of an annotation; None if it was skipped."""
    if _dict(annotation, where).get("was_cancelled"):
        return None
    results = _list(annotation.get("result"), f"{where}, result")
    chosen: set[str] = set()
    other = 0
    for place, result in enumerate(results, start=1):
        value = _dict(_dict(result, f"{where}, result {place}").get("value"), f"{where}, result {place}, value")
        if "choices" not in value:
            other += 1
            continue
        for tag in _list(value["choices"], f"{where}, result {place}, choices"):
            fault = tag_error(tag) if isinstance(tag, str) else f"{tag!r} is not text"
            if fault:
                raise UserError(f"{where}, result {place}: {fault}")
            chosen.add(tag)
    if other and other == len(results):
        raise UserError(f"{where}: has no choices; fewtags reads image classification, not boxes or regions")
    return chosen


def _file_name(address: str) -> str:
    """The file name in a URL of Label Studio."""
    parts = urlsplit(address)
    if parts.path.endswith(LOCAL) and "d" in (query := parse_qs(parts.query)):
        return query["d"][0]
    upload = _UPLOAD.match(parts.path)
    if upload:
        return unquote(upload[1])
    return unquote(parts.path.rpartition("/")[2]) if parts.scheme and parts.netloc else address


def _interface(tags: list[str]) -> str:
    """The labelling interface of a Label Studio project for these tasks."""
    choices = "".join(f'<Choice value="{_attribute(tag)}"/>' for tag in tags)
    of = '<Choices name="choice" toName="image" choice="multiple">'
    return f'<View><Image name="image" value="$image"/>{of}{choices}</Choices></View>'


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def _dict(content: Any, where: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise UserError(f"{where}: not an object; export JSON from Label Studio again")
    return content


def _list(content: Any, where: str) -> list[Any]:
    if not isinstance(content, list):
        raise UserError(f"{where}: not a list; export JSON from Label Studio again")
    return content
