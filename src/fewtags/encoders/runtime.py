"""The engines that run a frozen backbone: ONNX Runtime or torch, within 1e-4 of each other."""

import hashlib
import importlib.util
import logging
import re
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fewtags.backbones.base import Backbone
from fewtags.backbones.onnx_file import OnnxFileBackbone
from fewtags.backbones.weights import digest
from fewtags.encoders.windows import WindowReader
from fewtags.utils.files import atomic_write, cache_folder
from fewtags.utils.onnx_session import open_session
from fewtags.utils.progress import say

BATCH = 4  # pictures in one forward; many more fall out of the cores' caches


Reader = Backbone | WindowReader  # what turns pictures [B, 3, H, W] into features


class Engine(Protocol):
    """uint8 pictures [B, H, W, 3] -> features [B, width], or [B, parts, width] of windows."""

    in_threads: bool  # may be called from several threads, one core each

    def __call__(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Features of a few pictures."""
        ...


def make_engine(reader: Reader, device: torch.device) -> Engine:
    """The fastest engine that is installed."""
    packages = ("onnx", "onnxscript", "onnxruntime")
    backbone = reader.backbone if isinstance(reader, WindowReader) else reader
    if isinstance(backbone, OnnxFileBackbone):
        return OnnxFileEngine(reader)
    if device.type == "cpu" and all(importlib.util.find_spec(name) for name in packages):
        return OnnxEngine(reader)
    return TorchEngine(reader, device)


class TorchEngine:
    """Eager torch, channels last."""

    in_threads = False

    def __init__(self, reader: Reader, device: torch.device) -> None:
        self._device = device
        folded = reader.folded()
        self._reader = folded.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def __call__(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See Engine."""
        size = 16 if self._device.type == "cpu" else 256
        found = []
        for start in range(0, len(pictures), size):
            batch = torch.from_numpy(pictures[start : start + size]).to(self._device)
            found.append(self._reader(batch.permute(0, 3, 1, 2)).float().cpu())
        return torch.cat(found).numpy()


class OnnxFileEngine(TorchEngine):
    """An encoder that comes as an ONNX file and runs by itself: torch only does what is left around it."""

    in_threads = True

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader, torch.device("cpu"))


class OnnxEngine:
    """ONNX Runtime with one thread per call: parallelism is over images, not within one."""

    in_threads = True

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._sessions: dict[int, Any] = {}
        self._lock = threading.Lock()

    def __call__(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See Engine."""
        with self._lock:
            size = pictures.shape[1]
            if size not in self._sessions:
                self._sessions[size] = open_session(exported(self._reader, size))
            session = self._sessions[size]
        batches = [pictures[start : start + BATCH] for start in range(0, len(pictures), BATCH)]
        return np.concatenate([session.run(None, {"pictures": batch})[0] for batch in batches])


def exported(reader: Reader, size: int) -> Path:
    """The ONNX file of a backbone (or of the evidence it gives) for pictures of this size, made once."""
    content = hashlib.sha256(f"{digest(reader)} {reader.extra_repr()}".encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", reader.name)
    file = cache_folder() / "engines" / f"{name}-{size}-{content}.onnx"
    if not file.exists():
        say(f"building a fast engine for {reader.name} at {size} px: once, some ten seconds")
        with atomic_write(file) as out:
            out.write(to_onnx(_FromPictures(reader).eval(), size))
    return file


def to_onnx(module: nn.Module, size: int) -> bytes:
    """A module that reads uint8 pictures [B, size, size, 3] as an ONNX model with any batch size."""
    pictures = torch.zeros(2, size, size, 3, dtype=torch.uint8)
    content: bytes = traced(module, {"pictures": pictures}, "features").SerializeToString()
    return content


def traced(module: nn.Module, examples: Mapping[str, Tensor], output: str) -> Any:
    """A module of these inputs and one output as an ONNX model (a ModelProto) with any batch size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        batch = torch.export.Dim("batch")
        program = torch.onnx.export(
            module,
            tuple(examples.values()),
            input_names=list(examples),
            output_names=[output],
            dynamic_shapes=tuple({0: batch} for _ in examples),
            dynamo=True,
            verbose=False,
        )
    return program.model_proto  # type: ignore[union-attr]


class _FromPictures(nn.Module):
    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self.reader = reader

    def forward(self, pictures: Tensor) -> Tensor:
        features: Tensor = self.reader(pictures.permute(0, 3, 1, 2))
        return features
