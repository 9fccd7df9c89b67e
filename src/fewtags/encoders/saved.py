"""How backbones are written into a model and read back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fewtags.backbones.base import Backbone, backbone_list, build_backbone
from fewtags.encoders.base import EncoderSettings
from fewtags.errors import UserError


def backbone_state(backbones: Sequence[Backbone], settings: EncoderSettings) -> dict[str, Any]:
    """Names, input scaling, and how an image is cut for them."""
    return {
        "backbone": "+".join(one.name for one in backbones),
        "input_shift": [one.shift.flatten().tolist() for one in backbones],
        "input_scale": [one.scale.flatten().tolist() for one in backbones],
        "size": settings.size,
        "patches": settings.patches,
        "patch_source": settings.patch_source,
        "patch_size": settings.patch_size,
        "frozen": settings.frozen,
    }


def backbone_problem(state: Mapping[str, Any]) -> str:
    """What is missing or does not fit in such a description; empty if nothing."""
    needed = ("backbone", "size", "input_shift", "input_scale")
    if missing := [name for name in needed if state[name] is None]:
        return f"{missing[0]} is missing"
    scalings = [*state["input_shift"], *state["input_scale"]]
    if any(len(one) != 3 for one in scalings) or len(scalings) != 2 * len(backbone_list(state["backbone"])):
        return "three numbers per backbone scale its input"
    return ""


def restore_backbones(
    state: Mapping[str, Any], tensors: Mapping[str, Tensor], file: Path
) -> tuple[list[Backbone], EncoderSettings]:
    """The backbones of a model with their weights, and the settings they are read with."""
    backbones = []
    for place, name in enumerate(backbone_list(state["backbone"])):
        backbone = build_backbone(name, pretrained=False)
        backbone.set_scaling(state["input_shift"][place], state["input_scale"][place])
        fill(backbone, under(tensors, f"backbone.{place}."), file)
        backbones.append(backbone.eval().requires_grad_(False))
    settings = EncoderSettings(
        size=state["size"],
        patches=state["patches"],
        patch_source=state["patch_source"],
        patch_size=state["patch_size"],
        blocks=state["blocks"] or "both",
        components=state["components"] or 1,
        frozen=state["frozen"],
    )
    return backbones, settings


def under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def fill(module: nn.Module, tensors: Mapping[str, Tensor], file: Path) -> None:
    """Load a module's weights, or say that the file does not fit."""
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise misfit(file, str(error).splitlines()[-1].strip()) from error


def misfit(file: Path, reason: str) -> UserError:
    """What to say of tensors that are not those of model.json."""
    return UserError(f"{file} does not fit model.json beside it ({reason}); copy the model folder again")
