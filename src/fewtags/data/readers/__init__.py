"""One file for each kind of data set, found by its name: `voc:PATH` is read by readers/voc.py.

A reader has `read(place, labels, seed)`, which gives a Catalogue or raises UserError with the remedy. `place` is what
follows the colon; a reader whose labels are a file of their own says TAKES_LABELS = True; one that can be named without
a place says what it is then in DEFAULT.
"""

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from fewtags.errors import UserError


def reader_names() -> list[str]:
    """The words that may stand before the colon; `folder` is meant where there is none."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find_reader(kind: str) -> ModuleType:
    """The module that reads a kind of data set."""
    return importlib.import_module(f"{__name__}.{kind}")


def existing_folder(kind: str, place: str | Path) -> Path:
    """The folder of a data set. Raises UserError where there is none."""
    root = Path(place)
    if not root.is_dir():
        raise UserError(
            f"{kind}:{place}: there is no folder {str(place)!r}; write {kind}:PATH with the folder of the data set"
        )
    return root
