"""Heat maps over a picture; brightness grows with the evidence, so that they can be read in grey too."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewtags.encoders.base import Box
from fewtags.explain.heat import Heat
from fewtags.explain.reasons import Part, TagExplained

SIDE = 480  # px of the longer side of a picture
COLOURS = "inferno"  # lightness grows monotonically
DARK = 0.45  # brightness of the picture below the heat map
Pixels = NDArray[np.uint8]


def scaled_down(image: Image.Image) -> Image.Image:
    """A copy of the image, at most SIDE pixels on its longer side."""
    small = image.copy()
    small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    return small


def max_heat(tag: TagExplained) -> float:
    """The largest heat of a tag: the upper end of the scale of all its pictures."""
    return max(1e-6, *(float(part.heat.max()) for part in (tag.whole, *tag.patches)))


def overlay(image: Image.Image, part: Part, top: float) -> Pixels:
    """The part of an image in dark grey, overlaid with its heat from 0 to `top`: RGB [h, w, 3].

    Screen blending: heat never makes a pixel darker.
    """
    crop = crop_box(image, part.box)
    light = colours((_enlarged(part.heat, crop.size) / top).clip(0, 1))
    grey = np.asarray(crop.convert("L"), np.float32)[..., None] * DARK
    mixed = 255 - (255 - grey) * (255 - light) / 255
    return mixed.clip(0, 255).astype(np.uint8)


def crop_box(image: Image.Image, box: Box) -> Image.Image:
    """A crop of an image, at least one pixel; box in 0..1."""
    left, top, right, bottom = (
        round(share * length) for share, length in zip(box, (image.width, image.height) * 2, strict=True)
    )
    return image.crop((left, top, max(right, left + 1), max(bottom, top + 1)))


def colours(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """0..1 [...] -> RGB in 0..255 [..., 3]."""
    from matplotlib import colormaps

    found: NDArray[np.float32] = (255 * colormaps[COLOURS](values)[..., :3]).astype(np.float32)
    return found


def _enlarged(heat: Heat, size: tuple[int, int]) -> NDArray[np.float32]:
    image = Image.fromarray(np.ascontiguousarray(heat, np.float32))
    return np.asarray(image.resize(size, Image.Resampling.BICUBIC))
