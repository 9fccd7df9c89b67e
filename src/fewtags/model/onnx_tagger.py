"""Tags from an exported ONNX file, with ONNX Runtime and Pillow alone: torch is never imported."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fewtags.data.catalogue import ImageSource
from fewtags.encoders.inputs import read_inputs
from fewtags.errors import BadImage, UserError
from fewtags.model.base import AnyTagger, Files
from fewtags.model.onnx_about import KEY, AboutFile
from fewtags.utils.threads import batched, map_in_order

GROUP = 4  # images a thread takes at a time


class OnnxTagger(AnyTagger):
    """A model that `fewtags export RUN FILE.onnx` wrote."""

    def __init__(self, file: str | Path) -> None:
        self._session = open_session(Path(file))
        text = self._session.get_modelmeta().custom_metadata_map.get(KEY, "")
        self.about = _read_about(Path(file), text)
        super().__init__(self.about.tags, self.about.threshold_values(), text)

    def scores(
        self, names: Iterable[str], images: ImageSource | None = None
    ) -> Iterator[tuple[str, NDArray[np.float32] | BadImage]]:
        """Name and scores [K] of one image after the other."""
        source = images or Files()

        def work(group: list[str]) -> list[tuple[str, NDArray[np.float32] | BadImage]]:
            return self._scored(group, source)

        for scored in map_in_order(work, batched(names, GROUP), os.cpu_count() or 1):
            yield from scored

    def _scored(self, names: list[str], images: ImageSource) -> list[tuple[str, NDArray[np.float32] | BadImage]]:
        read = [self._read(name, images) for name in names]
        good = [one for one in read if not isinstance(one, BadImage)]
        if good:
            (scores,) = self._session.run(None, {name: np.stack([one[name] for one in good]) for name in good[0]})
            rows = iter(scores)
        return [(name, one if isinstance(one, BadImage) else next(rows)) for name, one in zip(names, read, strict=True)]

    def _read(self, name: str, images: ImageSource) -> dict[str, NDArray[np.uint8]] | BadImage:
        try:
            return read_inputs(images.image(name), self.about.inputs, self.about.view_spec())
        except BadImage as error:
            return error


def open_session(model: Path | bytes) -> Any:
    """An ONNX file, or its bytes, opened for use by many threads with one core each."""
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError(
            "an .onnx file needs ONNX Runtime; run: pip install -c constraints.txt 'fewtags[onnx]'"
        ) from error
    if isinstance(model, Path) and not model.is_file():
        raise UserError(f"{model}: there is no such file; give a file that `fewtags export` wrote, or a run folder")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # its errors reach the user as ours
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's errors have no common kind
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        name = model if isinstance(model, Path) else "the exported model"
        raise UserError(f"{name}: ONNX Runtime cannot open this; export or copy it again ({reason})") from error


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
