"""What the tests of export and explain share: models of a tiny backbone, and pictures of noise."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import fewtags
from fewtags.backbones.base import Backbone
from fewtags.encoders.base import EncoderSettings, make_encoder
from fewtags.encoders.components import Components
from fewtags.methods import make_method
from fewtags.methods.parts.student import Bank
from fewtags.model.saved import Model, ModelInfo, restored_network

TAGS = ["red", "green", "striped"]


class TinyBackbone(Backbone):
    """One convolution in the place of fifty: what is exported around it is the real thing."""

    def __init__(self) -> None:
        super().__init__("resnet18", 8, 64)
        self.conv = nn.Conv2d(3, 8, 7, stride=6)
        self.fc = nn.Linear(8, 6)

    def _features(self, scaled):
        return torch.relu(self.conv(scaled))


def noise(folder: Path, count: int) -> list[str]:
    """Pictures of noise of many sizes, shapes and tints."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    names = []
    for number in range(count):
        height, width, cells = rng.integers(9, 150), rng.integers(9, 150), rng.integers(1, 9)
        lowest, highest = np.sort(rng.integers(0, 257, (2, 3)), axis=0)
        shape = (height // cells + 1, width // cells + 1, 3)
        pixels = rng.integers(lowest, highest + 1, shape).clip(0, 255).astype(np.uint8)
        names.append(str(folder / f"{number}.png"))
        Image.fromarray(pixels.repeat(cells, 0).repeat(cells, 1)[:height, :width]).save(names[-1])
    return names


def with_random_weights(module: nn.Module) -> nn.Module:
    for value in module.parameters():
        nn.init.normal_(value, std=0.3)
    return module.requires_grad_(False).eval()


def make_model(features="crops", backbones=1, heads=(), adapter=None, frozen=True, components=None, **changed) -> Model:
    """A model of random weights; without names of heads, those of `neighbours`."""
    torch.manual_seed(0)
    many = [with_random_weights(scaled(TinyBackbone())) for _ in range(backbones)]
    of_method = {key: changed.pop(key) for key in ("merge", "alpha") if key in changed}
    of_method |= {
        "patches": changed.get("patches", 1),
        **({} if heads else {"hidden": 5}),
        **changed.pop("settings", {}),
    }
    about = {"learned_from": 12, "thresholds": [0.5] * len(TAGS), "calibration": None}
    about |= {key: changed.pop(key) for key in about if key in changed}
    encoder = make_encoder(features, many, EncoderSettings(**{"size": 64, "frozen": frozen, **changed}))
    if components:
        encoder.components = Components(torch.randn(encoder.width), torch.randn(encoder.width, components).half())
        encoder.width = components
    method = make_method("d2l" if heads else "neighbours", of_method)
    info = ModelInfo(
        fewtags=fewtags.__version__,
        method="d2l" if heads else "neighbours",
        method_settings=of_method,
        tags=TAGS,
        adapter=adapter,
        features=features,
        **about,
        **encoder.state(),
    )
    network = restored_network(method, encoder.width, info)
    with_random_weights(network)
    assert not heads or set(heads) == set(dict(network.heads.named_children()))
    if isinstance(network.heads, Bank):
        network.heads.vectors.normal_()
        network.heads.soft.uniform_()
    return Model(info, encoder, network, method)


def scaled(backbone: Backbone) -> Backbone:
    backbone.set_scaling((10.0, 20.0, 30.0), (100.0, 110.0, 120.0))
    return backbone


def changed_model(model: Model, backbone: Backbone | None = None, **info) -> Model:
    """The same model on another backbone, or that says something else of itself."""
    encoder = model.encoder if backbone is None else model.encoder.with_backbones([backbone])
    return Model(model.info.model_copy(update=info), encoder, model.network, model.method)
