"""The paper's views: the whole image and its patches, each passed through one backbone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fewtags.backbones.base import Backbone
from fewtags.backbones.weights import digest
from fewtags.encoders.base import Box, Encoder, EncoderSettings, Extraction, Images
from fewtags.encoders.cut import CutPatches
from fewtags.encoders.inputs import PATCHES, Input, image_input
from fewtags.encoders.runtime import Engine, make_engine
from fewtags.encoders.saved import backbone_problem, backbone_state, restore_backbones
from fewtags.encoders.store import FeatureStore, Stored, store_folder
from fewtags.encoders.views import generator, make_views
from fewtags.utils.files import cache_folder

VIEWS_VERSION = 1  # raise when views of the same name come to look different: stored features are then made anew
Pictures = tuple[NDArray[np.uint8], NDArray[np.uint8]]  # the whole [size, size, 3], its patches [n, side, side, 3]


class Crops(Encoder):
    """Pooled vectors of crops. The whole is resized bilinearly; patches are cut from a bicubic resize, as released."""

    kind: ClassVar[str] = "crops"
    draws_views: ClassVar[bool] = True

    def __init__(self, backbones: Sequence[Backbone], settings: EncoderSettings) -> None:
        super().__init__(settings)
        (self.backbone,) = self.backbones = list(backbones)
        self.spec = settings.view_spec()
        self.name, self.width = self.backbone.name, self.backbone.width
        self.parts = 1 + (self.spec.patches**2 if self.spec.patches > 1 else 0)
        cut_in_graph = self.spec.patches > 1 and self.spec.patch_source == "resized"
        self.cut = CutPatches(self.spec) if cut_in_graph else None
        self._stores: dict[str, FeatureStore] = {}

    def pictures(self, image: Image.Image) -> tuple[NDArray[np.uint8], ...]:
        """The whole [size, size, 3] and, with patches, [n, side, side, 3]."""
        return make_views(image, "plain", self.spec, None)[: 1 + (self.parts > 1)]

    def raw(self, *pictures: Tensor) -> Tensor:
        """whole [N, size, size, 3] and patches [N, n, side, side, 3] -> [N, 1 + n, width]."""
        whole, *patches = (pictures[0][:, None], *pictures[1:])
        if patches and self.spec.patch_side == self.spec.size:  # one pass: an exported graph holds the network once
            return self._pooled(torch.cat([whole, patches[0]], dim=1))
        return torch.cat([self._pooled(some) for some in (whole, *patches)], dim=1)

    def _pooled(self, pictures: Tensor) -> Tensor:
        """[N, n, side, side, 3] -> [N, n, width]."""
        vectors: Tensor = self.backbone(pictures.flatten(0, 1).permute(0, 3, 1, 2))
        return vectors.reshape(-1, pictures.shape[1], vectors.shape[-1])

    def extraction(self, view: str, device: torch.device) -> Extraction:
        """The plain view of every image, or several strong ones."""
        engine = make_engine(self.backbone, device)
        draws = self._draws(view)

        def prepare(image: Image.Image, key: bytes) -> list[Pictures]:
            seeds = [None if view == "plain" else generator(key, draw) for draw in range(draws)]
            return [make_views(image, view, self.spec, rng) for rng in seeds]  # type: ignore[arg-type]

        def compute(images: list[list[Pictures]]) -> list[list[NDArray[np.float32]]]:
            return [[row] for row in _pooled_views(engine, images)]

        return Extraction(prepare, compute, engine.in_threads)

    def feature_stores(self, view: str) -> Sequence[FeatureStore]:
        """See Encoder."""
        return [self.store(view)]

    def stored(self, view: str, images: Images) -> Stored:
        """Rows of the store, memory-mapped."""
        store = self.store(view)
        return Stored(store.array(), store.rows_of_all(images.keys))

    def made_from(self, view: str) -> dict[str, object]:
        """All that the features of an image depend on beside its bytes."""
        spec = asdict(self.spec)
        if view != "strong":
            spec.pop("cutout")
        return {
            "backbone": self.backbone.name,
            "weights": digest(self.backbone),
            "scaling": self.backbone.scaling,
            "views": spec,
            "views_version": VIEWS_VERSION,
            "kind": view,
            "draws": self._draws(view),
        }

    def _draws(self, view: str) -> int:
        return self.settings.strong_draws if view == "strong" else 1

    def store(self, view: str) -> FeatureStore:
        """Where the features of a view are kept."""
        if view not in self._stores:
            made_from, shape = self.made_from(view), (self._draws(view), self.parts, self.width)
            self._stores[view] = FeatureStore(store_folder(cache_folder(), made_from), shape, made_from)
        return self._stores[view]

    def state(self) -> dict[str, Any]:
        """See Encoder."""
        return backbone_state(self.backbones, self.settings)

    @classmethod
    def state_problem(cls, state: Mapping[str, Any]) -> str:
        """See Encoder."""
        return backbone_problem(state)

    @classmethod
    def restore(cls, state: Mapping[str, Any], tensors: Mapping[str, Tensor], file: Path) -> "Crops":
        """See Encoder."""
        return cls(*restore_backbones(state, tensors, file))

    def with_backbones(self, backbones: Sequence[Backbone]) -> "Crops":
        """See Encoder."""
        return Crops(backbones, self.settings)

    def inputs(self) -> dict[str, Input]:
        """Patches that are cut from the resized image are cut in the graph; others must come ready-made."""
        names = ["bilinear"]
        if self.parts > 1:
            names.append(PATCHES if self.cut is None else "bicubic")
        return {name: image_input(name, self.spec) for name in names}

    def from_inputs(self, *inputs: Tensor) -> Tensor:
        """See Encoder."""
        return self.forward(*inputs) if self.cut is None else self.forward(inputs[0], self.cut(inputs[1]))

    def boxes(self) -> list[Box]:
        """The whole image and a grid of equal patches."""
        n = self.spec.patches
        grid = [(x / n, y / n, (x + 1) / n, (y + 1) / n) for y in range(n) for x in range(n)]
        return [(0.0, 0.0, 1.0, 1.0), *(grid if n > 1 else [])]

    def is_made_of_maps(self, pictures: Sequence[Tensor]) -> bool:
        """Some backbones give no map of this size, or pool it in a way of their own."""
        sides = {self.spec.size, *([self.spec.patch_side] if self.parts > 1 else [])}
        if not all(self.backbone.gives_maps(side) for side in sides):
            return False
        whole = pictures[0].permute(0, 3, 1, 2)
        with torch.no_grad():
            return torch.allclose(self.backbone(whole), self.backbone.maps(whole).mean((2, 3)), atol=1e-4)

    def heat(self, contributions: list[Tensor], part: int) -> NDArray[np.float32]:
        """Every part has its own row, and so its own map."""
        row = [row for one in contributions for row in one][part]
        own: NDArray[np.float32] = (row * row.numel()).numpy()
        return own


def _pooled_views(engine: Engine, images: list[list[Pictures]]) -> list[NDArray[np.float32]]:
    """Views of a few images -> features [draws, parts, width]; wholes and patches apart, for sizes may differ."""
    draws = len(images[0])
    wholes = engine(np.stack([whole for views in images for whole, _ in views]))
    parts = wholes.reshape(len(images), draws, 1, -1)
    if len(images[0][0][1]):
        patches = engine(np.concatenate([many for views in images for _, many in views]))
        parts = np.concatenate([parts, patches.reshape(len(images), draws, -1, parts.shape[-1])], axis=2)
    return list(parts)
