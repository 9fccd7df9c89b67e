"""Arguments and choices that several verbs share."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


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
        metavar="DATA", help="A folder with labels.csv, or KIND:PATH; `fewtags train --help` lists the kinds."
    ),
]
Labels = Annotated[Path | None, typer.Option(metavar="FILE", help="The labels, if not DATA/labels.csv.")]
Method = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE", help="The module of a method that is not part of fewtags, if it was trained with one."
    ),
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
