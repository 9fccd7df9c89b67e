"""Evidence: what a frozen backbone sees in every window of a picture, from one forward.

The last map of a large input is brought to a grid of 7 × 7 cells. A window is a square of k × k of them, k = 1…4.
Each window goes through the classifier that came with the backbone's weights; per window size the features keep
the largest probability that each class reaches anywhere. It is the paper's idea of whole image and patches at
many scales, at the cost of one forward pass instead of one per patch.

A patch of a picture is read in the same way, on its part of the map alone, so that one projection and one
network serve the whole and its patches.

A backbone that reads text and was told the tags adds a score for every tag by its name; see backbones/image_text.py.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import ceil
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, normalize

from fewtags.backbones.base import Backbone
from fewtags.backbones.image_text import ImageTextBackbone, aggregate
from fewtags.errors import UserError

GRID = 7  # cells per side
WINDOWS = (1, 2, 3, 4)  # cells a side of a window
EVIDENCE_VERSION = 1  # raise when the same picture comes to give other numbers: what is stored is then made anew
WORDS_VERSION = 1  # the same for what tags' names say


class Block(NamedTuple):
    """A stretch of the features of one backbone."""

    kind: str  # "pooled": the vector of a whole map; "half": that of the shrunk picture; "evidence"; "words"
    width: int


class WindowReader(nn.Module):
    """Pictures [B, 3, size, size], 0..255 -> features [B, 1 + patches², width]; every block has length one.

    The block of words is no vector: it holds a log-probability for each tag that the backbone was told.

    half: the picture is also read at half its size, where a whole scene fits the backbone's eye.
    mapped: the backbone gives a map; one that does not gives its pooled vector alone.
    A backbone without a classifier gives the windows' vectors instead of class probabilities.
    """

    def __init__(self, backbone: Backbone, patches: int = 1, half: bool = True, mapped: bool = True) -> None:
        super().__init__()
        self.backbone, self.patches, self.shrinks, self.mapped = backbone, patches, half, mapped
        self.name = backbone.name
        text = self._text
        classifier = self._classifier
        seen = backbone.width if classifier is None else classifier.out_features
        self.tag_count = text.tag_count if text else 0
        self.blocks = [Block("pooled", backbone.width)]
        self.blocks += [Block("half", backbone.width)] if half else []
        self.blocks += [Block("evidence", seen) for _ in WINDOWS] if mapped else []
        self.blocks += [Block("words", self.tag_count)] if self.tag_count else []
        self.width = sum(block.width for block in self.blocks)

    @property
    def _text(self) -> ImageTextBackbone | None:
        """The backbone, if it reads text; fewtags.explain wraps one to keep its maps."""
        inner = getattr(self.backbone, "backbone", self.backbone)
        return inner if isinstance(inner, ImageTextBackbone) else None

    @property
    def _classifier(self) -> nn.Linear | None:
        """What the windows are seen by; a classifier of tags' names is for the block of words alone."""
        return None if self._text else self.backbone.classifier

    def columns(self, blocks: str) -> list[tuple[int, int]]:
        """(start, end) of the stretches that make up "pooled", "evidence", "both" or "words"."""
        pooled = "half" if self.shrinks else "pooled"
        kinds = {
            "pooled": {pooled},
            "evidence": {"evidence"},
            "both": {pooled, "evidence"},
            "words": {"words"},
        }[blocks]
        ends = list(accumulate(block.width for block in self.blocks))
        return [(end - block.width, end) for block, end in zip(self.blocks, ends, strict=True) if block.kind in kinds]

    def extra_repr(self) -> str:
        """The settings that are no weights; part of what stored features are known by."""
        alone = "" if self.mapped else ", pooled"
        words = f", words={self.tag_count}, words_version={WORDS_VERSION}" if self.tag_count else ""
        return f"version={EVIDENCE_VERSION}, patches={self.patches}, half={self.shrinks}{alone}{words}"

    def of_whole(self) -> "WindowReader":
        """The same without patches."""
        return WindowReader(self.backbone, 1, self.shrinks, self.mapped)

    def folded(self) -> "WindowReader":
        """A copy for eager use on a CPU; see Backbone."""
        return WindowReader(self.backbone.folded(), self.patches, self.shrinks, self.mapped).eval()

    def forward(self, pictures: Tensor) -> Tensor:
        """See the class."""
        text = self._text if self.tag_count else None
        if not self.mapped:
            pooled = self.backbone(pictures)
            whole = normalize(pooled, dim=-1)[:, None]
            return torch.cat([whole, text.tag_scores(pooled)[:, None]], dim=-1) if text else whole
        look = text.look(pictures) if text else None  # maps and words of one forward
        cells = on_grid(look.maps if look and text is self.backbone else self.backbone.maps(pictures))
        blocks = [pooled_parts(cells, self.patches)]
        if self.shrinks:
            smaller = avg_pool2d(pictures.float(), 2)
            blocks.append(pooled_parts(on_grid(self.backbone.maps(smaller)), self.patches))
        blocks = [normalize(block, dim=-1) for block in blocks]
        if self._classifier is None:
            blocks += [normalize(found, dim=-1) for found in window_maxima(cells, self.patches)]
        else:
            logits = self.backbone.classify(cells.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            # a root of probabilities: two pictures then differ by the Hellinger distance of what is seen in them
            blocks += [
                normalize(found.sqrt(), dim=-1) for found in window_maxima(logits, self.patches, probabilities=True)
            ]
        if text and look:
            places, whole = text.tag_scores(look.dense.permute(0, 2, 3, 1)), text.tag_scores(look.pooled)
            blocks.append(word_parts(places, whole, self.patches))
        return torch.cat(blocks, dim=-1)


def make_readers(backbones: Sequence[Backbone], size: int, patches: int) -> list[WindowReader]:
    """A reader for every backbone, for pictures of this size; the first also reads them at half of it."""
    readers = []
    for place, backbone in enumerate(backbones):
        mapped = backbone.gives_maps(size)
        if patches > 1 and not mapped:
            raise UserError(
                f"{backbone.name} has no map to cut patches from at {size} px: take --features crops, or another --size"
            )
        half = mapped and place == 0 and backbone.gives_maps(size // 2)
        readers.append(WindowReader(backbone.eval(), patches, half, mapped).eval())
    return readers


def window_maxima(values: Tensor, patches: int = 1, probabilities: bool = False) -> list[Tensor]:
    """values [B, C, g, g] -> for every window size the maximum over windows [B, 1 + patches², C].

    Values are averaged within a window; `probabilities` takes their softmax over C before the maximum. A part too
    small for a window size counts its largest window instead.
    """
    grid = values.shape[-1]
    averaged = {}
    for side in range(1, min(WINDOWS[-1], grid) + 1):
        windows = avg_pool2d(values, side, stride=1)
        averaged[side] = windows.softmax(dim=1) if probabilities else windows
    found = []
    for wanted in WINDOWS:
        parts = []
        for top, left, extent in regions(grid, patches):
            side = min(wanted, extent)
            last = extent - side + 1
            parts.append(averaged[side][:, :, top : top + last, left : left + last].amax((2, 3)))
        found.append(torch.stack(parts, dim=1))
    return found


def pooled_parts(cells: Tensor, patches: int = 1) -> Tensor:
    """cells [B, C, g, g] -> their mean over the whole grid and over every patch of it [B, 1 + patches², C]."""
    parts = [
        cells[:, :, top : top + extent, left : left + extent].mean((2, 3))
        for top, left, extent in regions(cells.shape[-1], patches)
    ]
    return torch.stack(parts, dim=1)


def word_parts(places: Tensor, whole: Tensor, patches: int = 1) -> Tensor:
    """Log-probabilities of tags at every place [B, h, w, K] and of the picture [B, K] -> of parts [B, 1 + patches², K].

    A part lies where the same part of the grid lies; the picture has the same share in all of them.
    """
    height, width = places.shape[1:3]
    grid = min(GRID, height, width)
    parts = []
    for top, left, extent in regions(grid, patches):
        rows, columns = (
            slice(first * length // grid, ceil((first + extent) * length / grid))
            for first, length in ((top, height), (left, width))
        )
        parts.append(aggregate(places[:, rows, columns].flatten(1, 2), whole))
    return torch.stack(parts, dim=1)


def regions(grid: int, patches: int) -> list[tuple[int, int, int]]:
    """(top, left, cells a side) of the whole grid and of patches × patches squares that cover it.

    >>> regions(7, 2)
    [(0, 0, 7), (0, 0, 4), (0, 3, 4), (3, 0, 4), (3, 3, 4)]
    """
    found = [(0, 0, grid)]
    if patches > 1:
        extent = ceil(grid / patches)
        starts = [round(place * (grid - extent) / (patches - 1)) for place in range(patches)]
        found += [(top, left, extent) for top in starts for left in starts]
    return found


def on_grid(maps: Tensor) -> Tensor:
    """A map [B, C, h, w] averaged down to at most 7 × 7 cells; cells are equal in size as far as h allows."""
    height, width = maps.shape[-2:]
    grid = min(GRID, height, width)
    down, across = (_shares(length, grid).to(maps) for length in (height, width))
    return torch.einsum("gh,bchw,kw->bcgk", down, maps, across)


def square(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """The picture as the features read it [size, size, 3]; its aspect is not kept."""
    return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC))


def _shares(length: int, grid: int) -> Tensor:
    """Row i averages the cells that the i-th of `grid` equal stretches touches [grid, length]."""
    rows = torch.zeros(grid, length)
    for row in range(grid):
        first, last = row * length // grid, ceil((row + 1) * length / grid)
        rows[row, first:last] = 1 / (last - first)
    return rows
