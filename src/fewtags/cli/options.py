"""Arguments and choices that several verbs share."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Tune(str, Enum):
    """What learns."""

    heads = "heads"
    all = "all"


class Protocol(str, Enum):
    """Whose schedule."""

    ours = "ours"
    paper = "paper"


class Split(str, Enum):
    """Which images keep their labels."""

    paper = "paper"
    balanced = "balanced"


class Features(str, Enum):
    """What a frozen backbone gives."""

    crops = "crops"
    evidence = "evidence"


class Prefer(str, Enum):
    """What thresholds serve."""

    precision = "precision"
    balance = "balance"
    recall = "recall"


class Form(str, Enum):
    """What labels are written as."""

    wide = "wide"
    long = "long"
    label_studio = "label-studio"
    fiftyone = "fiftyone"


class Format(str, Enum):
    """What a model leaves as."""

    onnx = "onnx"
    safetensors = "safetensors"


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder with labels.csv, voc:PATH, coco:PATH, nus:PATH, npy:PATH, or scenes[:N].",
    ),
]
Labels = Annotated[Path | None, typer.Option(metavar="FILE", help="The labels, if not DATA/labels.csv.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
