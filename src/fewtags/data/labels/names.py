"""Names of tags on the command line: `dog,sea,"rock, paper"`."""

import csv
import io
from collections.abc import Sequence

from fewtags.data.labels.csv_file import clean_tag, tag_error
from fewtags.errors import UserError

LONGEST = 200  # characters of a name


def parse_tags(text: str) -> tuple[str, ...]:
    """The tags that `--tags` names, separated by commas, in their order. Raises UserError."""
    try:
        rows = list(csv.reader(io.StringIO(text), skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise UserError(f"--tags: {error}; separate names with commas, as in --tags dog,sea") from error
    names = [clean_tag(name) for row in rows for name in row]
    if not any(names):
        raise UserError("--tags: no tag is named; separate names with commas, as in --tags dog,sea")
    seen: dict[str, str] = {}
    for name in names:
        if problem := tag_error(name):
            raise UserError(f"--tags: {problem}; separate names with commas, as in --tags dog,sea")
        if any("\ud800" <= letter <= "\udfff" for letter in name):  # bytes of the command line that are no UTF-8
            raise UserError(f"--tags: {name[:40]!a} is no UTF-8 text; write it anew")
        if len(name) > LONGEST:
            raise UserError(f"--tags: {name[:40]!r}… has {len(name):,} characters; a name has at most {LONGEST}")
        first = seen.get(name.casefold())
        if first is not None:
            twice = f"{name!r} comes twice" if first == name else f"{first!r} and {name!r} differ only in capitals"
            raise UserError(f"--tags: {twice}; keep one of them")
        seen[name.casefold()] = name
    return tuple(names)


def tags_text(names: Sequence[str]) -> str:
    """What `parse_tags` reads these names from."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(names)
    return out.getvalue()
