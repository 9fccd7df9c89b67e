"""Any image encoder in an ONNX file: `onnx:FILE`, run by ONNX Runtime and never trained.

The metadata of the file may contain what its shapes do not show: `fewtags.size` (pixels), `fewtags.mean` and
`fewtags.std` (JSON lists of three numbers, for pixels in 0..1) and `fewtags.output` (the name of an output).
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewtags.backbones.base import IMAGENET_MEAN, IMAGENET_STD, Backbone, imagenet_scaling, tokens_to_map
from fewtags.backbones.external import import_extra
from fewtags.backbones.weights import first_line
from fewtags.errors import UserError
from fewtags.utils.onnx_session import open_session

_SIZE = 224  # pixels, for files without a size
_EXTRA = "onnx"
_KINDS: dict[str, Any] = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8}
_EXPORT_AGAIN = "export the encoder with one input of float32 or uint8 pictures [batch, 3, height, width]"
_OPENING = threading.Lock()  # shared by all backbones: a lock in the object would prevent copying it


class OnnxFileBackbone(Backbone):
    """A frozen encoder; the bytes of its file are its only buffer, so that it is saved and loaded like any other.

    A file with uint8 input gets unscaled pixels: it does its own scaling.
    """

    content: Tensor  # [bytes of the file], uint8

    def __init__(self, name: str, content: bytes = b"") -> None:
        super().__init__(name, 0, _SIZE)  # width and size of the file are set below
        self.any_size = True  # False: only pictures of `size` × `size`
        self._scaling_given = False
        self._session: Any = None
        self._input = _Input("", np.float32, False, None, None)
        self._map: _Map | None = None
        self._pooled: str | None = None
        self.register_buffer("content", torch.empty(0, dtype=torch.uint8))
        if content:
            self._load(torch.from_numpy(np.frombuffer(content, np.uint8).copy()))

    def set_scaling(self, shift: Sequence[float], scale: Sequence[float]) -> None:
        """See Backbone; loading no longer changes the scaling."""
        super().set_scaling(shift, scale)
        self._scaling_given = True

    def maps(self, pictures: Tensor) -> Tensor:
        """Pictures [B, 3, H, W], 0..255 -> the file's map [B, width, h, w]; not every file has one."""
        if not len(self.content):
            raise UserError(f"{self.name} is empty until a saved model is loaded into it")
        if self._map is None:
            raise self._no_map()
        found = self._run(pictures, self._map.output)
        if found.ndim == 4:
            return found.permute(0, 3, 1, 2) if self._map.channels_last else found
        grid = _grid(found.shape[1])
        if grid is None or pictures.shape[2] != pictures.shape[3]:
            raise self._no_map()
        return tokens_to_map(found, *grid)

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures [B, 3, H, W], 0..255 -> vectors [B, width]: the file's own, else the mean of its map."""
        return self.maps(pictures).mean((2, 3)) if self._pooled is None else self._run(pictures, self._pooled)

    def _run(self, pictures: Tensor, output: str) -> Tensor:
        height, width = pictures.shape[-2:]
        if not self.any_size and (height, width) != (self.size, self.size):
            raise UserError(
                f"{self.name} reads pictures of {self.size} × {self.size} pixels and no others, not of "
                f"{height} × {width}; give --size {self.size}"
            )
        (found,) = self._outputs(self._model_input(pictures), [output])
        return torch.from_numpy(found).to(self.shift)  # same device and dtype

    def _model_input(self, pictures: Tensor) -> NDArray[Any]:
        """Pictures in the layout and dtype of the model's input."""
        pictures = pictures.detach()
        if self._input.kind is np.float32:
            pictures = self._scaled(pictures).float()
        elif pictures.is_floating_point():
            pictures = pictures.round().clamp(0, 255).to(torch.uint8)
        if self._input.channels_last:
            pictures = pictures.permute(0, 2, 3, 1)
        return np.ascontiguousarray(pictures.cpu().numpy())

    def _outputs(self, batch: NDArray[Any], outputs: list[str] | None) -> list[Any]:
        """The named outputs, or all, for a batch from `_model_input`."""
        session = self._open_session()
        step = self._input.batch or len(batch)
        try:
            found = [
                session.run(outputs, {self._input.name: batch[start : start + step]})
                for start in range(0, len(batch), step)
            ]
        except Exception as error:  # errors of the runtime have no common base class
            shape = " × ".join(map(str, batch.shape))
            raise UserError(
                f"{self.name} cannot read pictures {shape}; give a --size that it was made for, or name that size "
                f"as fewtags.size in the file's metadata ({first_line(error)})"
            ) from error
        return found[0] if len(found) == 1 else [np.concatenate(parts) for parts in zip(*found, strict=True)]

    def _open_session(self) -> Any:
        with _OPENING:
            if self._session is None:
                self._session = _session(self.name, self.content.cpu().numpy().tobytes())
            return self._session

    def _load(self, content: Tensor) -> None:
        """Load the encoder in these bytes: set scaling, size, width and the outputs to use."""
        self.content, self._session = content, None
        session = self._open_session()
        self._input = _read_input(self.name, session)
        metadata = _Metadata.read(self.name, session)
        self.any_size = self._input.size is None
        self.size = self._input.size or metadata.size or _SIZE
        if not self._scaling_given:
            as_bytes = self._input.kind is np.uint8
            mean, std = metadata.scaling or (IMAGENET_MEAN, IMAGENET_STD)
            super().set_scaling(*(([0.0] * 3, [1.0] * 3) if as_bytes else imagenet_scaling(mean, std)))
        # Measured, because declared output shapes are often incomplete. Two pictures,
        # to detect outputs without one row per picture.
        batch = self._model_input(
            torch.zeros(self._input.batch or 2, 3, self.size, self.size, device=self.shift.device)
        )
        names = [output.name for output in session.get_outputs()]
        found = dict(zip(names, self._outputs(batch, None), strict=True))
        self._map, self._pooled, self.width = _choose_outputs(self.name, found, len(batch), metadata.output)

    def _no_map(self) -> UserError:
        return UserError(
            f"{self.name} has no map of its pooled vectors; choose another backbone for this, or name an output "
            "[batch, channels, height, width] as fewtags.output in the file's metadata"
        )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        content = state_dict.get(f"{prefix}content")
        if isinstance(content, Tensor) and content.dtype == torch.uint8 and content.ndim == 1 and len(content):
            self._load(content.detach().clone().to(self.content.device))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}  # cannot be pickled; reopened from the content


