"""Tags from an exported ONNX file, with ONNX Runtime and Pillow alone: torch is never imported."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fewtags.data.catalogue import ImageResult, ImageSource
from fewtags.data.images import ImageFiles
from fewtags.data.vectors import VectorSource
from fewtags.encoders.inputs import VECTORS, read_inputs
from fewtags.errors import BadImage, UserError
from fewtags.model.base import KEY, AboutFile, BaseTagger
from fewtags.utils.onnx_session import open_session
from fewtags.utils.threads import batched, cores, map_in_order

GROUP = 4  # images a thread takes at a time


class OnnxTagger(BaseTagger):
    """A model that `fewtags export RUN FILE.onnx` wrote."""

    def __init__(self, file: str | Path) -> None:
        self._session = open_session(Path(file))
        text = self._session.get_modelmeta().custom_metadata_map.get(KEY, "")
        self.about = _read_about(Path(file), text)
        super().__init__(self.about.tags, self.about.threshold_values(), text, bool(self.about.calibration))

    def scores(
        self, names: Iterable[str], images: ImageSource | None = None
    ) -> Iterator[ImageResult[NDArray[np.float32]]]:
        """The scores [K] of one image after the other."""
        source = images or ImageFiles()

        def work(group: list[str]) -> list[ImageResult[NDArray[np.float32]]]:
            return self._scored(group, source)

        for scored in map_in_order(work, batched(names, GROUP), cores()):
            yield from scored

    def _scored(self, names: list[str], images: ImageSource) -> list[ImageResult[NDArray[np.float32]]]:
        read = [self._read(name, images) for name in names]
        good = [one.value for one in read if one.value is not None]
        if good:
            (scores,) = self._session.run(None, {name: np.stack([one[name] for one in good]) for name in good[0]})
            rows = iter(scores)
        return [ImageResult(one.name, None if one.value is None else next(rows), one.problem) for one in read]

    def _read(self, name: str, images: ImageSource) -> ImageResult[dict[str, NDArray[np.generic]]]:
        if VECTORS in self.about.inputs:
            if not isinstance(images, VectorSource):
                raise UserError("this model reads vectors, not images; give it vectors:FILE")
            numbers = self._session.get_inputs()[0].shape[1]
            if images.width != numbers:
                raise UserError(f"vectors of {images.width} numbers, and the model learned from {numbers}")
            return ImageResult(name, {VECTORS: images.vectors([name])[0]})
        try:
            return ImageResult(name, dict(read_inputs(images.image(name), self.about.inputs, self.about.view_spec())))
        except BadImage as error:
            return ImageResult(name, None, str(error))


def _read_about(file: Path, text: str) -> AboutFile:
    if not text:
        raise UserError(
            f"{file} is an ONNX file of another kind; give one that `fewtags export` wrote. "
            f"(As an encoder to learn with: fewtags train DATA --backbone onnx:{file})"
        )
    try:
        return AboutFile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        what = ".".join(map(str, first["loc"])) or "content"
        raise UserError(
            f"{file}: what it says of itself does not fit ({what}: {first['msg']}); export it again"
        ) from error
