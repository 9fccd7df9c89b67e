"""The interface of all backbones: pictures in, pooled vectors or feature maps out."""

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from fewtags.errors import UserError, nearest

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_SCALINGS = ("own", "unit")
_NAMES = (
    *(f"efficientnet_lite{number}" for number in range(5)),
    *(f"resnet{depth}" for depth in (18, 34, 50, 101)),
)
_LARGE_ENOUGH = 64  # px; from this size no kernel of our own networks is larger than its input
_EXTERNAL = ("hf:NAME", "timm:NAME", "onnx:FILE")


class Backbone(nn.Module):
    """A network without heads. Pictures are [B, 3, H, W] with values 0..255, uint8 or float.

    A subclass implements `_features`. Pixels are scaled here, so that pictures can be passed as bytes.
    """

    classifier_name: ClassVar[str] = "fc"  # name of the ImageNet classifier in public weight files
    reads_text: ClassVar[bool] = False  # whether `set_tags` can make a classifier of the tags' names
    shift: Tensor
    scale: Tensor

    def __init__(self, name: str, width: int, size: int) -> None:
        super().__init__()
        self.name = name
        self.width = width  # length of the pooled vector
        self.size = size  # preferred height and width of a picture, pixels
        # Not persistent: public weight files do not contain them, the builder sets them.
        self.register_buffer("shift", torch.zeros(1, 3, 1, 1), persistent=False)
        self.register_buffer("scale", torch.full((1, 3, 1, 1), 255.0), persistent=False)
        self.register_module(self.classifier_name, None)

    @property
    def classifier(self) -> nn.Linear | None:
        """The classifier that came with the weights: frozen, and not part of `forward`."""
        classifier = self._modules[self.classifier_name]
        return classifier if isinstance(classifier, nn.Linear) else None

    @property
    def scaling(self) -> list[float]:
        """What is taken from pixel values and what they are divided by, three channels each."""
        return [*self.shift.flatten().tolist(), *self.scale.flatten().tolist()]

    def set_scaling(self, shift: Sequence[float], scale: Sequence[float]) -> None:
        """Scale the input as (x - shift) / scale, one number per channel, for x in 0..255."""
        self.shift.copy_(torch.tensor(shift).view(1, 3, 1, 1))
        self.scale.copy_(torch.tensor(scale).view(1, 3, 1, 1))

    def maps(self, pictures: Tensor) -> Tensor:
        """Pictures [B, 3, H, W], 0..255 -> the last map before pooling [B, width, h, w]."""
        return self._features(self._scaled(pictures))

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures [B, 3, H, W], 0..255 -> pooled vectors [B, width]."""
        return self.maps(pictures).mean((2, 3))

    @torch.no_grad()
    def gives_maps(self, size: int) -> bool:
        """Whether `maps` supports pictures of size × size; tested with one black picture."""
        if type(self).maps is Backbone.maps and size >= _LARGE_ENOUGH:
            return True  # `_features` returns a map by definition
        modes = [(module, module.training) for module in self.modules()]
        self.eval()
        try:
            self.maps(torch.zeros(1, 3, size, size, device=self.shift.device))
        except (UserError, ValueError, AssertionError, RuntimeError):  # the latter: how other libraries refuse a size
            return False
        finally:
            for module, training in modes:
                module.training = training
        return True

    def classify(self, pooled: Tensor) -> Tensor:
        """Vectors [..., width] -> logits [..., C] of the classifier of the weights (1000 for ImageNet)."""
        if self.classifier is None:
            raise UserError(
                f"{self.name}: these weights bring no ImageNet classifier; choose a backbone or a weight "
                "file that has one"
            )
        logits: Tensor = self.classifier(pooled)
        return logits

    @property
    def tag_count(self) -> int:
        """Tags that the classifier made by `set_tags` knows; 0 where there is none."""
        return 0

    def set_tags(self, tags: Sequence[str]) -> None:
        """Make a classifier of the tags' names; only where the backbone reads text."""
        raise TypeError(f"{self.name} reads no text, got {len(tags)} tags")

    def folded(self) -> "Backbone":
        """A frozen copy for eager use on a CPU, each BatchNorm folded into the convolution before it.

        Saves one pass over every map; equal up to float32 rounding.
        """
        copy = deepcopy(self).eval().requires_grad_(False)
        for module in list(copy.modules()):
            _fold_norms(module)
        return copy

    def _scaled(self, pictures: Tensor) -> Tensor:
        return (pictures.float() - self.shift).div_(self.scale)

    def _features(self, scaled: Tensor) -> Tensor:
        raise NotImplementedError

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # The classifier depends on the loaded file, which may have one with any number of classes, or none.
        weight = state_dict.get(f"{prefix}{self.classifier_name}.weight")
        if weight is None or weight.ndim != 2 or weight.shape[1] != self.width:
            self._modules[self.classifier_name] = None
        elif self.classifier is None or self.classifier.weight.shape != weight.shape:
            # Created on `meta`, so that the global random state does not change.
            linear = nn.Linear(self.width, weight.shape[0], device="meta").to_empty(device=self.shift.device)
            # Frozen: a distributed run would otherwise wait for its gradients.
            self._modules[self.classifier_name] = linear.requires_grad_(False)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def backbone_names() -> tuple[str, ...]:
    """The names that `build_backbone` accepts; NAME: any model of that library, FILE: a path."""
    return _NAMES + _EXTERNAL


