"""Where in a picture the logit of a tag comes from.

Where scores are made of a spatial map, heat is gradient × activation of the exact logit, summed over channels: for a
linear head that is class activation. Where a backbone gives no such map, parts of the image are covered in turn, and
heat is what the logit loses.
"""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from fewtags.backbones.base import Backbone
from fewtags.encoders.base import Box
from fewtags.encoders.windows import GRID
from fewtags.methods.parts.heads import Logits
from fewtags.model.saved import Model
from fewtags.utils.progress import Progress

COVERED_TOGETHER = 8  # images with a covered part in one forward

Scores = NDArray[np.float32]  # [K]
Heat = NDArray[np.float32]  # [h, w] of a part of the image; its mean is what the place adds to the logit in all
Logit = NDArray[np.float32]  # [K] of the whole image, [n, K] of its patches


class Heated(NamedTuple):
    """Scores and logits of an image, and where they come from."""

    scores: Scores
    whole: Logit
    patches: Logit  # n is 0 without patches
    boxes: list[Box]  # of the whole image and of each patch
    heat: list[list[Heat]]  # for every tag asked for: of the whole image and of each patch
    how: str  # "activation" or "occlusion"


@torch.inference_mode()
def scores_of(model: Model, image: Image.Image) -> Scores:
    """The scores [K] of one RGB image."""
    found: Scores = model(*_pictures(model, [image]))[0].numpy()
    return found


def heat_of(model: Model, image: Image.Image, tags: Sequence[int]) -> Heated:
    """Heat of the tags with these positions, in one RGB image."""
    found = by_activation(model, image, tags)
    return by_occlusion(model, image, tags) if found is None else found


def by_activation(model: Model, image: Image.Image, tags: Sequence[int]) -> Heated | None:
    """Gradient × activation on the last maps; None where scores are not made of maps."""
    pictures = _pictures(model, [image])
    if not model.encoder.is_made_of_maps(pictures):
        return None
    watched = [Watched(backbone) for backbone in model.encoder.backbones]
    encoder = model.encoder.with_backbones(watched).eval()  # type: ignore[arg-type]  # all that is asked of one
    logits = model.logits(encoder(*pictures))
    whole, patches = _numbers(logits)
    maps = [one for backbone in watched for one in backbone.kept]
    heat = []
    for tag in tags:
        targets = [logits["whole_make"][0, tag], *(logits["patch_make"][0, :, tag] if len(patches) else ())]
        heat.append([encoder.heat(_contributions(target, maps), part) for part, target in enumerate(targets)])
    if not all(np.isfinite(part).all() for parts in heat for part in parts):
        return None  # a probability so small that its root has no slope
    scores = model.calibrated(model.method.predict(logits))[0].detach().numpy()
    return Heated(scores, whole, patches, encoder.boxes(), heat, "activation")


def by_occlusion(model: Model, image: Image.Image, tags: Sequence[int]) -> Heated:
    """What a logit loses when a cell of a grid is covered with the image's mean colour."""
    boxes = model.encoder.boxes()
    patches_a_side = model.encoder.settings.patches
    grid = patches_a_side * ceil(GRID / patches_a_side)  # so that cells do not lie across patches
    cells = [(row, column) for row in range(grid) for column in range(grid)]
    colour = tuple(int(value) for value in np.asarray(image).mean((0, 1)))
    with torch.inference_mode():
        logits = model.logits(model.encoder(*_pictures(model, [image])))
        scores = model.calibrated(model.method.predict(logits))[0].numpy()
        whole, patches = _numbers(logits)
        full = np.concatenate([whole[None], patches])  # [1 + n, K]
        lost = np.zeros((len(full), full.shape[1], grid, grid), np.float32)
        with Progress("covering parts of the image", len(cells)) as progress:
            for start in range(0, len(cells), COVERED_TOGETHER):
                some = cells[start : start + COVERED_TOGETHER]
                covered = [_covered(image, row, column, grid, colour) for row, column in some]
                logits = model.logits(model.encoder(*_pictures(model, covered)))
                for place, (row, column) in enumerate(some):
                    left = np.concatenate([part[None] if part.ndim == 1 else part for part in _numbers(logits, place)])
                    lost[:, :, row, column] = full - left
                progress.advance(len(some))
    heat = [[_cut(lost[place, tag] * grid**2, box) for place, box in enumerate(boxes)] for tag in tags]
    return Heated(scores, whole, patches, boxes, heat, "occlusion")


class Watched(nn.Module):
    """A backbone that keeps its maps, so that gradients can be asked for; its weights stay out of them."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone, self.name, self.width = backbone, backbone.name, backbone.width
        self.gives_maps, self.classify = backbone.gives_maps, backbone.classify
        self.kept: list[Tensor] = []

    @property
    def classifier(self) -> nn.Linear | None:
        """See Backbone."""
        return self.backbone.classifier

    def maps(self, pictures: Tensor) -> Tensor:
        """See Backbone."""
        with torch.no_grad():
            found = self.backbone.maps(pictures)
        self.kept.append(found.detach().requires_grad_())
        return self.kept[-1]

    def forward(self, pictures: Tensor) -> Tensor:
        """See Backbone."""
        return self.maps(pictures).mean((2, 3))


def _contributions(target: Tensor, maps: list[Tensor]) -> list[Tensor]:
    """Of every map [B, C, h, w] what its places add to a logit [B, h, w]."""
    slopes = torch.autograd.grad(target, maps, retain_graph=True, allow_unused=True)
    return [
        torch.zeros_like(one[:, 0]) if slope is None else (one * slope).sum(1).detach()
        for one, slope in zip(maps, slopes, strict=True)
    ]


def _cut(heat: Heat, box: Box) -> Heat:
    """The part of the heat of an image that lies in a box."""
    left, top, right, bottom = (round(share * len(heat)) for share in box)
    return heat[top:bottom, left:right]


def _numbers(logits: Logits, place: int = 0) -> tuple[Logit, Logit]:
    """Logits of one image of a batch: of the whole [K] and of the patches [n, K]."""
    whole = logits["whole_make"][place].detach().float().numpy()
    if "patch_make" not in logits:
        return whole, np.zeros((0, len(whole)), np.float32)
    return whole, logits["patch_make"][place].detach().float().numpy()


def _pictures(model: Model, images: Sequence[Image.Image]) -> list[Tensor]:
    """What the encoder reads of these images."""
    read = [model.encoder.pictures(image) for image in images]
    return [torch.from_numpy(np.stack(some)) for some in zip(*read, strict=True)]


def _covered(image: Image.Image, row: int, column: int, grid: int, colour: tuple[int, ...]) -> Image.Image:
    image = image.copy()
    width, height = image.size
    box = (column * width // grid, row * height // grid, (column + 1) * width // grid, (row + 1) * height // grid)
    image.paste(colour, box)
    return image
