"""Evidence with word scores: by hand, the same however an image is read, kept nowhere but in the model."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load, save
from torch import nn

import small_runs  # noqa: F401 - one thread
from fewtags.backbones.base import Backbone, build_backbone
from fewtags.data.catalogue import Catalogue, Names, Role
from fewtags.data.images import FolderImages
from fewtags.encoders import evidence as module
from fewtags.encoders.base import EncoderSettings, Images, make_encoder
from fewtags.encoders.evidence import CLASSES, Choice, Evidence
from fewtags.encoders.packed import pack_encoder, unpack_encoder
from fewtags.encoders.runtime import TorchEngine
from fewtags.encoders.vectors import Vectors
from fewtags.encoders.windows import square
from fewtags.errors import UserError
from fewtags.training.prepare import Preparation, prepare
from fewtags.training.recipe import Recipe
from fewtags.utils.files import cache_folder
from fewtags.utils.stopping import StopRequest

CPU = torch.device("cpu")
ALONE = SimpleNamespace(device=CPU, global_rank=0, world_size=1, is_global_zero=True, barrier=lambda: None)
SIZE, TAGS = 16, 3


class Points(Backbone):
    """Every pixel by itself becomes a cell, and is told from others as one of so many classes."""

    def __init__(self, classes=CLASSES, name="points", seed=0):
        super().__init__(name, 4, 7)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv = nn.Conv2d(3, 4, 1)
            nn.init.normal_(self.conv.weight)
            if classes:
                self.fc = nn.Linear(4, classes)
                nn.init.normal_(self.fc.weight)
        self.set_scaling((127.0, 127.0, 127.0), (60.0, 60.0, 60.0))
        self.eval().requires_grad_(False)

    def _features(self, scaled):
        return torch.relu(self.conv(scaled))


class Pooled(Backbone):
    """Without a map, though with a classifier."""

    def __init__(self):
        super().__init__("pooled", 3, 7)
        self.fc = nn.Linear(3, CLASSES)

    def maps(self, pictures):
        raise UserError("there is none")

    def forward(self, pictures):
        return self._scaled(pictures).mean((2, 3))


def word_weights():
    """The first tag has many classes, the second few in part, the third none."""
    weights = torch.zeros(CLASSES, TAGS)
    weights[::3, 0], weights[100:140, 1] = 1.0, 0.5
    return weights


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEWTAGS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "make_engine", TorchEngine)


@pytest.fixture
def catalogue(tmp_path):
    """Nine pictures, no two alike, the first three labelled."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(9):
        noise = np.random.default_rng(number).integers(0, 255, (3, 4, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((20, 18), Image.Resampling.BILINEAR).save(folder / f"{number}.png")
    roles = np.full(9, Role.UNLABELLED, np.int8)
    roles[:3] = Role.LABELLED
    targets = np.where(roles[:, None] == Role.LABELLED, np.arange(9)[:, None] % [2, 3, 2] == 0, -1).astype(np.int8)
    names = Names(f"{number}.png" for number in range(9))
    return Catalogue(("a", "b", "c"), names, targets, roles, FolderImages(folder))


def evidence(backbones=None, words=True, **settings):
    backbones = backbones or [Points(), Points(name="second", seed=1)]
    encoder = Evidence(backbones, EncoderSettings(**{"size": SIZE, "components": 4, **settings}))
    if words:
        assert encoder.read_words(word_weights())
    return encoder


def prepared(catalogue, encoder):
    recipe = Recipe(size=SIZE, features="evidence", components=4)
    how = Preparation(
        encoder=encoder,
        recipe=recipe,
        uses_unlabelled=True,
        draws_views=True,
        workers=0,
        fabric=ALONE,
        stop=StopRequest(),
    )
    return prepare(catalogue, how)


def pictures_of(catalogue):
    return torch.from_numpy(np.stack([square(catalogue.images.image(name), SIZE) for name in catalogue.names]))


def words_by_hand(encoder, pictures, weights):
    """log(Σ p w + 0.001) of the windows of each size, p what is seen most of a class, rounded to sixteen bits."""
    scores = []
    for reader in encoder.readers:
        found = reader(pictures.permute(0, 3, 1, 2)).half().double().numpy()
        if reader.mapped and reader.backbone.classifier is not None and reader.backbone.fc.out_features == CLASSES:
            for start, end in reader.columns("evidence"):
                assert end - start == CLASSES
                scores.append(np.log(found[..., start:end] ** 2 @ weights.double().numpy() + 0.001))
    return np.mean(scores, axis=0)


@pytest.mark.parametrize("patches", [1, 2])
def test_a_word_score_is_the_mean_logarithm_of_what_windows_show_of_its_classes(catalogue, patches):
    encoder, pictures = evidence(patches=patches), pictures_of(catalogue)
    found = encoder(pictures)
    plain = evidence(words=False, patches=patches)
    assert (encoder.width, encoder.words) == (plain.width + TAGS, TAGS)
    torch.testing.assert_close(found[..., :-TAGS], plain(pictures))
    np.testing.assert_allclose(found[..., -TAGS:], words_by_hand(encoder, pictures, word_weights()), atol=1e-4)
    assert float(found[:, 0, -TAGS].std()) > 1e-3
    torch.testing.assert_close(found[..., -1], torch.full_like(found[..., -1], np.log(0.001)))  # no class, no word


def test_only_backbones_that_know_the_classes_have_a_say(catalogue):
    pictures = pictures_of(catalogue)
    alone = evidence([Points()])
    for other in (Points(classes=0, name="none"), Points(classes=999, name="others"), Pooled()):
        found = evidence([Points(), other])(pictures)[..., -TAGS:]
        torch.testing.assert_close(found, alone(pictures)[..., -TAGS:])


@pytest.mark.parametrize("backbones", [[Points(classes=0)], [Points(classes=999)], [Pooled()]], ids=str)
def test_backbones_that_cannot_name_what_they_see_read_no_words(backbones):
    encoder = Evidence(backbones, EncoderSettings(size=SIZE))
    width = encoder.width
    assert encoder.read_words(word_weights()) is False
    assert (encoder.words, encoder.width) == (0, width)
    assert "words.weights" not in encoder.tensors()
    assert encoder.state()["words"] is None


def test_other_encoders_read_no_words():
    crops = make_encoder("crops", [build_backbone("resnet18", pretrained=False)], EncoderSettings(size=64))
    for encoder in (crops, Vectors(6, EncoderSettings())):
        assert encoder.read_words(word_weights()) is False
        assert encoder.words == 0
        with pytest.raises(TypeError, match="reads no words"):
            encoder.name_evidence(np.zeros((2, TAGS), np.float32))


def test_words_may_be_read_again():
    encoder = evidence(words=False)
    width = encoder.width
    assert encoder.read_words(word_weights())
    assert encoder.read_words(word_weights()[:, :2])
    assert (encoder.words, encoder.width) == (2, width + 2)


@pytest.mark.parametrize("patches", [1, 2])
@pytest.mark.parametrize("blocks", ["both", "pooled", "evidence"])
def test_an_image_is_the_same_however_it_is_read(catalogue, patches, blocks):
    """Tagging one after the other, what was stored, and what an exported model computes."""
    found = prepared(catalogue, evidence(patches=patches, blocks=blocks))
    encoder, names = found.encoder, list(catalogue.names)
    assert encoder.width == encoder.components.count + TAGS == 4 + TAGS
    (one_by_one,) = encoder.encode(catalogue.images, names, CPU)
    ours = np.stack([one.value for one in one_by_one])
    stored = encoder.stored("plain", Images(catalogue.images, names, found.keys))
    np.testing.assert_allclose(ours, stored.features[stored.rows, 0], atol=1e-5)
    pictures = pictures_of(catalogue)
    np.testing.assert_allclose(ours, encoder(pictures), atol=2e-3)
    np.testing.assert_allclose(ours[..., -TAGS:], words_by_hand(encoder, pictures, word_weights()), atol=2e-3)


def test_the_chosen_blocks_play_no_part_in_words(catalogue):
    words = [evidence(blocks=blocks)(pictures_of(catalogue))[..., -TAGS:] for blocks in ("both", "pooled", "evidence")]
    assert torch.equal(words[0], words[1])
    assert torch.equal(words[0], words[2])


def test_what_is_stored_on_disk_is_the_same_with_words_and_without(catalogue, tmp_path):
    def kept(encoder, name):
        prepared(catalogue, encoder)
        moved = cache_folder().rename(tmp_path / name)
        return {str(file.relative_to(moved)): file.read_bytes() for file in moved.rglob("*") if file.is_file()}

    with_words, without = kept(evidence(patches=2), "with"), kept(evidence(words=False, patches=2), "without")
    assert with_words == without
    assert sum(name.endswith("features.f16") for name in without) == 4  # wholes and patches of two backbones
    assert any(name.startswith("components") for name in without)


def fitted(encoder):
    """As `fit` leaves it."""
    encoder.choice = Choice("evidence", {"evidence": 0.9})
    width = sum(end - start for reader in encoder.readers for start, end in reader.columns("evidence"))
    rng = torch.Generator().manual_seed(0)
    mean, axes = torch.randn(width, generator=rng), torch.randn(width, 5, generator=rng).half()
    encoder.components = module.Components(mean, axes)
    encoder.width = 5 + encoder.words
    return encoder


@pytest.mark.parametrize("fit", [lambda encoder: encoder, fitted], ids=["before fit", "after fit"])
def test_a_restored_encoder_and_one_that_was_sent_give_the_same(fit, catalogue, monkeypatch, tmp_path):
    made = {"points": lambda: Points(), "second": lambda: Points(name="second", seed=1)}
    monkeypatch.setattr("fewtags.encoders.saved.build_backbone", lambda name, pretrained: made[name]())
    encoder, pictures = fit(evidence(patches=2)), pictures_of(catalogue)
    assert encoder.state()["words"] == TAGS
    assert encoder.state()["components"] == (None if encoder.components is None else 5)
    state = {"components": None, **encoder.state()}
    restored = Evidence.restore(state, encoder.tensors(), tmp_path)
    sent = unpack_encoder(pack_encoder(encoder))
    for other in (restored, sent):
        assert (other.words, other.width) == (encoder.words, encoder.width)
        assert torch.equal(other(pictures), encoder(pictures))
    silent = unpack_encoder(pack_encoder(fit(evidence(words=False, patches=2))))
    assert (silent.words, silent.width) == (0, encoder.width - TAGS)


@pytest.mark.parametrize(
    "damage",
    [
        lambda tensors: tensors.pop("words.weights"),
        lambda tensors: tensors.update({"words.weights": torch.zeros(CLASSES, TAGS + 1)}),
        lambda tensors: tensors.update({"words.weights": torch.zeros(10, TAGS)}),
        lambda tensors: tensors.update({"words.weights": torch.zeros(CLASSES * TAGS)}),
    ],
    ids=["missing", "other tags", "other classes", "flat"],
)
def test_damaged_word_weights_are_one_message(damage, monkeypatch):
    monkeypatch.setattr("fewtags.encoders.saved.build_backbone", lambda name, pretrained: Points())
    packed = pack_encoder(evidence([Points()]))
    tensors = load(packed)
    damage(tensors)
    length = int.from_bytes(packed[:8], "little")
    metadata = json.loads(packed[8 : 8 + length])["__metadata__"]
    with pytest.raises(UserError, match="the classes of its tags' names are missing or of another shape") as caught:
        unpack_encoder(save(tensors, metadata))
    assert "\n" not in str(caught.value)


def test_other_backbones_keep_the_words(catalogue):
    encoder = fitted(evidence(patches=2))
    other = encoder.with_backbones([Points(), Points(name="second", seed=1)])
    assert torch.equal(other(pictures_of(catalogue)), encoder(pictures_of(catalogue)))


def test_evidence_for_a_name_is_what_is_seen_beyond_chance():
    encoder = evidence([Points()])
    chance = word_weights().mean(0).double().numpy()
    nothing, by_chance, everything = (np.log(np.stack([one + 0.001])) for one in (0 * chance, chance, 1 + 0 * chance))
    np.testing.assert_allclose(encoder.name_evidence(by_chance), 0, atol=1e-6)
    np.testing.assert_allclose(encoder.name_evidence(everything), 1, atol=1e-6)
    np.testing.assert_allclose(encoder.name_evidence(nothing), [-chance / (1 - chance)], atol=1e-6)


@pytest.mark.parametrize("named", [0, TAGS], ids=["no words", "words"])
def test_features_are_chosen_in_the_same_way_with_words_and_without(monkeypatch, named):
    """Those of every image are the same, whatever the names of the tags say."""
    encoder = evidence([Points()], words=False, blocks="choose")
    if named:
        assert encoder.read_words(word_weights())
    tried = iter([0.890, 0.900, 0.800])  # both, evidence, pooled
    monkeypatch.setattr(module, "cross_validated", lambda *given: next(tried) + np.array([[0.0, 0.01, 0.02]]))
    monkeypatch.setattr(Evidence, "read", lambda self, keys, kind, whole: np.ones((len(keys), 1, 4), np.float16))
    targets = (torch.arange(60)[:, None] % 2 == 0).repeat(1, 3).to(torch.int8)
    assert encoder.choose([bytes([number]) for number in range(60)], targets).blocks == "evidence"
