"""Tags for images: one forward an image and view, in constant memory however many there are."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fewtags.data.catalogue import ImageSource
from fewtags.encoders.forward import EvidenceForward, FrozenForward, Wanted
from fewtags.encoders.windows import make_readers
from fewtags.errors import BadImage
from fewtags.methods.parts.heads import mixed_scores
from fewtags.model.base import AnyTagger, Files
from fewtags.model.saved import load_model

BATCH = 64  # images whose features go through the heads together


class Tagger(AnyTagger):
    """A trained model. `fewtags.load` makes one."""

    def __init__(self, folder: str | Path) -> None:
        self.info, backbones, top, self._components = load_model(Path(folder))
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._top = top.to(device)
        self._device = device
        self._backbones = backbones
        super().__init__(self.info.tags, self.info.threshold_values(), self.info.model_dump_json())

    def scores(
        self, names: Iterable[str], images: ImageSource | None = None
    ) -> Iterator[tuple[str, NDArray[np.float32] | BadImage]]:
        """Name and scores [K] of one image after the other."""
        ours, theirs = tee(names)
        features = self._features(images or Files(), (Wanted(name, b"") for name in theirs))
        waiting: list[tuple[str, NDArray[np.float32] | BadImage]] = []
        for pair in zip(ours, features, strict=True):
            waiting.append(pair)
            if len(waiting) == BATCH:
                yield from self._through_heads(waiting)
                waiting = []
        yield from self._through_heads(waiting)

    def _features(self, images: ImageSource, wanted: Iterator[Wanted]) -> Iterator[NDArray[np.float32] | BadImage]:
        """What the backbones make of one image after the other [1 + n, width]."""
        info = self.info
        if info.features == "crops":
            forward = FrozenForward(self._backbones[0], info.view_spec(), self._device)
            for one in forward.features(images, wanted, "plain"):
                yield one if isinstance(one, BadImage) else one[0]
            return
        readers = make_readers(self._backbones, info.size, info.patches)
        columns = [reader.columns(info.blocks) for reader in readers]
        for found in EvidenceForward(tuple(readers), info.size, self._device).features(images, wanted):
            if isinstance(found, BadImage):
                yield found
                continue
            stretches = (one[:, start:end] for one, some in zip(found, columns, strict=True) for start, end in some)
            yield np.concatenate(list(stretches), axis=1)

    @torch.inference_mode()
    def _through_heads(
        self, found: Sequence[tuple[str, NDArray[np.float32] | BadImage]]
    ) -> Iterator[tuple[str, NDArray[np.float32] | BadImage]]:
        good = [features for _, features in found if not isinstance(features, BadImage)]
        if good:
            stacked: NDArray[np.floating[Any]] = np.stack(good)
            if self.info.frozen:
                stacked = stacked.astype(np.float16)  # as the features were stored that it learned from
            if self._components is not None:
                stacked = self._components.project(stacked)
            inputs = torch.from_numpy(stacked).to(self._device).float()
            patches = inputs[:, 1:] if inputs.shape[1] > 1 else None
            logits = self._top(inputs[:, 0], patches)
            rows = iter(mixed_scores(logits, self.info.merge, self.info.alpha).cpu().numpy())
        for name, features in found:
            yield name, features if isinstance(features, BadImage) else next(rows)
