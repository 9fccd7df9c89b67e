"""A saved model as one torch module, from pixels to scores: what is exported and what is explained."""

from math import floor

import torch
from torch import Tensor, nn

from fewtags.backbones.base import Backbone
from fewtags.encoders.components import Components
from fewtags.encoders.inputs import input_names
from fewtags.encoders.views import ViewSpec
from fewtags.encoders.windows import make_readers
from fewtags.methods.parts.heads import Logits, mixed_scores
from fewtags.model.saved import Model

FRACTION_BITS = 22  # of the weights that Pillow resizes bytes with


class PixelModel(nn.Module):
    """uint8 pictures [N, size, size, 3] by `inputs` -> scores [N, K] in 0..1, as `Tagger` gives them."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        info = model.info
        self.inputs = input_names(info.features, info.view_spec())
        self.reader: nn.Module = (
            CropReader(model.backbones[0], info.view_spec())
            if info.features == "crops"
            else EvidenceReader(model.backbones, info.size, info.patches, info.blocks)
        )
        self.shrink = None if model.components is None else Shrink(model.components)
        self.top, self.stored = model.top, info.frozen
        self.merge, self.alpha = info.merge, info.alpha

    def logits(self, first: Tensor, second: Tensor | None = None) -> Logits:
        """`whole_make` [N, K] and, with patches, `patch_make` [N, n, K]."""
        features: Tensor = self.reader(first) if second is None else self.reader(first, second)
        if self.stored:
            features = as_stored(features)
        if self.shrink is not None:
            features = self.shrink(features)
        logits: Logits = self.top(features[:, 0], features[:, 1:] if features.shape[1] > 1 else None)
        return logits

    def forward(self, first: Tensor, second: Tensor | None = None) -> Tensor:
        """See the class."""
        return mixed_scores(self.logits(first, second), self.merge, self.alpha)


class CropReader(nn.Module):
    """Whole pictures and what patches are cut from -> features [N, 1 + n, width]."""

    def __init__(self, backbone: Backbone, spec: ViewSpec) -> None:
        super().__init__()
        self.backbone = backbone
        self.together = spec.patch_side == spec.size
        self.cut = CutPatches(spec) if spec.patches > 1 and spec.patch_source == "resized" else nn.Identity()

    def forward(self, whole: Tensor, patched: Tensor | None = None) -> Tensor:
        """whole [N, size, size, 3]; patched: the same before it is cut, or patches [N, n, side, side, 3]."""
        whole = whole[:, None]
        if patched is None:
            return self._features(whole)
        patches: Tensor = self.cut(patched)
        if self.together:  # one pass, so that an exported graph holds the network once
            return self._features(torch.cat([whole, patches], dim=1))
        return torch.cat([self._features(whole), self._features(patches)], dim=1)

    def _features(self, pictures: Tensor) -> Tensor:
        """[N, n, side, side, 3] -> [N, n, width]."""
        vectors: Tensor = self.backbone(pictures.flatten(0, 1).permute(0, 3, 1, 2))
        return vectors.reshape(-1, pictures.shape[1], vectors.shape[-1])


class EvidenceReader(nn.Module):
    """Pictures [N, size, size, 3] -> what all backbones see in them [N, 1 + n, width]."""

    def __init__(self, backbones: list[Backbone], size: int, patches: int, blocks: str) -> None:
        super().__init__()
        readers = make_readers(backbones, size, patches)
        self.readers = nn.ModuleList(readers)
        self.columns = [reader.columns(blocks) for reader in readers]

    def forward(self, pictures: Tensor) -> Tensor:
        """See the class."""
        pictures = pictures.permute(0, 3, 1, 2)
        stretches = []
        for reader, columns in zip(self.readers, self.columns, strict=True):
            found = reader(pictures)
            stretches += [found[:, :, start:end] for start, end in columns]
        return torch.cat(stretches, dim=-1)


class Shrink(nn.Module):
    """Principal components: features [N, parts, D] -> [N, parts, d]."""

    axes: Tensor
    moved: Tensor

    def __init__(self, components: Components) -> None:
        super().__init__()
        self.register_buffer("axes", components.axes)
        self.register_buffer("moved", components.mean @ components.axes.float())

    def forward(self, features: Tensor) -> Tensor:
        """See the class."""
        return features @ self.axes.float() - self.moved


class CutPatches(nn.Module):
    """Bytes [N, size, size, 3] -> patches [N, n, side, side, 3], row by row: byte for byte as `make_views` cuts them.

    An enlarged pixel is a sum of few neighbours in whole numbers, first along a row, then along a column.
    """

    places: Tensor
    weights: Tensor

    def __init__(self, spec: ViewSpec) -> None:
        super().__init__()
        self.patches, self.extent, self.side = spec.patches, spec.size // spec.patches, spec.patch_side
        places, weights = bilinear_taps(self.extent, self.side)
        self.register_buffer("places", places)
        self.register_buffer("weights", weights)

    def forward(self, pictures: Tensor) -> Tensor:
        """See the class."""
        starts = [place * self.extent for place in range(self.patches)]
        crops = [pictures[:, top : top + self.extent, left : left + self.extent] for top in starts for left in starts]
        patches = torch.stack(crops, dim=1)
        if self.side == self.extent:
            return patches
        return self._enlarged(self._enlarged(patches.int(), 3), 2).to(torch.uint8)

    def _enlarged(self, values: Tensor, axis: int) -> Tensor:
        """Along one axis, rounded to bytes as Pillow does after each."""
        shape = [-1 if place == axis else 1 for place in range(values.dim())]
        taps = [
            values.index_select(axis, places) * weights.view(shape)
            for places, weights in zip(self.places, self.weights, strict=True)
        ]
        total = torch.stack(taps).sum(0, dtype=torch.int32)
        # floor division stays whole-numbered in ONNX; torch.div with a rounding mode passes through floats there
        return (total + (1 << (FRACTION_BITS - 1))) // (1 << FRACTION_BITS)


def bilinear_taps(length: int, wanted: int) -> tuple[Tensor, Tensor]:
    """Enlarging `length` pixels to `wanted`: which pixels each new one is made of, and their weights [taps, wanted].

    Weights are whole numbers, in units of 2 to the power of -22.
    """
    rows = []
    for place in range(wanted):
        centre = (place + 0.5) * length / wanted
        first, end = max(0, floor(centre - 0.5)), min(length, floor(centre + 1.5))
        shares = [max(0.0, 1 - abs(pixel + 0.5 - centre)) for pixel in range(first, end)]
        total = sum(shares)
        rows.append(
            [(first + step, floor(share / total * (1 << FRACTION_BITS) + 0.5)) for step, share in enumerate(shares)]
        )
    taps = max(map(len, rows))
    padded = [row + [(0, 0)] * (taps - len(row)) for row in rows]
    places, weights = torch.tensor(padded).permute(2, 1, 0)
    return places.contiguous(), weights.int().contiguous()


def as_stored(features: Tensor) -> Tensor:
    """Rounded to the sixteen bits in which features are stored: a model reads what it learned from."""
    return features.half().float()
