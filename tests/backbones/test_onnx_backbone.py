"""`onnx:FILE`: encoders that a person brings, fed and read as their files say, and saved with the model."""

import copy
import pickle
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fewtags.backbones.base import IMAGENET_MEAN, IMAGENET_STD, backbone_names, build_backbone
from fewtags.backbones.onnx_file import OnnxFileBackbone
from fewtags.backbones.weights import digest
from fewtags.errors import UserError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

WEIGHT = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0)) / 8  # the encoder: one convolution
FLOAT, BYTES = onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8
PICTURES = ("batch", 3, "height", "width")


def pictures(count: int = 2, size: int = 32) -> Tensor:
    made = torch.randint(0, 256, (count, 3, size, size), generator=torch.Generator().manual_seed(count))
    return made.to(torch.uint8)


def node(kind: str, inputs: str, output: str, **settings: Any) -> Any:
    return onnx.helper.make_node(kind, inputs.split(), [output], **settings)


# Everything that an encoder of these tests can give, by the name of the output.
NODES = {
    "map": [],
    "map_last": [node("Transpose", "map", "map_last", perm=[0, 2, 3, 1])],
    "pooled": [node("ReduceMean", "map", "pooled", axes=[2, 3], keepdims=0)],
    "narrow": [
        node("ReduceMean", "map", "mean", axes=[2, 3], keepdims=0),
        node("Slice", "mean zero two one", "narrow"),
    ],
    "tokens": [node("Reshape", "map rows", "flat"), node("Transpose", "flat", "tokens", perm=[0, 2, 1])],
    "with_class": [
        node("Reshape", "map rows", "flat"),
        node("Transpose", "flat", "plain", perm=[0, 2, 1]),
        node("ReduceMax", "plain", "class", axes=[1], keepdims=1),
        node("Concat", "class plain", "with_class", axis=1),
    ],
    "with_two": [
        node("Reshape", "map rows", "flat2"),
        node("Transpose", "flat2", "plain2", perm=[0, 2, 1]),
        node("ReduceMax", "plain2", "class2", axes=[1], keepdims=1),
        node("Concat", "class2 class2 plain2", "with_two", axis=1),
    ],
    "numbers": [node("ArgMax", "map", "best", axis=1, keepdims=0), node("Flatten", "best", "numbers", axis=1)],
    "total": [node("ReduceMean", "map", "total", axes=[0, 2, 3], keepdims=0)],
    "first": [node("ReduceMean", "map", "first", axes=[0], keepdims=1)],
}


