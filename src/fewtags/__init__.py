"""fewtags: tag a few images, get them all tagged.

>>> import fewtags                                             # doctest: +SKIP
>>> run = fewtags.train("photos", out="run")                   # doctest: +SKIP
>>> fewtags.load("run").tag(["a.jpg"])                         # doctest: +SKIP

Heavy libraries are imported by the functions that need them, so `import fewtags` stays fast.
"""

__version__ = "0.3.0"

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fewtags.api import Run, evaluate, load, train, write_report
    from fewtags.classifier import FewTagsClassifier
    from fewtags.model.base import Tagging
    from fewtags.model.tagger import Tagger

__all__ = ["FewTagsClassifier", "Run", "Tagger", "Tagging", "__version__", "evaluate", "load", "train", "write_report"]


_PLACES = {
    "FewTagsClassifier": "fewtags.classifier",
    "Run": "fewtags.api",
    "Tagger": "fewtags.model.tagger",
    "Tagging": "fewtags.model.base",
    "evaluate": "fewtags.api",
    "load": "fewtags.api",
    "train": "fewtags.api",
    "write_report": "fewtags.api",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        import importlib

        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'fewtags' has no attribute {name!r}")
