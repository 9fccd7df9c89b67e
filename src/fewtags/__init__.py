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
    from fewtags.model.base import Tagging
    from fewtags.model.tagger import Tagger

__all__ = ["Run", "Tagger", "Tagging", "__version__", "evaluate", "load", "train", "write_report"]


def __getattr__(name: str) -> Any:
    if name in {"train", "load", "evaluate", "write_report", "Run"}:
        from fewtags import api

        return getattr(api, name)
    if name in {"Tagger", "Tagging"}:
        from fewtags import tagging

        return getattr(tagging, name)
    raise AttributeError(f"module 'fewtags' has no attribute {name!r}")
