"""A trained model as one ONNX file: pixels in, scores out, what is needed around it in the metadata."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fewtags.backbones.onnx_file import OnnxFileBackbone
from fewtags.backbones.weights import first_line
from fewtags.encoders.inputs import PATCHES, input_names
from fewtags.encoders.runtime import traced
from fewtags.errors import UserError
from fewtags.methods.parts.heads import Logits
from fewtags.methods.parts.student import Bank
from fewtags.model.base import About
from fewtags.model.network import Network
from fewtags.model.onnx_about import KEY, AboutFile
from fewtags.model.onnx_tagger import open_session
from fewtags.model.pixels import PixelModel
from fewtags.model.saved import Model, ModelInfo, load_model
from fewtags.solvers.graph import LOWEST, POWER
from fewtags.utils.files import atomic_write
from fewtags.utils.progress import say

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
LARGEST = 1_900_000_000  # bytes; an ONNX file of 2 GB cannot be written as one
CHECKED = 8  # pictures on which the file must agree with torch
CLOSE = 1e-3  # a feature that rounds to other sixteen bits can move a score by 1e-4; a wrong graph is further off
INSTEAD = "take the model along as a folder: fewtags export RUN FOLDER --format safetensors"


def export_onnx(run: Path, file: Path) -> float:
    """Write the model of a run as one ONNX file; returns how far its scores are from torch's on pictures of noise."""
    _check_packages()
    model = load_model(run)
    _check_fits(model)
    say(f"building one ONNX file of {model.info.backbone}: some ten seconds a backbone")
    content, difference = to_onnx_file(model)
    with atomic_write(file) as out:
        out.write(content)
    return difference


def to_onnx_file(model: Model) -> tuple[bytes, float]:
    """The content of an ONNX file, and how far its scores are from torch's on pictures of noise."""
    module = _exportable(model)
    content = _traced(module, model.info)
    difference = _difference(module, model.info, content)
    if not difference <= CLOSE:
        raise UserError(f"the ONNX graph of {model.info.backbone} gives other scores than torch; {INSTEAD}")
    return content, difference


def _check_packages() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"an ONNX file needs {', '.join(missing)}; run: pip install -c constraints.txt 'fewtags[onnx]'")


def describe(info: ModelInfo) -> AboutFile:
    """The metadata of an exported model."""
    size = f"{info.size} × {info.size}"
    how = {
        name: f"RGB, resized to {size} with Pillow's {name.upper()}; uint8 [N, {info.size}, {info.size}, 3]"
        for name in input_names(info.features, info.view_spec())
    }
    if PATCHES in how:
        side, count = info.view_spec().patch_side, info.patches**2
        how[PATCHES] = (
            f"RGB, cut into {info.patches} × {info.patches} parts, each resized to {side} × {side} with Pillow's "
            f"BILINEAR, row by row; uint8 [N, {count}, {side}, {side}, 3]"
        )
    shared = info.model_dump(include=set(About.model_fields))
    return AboutFile(inputs=how, **shared)


class ExportedBank(nn.Module):
    """A Bank in steps that can be traced: every similarity at once, for any number of images."""

    def __init__(self, bank: Bank) -> None:
        super().__init__()
        self.heads = bank.heads
        self.neighbours = min(bank.neighbours, len(bank.vectors))
        self.register_buffer("among", normalize(bank.vectors.float(), dim=1).T.contiguous())
        self.register_buffer("soft", bank.soft)

    among: Tensor
    soft: Tensor

    def forward(self, vectors: Tensor, part: str) -> Logits:
        """vectors [B, width] -> logits [B, K]."""
        own = self.heads(vectors, part)[f"{part}_make"].sigmoid()
        cosines, rows = (normalize(vectors.float(), dim=1) @ self.among).topk(self.neighbours, dim=1)
        weights = cosines.clamp(min=LOWEST).pow(POWER)
        weights = weights / weights.sum(1, keepdim=True)
        found = (self.soft[rows] * weights[:, :, None]).sum(1)
        return {f"{part}_make": torch.logit((own + found) / 2, eps=1e-6)}


def _check_fits(model: Model) -> None:
    for backbone in model.backbones:
        if isinstance(backbone, OnnxFileBackbone):
            raise UserError(f"{backbone.name} runs by itself and cannot become part of another ONNX file; {INSTEAD}")
    modules = (*model.backbones, model.top)
    weights = sum(value.nbytes for module in modules for value in module.state_dict().values())
    if weights > LARGEST:
        raise UserError(f"the model holds {weights / 1e9:.1f} GB and an ONNX file at most 2 GB; {INSTEAD}")


def _exportable(model: Model) -> PixelModel:
    top = model.top
    if isinstance(top.heads, Bank):
        top = Network(top.body, ExportedBank(top.heads))
    return PixelModel(model._replace(top=top)).eval().requires_grad_(False)


def _traced(module: PixelModel, info: ModelInfo) -> bytes:
    import onnx

    try:
        proto = traced(module, _pictures(info, 2), "scores")
    except Exception as error:  # a network made by others may defeat the tracing in any way
        raise UserError(f"{info.backbone} cannot be traced as ONNX ({first_line(error)}); {INSTEAD}") from error
    onnx.helper.set_model_props(proto, {KEY: describe(info).model_dump_json()})
    proto.producer_name, proto.producer_version = "fewtags", info.fewtags
    content: bytes = proto.SerializeToString()
    return content


def _difference(module: PixelModel, info: ModelInfo, content: bytes) -> float:
    """The largest difference between a score by torch and by ONNX Runtime."""
    pictures = _pictures(info, CHECKED)
    with torch.inference_mode():
        ours = module(*pictures.values()).numpy()
    (theirs,) = open_session(content).run(None, {name: value.numpy() for name, value in pictures.items()})
    return float(np.abs(ours - theirs).max())


def _pictures(info: ModelInfo, count: int) -> Mapping[str, Tensor]:
    """Noise for every input."""
    spec = info.view_spec()
    random = torch.Generator().manual_seed(0)
    found: dict[str, Tensor] = {}
    for name in input_names(info.features, spec):
        whole = (count, info.size, info.size, 3)
        shape = (count, spec.patches**2, spec.patch_side, spec.patch_side, 3) if name == PATCHES else whole
        found[name] = torch.randint(0, 256, shape, generator=random).to(torch.uint8)
    return found
