"""Heat over a picture: bright where the evidence lies, so that it can be read in grey too."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewtags.encoders.base import Box
from fewtags.explain.heat import Heat
from fewtags.explain.reasons import Part, TagExplained

SIDE = 480  # px of the longer side of a picture that is shown
COLOURS = "inferno"  # its lightness only grows
DARK = 0.45  # how bright the picture beneath may be
Pixels = NDArray[np.uint8]


def shown(image: Image.Image) -> Image.Image:
    """The image at the size in which it is shown."""
    small = image.copy()
    small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    return small


def top_of(tag: TagExplained) -> float:
    """The largest heat of a tag, which all its pictures share as the end of their scale."""
    return max(1e-6, *(float(part.heat.max()) for part in (tag.whole, *tag.patches)))


def overlay(image: Image.Image, part: Part, top: float) -> Pixels:
    """The part of an image in dark grey, and over it its heat from 0 to `top`: RGB [h, w, 3].

    As two projectors on one screen: heat never makes a pixel darker, so more of it is brighter in grey too.
    """
    crop = cut(image, part.box)
    light = colours((_enlarged(part.heat, crop.size) / top).clip(0, 1))
    grey = np.asarray(crop.convert("L"), np.float32)[..., None] * DARK
    mixed = 255 - (255 - grey) * (255 - light) / 255
    return mixed.clip(0, 255).astype(np.uint8)


def cut(image: Image.Image, box: Box) -> Image.Image:
    """A part of an image, at least a pixel."""
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
