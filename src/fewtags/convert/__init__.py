"""Convert labels from and to other tools: `convert(IN, OUT)` detects the format of IN by its content."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from fewtags.convert import plain
from fewtags.data.labels import fiftyone, label_studio
from fewtags.data.labels.table import Table
from fewtags.errors import UserError
from fewtags.utils.files import write_text

__all__ = ["Outcome", "Table", "convert", "read_labels"]

FORMAT_NAMES = {
    "wide": "wide CSV",
    "long": "long CSV",
    "label-studio": "Label Studio JSON",
    "fiftyone": "FiftyOne JSON",
    "review": "a review",
}


class Outcome(NamedTuple):
    """The result of a conversion."""

    images: int
    tags: int
    read_as: str
    written_as: str
    notes: tuple[str, ...]  # what the target format cannot express


def convert(source: str | Path, target: str | Path, to: str | None = None) -> Outcome:
    """Read the labels of one file and write them in another format.

    `to` is wide, long, label-studio or fiftyone; without it a .csv becomes wide. Raises UserError with file and place.
    """
    source, target = Path(source), Path(target)
    to = to or _format_from_suffix(target)
    if target.is_dir():
        raise UserError(f"{target} is a folder; name a file in it")
    if target.exists() and source.exists() and target.samefile(source):
        raise UserError(f"{target} is the file that is read; name another OUT")
    table, read_as = read_labels(source, images=target.parent)
    for image in table.images:
        if not _is_utf8(image):
            raise UserError(
                f"{source}: the name {image!r} is not UTF-8, which no form of labels can hold; rename the file"
            )
    text, notes = _serialise(table, to, target)
    write_text(target, text)
    return Outcome(len(table.images), len(table.tags), FORMAT_NAMES[read_as], FORMAT_NAMES[to], tuple(notes))


def read_labels(source: Path, images: Path | None = None) -> tuple[Table, str]:
    """The labels of a file and its format; names without a suffix are completed from a folder of images."""
    try:
        text = source.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: not UTF-8 text, so neither CSV nor JSON that fewtags reads") from error
    except OSError as error:
        raise UserError(f"{source}: cannot be read ({error.strerror}); check the name") from error
    start = text.lstrip()[:1]
    if start not in ("[", "{"):
        return plain.read_csv(source)
    content = _json(text, source)
    if content is None:
        return plain.read_review(source), "review"
    if isinstance(content, list):
        return label_studio.read(content, source), "label-studio"
    if plain.is_decision(content):
        return plain.read_review(source), "review"
    if "labels" in content:
        return fiftyone.read(content, source, images), "fiftyone"
    raise UserError(
        f"{source}: JSON of an unknown form; fewtags reads the JSON export of Label Studio (a list of tasks), "
        "FiftyOne's labels.json (an object with `labels`) and its own review.jsonl"
    )


def _json(text: str, source: Path) -> Any:
    """The JSON of the whole file, or None if it looks like JSON Lines."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise UserError(f"{source}: JSON nested too deeply") from error
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and text.lstrip().startswith("{"):
            return None
        raise UserError(f"{source}, line {error.lineno}: not JSON ({error.msg}); export it again") from error


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _format_from_suffix(target: Path) -> str:
    if target.suffix.lower() == ".csv":
        return "wide"
    raise UserError(f"{target}: say what to write with --to label-studio, fiftyone, wide or long")


def _serialise(table: Table, to: str, target: Path) -> tuple[str, list[str]]:
    if to == "wide":
        return plain.wide(table, target), []
    if to == "long":
        bare = [tag for tag in table.tags if not any(tag in table.present(image) for image in table.images)]
        return plain.long(table, target), [f"no image has {tag}: `image,tags` cannot express that" for tag in bare]
    if to == "label-studio":
        return label_studio.write(table)
    if to == "fiftyone":
        return fiftyone.write(table, target)
    raise UserError(f"--to {to}: use wide, long, label-studio or fiftyone")