@dataclass(frozen=True)
class _Input:
    """The input of a file."""

    name: str
    kind: Any
    channels_last: bool
    batch: int | None  # 1: one picture at a time; None: any number
    size: int | None  # None: any


@dataclass(frozen=True)
class _Map:
    """An output that is a feature map, or the tokens of one."""

    output: str
    width: int
    channels_last: bool = False


@dataclass(frozen=True)
class _Metadata:
    """The fewtags entries of a file's metadata."""

    size: int | None
    scaling: tuple[list[float], list[float]] | None
    output: str | None

    @classmethod
    def read(cls, name: str, session: Any) -> "_Metadata":
        """The metadata of an opened file."""
        texts: dict[str, str] = session.get_modelmeta().custom_metadata_map

        def value(key: str) -> Any:
            try:
                return json.loads(texts[key]) if key in texts else None
            except ValueError:
                return texts[key]

        size, mean, std = value("fewtags.size"), value("fewtags.mean"), value("fewtags.std")
        if size is not None and not (type(size) is int and size > 0):
            raise UserError(f"{name}: fewtags.size in its metadata is {size!r}; write a number of pixels, such as 224")
        if (mean, std) == (None, None):
            return cls(size, None, texts.get("fewtags.output"))
        if not (_three_numbers(mean) and _three_numbers(std) and all(number > 0 for number in std)):
            raise UserError(
                f"{name}: fewtags.mean and fewtags.std in its metadata are {mean!r} and {std!r}; write both, each as "
                "a list of three numbers for pixels in 0..1, such as [0.5, 0.5, 0.5]"
            )
        return cls(size, (mean, std), texts.get("fewtags.output"))


def build_onnx(file: str, weights: Path | None, pretrained: bool) -> OnnxFileBackbone:
    """The encoder in a file; pretrained=False: an empty one for `load_state_dict`, without a file."""
    name = f"onnx:{file}"
    if weights is not None:
        raise UserError(f"{name} brings its own weights: leave out --weights")
    if not pretrained:
        return OnnxFileBackbone(name)
    path = Path(file).expanduser()
    if path.is_dir():
        raise UserError(f"{name} is a folder; name the .onnx file in it")
    if not path.exists():
        raise UserError(f"{name}: there is no such file; check the path after onnx:")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror}); check who may read the file") from error
    if not content:
        raise UserError(f"{name} is empty; copy or export the file again")
    return OnnxFileBackbone(name, content)


def _session(name: str, content: bytes) -> Any:
    import_extra("onnxruntime", _EXTRA)
    if _needs_other_files(name, content):
        raise UserError(
            f"{name} keeps weights in a second file; make it one file: "
            "onnx.save(onnx.load(FILE), NEW_FILE, save_as_external_data=False)"
        )
    return open_session(content, name)


