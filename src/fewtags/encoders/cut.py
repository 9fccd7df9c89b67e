"""Patches cut and enlarged within a torch graph, byte for byte as Pillow does it."""

from math import floor

import torch
from torch import Tensor, nn

from fewtags.encoders.views import ViewSpec

FRACTION_BITS = 22  # of the weights that Pillow resizes bytes with


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
