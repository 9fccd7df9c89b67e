"""One module per kind of data set, found by name: `voc:PATH` is read by readers/voc.py.

A reader has `read(place, labels, seed)`, which returns a Catalogue or raises UserError with the remedy. `place` is the
text after the colon. A reader that accepts a separate label file sets TAKES_LABELS = True; one whose tags may be named
without labels sets TAKES_TAGS = True and has a fourth parameter `tags`; one that works without a place sets DEFAULT.
"""

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from fewtags.errors import UserError


def reader_names() -> list[str]:
    """The kinds of data sets; `folder` is the default without a colon."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find_reader(kind: str) -> ModuleType:
    """The module that reads a kind of data set."""
    return importlib.import_module(f"{__name__}.{kind}")


def existing_folder(kind: str, place: str | Path) -> Path:
    """The folder of a data set. Raises UserError if it does not exist."""
    root = Path(place)
    if not root.is_dir():
        raise UserError(
            f"{kind}:{place}: there is no folder {str(place)!r}; write {kind}:PATH with the folder of the data set"
        )
    return root
