"""Plain, weak and strong views of an image: the whole and its patches, as arrays."""

import hashlib
from dataclasses import dataclass
from operator import index
from typing import Any, Literal, SupportsIndex, get_args

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray
from PIL import Image

from fewtags.encoders.augment import cutout, rand_augment
from fewtags.errors import UserError, nearest

Kind = Literal["plain", "weak", "strong"]
PatchSource = Literal["resized", "original"]
PatchSize = Literal["full", "native"]

_BILINEAR, _BICUBIC = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC


@dataclass(frozen=True)
class ViewSpec:
    """How the views of an image are cut; the defaults are those of the released code."""

    size: int = 224  # px of the side of the square input
    patches: int = 2  # grid per side; 1 means the whole image only
    patch_source: PatchSource = "resized"  # cut from the resized image, or before shrinking (real detail)
    patch_size: PatchSize = "full"  # enlarged to `size`, or left at size // patches (less compute)
    cutout: bool = True  # the large Cutout of the strong view; off in the released warm-up

    def __post_init__(self) -> None:
        if self.patches < 1:
            raise UserError(f"patches must be at least 1 (the whole image only), not {self.patches}")
        if self.size < 2 * self.patches:
            raise UserError(f"size {self.size} is too small for {self.patches} patches per side: at least 2 px each")
        _known("patch_source", self.patch_source, PatchSource)
        _known("patch_size", self.patch_size, PatchSize)

    @property
    def patch_side(self) -> int:
        """Px of the side of a finished patch."""
        return self.size if self.patch_size == "full" else self.size // self.patches


def _known(what: str, word: str, words: Any) -> None:
    known = get_args(words)
    if word not in known:
        raise UserError(f"{what} must be one of {', '.join(known)}, not {word!r}{nearest(word, known)}")


def make_views(
    image: Image.Image, kind: Kind, spec: ViewSpec, rng: np.random.Generator | None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The whole [size, size, 3] and its n patches [n, side, side, 3] row by row; n is 0 when the grid is 1.

    `image` is RGB and stays as it is. plain only resizes and needs no rng; weak flips; strong flips, then
    Cutout and RandAugment. The whole and every patch draw for themselves.
    """
    _known("kind of view", kind, Kind)
    if kind == "plain":
        rng = None
    elif rng is None:
        raise ValueError(f"a {kind} view needs random numbers: pass a generator")
    size, side = spec.size, spec.patch_side
    strong = kind == "strong"
    whole = np.empty((size, size, 3), dtype=np.uint8)
    whole[...] = np.asarray(_view(image, size, rng, strong, spec.cutout))
    crops = _crops(image, spec)
    patches = np.empty((len(crops), side, side, 3), dtype=np.uint8)
    for patch, crop in zip(patches, crops, strict=True):
        patch[...] = np.asarray(_view(crop, side, rng, strong, spec.cutout))
    return whole, patches


def _view(
    image: Image.Image, side: int, rng: np.random.Generator | None, strong: bool, with_cutout: bool
) -> Image.Image:
    """One picture, whole or patch, through the pipeline of its kind; without rng it is only resized."""
    if rng is None:
        return _resized(image, side, _BILINEAR)
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    image = _resized(image, side, _BILINEAR)
    if strong:
        if with_cutout:
            image = cutout(image, rng)
        image = rand_augment(image, rng)
    return image


def _resized(image: Image.Image, side: int, resample: Image.Resampling) -> Image.Image:
    """The image squeezed to a square; itself when it has that size already, where Pillow would copy."""
    return image if image.size == (side, side) else image.resize((side, side), resample)


def _crops(image: Image.Image, spec: ViewSpec) -> list[Image.Image]:
    """The grid of crops, row by row; what floor division leaves over at the right and bottom is lost."""
    if spec.patches == 1:
        return []
    if spec.patch_source == "resized":
        image = _resized(image, spec.size, _BICUBIC)  # the released code resizes here with Pillow's default
    width = max(1, image.width // spec.patches)
    height = max(1, image.height // spec.patches)
    # An original with fewer px than patches repeats its last ones instead of giving empty crops.
    lefts = [min(column * width, image.width - width) for column in range(spec.patches)]
    tops = [min(row * height, image.height - height) for row in range(spec.patches)]
    return [image.crop((left, top, left + width, top + height)) for top in tops for left in lefts]


def generator(*key: SupportsIndex | bytes) -> np.random.Generator:
    """Random numbers that depend on the key alone: integers (seed, epoch, row, …) or bytes (a fingerprint).

    The same key gives the same stream in any order of the work and with any number of loader workers.
    """
    parts = [part if isinstance(part, bytes) else index(part) for part in key]
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=32).digest()
    return np.random.Generator(np.random.PCG64(_Words(digest)))  # type: ignore[arg-type]  # stubs name SeedSequence only


class _Words(ISeedSequence):
    """A digest as the first state of a bit generator: well mixed, and much cheaper than SeedSequence."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        return np.frombuffer(self._digest, dtype, n_words)
