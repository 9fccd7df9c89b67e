"""Image-text backbones: the library's own embeddings and logits, tags read once, words scored as by hand."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fewtags.backbones.base import Backbone, build_backbone
from fewtags.backbones.image_text import (
    BACKGROUND,
    PROMPTS,
    ImageTextBackbone,
    aggregate,
    attend_to_alike,
    embed_texts,
    log_probabilities,
    spelled,
)
from fewtags.backbones.weights import digest
from fewtags.encoders.base import EncoderSettings
from fewtags.encoders.evidence import Evidence
from fewtags.encoders.runtime import OnnxEngine
from fewtags.encoders.windows import EVIDENCE_VERSION, WindowReader, make_readers, regions
from fewtags.errors import UserError
from fewtags.explain.heat import Watched

transformers = pytest.importorskip("transformers")

Array = NDArray[np.float64]
TAGS = ["dog", "sea", "potted_plant"]
PLAIN = ("a photo of a {}.",)
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


def pictures(count: int, size: int, seed: int = 0) -> Tensor:
    small = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed)) * 255
    return nn.functional.interpolate(small, size=size, mode="bilinear").to(torch.uint8)


def save_tokenizer(folder: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    sentences = " ".join([*PROMPTS, *BACKGROUND, *(spelled(tag) for tag in TAGS), "cat"])
    words = ["<s>", "</s>", "<unk>", *sorted(set(sentences.replace(".", " . ").replace("-", " - ").split()))]
    numbers = {word: number for number, word in enumerate(words)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, "<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)


def save_model(folder: Path, kind: str) -> Any:
    """A small model with random weights, large enough for signals to differ."""
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    text = {**SMALL, **ends, "vocab_size": 64, "max_position_embeddings": 16}
    vision = {**SMALL, "image_size": 32, "patch_size": 8}
    shared = {"projection_dim": 24} if kind == "CLIP" else {}
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision, **shared)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, f"{kind}Model")(config)
        for value in model.parameters():
            if value.ndim > 1:
                nn.init.normal_(value, std=0.25)
        if kind == "Siglip":
            model.logit_scale.data.fill_(2.0)
            model.logit_bias.data.fill_(-3.0)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [0.25] * 3}))
    return model.eval()


@pytest.fixture(scope="module", params=["CLIP", "Siglip"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp(request.param)
    model = save_model(folder, request.param)
    save_tokenizer(folder)
    return SimpleNamespace(kind=request.param, folder=folder, model=model, name=f"hf:{folder}")


def told(saved: SimpleNamespace, tags: list[str] = TAGS, **settings: Any) -> ImageTextBackbone:
    backbone = build_backbone(saved.name).eval().requires_grad_(False)
    assert isinstance(backbone, ImageTextBackbone)
    backbone.set_tags(tags, **settings)
    return backbone


def scaled(x: Tensor) -> Tensor:
    return (x / 255 - 0.5) / 0.25


def features(found: Any) -> Tensor:
    return found if isinstance(found, Tensor) else found.pooler_output


def tokens_of(saved: SimpleNamespace, texts: list[str]) -> dict[str, Tensor]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved.folder, local_files_only=True)
    if saved.kind == "CLIP":
        return dict(tokenizer(texts, padding=True, return_tensors="pt"))
    return {"input_ids": tokenizer(texts, padding="max_length", max_length=16, return_tensors="pt")["input_ids"]}


@torch.no_grad()
def test_image_embeddings_are_those_of_the_library(saved: SimpleNamespace) -> None:
    backbone = build_backbone(saved.name).eval()
    assert (backbone.width, backbone.size) == ({"CLIP": 24, "Siglip": 32}[saved.kind], 32)
    x = pictures(2, 32)
    expected = features(saved.model.get_image_features(scaled(x)))
    torch.testing.assert_close(backbone(x), expected, atol=1e-5, rtol=1e-5)
    x = pictures(2, 48)
    expected = features(saved.model.get_image_features(scaled(x), interpolate_pos_encoding=True))
    torch.testing.assert_close(backbone(x), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_text_embeddings_are_those_of_the_library(saved: SimpleNamespace) -> None:
    texts = ["a photo of a dog.", "a close-up of the sea."]
    found = embed_texts(str(saved.folder), texts)
    expected = features(saved.model.get_text_features(**tokens_of(saved, texts)))
    expected = expected / expected.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(found.vectors, expected, atol=1e-5, rtol=1e-5)
    assert (expected[0] - expected[1]).abs().max() > 0.01, "texts that read alike show nothing"


@torch.no_grad()
def test_logits_of_a_plain_prompt_are_those_of_the_library(saved: SimpleNamespace) -> None:
    backbone = told(saved, prompts=PLAIN)
    x = pictures(3, 32)
    texts = ["a photo of a dog.", "a photo of a sea.", "a photo of a potted plant."]
    expected = saved.model(pixel_values=scaled(x), **tokens_of(saved, texts)).logits_per_image
    torch.testing.assert_close(backbone.classify(backbone(x)), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_prompts_are_averaged_after_each_has_length_one(saved: SimpleNamespace) -> None:
    backbone = told(saved, ["dog"])
    found = embed_texts(str(saved.folder), [prompt.format("dog") for prompt in PROMPTS])
    one_by_one = [embed_texts(str(saved.folder), [prompt.format("dog")]).vectors[0] for prompt in PROMPTS]
    mean = torch.stack(one_by_one).mean(0)
    assert backbone.classifier is not None
    torch.testing.assert_close(backbone.classifier.weight[0], found.scale * mean / mean.norm(), atol=1e-5, rtol=1e-5)
    assert not any(value.requires_grad for value in backbone.classifier.parameters())


@torch.no_grad()
def test_patch_tokens_are_in_the_space_of_the_image_embeddings(saved: SimpleNamespace) -> None:
    backbone = build_backbone(saved.name).eval()
    x = pictures(2, 32)
    last = saved.model.vision_model(scaled(x)).last_hidden_state
    found = backbone.maps(x)
    assert found.shape == (2, backbone.width, 4, 4)
    if saved.kind == "CLIP":
        projected = saved.model.visual_projection(saved.model.vision_model.post_layernorm(last))
        torch.testing.assert_close(projected[:, 0], backbone(x), atol=1e-5, rtol=1e-5)  # the class token
        torch.testing.assert_close(found[:, :, 1, 2], projected[:, 1 + 4 + 2], atol=1e-5, rtol=1e-5)
    else:
        expected = saved.model.vision_model.head(last[:, 6:7])  # a picture of one token
        torch.testing.assert_close(found[:, :, 1, 2], expected, atol=1e-5, rtol=1e-5)
    assert backbone.gives_maps(48)
    assert not backbone.gives_maps(4)


@torch.no_grad()
def test_one_look_gives_maps_and_vectors(saved: SimpleNamespace) -> None:
    backbone = told(saved)
    for size in (32, 48):
        x = pictures(2, size)
        look = backbone.look(x)
        torch.testing.assert_close(look.maps, backbone.maps(x))
        torch.testing.assert_close(look.pooled, backbone(x))
        assert look.dense.shape == look.maps.shape
    with pytest.raises(UserError, match="no map"):
        backbone.look(pictures(1, 64)[:, :, :16])


@torch.no_grad()
def test_a_restored_backbone_knows_its_tags_and_keeps_no_text_tower(saved: SimpleNamespace) -> None:
    backbone = told(saved)
    state = {key: value.clone() for key, value in backbone.state_dict().items()}
    text = sum(value.numel() for value in saved.model.text_model.parameters())
    assert not any("text" in key for key in state)
    assert sum(value.numel() for value in state.values()) < sum(p.numel() for p in saved.model.parameters()) - text // 2
    restored = build_backbone(saved.name, pretrained=False).eval().requires_grad_(False)  # as a model is restored
    assert restored.reads_text
    assert restored.tag_count == 0
    restored.load_state_dict(state)
    assert restored.tag_count == 3
    assert digest(restored) == digest(backbone)
    x = pictures(2, 32)
    assert isinstance(restored, ImageTextBackbone)
    assert torch.equal(restored.tag_scores(restored(x)), backbone.tag_scores(backbone(x)))
    assert torch.equal(WindowReader(restored)(pictures(2, 64)), WindowReader(backbone)(pictures(2, 64)))
    restored.load_state_dict(build_backbone(saved.name).state_dict())  # of one that was told nothing
    assert (restored.tag_count, restored.background) == (0, None)


@torch.no_grad()
def test_tags_can_be_set_again_and_change_no_random_numbers(saved: SimpleNamespace) -> None:
    backbone = told(saved, ["cat"])
    before = torch.random.get_rng_state()
    backbone.set_tags(TAGS)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert digest(backbone) == digest(told(saved))


def test_an_encoder_is_restored_with_its_words(saved: SimpleNamespace) -> None:
    encoder = Evidence([told(saved)], EncoderSettings(size=64, patches=2))
    state = {"components": None, "blocks": "both", **encoder.state()}
    restored = Evidence.restore(state, encoder.tensors(), saved.folder)
    x = pictures(2, 64)
    with torch.no_grad():
        assert torch.equal(restored._readers[0](x), encoder._readers[0](x))
        assert torch.equal(restored.raw(x.permute(0, 2, 3, 1)), encoder.raw(x.permute(0, 2, 3, 1)))


def test_stored_features_are_known_by_the_tags(saved: SimpleNamespace) -> None:
    def made_from(tags: list[str]) -> dict[str, object]:
        encoder = Evidence([told(saved, tags)], EncoderSettings(size=64))
        return encoder.made_from(encoder._readers[0], "evidence")

    assert made_from(["dog", "sea"]) == made_from(["dog", "sea"])
    assert made_from(["dog", "sea"]) != made_from(["sea", "dog"])
    assert made_from(["dog"])["reading"] != made_from(["dog", "sea"])["reading"]
    untold = build_backbone(saved.name).eval()
    reading = WindowReader(untold).extra_repr()
    assert (reading, EVIDENCE_VERSION) == ("version=1, patches=1, half=True", 1)


# --- by hand -------------------------------------------------------------------------------------------------


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def probabilities_by_hand(kind: str, vectors: Array, texts: Array, scale: float, bias: float) -> Array:
    """vectors [n, D], texts [K + N, D]; the last N are background."""
    cosines = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)) @ texts.T
    if kind == "CLIP":
        return softmax(scale * cosines)
    return 1 / (1 + np.exp(-(scale * cosines + bias)))


def words_by_hand(
    backbone: ImageTextBackbone, saved: SimpleNamespace, x: Tensor, tags: list[str], patches: int
) -> Array:
    """The whole block of words [B, 1 + patches², K], in loops over images, parts and tags."""
    folder = str(saved.folder)
    vectors, scale, bias = embed_texts(folder, list(BACKGROUND))
    rows = []
    for tag in tags:
        each = embed_texts(folder, [prompt.format(spelled(tag)) for prompt in PROMPTS]).vectors.double().numpy()
        rows.append(each.mean(0) / np.linalg.norm(each.mean(0)))
    texts = np.stack([*rows, *vectors.double().numpy()])
    look = backbone.look(x)
    side = look.dense.shape[-1]
    grid = min(7, side)
    found = np.zeros((len(x), len(regions(grid, patches)), len(tags)))
    for image in range(len(x)):
        tokens = look.dense[image].double().numpy().reshape(backbone.width, -1).T
        here = probabilities_by_hand(saved.kind, tokens, texts, scale, bias).reshape(side, side, -1)
        whole = probabilities_by_hand(saved.kind, look.pooled[image : image + 1].double().numpy(), texts, scale, bias)[
            0
        ]
        for part, (top, left, extent) in enumerate(regions(grid, patches)):
            for tag in range(len(tags)):
                best = max(
                    here[row, column, tag]
                    for row in range(side)
                    for column in range(side)
                    if (row + 1) * grid > top * side and row * grid < (top + extent) * side
                    if (column + 1) * grid > left * side and column * grid < (left + extent) * side
                )
                found[image, part, tag] = np.log(0.9 * best + 0.1 * whole[tag])
    return found


@pytest.mark.parametrize("size", [32, 64, 112])  # 4, 8 and 14 patches a side; the grid has at most 7
@pytest.mark.parametrize("patches", [1, 2])
@torch.no_grad()
def test_the_words_of_a_reader_are_those_by_hand(saved: SimpleNamespace, size: int, patches: int) -> None:
    backbone = told(saved)
    (reader,) = make_readers([backbone], size, patches)
    x = pictures(2, size)
    found = reader(x)
    assert found.shape == (2, 1 + (patches**2 if patches > 1 else 0), reader.width)
    ((start, end),) = reader.columns("words")
    assert end == reader.width
    words = found[..., start:end]
    np.testing.assert_allclose(words.numpy(), words_by_hand(backbone, saved, x, TAGS, patches), atol=1e-4)
    assert (words <= 0).all()
    if patches > 1:
        assert (words[:, 1:] <= words[:, :1] + 1e-6).all(), "a part has no better patch than the whole"
        assert (words[:, 1:].amax(1) - words[:, 0]).abs().max() < 1e-6, "and one of them has the best"


@torch.no_grad()
def test_words_leave_the_other_blocks_as_they_are(saved: SimpleNamespace) -> None:
    x = pictures(2, 64)
    plain = WindowReader(build_backbone(saved.name).eval(), 2)
    reader = WindowReader(told(saved), 2)
    assert plain.columns("words") == []
    for blocks in ("pooled", "evidence", "both"):
        assert reader.columns(blocks) == plain.columns(blocks)
    assert reader.width == plain.width + 3
    torch.testing.assert_close(reader(x)[..., : plain.width], plain(x))
    assert reader.of_whole().columns("words") == reader.columns("words")
    torch.testing.assert_close(reader.of_whole()(x)[:, 0], reader(x)[:, 0])
    torch.testing.assert_close(reader.folded()(x), reader(x))


@torch.no_grad()
def test_without_a_map_the_words_are_those_of_the_whole(saved: SimpleNamespace) -> None:
    backbone = told(saved)
    reader = WindowReader(backbone, half=False, mapped=False)
    x = pictures(2, 32)
    assert [block.kind for block in reader.blocks] == ["pooled", "words"]
    ((start, end),) = reader.columns("words")
    torch.testing.assert_close(reader(x)[:, 0, start:end], backbone.tag_scores(backbone(x)))


@torch.no_grad()
def test_a_watched_backbone_is_read_in_the_same_way(saved: SimpleNamespace) -> None:
    x = pictures(1, 64)
    backbone = told(saved)
    watched = Watched(backbone)
    found = WindowReader(watched, 2)(x)  # type: ignore[arg-type]
    assert len(watched.kept) == 2, "of the picture and of its half"
    torch.testing.assert_close(found, WindowReader(backbone, 2)(x))


@torch.no_grad()
def test_a_single_tag_is_ranked(saved: SimpleNamespace) -> None:
    backbone = told(saved, ["dog"])
    reader = WindowReader(backbone)
    ((start, end),) = reader.columns("words")
    scores = reader(pictures(6, 64))[:, 0, start:end]
    assert scores.shape == (6, 1)
    assert scores.std() > 1e-3, "a softmax over one tag is one everywhere"
    assert backbone.classifier is not None
    text = backbone.classifier.weight[0]
    towards = torch.stack([-text, text])  # vectors that point from and to the text
    away, at = backbone.tag_scores(towards)[:, 0].tolist()
    assert away < at


@torch.no_grad()
def test_the_attention_between_like_tokens_is_that_by_hand(tmp_path: Path) -> None:
    model = save_model(tmp_path, "CLIP").vision_model
    layer = model.encoder.layers[-1]
    tokens = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))
    weights = {key: value.double().numpy() for key, value in layer.state_dict().items()}

    def linear(x: Array, name: str) -> Array:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x: Array, name: str) -> Array:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    for found, x in zip(attend_to_alike(layer, tokens).numpy(), tokens.double().numpy(), strict=True):
        normed = norm(x, "layer_norm1")
        query, key, value = (linear(normed, f"self_attn.{one}_proj") for one in "qkv")
        heads = []
        for first in (0, 16):
            q, k, v = (one[:, first : first + 16] for one in (query, key, value))
            heads.append((softmax(q @ q.T / 4) + softmax(k @ k.T / 4)) @ v)
        y = x + linear(np.concatenate(heads, axis=1), "self_attn.out_proj")
        middle = linear(norm(y, "layer_norm2"), "mlp.fc1")
        y = y + linear(middle / (1 + np.exp(-1.702 * middle)), "mlp.fc2")
        np.testing.assert_allclose(found, y, atol=1e-4)
    plain = layer(tokens, None)
    assert (attend_to_alike(layer, tokens) - (plain if isinstance(plain, Tensor) else plain[0])).abs().max() > 0.1


@torch.no_grad()
def test_dense_tokens_come_out_of_the_last_layer_alone(saved: SimpleNamespace) -> None:
    backbone = told(saved)
    x = pictures(1, 32)
    look = backbone.look(x)
    if saved.kind == "Siglip":
        assert torch.equal(look.dense, look.maps)
        return
    tower = saved.model.vision_model
    tokens = tower.pre_layrnorm(tower.embeddings(scaled(x)))
    plain = tower.encoder.layers[0](tokens, None)
    last = attend_to_alike(tower.encoder.layers[1], plain if isinstance(plain, Tensor) else plain[0])
    expected = saved.model.visual_projection(tower.post_layernorm(last))[0, 1:]
    torch.testing.assert_close(look.dense[0].flatten(1).T, expected, atol=1e-5, rtol=1e-5)


def test_probabilities_and_their_aggregate_are_those_by_hand() -> None:
    draw = np.random.default_rng(0)
    logits, background, patches = (
        draw.normal(size=(4, 3)) * 5,
        draw.normal(size=(4, 2)) * 5,
        draw.normal(size=(2, 6, 3)),
    )
    by_hand = softmax(np.concatenate([logits, background], axis=1))[:, :3]
    found = log_probabilities(torch.from_numpy(logits), torch.from_numpy(background))
    np.testing.assert_allclose(found.exp().numpy(), by_hand)
    alone = log_probabilities(torch.from_numpy(logits), None)
    np.testing.assert_allclose(alone.exp().numpy(), 1 / (1 + np.exp(-logits)))
    patches, whole = -np.abs(patches), -np.abs(draw.normal(size=(2, 3)))
    expected = np.log(0.7 * np.exp(patches).max(1) + 0.3 * np.exp(whole))
    np.testing.assert_allclose(aggregate(torch.from_numpy(patches), torch.from_numpy(whole), 0.7).numpy(), expected)
    tiny = aggregate(torch.full((1, 2, 1), -300.0), torch.full((1, 1), -400.0))
    assert tiny.item() == pytest.approx(-300 + np.log(0.9)), "no logarithm of zero"


@torch.no_grad()
def test_a_file_of_sixteen_bits_is_computed_in_thirty_two(saved: SimpleNamespace, tmp_path: Path) -> None:
    shutil.copytree(saved.folder, tmp_path, dirs_exist_ok=True)
    transformers.AutoModel.from_pretrained(saved.folder).half().save_pretrained(tmp_path)
    short = told(SimpleNamespace(name=f"hf:{tmp_path}"))
    assert {value.dtype for value in short.parameters()} == {torch.float32}
    x = pictures(2, 32)
    exact = told(saved)
    torch.testing.assert_close(short.classify(short(x)), exact.classify(exact(x)), atol=0.05, rtol=0.05)


# --- what goes wrong -----------------------------------------------------------------------------------------


def test_a_missing_tokenizer_is_said_in_one_line(saved: SimpleNamespace, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(saved.folder / name, tmp_path)
    backbone = build_backbone(f"hf:{tmp_path}")
    with pytest.raises(UserError, match=r"without its tokenizer .* hf download .*tokenizer\.json") as caught:
        backbone.set_tags(TAGS)
    assert "\n" not in str(caught.value)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="without its tokenizer"):
        backbone.set_tags(TAGS)
    assert backbone.tag_count == 0


def test_a_missing_text_tower_is_said_in_one_line(saved: SimpleNamespace, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(saved.folder, tmp_path, dirs_exist_ok=True)
    state = load_file(saved.folder / "model.safetensors")
    images = {key: value for key, value in state.items() if not key.startswith("text_")}
    assert len(images) < len(state)
    save_file(images, tmp_path / "model.safetensors", metadata={"format": "pt"})
    backbone = build_backbone(f"hf:{tmp_path}")
    with pytest.raises(UserError, match=r"without its text tower .* hf download .*text_") as caught:
        backbone.set_tags(TAGS)
    assert "\n" not in str(caught.value)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match="without its text tower"):
        backbone.set_tags(TAGS)


def test_tags_are_asked_for_and_others_read_no_text(saved: SimpleNamespace) -> None:
    backbone = build_backbone(saved.name)
    assert backbone.reads_text
    with pytest.raises(UserError, match="not been told the tags"):
        backbone.classify(torch.zeros(1, backbone.width))
    with pytest.raises(UserError, match="no tags"):
        backbone.set_tags([])
    other: Backbone = build_backbone("resnet18", pretrained=False)
    assert (other.reads_text, other.tag_count) == (False, 0)
    with pytest.raises(TypeError, match="resnet18 reads no text"):
        other.set_tags(TAGS)


def test_a_model_of_any_aspect_names_one_that_is_not(tmp_path: Path) -> None:
    if not hasattr(transformers, "Siglip2Model"):
        pytest.skip("this transformers has no SigLIP 2")
    text = {**SMALL, "vocab_size": 64, "max_position_embeddings": 16}
    config = transformers.Siglip2Config(text_config=text, vision_config={**SMALL, "num_patches": 16, "patch_size": 8})
    transformers.Siglip2Model(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="siglip2-base-patch16-224"):
        build_backbone(f"hf:{tmp_path}")


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ("dog", "dog"),
        ("potted_plant", "potted plant"),
        ("diningTable", "dining table"),
        ("TVMonitor", "tv monitor"),
        ("T-shirt", "t-shirt"),
        ("__", "__"),
        ("Sports Ball", "sports ball"),
    ],
)
def test_a_tag_is_spelled_as_in_a_sentence(tag: str, words: str) -> None:
    assert spelled(tag) == words


@pytest.mark.slow
def test_the_fast_engine_gives_the_same_words(
    saved: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    monkeypatch.setenv("FEWTAGS_CACHE", str(tmp_path))
    (reader,) = make_readers([told(saved)], 64, 2)
    x = pictures(3, 64)
    found = OnnxEngine(reader)(x.permute(0, 2, 3, 1).contiguous().numpy())
    with torch.no_grad():
        np.testing.assert_allclose(found, reader(x).numpy(), atol=1e-4)
