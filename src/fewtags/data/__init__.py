"""Read images and labels into a catalogue: `read(DATA)`."""

import re
from collections.abc import Sequence
from pathlib import Path

from fewtags.data.catalogue import UNKNOWN, Catalogue, ImageSource, Names, Role
from fewtags.data.readers import find_reader, reader_names
from fewtags.data.splits import hide
from fewtags.errors import UserError, nearest

__all__ = ["UNKNOWN", "Catalogue", "ImageSource", "Names", "Role", "hide", "read", "split_spec"]


def read(spec: str, labels: Path | None = None, seed: int = 1, tags: Sequence[str] = ()) -> Catalogue:
    """The catalogue of a folder, or of `KIND:PATH`; every module in data/readers is a KIND.

    labels: a CSV file with the labels; seed: of drawn scenes; tags: names that need no label. Raises UserError with the
    remedy.
    """
    kind, place = split_spec(spec)
    reader = find_reader(kind)
    if labels is not None and not getattr(reader, "TAKES_LABELS", False):
        raise UserError(f"{spec}: brings its own labels; --labels goes with a folder of images")
    if tags and not getattr(reader, "TAKES_TAGS", False):
        raise UserError(f"{spec}: brings its own tags; --tags goes with a folder of images")
    catalogue: Catalogue = reader.read(place, labels, seed, **({"tags": tags} if tags else {}))
    return catalogue


def split_spec(spec: str) -> tuple[str, str]:
    """The kind of a DATA argument (the name of a reader) and the path or number after it. Raises UserError."""
    kind, colon, place = spec.partition(":")
    if not spec.strip() or "\0" in spec:
        raise UserError("DATA is empty; name a folder of images, or scenes")
    kinds = [name for name in reader_names() if name != "folder"]
    if kind in kinds:
        default = getattr(find_reader(kind), "DEFAULT", None)
        if not colon and default is not None:
            return kind, default
        if colon and not place:
            raise UserError(f"{spec}: nothing follows the colon; write {kind}:{'PATH' if default is None else 'N'}")
        if colon:
            return kind, place if default is not None else _home(place)
    # A single letter before the colon is a drive; a folder may have a colon in its name.
    if colon and re.fullmatch(r"[A-Za-z]\w+", kind) and not Path(spec).exists():
        known = ", ".join(f"{name}:" for name in kinds)
        raise UserError(f"{spec}: unknown kind {kind!r}{nearest(kind, kinds)}; there are {known} and folders")
    return "folder", _home(spec)


def _home(path: str) -> str:
    try:
        return str(Path(path).expanduser())
    except RuntimeError:  # ~name of an unknown user
        return path
