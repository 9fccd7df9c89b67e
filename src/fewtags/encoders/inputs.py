"""What an exported model reads of an image, by the names of its inputs; numpy and Pillow alone.

An input named after a filter of Pillow is the whole image, resized with it to a square: the whole view is resized
bilinearly, windows and patches are cut from a bicubic one. Only patches that are cut before shrinking come ready-made.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewtags.encoders.views import ViewSpec, make_views

PATCHES = "patches"  # [n, side, side, 3], cut from the original
VECTORS = "vectors"  # [D], no image at all


class Input(NamedTuple):
    """One input of an exported model."""

    shape: tuple[int, ...]  # of one image
    dtype: str  # as numpy names it
    how: str  # it is made, in words


def image_input(name: str, spec: ViewSpec) -> Input:
    """The input of this name."""
    if name == PATCHES:
        side, count = spec.patch_side, spec.patches**2
        return Input(
            (count, side, side, 3),
            "uint8",
            f"RGB, cut into {spec.patches} × {spec.patches} parts, each resized to {side} × {side} with Pillow's "
            f"BILINEAR, row by row; uint8 [N, {count}, {side}, {side}, 3]",
        )
    size = spec.size
    return Input(
        (size, size, 3),
        "uint8",
        f"RGB, resized to {size} × {size} with Pillow's {name.upper()}; uint8 [N, {size}, {size}, 3]",
    )


def read_inputs(image: Image.Image, names: Iterable[str], spec: ViewSpec) -> dict[str, NDArray[np.uint8]]:
    """The inputs of one RGB image: [size, size, 3] each, patches [n, side, side, 3]."""
    return {name: _input(image, name, spec) for name in names}


def _input(image: Image.Image, name: str, spec: ViewSpec) -> NDArray[np.uint8]:
    if name == PATCHES:
        return make_views(image, "plain", spec, None)[1]
    return np.asarray(image.resize((spec.size, spec.size), Image.Resampling[name.upper()]))
