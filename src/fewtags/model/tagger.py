"""Tags for images: one forward per image and view, in constant memory however many there are."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fewtags.data.catalogue import ImageResult, ImageSource
from fewtags.data.images import ImageFiles
from fewtags.model.base import BaseTagger, rows_of, usable
from fewtags.model.saved import load_model


class Tagger(BaseTagger):
    """A trained model. `fewtags.load` makes one."""

    def __init__(self, folder: str | Path, methods: Sequence[str] = ()) -> None:
        self.model = load_model(Path(folder), methods)
        self.info = self.model.info
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model.network.to(self._device)
        super().__init__(
            self.info.tags, self.info.threshold_values(), self.info.model_dump_json(), bool(self.info.calibration)
        )

    def scores(
        self, names: Iterable[str], images: ImageSource | None = None
    ) -> Iterator[ImageResult[NDArray[np.float32]]]:
        """The scores [K] of one image after the other."""
        for batch in self.model.encoder.encode(images or ImageFiles(), names, self._device):
            good = [one.value for one in batch if one.value is not None]
            rows = iter(self._scored(np.stack(good)) if good else ())
            for one in batch:
                yield ImageResult(one.name, None if one.value is None else next(rows), one.problem)

    def encode(self, X: str | Path | Iterable[str | Path] | NDArray[Any]) -> NDArray[np.float32]:
        """The features [n, width] of image files (or vectors), as the heads read them: of the whole image."""
        names, images = rows_of(X)
        batches = self.model.encoder.encode(images, names, self._device)
        found = [usable(one)[0] for batch in batches for one in batch]
        return np.stack(found) if found else np.empty((0, self.model.encoder.width), np.float32)

    @torch.inference_mode()
    def _scored(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.model.scores(torch.from_numpy(features).to(self._device)).cpu().numpy()
        return found
