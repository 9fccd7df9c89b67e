"""CSV in the long and wide form of fewtags, and review logs."""

from pathlib import Path
from typing import Any

from fewtags.data.catalogue import UNKNOWN
from fewtags.data.labels.csv_file import RESERVED, SINGULAR, LabelFile, Problems
from fewtags.data.labels.table import Table
from fewtags.errors import UserError
from fewtags.review.corrections import CODES
from fewtags.review.log import current_answers, read_log
from fewtags.utils.files import csv_line


def read_csv(path: Path) -> tuple[Table, str]:
    """Long or wide form, detected by the header. Raises one UserError with all problems and their lines."""
    problems, file = Problems(), LabelFile(path)
    header = file.header(problems)
    rows = [] if header is None else list(file.rows(header, problems))
    problems.raise_any()
    long = header is not None and header.tags is not None
    names = sorted({tag for row in rows for tag in row.tags}) if long or header is None else list(header.names)
    table = Table(names)
    for row in rows:
        if not row.image.strip():
            raise UserError(f"{path}, line {row.line}: a row without an image; write its name or delete the row")
        codes = [int(tag in row.tags) for tag in names] if long else row.cells
        known = {tag: code for tag, code in zip(names, codes, strict=True) if code != UNKNOWN}
        table.add(row.image, known, row.test, f"{path}, line {row.line}")
    return table.non_empty(path), "long" if long else "wide"


def is_decision(content: dict[str, Any]) -> bool:
    """Whether a JSON object is a line of a review.jsonl."""
    return {"image", "tag", "answer"} <= content.keys() or "undo" in content


def read_review(path: Path) -> Table:
    """The current answers of a review, images and tags sorted; unsure becomes unknown."""
    answers = current_answers(read_log(path))
    table = Table(sorted({tag for _, tag in answers}))
    for (image, tag), answer in sorted(answers.items()):
        known = table.images.setdefault(image, {})
        if CODES[answer] != UNKNOWN:
            known[tag] = CODES[answer]
    return table.non_empty(path)


def wide(table: Table, target: Path) -> str:
    """`image,<tag>,…` with 1, 0 or nothing for unknown; with a column `split` if there are test images."""
    for tag in table.tags:
        if tag.lower() in RESERVED or (len(table.tags) == 1 and tag.lower() in SINGULAR):
            raise UserError(f"{target}: a tag named {tag!r} would be read as the column of that name; rename the tag")
    words = {1: "1", 0: "0", UNKNOWN: ""}
    rows = [["image", *table.tags]]
    rows += [[image, *(words[table.code(image, tag)] for tag in table.tags)] for image in table.images]
    return _csv(table, rows)


def long(table: Table, target: Path) -> str:
    """`image,tags`; cannot express unknown tags, so all tags of an image must be known, or none."""
    rows = [["image", "tags"]]
    for image in table.images:
        unknown = table.unknown(image)
        if len(unknown) == len(table.tags):
            continue  # images without a row are unlabelled
        if unknown:
            raise UserError(
                f"{target}: {unknown[0]!r} is unknown for {image!r}, which `image,tags` cannot express; use --to wide"
            )
        rows.append([image, "|".join(table.present(image))])
    return _csv(table, rows)


def _csv(table: Table, rows: list[list[str]]) -> str:
    if table.test:
        rows[0].append("split")
        for row in rows[1:]:
            row.append("test" if row[0] in table.test else "train")
    return "".join(map(csv_line, rows))