def model(
    outputs: str = "map",
    shape: Sequence[int | str] = PICTURES,
    kind: int = FLOAT,
    channels_last: bool = False,
    metadata: dict[str, str] | None = None,
) -> Any:
    names = outputs.split()
    start = [node("Cast", "pictures", "cast", to=FLOAT)]
    start.append(node("Transpose", "cast", "x", perm=[0, 3, 1, 2]) if channels_last else node("Identity", "cast", "x"))
    start.append(node("Conv", "x weight", "map", strides=[8, 8]))
    constants = {
        "weight": WEIGHT.numpy(),
        "rows": np.array([0, 5, -1]),
        "zero": np.array([0]),
        "one": np.array([1]),
        "two": np.array([2]),
    }
    made = onnx.helper.make_model(
        onnx.helper.make_graph(
            start + [one for name in names for one in NODES[name]],
            "encoder",
            [onnx.helper.make_tensor_value_info("pictures", kind, shape)],
            [
                onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64 if name == "numbers" else FLOAT, None)
                for name in names
            ],
            [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.helper.set_model_props(made, metadata or {})
    return made


@pytest.fixture
def built(tmp_path: Path) -> Any:
    """Makes the backbone of an encoder."""

    def build(outputs: str = "map", **how: Any) -> OnnxFileBackbone:
        file = tmp_path / "encoder.onnx"
        onnx.save(model(outputs, **how), file)
        backbone = build_backbone(f"onnx:{file}")
        assert isinstance(backbone, OnnxFileBackbone)
        return backbone

    return build


def expected_map(x: Tensor, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD) -> Tensor:
    scaled = (x / 255 - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
    return nn.functional.conv2d(scaled, WEIGHT, stride=8)


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_a_map_is_scaled_as_imagenet_and_read_at_any_size(built: Any) -> None:
    backbone = built()
    assert (backbone.width, backbone.size, backbone.any_size) == (5, 224, True)
    assert backbone.classifier is None
    assert not list(backbone.parameters())
    for size in (32, 48):
        x = pictures(3, size)
        same(backbone.maps(x), expected_map(x))
        same(backbone(x), expected_map(x).mean((2, 3)))
        same(backbone.maps(x.float()), expected_map(x))


@pytest.mark.parametrize("outputs", ["pooled map", "map pooled"])
def test_pooled_vectors_of_the_file_come_before_the_mean_of_its_map(built: Any, outputs: str) -> None:
    backbone, x = built(outputs), pictures()
    assert (backbone._pooled, backbone._map.output) == ("pooled", "map")
    same(backbone(x), expected_map(x).mean((2, 3)))
    same(backbone.maps(x), expected_map(x))


@pytest.mark.parametrize("output", ["tokens", "with_class", "map_last"])
def test_tokens_and_channels_at_the_end_are_a_map_too(built: Any, output: str) -> None:
    backbone, x = built(output), pictures(2, 48)
    assert backbone.width == 5
    same(backbone.maps(x), expected_map(x))
    same(backbone(x), expected_map(x).mean((2, 3)))


def test_a_true_map_comes_before_tokens(built: Any) -> None:
    assert built("with_class map")._map.output == "map"


def test_tokens_of_an_oblong_picture_are_no_map(built: Any) -> None:
    x = pictures(2, 64)[:, :, :16]  # 2 × 8 tokens: as many as a square of 4 × 4
    with pytest.raises(UserError, match="no map"):
        built("tokens").maps(x)


def test_a_map_of_another_width_than_the_vectors_is_none(built: Any) -> None:
    backbone, x = built("map narrow"), pictures()
    assert backbone.width == 2
    same(backbone(x), expected_map(x).mean((2, 3))[:, :2])
    assert not backbone.gives_maps(32)
    with pytest.raises(UserError, match=r"encoder\.onnx has no map .* fewtags\.output"):
        backbone.maps(x)
    named = built("map narrow", metadata={"fewtags.output": "map"})
    assert named.width == 5
    assert named.gives_maps(32)
    same(named(x), expected_map(x).mean((2, 3)))


def test_vectors_alone_give_no_map(built: Any) -> None:
    backbone = built("pooled")
    assert backbone.width == 5
    assert not backbone.gives_maps(32)


@pytest.mark.parametrize("channels_last", [True, False])
def test_a_file_that_reads_bytes_gets_them_as_they_are(built: Any, channels_last: bool) -> None:
    shape = ("batch", 40, 40, 3) if channels_last else ("batch", 3, 40, 40)
    backbone, x = built(kind=BYTES, shape=shape, channels_last=channels_last), pictures(2, 40)
    assert backbone.size == 40
    plain = nn.functional.conv2d(x.float(), WEIGHT, stride=8)
    torch.testing.assert_close(backbone.maps(x), plain, atol=1e-2, rtol=1e-4)
    # a mean of pixels, as a shrunk picture has, is rounded and kept in range
    torch.testing.assert_close(backbone.maps((x - 0.4).clamp(0)), plain, atol=1e-2, rtol=1e-4)
    torch.testing.assert_close(backbone.maps(x + 300.0), backbone.maps(torch.full_like(x, 255)))


def test_a_file_with_every_dimension_open_is_read_channels_first(built: Any) -> None:
    x = pictures()
    same(built(shape=("batch", "channels", "height", "width")).maps(x), expected_map(x))


def test_metadata_gives_size_and_scaling(built: Any) -> None:
    metadata = {"fewtags.size": "40", "fewtags.mean": "[0.5, 0.4, 0]", "fewtags.std": "[0.5, 0.25, 1]"}
    backbone, x = built(metadata=metadata), pictures()
    assert (backbone.size, backbone.any_size) == (40, True)
    same(backbone.maps(x), expected_map(x, (0.5, 0.4, 0), (0.5, 0.25, 1)))
    assert built(shape=("batch", 3, 48, 48), metadata=metadata).size == 48


def test_a_file_for_one_picture_reads_many_one_by_one(built: Any) -> None:
    backbone, x = built("map pooled", shape=(1, 3, 32, 32)), pictures(3)
    same(backbone.maps(x), expected_map(x))
    same(backbone(x), expected_map(x).mean((2, 3)))


def test_a_size_that_the_file_does_not_read_is_refused(built: Any) -> None:
    fixed = built(shape=("batch", 3, 32, 32))
    with pytest.raises(UserError, match=r"encoder\.onnx reads pictures of 32 × 32 .*--size 32"):
        fixed(pictures(2, 48))
    assert fixed.gives_maps(32)
    assert not fixed.gives_maps(48)
    with pytest.raises(UserError, match=r"encoder\.onnx cannot read pictures 2 × 3 × 4 × 4; .*--size"):
        built()(pictures(2, 4))


def test_no_gradient_comes_out_and_training_mode_changes_nothing(built: Any) -> None:
    backbone, x = built(), pictures().float().requires_grad_()
    found = backbone.train()(x)
    assert not found.requires_grad
    assert torch.equal(found, backbone.eval()(x))
    assert backbone.double()(x).dtype == torch.float64


def test_a_saved_encoder_needs_no_file(tmp_path: Path, built: Any) -> None:
    backbone, x = built("map pooled", shape=("batch", 3, 32, 32)), pictures()
    name = f"onnx:{tmp_path / 'encoder.onnx'}"
    save_file(backbone.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "encoder.onnx").unlink()
    fresh = build_backbone(name, pretrained=False)
    with pytest.raises(UserError, match="empty until"):
        fresh(x)
    assert not fresh.gives_maps(32)
    state = load_file(tmp_path / "model.safetensors")
    nn.Sequential(fresh).load_state_dict({f"0.{key}": value for key, value in state.items()})
    assert (fresh.width, fresh.size, fresh.any_size) == (5, 32, False)
    assert digest(fresh) == digest(backbone)
    assert torch.equal(fresh(x), backbone(x))
    assert torch.equal(fresh.maps(x), backbone.maps(x))


def test_loading_keeps_a_scaling_that_was_set(built: Any) -> None:
    state, x = built().state_dict(), pictures()
    unit = build_backbone("onnx:encoder.onnx", pretrained=False, scaling="unit")
    unit.load_state_dict(state)
    same(unit.maps(x), expected_map(x, (0, 0, 0), (1, 1, 1)))


def test_another_encoder_can_be_loaded_over_a_first(built: Any) -> None:
    second, x = built("narrow"), pictures()
    first = built("map")
    first.maps(x)
    first.load_state_dict(second.state_dict())
    assert first.width == 2
    assert torch.equal(first(x), second(x))


def test_a_state_that_is_no_encoder_is_refused(built: Any) -> None:
    fresh = build_backbone("onnx:encoder.onnx", pretrained=False)
    with pytest.raises(RuntimeError, match="content"):
        fresh.load_state_dict({})
    with pytest.raises(RuntimeError, match="content"):
        fresh.load_state_dict({"content": torch.ones(7)})
    with pytest.raises(UserError, match=r"onnx:encoder\.onnx: ONNX Runtime cannot open"):
        fresh.load_state_dict({"content": torch.ones(7, dtype=torch.uint8)})


@pytest.mark.parametrize("opened", [True, False])
def test_copies_work_by_themselves(built: Any, opened: bool) -> None:
    backbone, x = built(), pictures()
    expected = backbone.maps(x)
    if not opened:
        backbone = copy.deepcopy(backbone)
    for made in (copy.deepcopy(backbone), pickle.loads(pickle.dumps(backbone)), backbone.folded()):
        assert torch.equal(made.maps(x), expected)
        assert digest(made) == digest(backbone)


def test_threads_may_share_a_backbone(built: Any) -> None:
    backbone = copy.deepcopy(built())  # not yet opened: the threads meet there
    batches = [pictures(count) for count in range(1, 9)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(backbone.maps, batches))
    for x, one in zip(batches, found, strict=True):
        same(one, expected_map(x))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"shape": ("batch", 1, 32, 32)}, r"'pictures' is tensor\(float\) \['batch', 1, 32, 32\]; export"),
        ({"shape": ("batch", 3, 32, 48)}, "pictures are square; export"),
        ({"shape": (4, 3, 32, 32)}, "reads 4 pictures at a time; export"),
        ({"kind": onnx.TensorProto.FLOAT16}, r"tensor\(float16\) .*; export"),
        ({"outputs": "numbers"}, r"no output .* numbers \[2, 784\]; export"),
        ({"outputs": "total"}, r"no output .* total \[5\]; export"),
        ({"outputs": "first"}, r"no output .* first \[1, 5, 28, 28\]; export"),
        ({"outputs": "with_two"}, r"no output .* with_two \[2, 786, 5\]; export"),
        ({"metadata": {"fewtags.output": "mpa"}}, "output 'mpa' .* it has map"),
        ({"outputs": "map total", "metadata": {"fewtags.output": "total"}}, "named as fewtags.output"),
        ({"metadata": {"fewtags.size": "big"}}, "fewtags.size .* 'big'; write"),
        ({"metadata": {"fewtags.size": "0"}}, "fewtags.size .* 0; write"),
        ({"metadata": {"fewtags.mean": "[0, 0, 0]"}}, r"fewtags.std .* \[0, 0, 0\] and None; write both"),
        ({"metadata": {"fewtags.mean": "[0, 0, 0]", "fewtags.std": "[1, 0, 1]"}}, "fewtags.std .*; write both"),
        ({"metadata": {"fewtags.mean": "[0, 0]", "fewtags.std": "[1, 1, 1]"}}, "fewtags.mean .*; write both"),
        ({"metadata": {"fewtags.size": "4"}}, "cannot read pictures 2 × 3 × 4 × 4; .*fewtags.size"),
    ],
)
def test_an_encoder_that_cannot_be_used_is_named_with_the_remedy(built: Any, how: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=rf"encoder\.onnx.*{says}"):
        built(**how)


