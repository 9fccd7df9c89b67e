"""What the tests of export and explain share: models of a tiny backbone, and pictures of noise."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import fewtags
from fewtags.backbones.base import Backbone
from fewtags.encoders.components import Components
from fewtags.encoders.windows import make_readers
from fewtags.methods.parts.heads import Adapter, Heads
from fewtags.methods.parts.student import Bank, Centred, Student
from fewtags.model.network import Network
from fewtags.model.saved import Model, ModelInfo

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
    many = [with_random_weights(TinyBackbone()) for _ in range(backbones)]
    settings = {"hidden": 5, **changed.pop("settings", {})}
    info = {"size": 64, "patches": 1, "patch_source": "resized", "patch_size": "full", "merge": "logits", "alpha": 1.0}
    info |= {"blocks": "both", "learned_from": 12, "thresholds": [0.5] * len(TAGS)} | changed
    width, basis = 8, None
    if components:
        readers = make_readers(many, info["size"], info["patches"])
        numbers = sum(end - start for reader in readers for start, end in reader.columns(info["blocks"]))
        basis, width = Components(torch.randn(numbers), torch.randn(numbers, components).half()), components
    if heads:
        top = Heads(width, len(TAGS), heads)
    else:
        top = Student(width, 0 if settings.get("learner") == "regression" else 5, len(TAGS))
    with_random_weights(top)
    if settings.get("bank"):
        top = Bank(top, 12, width, len(TAGS), settings["neighbours"])
        top.vectors.normal_()
        top.soft.uniform_()
    body = with_random_weights(Adapter(width, adapter)) if adapter else Centred(width) if frozen else nn.Identity()
    described = ModelInfo(
        fewtags=fewtags.__version__,
        method="d2l" if heads else "neighbours",
        tags=TAGS,
        method_settings={} if heads else settings,
        backbone="+".join(["resnet18"] * backbones),
        input_shift=[[10.0, 20.0, 30.0]] * backbones,
        input_scale=[[100.0, 110.0, 120.0]] * backbones,
        features=features,
        components=components,
        heads=list(heads),
        adapter=adapter,
        frozen=frozen,
        **info,
    )
    return Model(described, many, Network(body, top), basis)
