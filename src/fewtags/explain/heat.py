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
from torch.nn.functional import interpolate

from fewtags.backbones.base import Backbone
from fewtags.encoders.inputs import read_inputs
from fewtags.encoders.views import ViewSpec
from fewtags.encoders.windows import GRID, Evidence, regions
from fewtags.methods.parts.heads import Logits
from fewtags.model.pixels import CropReader, EvidenceReader, PixelModel
from fewtags.model.saved import Model
from fewtags.utils.progress import Progress

FINE = 8 * GRID  # cells a side on which maps of several sizes meet
COVERED_TOGETHER = 8  # images with a covered part in one forward

Heat = NDArray[np.float32]  # [h, w] of a part of the image; its mean is what the place adds to the logit in all
Logit = NDArray[np.float32]  # [K] of the whole image, [n, K] of its patches
Box = tuple[float, float, float, float]  # left, top, right, bottom in 0..1 of the image


class Heated(NamedTuple):
    """The logits of an image, and where they come from."""

    whole: Logit
    patches: Logit  # n is 0 without patches
    boxes: list[Box]  # of the whole image and of each patch
    heat: list[list[Heat]]  # for every tag asked for: of the whole image and of each patch
    how: str  # "activation" or "occlusion"


@torch.inference_mode()
def logits_of(model: Model, image: Image.Image) -> tuple[Logit, Logit]:
    """What the model says of one RGB image and of its patches."""
    module = PixelModel(model).eval()
    return _numbers(module.logits(*_pictures(module, [image], model.info.view_spec())))


def heat_of(model: Model, image: Image.Image, tags: Sequence[int]) -> Heated:
    """Heat of the tags with these positions, in one RGB image."""
    found = by_activation(model, image, tags)
    return by_occlusion(model, image, tags) if found is None else found


def by_activation(model: Model, image: Image.Image, tags: Sequence[int]) -> Heated | None:
    """Gradient × activation on the last maps; None where scores are not made of maps."""
    watched = [Watched(backbone) for backbone in model.backbones]
    module = PixelModel(model._replace(backbones=watched)).eval()  # type: ignore[arg-type]  # all that is asked of one
    pictures = _pictures(module, [image], model.info.view_spec())
    if not _is_made_of_maps(module, pictures, model):
        return None
    logits = module.logits(*pictures)
    whole, patches = _numbers(logits)
    maps = [one for backbone in watched for one in backbone.kept]
    boxes = part_boxes(model)
    heat = []
    for tag in tags:
        targets = [logits["whole_make"][0, tag], *(logits["patch_make"][0, :, tag] if len(patches) else ())]
        heat.append([_part(_contributions(target, maps), place, boxes, model) for place, target in enumerate(targets)])
    if not all(np.isfinite(part).all() for parts in heat for part in parts):
        return None  # a probability so small that its root has no slope
    return Heated(whole, patches, boxes, heat, "activation")


def by_occlusion(model: Model, image: Image.Image, tags: Sequence[int]) -> Heated:
    """What a logit loses when a cell of a grid is covered with the image's mean colour."""
    module = PixelModel(model).eval()
    spec = model.info.view_spec()
    boxes = part_boxes(model)
    grid = spec.patches * ceil(GRID / spec.patches)  # so that cells do not lie across patches
    cells = [(row, column) for row in range(grid) for column in range(grid)]
    colour = tuple(int(value) for value in np.asarray(image).mean((0, 1)))
    with torch.inference_mode():
        whole, patches = _numbers(module.logits(*_pictures(module, [image], spec)))
        full = np.concatenate([whole[None], patches])  # [1 + n, K]
        lost = np.zeros((len(full), full.shape[1], grid, grid), np.float32)
        with Progress("covering parts of the image", len(cells)) as progress:
            for start in range(0, len(cells), COVERED_TOGETHER):
                some = cells[start : start + COVERED_TOGETHER]
                covered = [_covered(image, row, column, grid, colour) for row, column in some]
                logits = module.logits(*_pictures(module, covered, spec))
                for place, (row, column) in enumerate(some):
                    left = np.concatenate([part[None] if part.ndim == 1 else part for part in _numbers(logits, place)])
                    lost[:, :, row, column] = full - left
                progress.advance(len(some))
    heat = [[_cut(lost[place, tag] * grid**2, box) for place, box in enumerate(boxes)] for tag in tags]
    return Heated(whole, patches, boxes, heat, "occlusion")


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


def part_boxes(model: Model) -> list[Box]:
    """Where the whole image and each patch lie."""
    info = model.info
    if info.features == "evidence":
        return [
            (left / GRID, top / GRID, (left + extent) / GRID, (top + extent) / GRID)
            for top, left, extent in regions(GRID, info.patches)
        ]
    boxes: list[Box] = [(0.0, 0.0, 1.0, 1.0)]
    if info.patches > 1:
        n = info.patches
        boxes += [(x / n, y / n, (x + 1) / n, (y + 1) / n) for y in range(n) for x in range(n)]
    return boxes


def _is_made_of_maps(module: PixelModel, pictures: list[Tensor], model: Model) -> bool:
    """Whether the features are read from maps; some backbones pool in a way of their own."""
    if isinstance(module.reader, EvidenceReader):
        return all(isinstance(reader, Evidence) and reader.mapped for reader in module.reader.readers)
    assert isinstance(module.reader, CropReader)  # noqa: S101 - for the type checker
    backbone, side = model.backbones[0], model.info.view_spec().patch_side
    if not (backbone.gives_maps(model.info.size) and (model.info.patches == 1 or backbone.gives_maps(side))):
        return False
    whole = pictures[0].permute(0, 3, 1, 2)
    with torch.no_grad():
        return torch.allclose(backbone(whole), backbone.maps(whole).mean((2, 3)), atol=1e-4)


def _contributions(target: Tensor, maps: list[Tensor]) -> list[Tensor]:
    """Of every map [B, C, h, w] what its places add to a logit [B, h, w]."""
    slopes = torch.autograd.grad(target, maps, retain_graph=True, allow_unused=True)
    return [
        torch.zeros_like(one[:, 0]) if slope is None else (one * slope).sum(1).detach()
        for one, slope in zip(maps, slopes, strict=True)
    ]


def _part(contributions: list[Tensor], place: int, boxes: list[Box], model: Model) -> Heat:
    """The heat of the whole image or of a patch, by its place."""
    if model.info.features == "crops":  # every part has a row, and a map, of its own
        row = [row for one in contributions for row in one][place]
        own: Heat = (row * row.numel()).numpy()
        return own
    # One map for all parts, several backbones: what each adds, on one fine grid
    total = sum(
        interpolate((one * one[0].numel())[:, None], size=(FINE, FINE), mode="bilinear")[0, 0] for one in contributions
    )
    assert isinstance(total, Tensor)  # noqa: S101 - there is at least one backbone
    return _cut(total.numpy(), boxes[place])


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


def _pictures(module: PixelModel, images: Sequence[Image.Image], spec: ViewSpec) -> list[Tensor]:
    read = [read_inputs(image, module.inputs, spec) for image in images]
    return [torch.from_numpy(np.stack([one[name] for one in read])) for name in module.inputs]


def _covered(image: Image.Image, row: int, column: int, grid: int, colour: tuple[int, ...]) -> Image.Image:
    image = image.copy()
    width, height = image.size
    box = (column * width // grid, row * height // grid, (column + 1) * width // grid, (row + 1) * height // grid)
    image.paste(colour, box)
    return image
