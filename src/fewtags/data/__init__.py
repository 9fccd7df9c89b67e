"""From images and labels on a disk to one catalogue: `read(DATA)`."""

import re
from collections.abc import Callable
from pathlib import Path

from fewtags.data.catalogue import UNKNOWN, Catalogue, ImageSource, Names, Role
from fewtags.data.split import hide
from fewtags.errors import UserError, nearest

__all__ = ["UNKNOWN", "Catalogue", "ImageSource", "Names", "Role", "hide", "read", "split_spec"]

KINDS = ("voc", "coco", "nus", "npy", "scenes")
SCENES = 2000  # images drawn for a bare `scenes`
_MOST_SCENES = 1_000_000


def read(spec: str, labels: Path | None = None, seed: int = 1) -> Catalogue:
    """The catalogue of `voc:PATH`, `coco:PATH`, `nus:PATH`, `npy:PATH`, `scenes`, `scenes:N` or a folder.

    labels names the CSV of a folder; seed draws the scenes. Raises UserError with the remedy.
    """
    kind, rest = split_spec(spec)
    if labels is not None and kind != "folder":
        raise UserError(f"{spec}: brings its own labels; --labels goes with a folder of images")
    if kind == "scenes":
        from fewtags.data.scenes import read_scenes

        return read_scenes(_scene_count(rest), seed)
    if kind == "folder":
        from fewtags.data.folder import read_folder

        return read_folder(Path(rest), labels)
    root = Path(rest)
    if not root.is_dir():
        raise UserError(f"{spec}: there is no folder {rest!r}; write {kind}:PATH with the folder of the data set")
    return _reader(kind)(root)


def split_spec(spec: str) -> tuple[str, str]:
    """The kind of a DATA argument (one of KINDS, or `folder`) and what follows it. Raises UserError."""
    kind, colon, rest = spec.partition(":")
    if not spec.strip() or "\0" in spec:
        raise UserError("DATA is empty; name a folder of images, or scenes")
    if spec == "scenes":
        return "scenes", str(SCENES)
    if colon and kind in KINDS:
        if not rest:
            raise UserError(f"{spec}: nothing follows the colon; write {kind}:{'N' if kind == 'scenes' else 'PATH'}")
        return kind, rest if kind == "scenes" else _home(rest)
    # One letter before the colon is a drive; a real folder may have a colon in its name.
    if colon and re.fullmatch(r"[A-Za-z]\w+", kind) and not Path(spec).exists():
        known = ", ".join(f"{name}:" for name in KINDS)
        raise UserError(f"{spec}: unknown kind {kind!r}{nearest(kind, KINDS)}; there are {known} and folders")
    return "folder", _home(spec)


def _home(path: str) -> str:
    try:
        return str(Path(path).expanduser())
    except RuntimeError:  # ~name of nobody
        return path


def _scene_count(text: str) -> int:
    count = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    if not 1 <= count <= _MOST_SCENES:
        raise UserError(f"scenes:{text}: the number of images must be between 1 and {_MOST_SCENES}")
    return count


def _reader(kind: str) -> Callable[[Path], Catalogue]:
    if kind == "voc":
        from fewtags.data.voc import read_voc

        return read_voc
    if kind == "coco":
        from fewtags.data.coco import read_coco

        return read_coco
    if kind == "nus":
        from fewtags.data.nuswide import read_nuswide

        return read_nuswide
    from fewtags.data.arrays import read_arrays

    return read_arrays
