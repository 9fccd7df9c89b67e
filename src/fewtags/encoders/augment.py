"""Cutout and the fifteen operations of RandAugment, on Pillow images.

The table is that of the released training code of D2L and CAP: not the RandAugment of one shared magnitude,
but two draws from fifteen operations times nine magnitudes, each applied with probability one half.
"""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

Operation = Callable[[Image.Image, float, np.random.Generator], Image.Image]

_FILL = (128, 128, 128)  # where shear, translate and rotate look outside the image
_SMALL_CUTOUT = (125, 122, 113)
_AFFINE = Image.Transform.AFFINE
_NEAREST, _BICUBIC = Image.Resampling.NEAREST, Image.Resampling.BICUBIC


def cutout(image: Image.Image, rng: np.random.Generator, share: float = 0.5) -> Image.Image:
    """Cover a box of `share` of each side, centred anywhere and clipped to the image, with one random colour.

    Both ends of the box belong to it, as in the released code: up to 113 px of 224.
    """
    width, height = image.size
    x, y, red, green, blue = _below((width, height, 256, 256, 256), rng)
    half_width, half_height = int(share * width + 0.5) // 2, int(share * height + 0.5) // 2
    box = (x - half_width, y - half_height, x + half_width + 1, y + half_height + 1)
    return _covered(image, box, (red, green, blue))


def rand_augment(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Draw two of the 135 pairs of operation and magnitude, with replacement; apply each half of the time."""
    for code in rng.integers(2 * len(_CHOICES), size=2).tolist():
        if code < len(_CHOICES):
            operation, value = _CHOICES[code]
            image = operation(image, value, rng)
    return image


def _covered(image: Image.Image, box: tuple[int, int, int, int], colour: tuple[int, int, int]) -> Image.Image:
    """A copy with the box filled where it is in the image; its right column and bottom row are left out."""
    left, top, right, bottom = box
    image = image.copy()
    image.paste(colour, (max(0, left), max(0, top), min(image.width, right), min(image.height, bottom)))
    return image


def _below(limits: tuple[int, ...], rng: np.random.Generator) -> list[int]:
    """A whole number below each limit, in one draw; `integers` with several limits is much slower."""
    return [int(share * limit) for share, limit in zip(rng.random(len(limits)).tolist(), limits, strict=True)]


def _either_sign(value: float, rng: np.random.Generator) -> float:
    return value if rng.random() < 0.5 else -value


def _affine(image: Image.Image, matrix: tuple[float, ...], resample: int) -> Image.Image:
    return image.transform(image.size, _AFFINE, matrix, resample, fillcolor=_FILL)


def shear_x(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Slant to the left or right by `value` px a row."""
    return _affine(image, (1, _either_sign(value, rng), 0, 0, 1, 0), _BICUBIC)


def shear_y(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Slant up or down by `value` px a column."""
    return _affine(image, (1, 0, 0, _either_sign(value, rng), 1, 0), _BICUBIC)


def translate_x(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Shift to the left or right by `value` of the width."""
    return _affine(image, (1, 0, _either_sign(value * image.width, rng), 0, 1, 0), _NEAREST)


def translate_y(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Shift up or down by `value` of the height."""
    return _affine(image, (1, 0, 0, 0, 1, _either_sign(value * image.height, rng)), _NEAREST)


def rotate(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Turn counter-clockwise by `value` degrees; never the other way, as in the released table."""
    return image.rotate(value, _NEAREST, fillcolor=_FILL)


def color(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Saturation times 1 ± `value`."""
    return ImageEnhance.Color(image).enhance(1 + _either_sign(value, rng))


def contrast(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Distance from the mean grey times 1 ± `value`."""
    return ImageEnhance.Contrast(image).enhance(1 + _either_sign(value, rng))


def sharpness(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Distance from the smoothed image times 1 ± `value`."""
    return ImageEnhance.Sharpness(image).enhance(1 + _either_sign(value, rng))


def brightness(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Every channel times 1 ± `value`."""
    return ImageEnhance.Brightness(image).enhance(1 + _either_sign(value, rng))


def posterize(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Keep the upper `value` bits of every channel."""
    return ImageOps.posterize(image, int(value))


def solarize(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Invert what is at or above `value`."""
    return ImageOps.solarize(image, value)  # type: ignore[arg-type]  # only compared: 227.6 is a good threshold


def auto_contrast(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Stretch every channel to 0..255."""
    return ImageOps.autocontrast(image)


def equalize(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Spread every channel to a flat histogram."""
    return ImageOps.equalize(image)


def invert(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """The negative."""
    return ImageOps.invert(image)


def small_cutout(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
    """Cover a square of `value` px (one less when odd), centred anywhere and clipped, with a fixed grey."""
    x, y = _below(image.size, rng)
    half = int(value) // 2
    return _covered(image, (x - half, y - half, x + half, y + half), _SMALL_CUTOUT)


OPERATIONS: dict[str, Operation] = {
    "ShearX": shear_x,
    "ShearY": shear_y,
    "TranslateX": translate_x,
    "TranslateY": translate_y,
    "Rotate": rotate,
    "Color": color,
    "Contrast": contrast,
    "Sharpness": sharpness,
    "Brightness": brightness,
    "Posterize": posterize,
    "Solarize": solarize,
    "AutoContrast": auto_contrast,
    "Equalize": equalize,
    "Invert": invert,
    "Cutout": small_cutout,
}


def _grid(first: float, last: float, whole_numbers: bool = False) -> tuple[float, ...]:
    points = np.linspace(first, last, 10)
    return tuple((np.round(points) if whole_numbers else points).tolist())


# The value of each operation at magnitudes 0..9; magnitude 0 is never drawn.
GRIDS: dict[str, tuple[float, ...]] = {
    "ShearX": _grid(0, 0.3),
    "ShearY": _grid(0, 0.3),
    "TranslateX": _grid(0, 150 / 331),
    "TranslateY": _grid(0, 150 / 331),
    "Rotate": _grid(0, 30),
    "Color": _grid(0, 0.9),
    "Contrast": _grid(0, 0.9),
    "Sharpness": _grid(0, 0.9),
    "Brightness": _grid(0, 0.9),
    "Posterize": _grid(8, 4, whole_numbers=True),
    "Solarize": _grid(256, 0),
    "AutoContrast": _grid(0, 0),
    "Equalize": _grid(0, 0),
    "Invert": _grid(0, 0),
    "Cutout": _grid(0, 20, whole_numbers=True),
}

_CHOICES = [(operation, GRIDS[name][magnitude]) for name, operation in OPERATIONS.items() for magnitude in range(1, 10)]
