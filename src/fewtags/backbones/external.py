"""Backbones from other libraries: `hf:NAME` (Hugging Face transformers) and `timm:NAME`, both extras."""

import importlib
import inspect
import json
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fewtags.backbones.base import IMAGENET_MEAN, IMAGENET_STD, Backbone, imagenet_scaling, tokens_to_map
from fewtags.backbones.weights import first_line, load_weights
from fewtags.errors import UserError, nearest
from fewtags.utils.extras import install_command

_SIZE = 224  # pixels, for models without a preferred size
_CLASS_TOKENS = ("cls_token", "class_embedding")  # parameters of transformers with a class token
_OTHER_TOKENS = ("distillation_token", "register_tokens")  # may follow it, before the patch tokens


class HuggingFaceBackbone(Backbone):
    """A vision model of transformers, pooled as its classifiers do: by its pooling layer or its class token."""

    def __init__(self, name: str, model: Any, settings: dict[str, Any]) -> None:
        super().__init__(name, 0, _preferred_size(model, settings))  # the width is measured below
        model = getattr(model, "vision_model", model)  # the image tower of an image-text model
        # A pooling layer with weights is randomly initialised in most checkpoints; the class token is not.
        pooler = getattr(model, "pooler", None)
        if pooler is not None and list(pooler.parameters()):
            model.pooler = None
        self.model: Any = model
        self.class_token = any(key.endswith(_CLASS_TOKENS) for key, _ in model.named_parameters())
        self.leading = int(self.class_token) + sum(  # tokens before the patch tokens
            value.shape[1] for key, value in model.named_parameters() if key.endswith(_OTHER_TOKENS)
        )
        self.any_size = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters
        if settings.get("do_normalize", True):
            mean, std = settings.get("image_mean", IMAGENET_MEAN), settings.get("image_std", IMAGENET_STD)
            self.set_scaling(*imagenet_scaling(mean, std))
        self.width = _measured_width(self)

    def maps(self, pictures: Tensor) -> Tensor:
        """Pictures [B, 3, H, W], 0..255 -> the last map [B, width, h, w]; not for every model."""
        last: Tensor = self._outputs(pictures).last_hidden_state
        if last.ndim == 3 and (side := self._patches_per_side(pictures)) ** 2 + self.leading == last.shape[1]:
            last = tokens_to_map(last, self.leading, side)
        if last.ndim != 4 or last.shape[1] != self.width:
            raise no_map(self.name)
        return last

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures [B, 3, H, W], 0..255 -> pooled vectors [B, width]."""
        outputs = self._outputs(pictures)
        pooled: Tensor | None = getattr(outputs, "pooler_output", None)
        last: Tensor = outputs.last_hidden_state
        if pooled is not None:
            return pooled.flatten(1)
        if last.ndim == 4:
            return last.mean((2, 3))
        return last[:, 0] if self.class_token else last.mean(1)

    def _patches_per_side(self, pictures: Tensor) -> int:
        """Patches of a vision transformer along the height of a picture; 0 for models without patches."""
        patch = getattr(self.model.config, "patch_size", None)
        if isinstance(patch, (list, tuple)) and len(set(patch)) == 1:
            patch = patch[0]
        return pictures.shape[2] // patch if isinstance(patch, int) else 0

    def _outputs(self, pictures: Tensor, **options: Any) -> Any:
        native = getattr(self.model.config, "image_size", None)
        if self.any_size and tuple(pictures.shape[-2:]) != (native, native):
            options["interpolate_pos_encoding"] = True
        return self.model(self._scaled(pictures), **options)


class TimmBackbone(Backbone):
    """A timm model without its classifier, with its own pooling."""

    def __init__(self, name: str, model: Any) -> None:
        settings: dict[str, Any] = dict(getattr(model, "pretrained_cfg", None) or {})
        super().__init__(name, 0, settings.get("input_size", (3, _SIZE, _SIZE))[-1])
        self.model: Any = model
        mean, std = settings.get("mean", IMAGENET_MEAN), settings.get("std", IMAGENET_STD)
        self.set_scaling(*imagenet_scaling(mean, std))
        self.width = _measured_width(self)

    def maps(self, pictures: Tensor) -> Tensor:
        """Pictures [B, 3, H, W], 0..255 -> the last map [B, width, h, w]; not for every model."""
        last: Tensor = self.model.forward_features(self._scaled(pictures))
        if last.ndim == 4 and last.shape[1] == self.width:
            return last
        if last.ndim == 4 and last.shape[3] == self.width:  # windowed transformers keep channels last
            return last.permute(0, 3, 1, 2)
        if last.ndim == 3 and last.shape[2] == self.width and pictures.shape[2] == pictures.shape[3]:
            leading = getattr(self.model, "num_prefix_tokens", 0)
            side = isqrt(max(0, last.shape[1] - leading))
            if side and leading + side**2 == last.shape[1]:
                return tokens_to_map(last, leading, side)
        raise no_map(self.name)

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures [B, 3, H, W], 0..255 -> pooled vectors [B, width]."""
        pooled: Tensor = self.model(self._scaled(pictures))
        return pooled