def test_an_input_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    ends = [onnx.helper.make_tensor_value_info(name, FLOAT, ("batch", 3, 7)) for name in ("words", "same")]
    graph = onnx.helper.make_graph([node("Identity", "words", "same")], "words", ends[:1], ends[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "words.onnx")
    with pytest.raises(UserError, match=r"words\.onnx: its input 'words' is tensor\(float\) \['batch', 3, 7\]; export"):
        build_backbone(f"onnx:{tmp_path / 'words.onnx'}")


def test_two_inputs_are_refused(tmp_path: Path) -> None:
    made = model()
    made.graph.input.append(onnx.helper.make_tensor_value_info("words", FLOAT, ("batch", 7)))
    onnx.save(made, tmp_path / "pair.onnx")
    with pytest.raises(UserError, match=r"pair\.onnx has 2 inputs \(pictures, words\), not one; export"):
        build_backbone(f"onnx:{tmp_path / 'pair.onnx'}")


@pytest.mark.parametrize("content", [b"", b"no encoder at all", b"no location either", None])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "broken.onnx"
    file.write_bytes(model().SerializeToString()[:-100] if content is None else content)
    with pytest.raises(UserError, match=r"broken\.onnx.*(copy|export) .*again"):
        build_backbone(f"onnx:{file}")


def test_a_path_that_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.onnx: there is no such file; check"):
        build_backbone(f"onnx:{tmp_path / 'absent.onnx'}")
    with pytest.raises(UserError, match=r"is a folder; name the \.onnx file"):
        build_backbone(f"onnx:{tmp_path}")
    with pytest.raises(UserError, match="leave out --weights"):
        build_backbone(f"onnx:{tmp_path / 'absent.onnx'}", weights=tmp_path / "w.pth")
    with pytest.raises(UserError, match="onnx:FILE"):
        build_backbone("encoder.onnx")
    assert "onnx:FILE" in backbone_names()


def test_weights_in_a_second_file_are_refused_even_where_they_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the runtime would find them
    onnx.save(model(), "two.onnx", save_as_external_data=True, location="two.bin", size_threshold=0)
    with pytest.raises(UserError, match=r"two\.onnx keeps weights in a second file; make it one file"):
        build_backbone("onnx:two.onnx")
    onnx.save(onnx.load("two.onnx"), "one.onnx", save_as_external_data=False)  # the remedy that is named
    assert build_backbone("onnx:one.onnx").width == 5


def test_the_word_location_alone_is_no_second_file(built: Any) -> None:
    assert built(metadata={"location": "Bern"}).width == 5


def test_a_missing_runtime_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(model(), tmp_path / "encoder.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"run: pip install .*'onnxruntime>="):
        build_backbone(f"onnx:{tmp_path / 'encoder.onnx'}")