def backbone_list(names: str) -> list[str]:
    """The backbones of a combination: `a+b` -> ["a", "b"]; the path of an onnx:FILE may contain a plus."""
    first, plus, rest = names.partition("+")
    return [names] if not plus or first.startswith("onnx:") else [first, *backbone_list(rest)]


def build_backbone(name: str, weights: Path | None = None, pretrained: bool = True, scaling: str = "own") -> Backbone:
    """The backbone of this name, with weights from a file, from its package, or (pretrained=False) random.

    scaling: "own" scales the input as in pretraining, "unit" is x / 255.
    """
    # Imported here because these modules import Backbone from this one.
    from fewtags.backbones import efficientnet_lite, external, onnx_file, resnet

    if scaling not in _SCALINGS:
        raise UserError(f"unknown scaling {scaling!r}{nearest(scaling, _SCALINGS)} (known: own, unit)")
    library, colon, model = name.partition(":")
    if library == "hf" and colon:
        backbone: Backbone = external.build_hf(model, weights, pretrained)
    elif library == "timm" and colon:
        backbone = external.build_timm(model, weights, pretrained)
    elif library == "onnx" and colon:
        backbone = onnx_file.build_onnx(model, weights, pretrained)
    elif name not in _NAMES:
        known = ", ".join(backbone_names())
        raise UserError(f"unknown backbone {name!r}{nearest(name, _NAMES)} (known: {known})")
    elif name.startswith("resnet"):
        backbone = resnet.build_resnet(name, weights, pretrained)
    else:
        backbone = efficientnet_lite.build_efficientnet_lite(name, weights, pretrained)
    if scaling == "unit":
        backbone.set_scaling((0.0, 0.0, 0.0), (255.0, 255.0, 255.0))
    return backbone


def imagenet_scaling(
    mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
) -> tuple[list[float], list[float]]:
    """Shift and scale for pixels in 0..255 from mean and standard deviation for 0..1."""
    return [255.0 * value for value in mean], [255.0 * value for value in std]


def tokens_to_map(tokens: Tensor, leading: int, side: int) -> Tensor:
    """Tokens [B, leading + side², C], the grid in row-major order -> map [B, C, side, side]."""
    count, _, width = tokens.shape
    return tokens[:, leading:].transpose(1, 2).reshape(count, width, side, side)


def _fold_norms(module: nn.Module) -> None:
    """Fold pairs of children: a convolution and the BatchNorm after it, as in all our networks."""
    children = list(module.named_children())
    for (name, conv), (following, norm) in pairwise(children):
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            setattr(module, name, fuse_conv_bn_eval(conv, norm))
            setattr(module, following, nn.Identity())
