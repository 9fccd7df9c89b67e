"""Precomputed vectors of images, texts or sounds: nothing is extracted and nothing is stored."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fewtags.backbones.base import Backbone
from fewtags.data.catalogue import ImageResult, ImageSource
from fewtags.data.vectors import VectorSource
from fewtags.encoders.base import BATCH, Box, Encoder, EncoderSettings, Extraction, Images
from fewtags.encoders.components import FITTED_ON, Components, fit_components, restore_components
from fewtags.encoders.inputs import VECTORS, Input
from fewtags.encoders.store import FeatureStore, Stored
from fewtags.errors import UserError
from fewtags.utils.threads import batched

ROWS = 4096  # vectors reduced at a time


class Vectors(Encoder):
    """Vectors unchanged; those longer than `components` are reduced to principal components of the training rows."""

    kind: ClassVar[str] = "vectors"
    name = "vectors"
    parts = 1

    def __init__(self, numbers: int, settings: EncoderSettings) -> None:
        super().__init__(settings)
        self.backbones: Sequence[Backbone] = ()
        self.numbers = self.width = numbers
        self.components: Components | None = None

    def pictures(self, image: Image.Image) -> tuple[NDArray[np.uint8], ...]:
        """There are none."""
        raise UserError("this model reads vectors, not images; give it vectors:FILE")

    def raw(self, *pictures: Tensor) -> Tensor:
        """Vectors [N, D] -> [N, 1, D]."""
        (vectors,) = pictures
        return vectors[:, None].float()

    def finish(self, raw: Tensor) -> Tensor:
        """Reduced to components where there are any; vectors are not rounded."""
        return raw if self.components is None else self.components(raw)

    @torch.inference_mode()
    def encode(
        self, images: ImageSource, names: Iterable[str], device: torch.device
    ) -> Iterator[list[ImageResult[NDArray[np.float32]]]]:
        """See Encoder; the images are rows of a source of vectors."""
        source = self._checked(images)
        for batch in batched(names, BATCH):
            found = self(torch.from_numpy(source.vectors(batch))).numpy()
            yield [ImageResult(name, row) for name, row in zip(batch, found, strict=True)]

    def extraction(self, view: str, device: torch.device) -> Extraction:
        """Never asked for."""
        raise TypeError("vectors are not extracted")

    def feature_stores(self, view: str) -> Sequence[FeatureStore]:
        """None."""
        return ()

    def fit(self, labelled: Images, unlabelled: Images, targets: Tensor, fabric: Fabric) -> None:
        """Components of the training rows, where vectors are longer than that."""
        if self.numbers > self.settings.components:
            names = [*labelled.names, *unlabelled.names]
            few = [names[row] for row in np.sort(np.random.default_rng(0).permutation(len(names))[:FITTED_ON])]
            vectors = self._checked(labelled.source).vectors(few)
            found = fit_components(vectors, self.settings.components)
            if fabric.world_size > 1:  # rounding may differ between machines: one of them decides
                found = Components(*fabric.broadcast((found.mean, found.axes)))
            self.components, self.width = found, found.count

    def stored(self, view: str, images: Images) -> Stored:
        """Rows in memory [n, 1, 1, width]."""
        source, names = self._checked(images.source), images.names
        found = np.empty((len(names), 1, 1, self.width), np.float32)
        with torch.inference_mode():
            for start in range(0, len(names), ROWS):
                some = torch.from_numpy(source.vectors(names[start : start + ROWS]))
                found[start : start + ROWS, 0] = self(some).numpy()
        return Stored(found, np.arange(len(names)))

    def _checked(self, images: ImageSource) -> VectorSource:
        if not isinstance(images, VectorSource):
            raise UserError("this model reads vectors, not images; give it vectors:FILE")
        if images.width != self.numbers:
            raise UserError(f"vectors of {images.width} numbers, and the model learned from {self.numbers}")
        return images

    def identity(self) -> str:
        """Of the components."""
        return "" if self.components is None else self.components.identity()

    def state(self) -> dict[str, Any]:
        """See Encoder."""
        return {"numbers": self.numbers, "components": self.width if self.components is not None else None}

    def tensors(self) -> dict[str, Tensor]:
        """The components."""
        return {} if self.components is None else self.components.tensors()

    @classmethod
    def state_problem(cls, state: Mapping[str, Any]) -> str:
        """See Encoder."""
        return "" if state["numbers"] else "the length of its vectors is missing"

    @classmethod
    def restore(cls, state: Mapping[str, Any], tensors: Mapping[str, Tensor], file: Path) -> "Vectors":
        """See Encoder."""
        count = state["components"]
        encoder = cls(state["numbers"], EncoderSettings(components=count or state["numbers"]))
        if count:
            encoder.components = restore_components(tensors, encoder.numbers, count, file)
            encoder.width = count
        return encoder

    def with_backbones(self, backbones: Sequence[Backbone]) -> "Vectors":
        """There are none."""
        return self

    def inputs(self) -> dict[str, Input]:
        """The vector."""
        return {VECTORS: Input((self.numbers,), "float32", f"a vector; float32 [N, {self.numbers}]")}

    def boxes(self) -> list[Box]:
        """The whole."""
        return [(0.0, 0.0, 1.0, 1.0)]
