"""The model folder: model.safetensors and model.json, all that tagging needs; loading it runs no code."""

from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors.torch import save
from torch import nn

from fewtags.errors import UserError
from fewtags.files import write_text, written_whole
from fewtags.methods import make_method, method_names
from fewtags.models.backbone import Backbone, build_backbone
from fewtags.models.heads import Heads
from fewtags.models.network import Adapter, Network
from fewtags.models.weights import read_weights
from fewtags.views import ViewSpec


class ModelInfo(BaseModel):
    """What model.json holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fewtags: str  # version that wrote it
    method: str
    tags: list[str] = Field(min_length=1)
    thresholds: list[
        Annotated[float, Field(allow_inf_nan=False)] | None
    ]  # a tag is given where its score reaches this; None: never
    backbone: str
    input_shift: list[float] = Field(min_length=3, max_length=3)  # the network is fed (pixel - shift) / scale
    input_scale: list[float] = Field(min_length=3, max_length=3)
    size: int = Field(ge=1)
    patches: int = Field(ge=1)
    patch_source: Literal["resized", "original"]
    patch_size: Literal["full", "native"]
    merge: Literal["logits", "probs"]
    alpha: float = Field(gt=0)
    heads: list[str]  # names of linear heads; none: the heads are those that the method builds
    adapter: int | None  # hidden width of what was learned on frozen features; None: the backbone itself learned

    @model_validator(mode="after")
    def _a_threshold_a_tag(self) -> "ModelInfo":
        if len(self.thresholds) != len(self.tags):
            raise ValueError(f"{len(self.tags)} tags but {len(self.thresholds)} thresholds")
        return self

    def view_spec(self) -> ViewSpec:
        """How an image is cut for this model."""
        return ViewSpec(
            size=self.size, patches=self.patches, patch_source=self.patch_source, patch_size=self.patch_size
        )

    def threshold_values(self) -> list[float]:
        """The thresholds as numbers, infinite where a tag is never given."""
        return [float("inf") if value is None else value for value in self.thresholds]


def save_model(folder: Path, info: ModelInfo, backbone: Backbone, top: Network) -> None:
    """Write both files, the description last: a folder that has it is complete."""
    tensors = {f"backbone.{name}": value for name, value in backbone.state_dict().items()}
    tensors |= {f"top.{name}": value for name, value in top.state_dict().items()}
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with written_whole(folder / "model.safetensors") as file:
        file.write(save(tensors))
    write_text(folder / "model.json", info.model_dump_json(indent=1) + "\n")


def load_model(folder: Path) -> tuple[ModelInfo, Backbone, Network]:
    """Read a model folder (or the run folder around it): description, backbone, and what sits on its features."""
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
        what = ".".join(map(str, first["loc"])) or "content"
        raise UserError(f"{file} is damaged ({what}: {first['msg']}); copy the model folder again") from error
    backbone = build_backbone(info.backbone, pretrained=False)
    backbone.set_scaling(info.input_shift, info.input_scale)
    body = Adapter(backbone.width, info.adapter) if info.adapter else nn.Identity()
    top = Network(body, _heads(info, backbone.width, file))
    _fill(folder / "model.safetensors", backbone, top)
    return info, backbone.eval().requires_grad_(False), top.eval().requires_grad_(False)


def _heads(info: ModelInfo, width: int, file: Path) -> nn.Module:
    if info.heads:
        return Heads(width, len(info.tags), info.heads)
    if info.method not in method_names():  # a file must not decide which code is imported
        raise UserError(f"{file}: the heads of {info.method!r} are not part of fewtags, so this model cannot be loaded")
    return make_method(info.method, {}).build_heads(width, len(info.tags))


def _fill(file: Path, backbone: Backbone, top: Network) -> None:
    if not file.is_file():
        raise UserError(f"{file} is missing; copy the model folder again")
    tensors: dict[str, torch.Tensor] = read_weights(file)
    for prefix, module in (("backbone.", backbone), ("top.", top)):
        mine = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        try:
            module.load_state_dict(mine)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise UserError(
                f"{file} does not fit model.json beside it ({reason}); copy the model folder again"
            ) from error