def _needs_other_files(name: str, content: bytes) -> bool:
    """Whether weights are in external files. The runtime would look for them in the current folder."""
    if b"location" not in content:  # the key of a tensor's external file
        return False
    onnx = import_extra("onnx", _EXTRA)
    try:
        model = onnx.ModelProto.FromString(content)
    except Exception as error:  # protobuf errors differ between versions
        raise UserError(f"{name} is no ONNX file, or damaged; copy or export it again ({first_line(error)})") from error

    def outside(message: Any) -> bool:
        if isinstance(message, onnx.TensorProto):
            return bool(message.data_location == onnx.TensorProto.EXTERNAL)
        children = (
            child
            for field, value in message.ListFields()
            if field.message_type is not None
            for child in ([value] if hasattr(value, "ListFields") else value)
        )
        return any(map(outside, children))

    return outside(model)


def _read_input(name: str, session: Any) -> _Input:
    """The single input of a file. Raises UserError if it is not a batch of pictures."""
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(one.name for one in inputs) or "none"
        raise UserError(f"{name} has {len(inputs)} inputs ({names}), not one; {_EXPORT_AGAIN}")
    (one,) = inputs
    shape = list(one.shape)
    # Many exporters leave the number of channels undefined; nearly all put it second.
    layouts = [len(shape) == 4 and shape[1] == 3, len(shape) == 4 and shape[3] == 3]
    if one.type not in _KINDS or not (any(layouts) or (len(shape) == 4 and not isinstance(shape[1], int))):
        raise UserError(f"{name}: its input {one.name!r} is {one.type} {shape}; {_EXPORT_AGAIN}")
    channels_last = layouts == [False, True]
    sides = {side for side in (shape[1:3] if channels_last else shape[2:]) if isinstance(side, int)}
    if len(sides) > 1:
        raise UserError(f"{name}: its input {one.name!r} is {shape}, but pictures are square; {_EXPORT_AGAIN}")
    batch = shape[0] if isinstance(shape[0], int) else None
    if batch not in (1, None):
        raise UserError(f"{name} reads {batch} pictures at a time; export it with a batch of 1, or better of any size")
    return _Input(one.name, _KINDS[one.type], channels_last, batch, next(iter(sides), None))


def _choose_outputs(
    name: str, found: dict[str, Any], count: int, wanted: str | None
) -> tuple[_Map | None, str | None, int]:
    """The output with the map, the output with the pooled vectors, and their width."""
    if wanted is not None and wanted not in found:
        raise UserError(
            f"{name}: its metadata names the output {wanted!r} (fewtags.output), but it has {', '.join(found)}"
        )
    usable = {
        output: value
        for output, value in found.items()
        if wanted in (None, output) and isinstance(value, np.ndarray) and value.dtype.kind == "f"
        if value.ndim > 1 and len(value) == count
    }
    maps = [one for output, value in usable.items() if (one := _as_map(output, value.shape))]
    maps.sort(key=lambda one: usable[one.output].ndim, reverse=True)  # true maps before tokens
    pooled = next((output for output, value in usable.items() if value.ndim == 2), None)
    if pooled is None and not maps:
        shapes = ", ".join(f"{output} {list(np.shape(found[output]))}" for output in found)
        raise UserError(
            f"{name} has no output [batch, channels] or [batch, channels, height, width] "
            f"{'among' if wanted is None else 'named as fewtags.output in its metadata among'} {shapes}; export the "
            "encoder with its vectors as an output"
        )
    width = maps[0].width if pooled is None else usable[pooled].shape[1]
    return next((one for one in maps if one.width == width), None), pooled, width


def _as_map(output: str, shape: tuple[int, ...]) -> _Map | None:
    """An output of this shape, for a square picture, as a map; None if it is not a map."""
    if len(shape) == 3 and _grid(shape[1]):
        return _Map(output, shape[2])
    if len(shape) == 4 and shape[2] == shape[3]:
        return _Map(output, shape[1])
    if len(shape) == 4 and shape[1] == shape[2]:
        return _Map(output, shape[3], channels_last=True)
    return None


def _grid(tokens: int) -> tuple[int, int] | None:
    """(tokens before the grid, side of the grid), for a square grid and at most one class token.

    >>> _grid(49), _grid(50), _grid(51)
    ((0, 7), (1, 7), None)
    """
    side = isqrt(tokens)
    leading = tokens - side**2
    return (leading, side) if side and leading in (0, 1) else None


def _three_numbers(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(type(number) in (int, float) for number in value)
