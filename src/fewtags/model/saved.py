"""The model folder: model.safetensors and model.json, all that tagging needs; loading it runs no code."""

import contextlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import ConfigDict, Field, ValidationError, model_validator
from safetensors.torch import save
from torch import nn

from fewtags.backbones.base import Backbone, backbone_list, build_backbone
from fewtags.backbones.weights import read_weights
from fewtags.encoders.components import Components
from fewtags.encoders.windows import make_readers
from fewtags.errors import UserError
from fewtags.methods import make_method, method_names
from fewtags.methods.parts.heads import Adapter, Heads
from fewtags.methods.parts.student import Centred
from fewtags.model.base import About
from fewtags.model.network import Network
from fewtags.utils.files import atomic_write, write_text


class ModelInfo(About):
    """What model.json holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method_settings: dict[str, Any]
    input_shift: list[list[float]]  # of each backbone: it is fed (pixel - shift) / scale
    input_scale: list[list[float]]
    features: Literal["crops", "evidence"]
    blocks: Literal["pooled", "evidence", "both"]  # of evidence features
    components: int | None = Field(ge=1)  # evidence features are shrunk to so many numbers
    merge: Literal["logits", "probs"]
    alpha: float = Field(gt=0)
    heads: list[str]  # names of linear heads; none: the heads are those that the method builds
    adapter: int | None  # hidden width of what was learned on frozen features; None: nothing stands between
    frozen: bool  # the heads learned on stored features

    @model_validator(mode="after")
    def _a_scaling_a_backbone(self) -> "ModelInfo":
        scalings = [*self.input_shift, *self.input_scale]
        if any(len(one) != 3 for one in scalings) or len(scalings) != 2 * len(backbone_list(self.backbone)):
            raise ValueError("three numbers a backbone scale its input")
        return self


class Model(NamedTuple):
    """What a model folder holds."""

    info: ModelInfo
    backbones: list[Backbone]
    top: Network  # what sits on their features
    components: Components | None  # what evidence features are shrunk by


def save_model(folder: Path, model: Model) -> None:
    """Write both files, the description last: a folder that has it is complete."""
    info, backbones, top, components = model
    tensors = {f"top.{name}": value for name, value in top.state_dict().items()}
    for place, backbone in enumerate(backbones):
        tensors |= {f"backbone.{place}.{name}": value for name, value in backbone.state_dict().items()}
    if components is not None:
        tensors |= {f"components.{name}": value for name, value in components._asdict().items()}
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with atomic_write(folder / "model.safetensors") as file:
        file.write(save(tensors))
    write_text(folder / "model.json", info.model_dump_json(indent=1) + "\n")


def load_model(folder: Path) -> Model:
    """Read a model folder, or the run folder around it."""
    folder = folder / "model" if (folder / "model").is_dir() else folder
    file = folder / "model.json"
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; give the run folder that `fewtags train` wrote")
    if not file.is_file():
        raise UserError(f"{folder} holds no model (no model.json); give a run folder whose training has ended")
    try:
        info = ModelInfo.model_validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        _refuse_other_version(file)
        what = ".".join(map(str, first["loc"])) or "content"
        raise UserError(f"{file} is damaged ({what}: {first['msg']}); copy the model folder again") from error
    weights = folder / "model.safetensors"
    tensors = _read(weights)
    backbones = []
    for place, name in enumerate(backbone_list(info.backbone)):
        backbone = build_backbone(name, pretrained=False)
        backbone.set_scaling(info.input_shift[place], info.input_scale[place])
        _fill(backbone, _under(tensors, f"backbone.{place}."), weights)
        backbones.append(backbone.eval().requires_grad_(False))
    components, width = None, backbones[0].width
    if info.components:
        readers = make_readers(backbones, info.size, info.patches)
        numbers = sum(end - start for reader in readers for start, end in reader.columns(info.blocks))
        components = _components(_under(tensors, "components."), numbers, info.components, weights)
        width = info.components
    top = Network(_body(info, width), _heads(info, width, file))
    _fill(top, _under(tensors, "top."), weights)
    return Model(info, backbones, top.eval().requires_grad_(False), components)


def _refuse_other_version(file: Path) -> None:
    """A description that does not fit may simply be older or newer than this program."""
    with contextlib.suppress(ValueError, AttributeError):
        theirs = json.loads(file.read_bytes()).get("fewtags")
        if isinstance(theirs, str) and theirs != version("fewtags"):
            raise UserError(f"{file} was written by fewtags {theirs}, and this is {version('fewtags')}: train again")


def _body(info: ModelInfo, width: int) -> nn.Module:
    if info.adapter:
        return Adapter(width, info.adapter)
    return Centred(width) if info.frozen else nn.Identity()


def _heads(info: ModelInfo, width: int, file: Path) -> nn.Module:
    if info.heads:
        return Heads(width, len(info.tags), info.heads)
    if info.method not in method_names():  # a file must not decide which code is imported
        raise UserError(f"{file}: the heads of {info.method!r} are not part of fewtags, so this model cannot be loaded")
    method = make_method(info.method, info.method_settings)
    return method.empty_finished_heads(width, len(info.tags), info.learned_from)


def _read(file: Path) -> dict[str, torch.Tensor]:
    if not file.is_file():
        raise UserError(f"{file} is missing; copy the model folder again")
    return read_weights(file)


def _under(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _fill(module: nn.Module, tensors: dict[str, torch.Tensor], file: Path) -> None:
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise _misfit(file, str(error).splitlines()[-1].strip()) from error


def _components(tensors: dict[str, torch.Tensor], numbers: int, count: int, file: Path) -> Components:
    mean, axes = tensors.get("mean"), tensors.get("axes")
    if mean is None or axes is None or mean.shape != (numbers,) or axes.shape != (numbers, count):
        raise _misfit(file, "the components of its features are missing or of another shape")
    return Components(mean, axes)


def _misfit(file: Path, reason: str) -> UserError:
    return UserError(f"{file} does not fit model.json beside it ({reason}); copy the model folder again")