def build_hf(name: str, weights: Path | None, pretrained: bool) -> HuggingFaceBackbone:
    """A model from the local Hugging Face cache or from a folder; nothing is downloaded."""
    # Imported here because that module imports from this one.
    from fewtags.backbones.image_text import ImageTextBackbone, is_image_text

    transformers = import_extra("transformers", "hf")
    if weights is not None:
        raise UserError(f"hf:{name} brings its own weights: leave out --weights, or give its folder as hf:FOLDER")
    try:
        config = transformers.AutoConfig.from_pretrained(name, local_files_only=True)
        if pretrained:
            model = transformers.AutoModel.from_pretrained(name, config=config, local_files_only=True)
        else:
            model = transformers.AutoModel.from_config(config)
        kind = ImageTextBackbone if is_image_text(model) else HuggingFaceBackbone
        return kind(f"hf:{name}", model, _processor_settings(transformers, name))
    except UserError:
        raise
    except Exception as error:  # third-party models may fail in any way
        raise UserError(
            f"hf:{name} cannot be loaded as a vision model from this machine; give a folder with config.json "
            f"and model.safetensors, or fetch it first with: hf download {name} ({first_line(error)})"
        ) from error


def build_timm(name: str, weights: Path | None, pretrained: bool) -> TimmBackbone:
    """A timm model with its own weights, weights from a file, or random ones."""
    timm = import_extra("timm", "timm")
    if not timm.is_model(name.split(".")[0]):
        raise UserError(f"timm knows no model {name!r}{nearest(name, timm.list_models())}")
    try:
        model = timm.create_model(name, pretrained=pretrained and weights is None, num_classes=0)
    except Exception as error:  # a download may fail in any way
        raise UserError(
            f"timm:{name} cannot be loaded; give a file with --weights when offline ({first_line(error)})"
        ) from error
    if weights is not None:
        classifier = (getattr(model, "pretrained_cfg", None) or {}).get("classifier") or ""
        load_weights(model, weights, optional=classifier if isinstance(classifier, str) else "")
    return TimmBackbone(f"timm:{name}", model)


def import_extra(package: str, extra: str) -> Any:
    """Import a package that an extra of fewtags installs."""
    try:
        return importlib.import_module(package)
    except (ImportError, RuntimeError) as error:  # torchvision raises RuntimeError if it does not match torch
        raise UserError(
            f"{extra}: backbones need {package} ({first_line(error)}); run: {install_command(extra)}"
        ) from error


def _processor_settings(transformers: Any, name: str) -> dict[str, Any]:
    """preprocessor_config.json beside the model; empty if there is none."""
    try:
        file = transformers.utils.cached_file(name, "preprocessor_config.json", local_files_only=True)
    except OSError:
        return {}
    return json.loads(Path(file).read_text(encoding="utf-8")) if file else {}


def _preferred_size(model: Any, settings: dict[str, Any]) -> int:
    for size in (settings.get("crop_size"), settings.get("size"), getattr(model.config, "image_size", None)):
        if isinstance(size, dict):
            size = size.get("height", size.get("shortest_edge"))
        if isinstance(size, int):
            return size
    return _SIZE


@torch.no_grad()
def _measured_width(backbone: Backbone) -> int:
    """The length of the pooled vector, measured because libraries name it differently."""
    backbone.eval()
    pooled: Tensor = backbone(torch.zeros(1, 3, backbone.size, backbone.size))
    backbone.train()
    return pooled.shape[1]


def no_map(name: str) -> UserError:
    """What to say where a map is asked of a model that has none."""
    return UserError(
        f"{name} has no map of its pooled vectors; choose a convolutional backbone for this, or a plain vision "
        "transformer"
    )
