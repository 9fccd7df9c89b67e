"""What a finished model reads of an image, by the names of its inputs; numpy and Pillow alone.

An input named after a filter of Pillow is the whole image, resized with it to a square: the whole view is resized
bilinearly, windows and patches are cut from a bicubic one. Only patches that are cut before shrinking come ready-made.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewtags.encoders.views import ViewSpec, make_views

PATCHES = "patches"  # [n, side, side, 3], cut from the original


def input_names(features: str, spec: ViewSpec) -> list[str]:
    """The inputs of a model with `crops` or `evidence` features, in order."""
    if features == "evidence":
        return ["bicubic"]
    if spec.patches == 1:
        return ["bilinear"]
    return ["bilinear", "bicubic" if spec.patch_source == "resized" else PATCHES]


def read_inputs(image: Image.Image, names: Iterable[str], spec: ViewSpec) -> dict[str, NDArray[np.uint8]]:
    """The inputs of one RGB image: [size, size, 3] each, patches [n, side, side, 3]."""
    return {name: _input(image, name, spec) for name in names}


def _input(image: Image.Image, name: str, spec: ViewSpec) -> NDArray[np.uint8]:
    if name == PATCHES:
        return make_views(image, "plain", spec, None)[1]
    return np.asarray(image.resize((spec.size, spec.size), Image.Resampling[name.upper()]))
