"""A trained model as one ONNX file: pixels in, scores out, what is needed around it in the metadata."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fewtags.backbones.onnx_file import OnnxFileBackbone
from fewtags.backbones.weights import first_line
from fewtags.encoders.runtime import traced
from fewtags.errors import UserError
from fewtags.model.base import KEY, About, AboutFile
from fewtags.model.network import Network
from fewtags.model.saved import Model, load_model
from fewtags.utils.extras import install_command, missing
from fewtags.utils.files import atomic_write
from fewtags.utils.onnx_session import open_session
from fewtags.utils.progress import say

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
LARGEST = 1_900_000_000  # bytes; an ONNX file of 2 GB cannot be written as one
CHECKED = 8  # images on which the file must agree with torch
CLOSE = 1e-3  # a feature that rounds to other sixteen bits can move a score by 1e-4; a wrong graph is further off
INSTEAD = "take the model along as a folder: fewtags export RUN FOLDER --format safetensors"


def export_onnx(run: Path, file: Path, methods: Sequence[str] = ()) -> float:
    """Write the model of a run as one ONNX file; returns how far its scores are from torch's on random inputs."""
    lacking = missing(*PACKAGES)
    if lacking:
        raise UserError(f"an ONNX file needs {', '.join(lacking)}; run: {install_command('onnx')}")
    model = load_model(run, methods)
    _check_fits(model)
    say(f"building one ONNX file of {model.encoder.name}: some ten seconds per backbone")
    content, difference = to_onnx_file(model)
    with atomic_write(file) as out:
        out.write(content)
    return difference


def to_onnx_file(model: Model) -> tuple[bytes, float]:
    """The content of an ONNX file, and how far its scores are from torch's on random inputs."""
    module = Exportable(model).eval().requires_grad_(False)
    content = _traced(module, model)
    difference = _difference(module, model, content)
    if not difference <= CLOSE:
        raise UserError(f"the ONNX graph of {model.encoder.name} gives other scores than torch; {INSTEAD}")
    return content, difference


def describe(model: Model) -> AboutFile:
    """The metadata of an exported model."""
    how = {name: one.how for name, one in model.encoder.inputs().items()}
    return AboutFile(inputs=how, **model.info.model_dump(include=set(About.model_fields)))


class Exportable(nn.Module):
    """A model whose inputs are easy to make elsewhere, in steps that can be traced."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        heads = model.method.exportable_heads(model.network.heads)
        self.model = Model(model.info, model.encoder, Network(model.network.body, heads), model.method)

    def forward(self, first: Tensor, second: Tensor | None = None) -> Tensor:
        """The inputs of N images, in the order of `encoder.inputs()` -> scores [N, K] in 0..1."""
        inputs = (first,) if second is None else (first, second)
        return self.model.scores(self.model.encoder.from_inputs(*inputs))


def _check_fits(model: Model) -> None:
    for backbone in model.encoder.backbones:
        if isinstance(backbone, OnnxFileBackbone):
            raise UserError(f"{backbone.name} runs by itself and cannot become part of another ONNX file; {INSTEAD}")
    weights = sum(value.nbytes for value in model.state_dict().values())
    if weights > LARGEST:
        raise UserError(f"the model holds {weights / 1e9:.1f} GB and an ONNX file at most 2 GB; {INSTEAD}")


def _traced(module: Exportable, model: Model) -> bytes:
    import onnx

    try:
        proto = traced(module, _examples(model, 2), "scores")
    except Exception as error:  # a network made by others may defeat the tracing in any way
        raise UserError(f"{model.encoder.name} cannot be traced as ONNX ({first_line(error)}); {INSTEAD}") from error
    onnx.helper.set_model_props(proto, {KEY: describe(model).model_dump_json()})
    proto.producer_name, proto.producer_version = "fewtags", model.info.fewtags
    content: bytes = proto.SerializeToString()
    return content


def _difference(module: Exportable, model: Model, content: bytes) -> float:
    """The largest difference between a score by torch and by ONNX Runtime."""
    examples = _examples(model, CHECKED)
    with torch.inference_mode():
        ours = module(*examples.values()).numpy()
    (theirs,) = open_session(content).run(None, {name: value.numpy() for name, value in examples.items()})
    return float(np.abs(ours - theirs).max())


def _examples(model: Model, count: int) -> Mapping[str, Tensor]:
    """Random numbers for every input."""
    random = torch.Generator().manual_seed(0)
    found: dict[str, Tensor] = {}
    for name, (shape, dtype, _) in model.encoder.inputs().items():
        if dtype == "uint8":
            found[name] = torch.randint(0, 256, (count, *shape), generator=random).to(torch.uint8)
        else:
            found[name] = torch.randn(count, *shape, generator=random)
    return found
