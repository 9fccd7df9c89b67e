"""A trained model and its folder: model.safetensors and model.json, all that tagging needs; loading it runs no code."""

import contextlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ConfigDict, Field, ValidationError, model_validator
from safetensors.torch import save
from torch import Tensor, nn

from fewtags.backbones.weights import read_weights
from fewtags.encoders.base import Encoder, find_encoder
from fewtags.encoders.kinds import EncoderKind
from fewtags.encoders.saved import fill, under
from fewtags.errors import UserError
from fewtags.methods import Method, make_method, method_names
from fewtags.methods.parts.heads import Logits
from fewtags.metrics.calibration import OUTER_EDGE
from fewtags.model.base import About
from fewtags.model.network import Network
from fewtags.utils.files import atomic_write, write_text

OF_OLDER_VERSIONS = ("merge", "alpha", "heads")  # keys of 0.3 that the method's settings say too


class ModelInfo(About):
    """What model.json holds: the model, then what its encoder says of itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method_settings: dict[str, Any]
    adapter: int | None  # hidden width of what the method puts between stored features and heads
    features: EncoderKind
    input_shift: list[list[float]] | None = None  # of each backbone: it is fed (pixel - shift) / scale
    input_scale: list[list[float]] | None = None
    frozen: bool = True  # the heads learned on stored features
    blocks: Literal["pooled", "evidence", "both"] | None = None  # of evidence features
    components: int | None = Field(None, ge=1)  # features are reduced to so many numbers
    words: int | None = Field(None, ge=1)  # word scores beside the features, one per tag
    numbers: int | None = Field(None, ge=1)  # of a vector, where vectors are what is read

    @model_validator(mode="after")
    def _fits_its_encoder(self) -> "ModelInfo":
        problem = find_encoder(self.features).state_problem(self.model_dump())
        if problem:
            raise ValueError(problem)
        return self


class Model(nn.Module):
    """Images to scores: encoder, network, the method that says how scores are made of logits, and their calibration."""

    slope: Tensor
    offset: Tensor

    def __init__(self, info: ModelInfo, encoder: Encoder, network: Network, method: Method) -> None:
        super().__init__()
        self.info, self.method = info, method
        self.encoder, self.network = encoder, network
        curves = torch.tensor(info.calibration or [(1.0, 0.0)] * len(info.tags), dtype=torch.float64)
        self.register_buffer("slope", curves[:, 0], persistent=False)
        self.register_buffer("offset", curves[:, 1], persistent=False)
        self.eval().requires_grad_(False)

    def logits(self, features: Tensor) -> Logits:
        """Features [N, parts, width] -> `whole_make` [N, K] and, with patches, `patch_make` [N, n, K]."""
        found: Logits = self.network(features[:, 0], features[:, 1:] if features.shape[1] > 1 else None)
        return found

    def scores(self, features: Tensor) -> Tensor:
        """Features [N, parts, width] -> scores [N, K] in 0..1: probabilities, where the model was calibrated."""
        return self.calibrated(self.method.predict(self.logits(features)))

    def calibrated(self, scores: Tensor) -> Tensor:
        """What the network and its method say [N, K] -> probabilities [N, K]."""
        if self.info.calibration is None:
            return scores
        # doubles, as in training, so that the same scores give the same numbers to the last bit
        inside = scores.double().clamp(OUTER_EDGE, 1 - OUTER_EDGE)
        return torch.sigmoid(self.offset + self.slope * (torch.log(inside) - torch.log(1 - inside))).float()

    def forward(self, *pictures: Tensor) -> Tensor:
        """What `encoder.pictures` gives of N images -> scores [N, K] in 0..1."""
        return self.scores(self.encoder(*pictures))


def save_model(folder: Path, model: Model) -> None:
    """Write both files, the description last: a folder that has it is complete."""
    tensors = {f"top.{name}": value for name, value in model.network.state_dict().items()} | model.encoder.tensors()
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with atomic_write(folder / "model.safetensors") as file:
        file.write(save(tensors))
    write_text(folder / "model.json", model.info.model_dump_json(indent=1) + "\n")


def load_model(folder: Path, methods: Sequence[str] = ()) -> Model:
    """Read a model folder, or the run folder around it.

    methods: importable modules of methods that are not part of fewtags; a file alone never decides what is imported.
    """
    folder = folder / "model" if (folder / "model").is_dir() else folder
    file = folder / "model.json"
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; give the run folder that `fewtags train` wrote")
    if not file.is_file():
        raise UserError(f"{folder} holds no model (no model.json); give a run folder whose training has ended")
    info = read_info(file)
    if info.method not in (*method_names(), *methods):
        raise UserError(
            f"{file}: {info.method!r} is a method of another package, which a file must not import by itself; name it: "
            f"--method {info.method}, in Python load(…, methods=[{info.method!r}])"
        )
    method = make_method(info.method, info.method_settings)
    weights = folder / "model.safetensors"
    tensors = _read_tensors(weights)
    encoder = find_encoder(info.features).restore(info.model_dump(), tensors, weights)
    method.expect_words(encoder.words)
    network = restored_network(method, encoder.width, info)
    fill(network, under(tensors, "top."), weights)
    return Model(info, encoder, network, method)


def restored_network(method: Method, width: int, info: ModelInfo) -> Network:
    """A network of the shape that the method's training ends with, to be filled with weights."""
    body = method.build_body(width, info.adapter or 1) if info.frozen else nn.Identity()
    return Network(body, method.restore_heads(width, len(info.tags), info.learned_from))


def read_info(file: Path) -> ModelInfo:
    """What model.json says. Raises UserError where it is missing, damaged or of another version."""
    try:
        content = json.loads(file.read_bytes())
        if isinstance(content, dict):
            content = {key: value for key, value in content.items() if key not in OF_OLDER_VERSIONS}
        return ModelInfo.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        _refuse_other_version(file)
        what = ".".join(map(str, first["loc"])) or "content"
        raise UserError(f"{file} is damaged ({what}: {first['msg']}); copy the model folder again") from error
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); copy the model folder again") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is damaged (not JSON: {error}); copy the model folder again") from error


def _refuse_other_version(file: Path) -> None:
    """A description that does not fit may simply be older or newer than this program."""
    with contextlib.suppress(ValueError, AttributeError):
        theirs = json.loads(file.read_bytes()).get("fewtags")
        if isinstance(theirs, str) and theirs != version("fewtags"):
            raise UserError(f"{file} was written by fewtags {theirs}, and this is {version('fewtags')}: train again")


def _read_tensors(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise UserError(f"{file} is missing; copy the model folder again")
    return read_weights(file)
