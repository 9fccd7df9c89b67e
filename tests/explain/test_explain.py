"""Why an image got its tags: heat where the evidence lies, words that say what decided, pictures that can be shown."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import avg_pool2d

from fewtags.cli import run
from fewtags.encoders import crops, evidence
from fewtags.encoders.components import Components
from fewtags.encoders.runtime import TorchEngine
from fewtags.errors import UserError
from fewtags.explain import explain
from fewtags.explain.figure import draw_figure
from fewtags.explain.heat import by_activation, by_occlusion, heat_of
from fewtags.explain.page import draw_page
from fewtags.explain.picture import max_heat, overlay
from fewtags.explain.reasons import MISSES, MOST_GIVEN, Part, TagExplained, chosen
from fewtags.model.saved import Model, save_model
from fewtags.model.tagger import Tagger
from small_models import TAGS, TinyBackbone, changed_model, make_model, noise, scaled

BOTH = ("whole_make", "patch_make")


class Colours(TinyBackbone):
    """The first channel is how red a place is, the second how green, the third is always there."""

    def _features(self, scaled):
        red, green, _ = avg_pool2d((scaled * self.scale + self.shift) / 255, 8).unbind(1)
        rest = [torch.ones_like(red), *[torch.zeros_like(red)] * 5]
        return torch.stack([torch.relu(red - green), torch.relu(green - red), *rest], dim=1)


class ColoursWithoutMap(Colours):
    """Pools by itself, as some networks of others do."""

    def maps(self, pictures):
        raise UserError("no map")

    def forward(self, pictures):
        return self._features(self._scaled(pictures)).mean((2, 3))


class ColoursThatPoolOtherwise(Colours):
    """Has a map, but its vector is no mean of it."""

    def forward(self, pictures):
        return self.maps(pictures).amax((2, 3))


def colour_model(backbone=Colours, **changed) -> Model:
    """The tag `red` is read from the red channel, `green` from the green one, `striped` from none."""
    model = make_model(settings={"learner": "regression"}, **{"patches": 2, **changed})
    head = model.network.heads.top
    nn.init.zeros_(head.weight)
    nn.init.constant_(head.bias, -1.0)
    head.weight[0, 0] = head.weight[1, 1] = 8.0
    return changed_model(model, still(backbone()))


def evidence_model() -> Model:
    """`red` is read from what windows show of the first class, which is that of red places."""
    model = make_model(features="evidence", components=5, settings={"learner": "regression"})
    backbone = still(Colours())
    nn.init.zeros_(backbone.fc.weight)
    nn.init.zeros_(backbone.fc.bias)
    backbone.fc.weight[0, 0] = 3.0
    axes = torch.zeros_like(model.encoder.components.axes)
    for window in range(4):
        axes[8 + 6 * window, 0] = 1.0
    model.encoder.components = Components(torch.zeros(len(axes)), axes)
    nn.init.zeros_(model.network.heads.top.weight)
    model.network.heads.top.weight[0, 0] = 5.0
    return changed_model(model, backbone)


def still(backbone):
    return scaled(backbone).requires_grad_(False).eval()  # scaled as make_model writes it down


def picture(colour="red") -> Image.Image:
    """Grey, with a square in the lower right corner; wider than high."""
    image = Image.new("RGB", (120, 80), (120, 120, 120))
    image.paste(colour, (92, 60, 118, 78))
    return image


def hottest(heat) -> tuple[float, float]:
    """(x, y) of the middle of the hottest cell, in 0..1."""
    row, column = np.unravel_index(heat.argmax(), heat.shape)
    return (column + 0.5) / heat.shape[1], (row + 0.5) / heat.shape[0]


def in_the_square(place: tuple[float, float]) -> bool:
    return min(place) > 0.7


@pytest.fixture(autouse=True)
def _no_engine_is_built(monkeypatch):
    for encoder in (crops, evidence):
        monkeypatch.setattr(encoder, "make_engine", lambda reader, device: TorchEngine(reader, device))


@pytest.mark.parametrize(
    ("model", "how"),
    [
        (colour_model(), "activation"),
        (colour_model(patch_size="native"), "activation"),
        (colour_model(patch_source="original"), "activation"),
        (colour_model(patches=1), "activation"),
        (colour_model(frozen=False), "activation"),
        (evidence_model(), "activation"),
        (colour_model(ColoursWithoutMap), "occlusion"),
        (colour_model(ColoursThatPoolOtherwise), "occlusion"),
    ],
    ids=["crops", "small patches", "original patches", "whole", "tuned", "evidence", "no map", "own pooling"],
)
def test_heat_lies_where_the_tag_is_seen(model, how):
    found = heat_of(model, picture(), [0])
    assert found.how == how
    assert in_the_square(hottest(found.heat[0][0]))
    if len(found.patches):
        assert found.patches[:, 0].argmax() == 3  # the square lies in the last patch, and in no other
        assert min(hottest(found.heat[0][4])) > 0.5
        assert all(heat.max() < 1e-3 for heat in found.heat[0][1:4])


def test_heat_of_a_linear_head_is_class_activation_and_adds_up_to_its_logit():
    found = by_activation(colour_model(), picture(), [0, 1, 2])
    for place, tag in enumerate((0, 1, 2)):
        assert found.heat[place][0].mean() == pytest.approx(found.whole[tag] + 1.0, abs=2e-3)  # the bias is -1
        for patch in range(4):
            assert found.heat[place][1 + patch].mean() == pytest.approx(found.patches[patch, tag] + 1.0, abs=2e-3)


def test_a_tag_that_is_not_there_gets_no_heat():
    found = by_activation(colour_model(), picture("red"), [1])
    assert np.abs(found.heat[0][0]).max() < 1e-6


def test_covering_agrees_with_activation_where_both_can_be_had():
    activation, occlusion = (find(colour_model(), picture(), [0]) for find in (by_activation, by_occlusion))
    assert np.allclose(activation.whole, occlusion.whole)
    assert np.allclose(activation.patches, occlusion.patches)
    coarse = activation.heat[0][0]
    assert coarse.shape == occlusion.heat[0][0].shape == (8, 8)
    assert np.corrcoef(coarse.ravel(), occlusion.heat[0][0].ravel())[0, 1] > 0.8


def test_patches_of_evidence_show_the_part_of_the_map_that_they_read():
    model = make_model(features="evidence", components=5, heads=BOTH, adapter=3, patches=2)
    assert model.encoder.boxes()[2] == (3 / 7, 0, 1, 4 / 7)
    found = heat_of(model, picture(), [0])
    assert found.how == "activation"
    assert [heat.shape for heat in found.heat[0]] == [(56, 56)] + [(32, 32)] * 4
    assert all(np.abs(heat).max() > 0 for heat in found.heat[0])


@pytest.fixture
def saved(tmp_path, monkeypatch) -> Path:
    """A model folder, a photo, and the folder they lie in as the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fewtags.encoders.saved.build_backbone", lambda name, pretrained: Colours())
    model = colour_model(thresholds=[0.3, 0.2, None])
    save_model(Path("model"), model)
    picture().save("photo.png")
    return Path("model")


def test_the_scores_are_those_that_tag(saved):
    explained = explain(saved, "photo.png", TAGS)
    scores = Tagger(saved).tag("photo.png")[0].scores
    assert {tag.tag: tag.score for tag in explained.tags} == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("backbone", [Colours, ColoursWithoutMap], ids=["activation", "occlusion"])
def test_scores_of_image_and_patches_are_probabilities_on_the_curve_of_their_tag(tmp_path, monkeypatch, backbone):
    monkeypatch.setattr("fewtags.encoders.saved.build_backbone", lambda name, pretrained: backbone())
    curves = [(2.0, 0.5), (0.4, -0.3), (1.0, 0.0)]
    picture().save(tmp_path / "photo.png")
    for name, calibration in (("raw", None), ("calibrated", curves)):
        save_model(tmp_path / name, colour_model(backbone, calibration=calibration))
    raw, found = (explain(tmp_path / name, tmp_path / "photo.png", TAGS).tags for name in ("raw", "calibrated"))
    scores = Tagger(tmp_path / "calibrated").tag(tmp_path / "photo.png")[0].scores
    assert {tag.tag: tag.score for tag in found} == pytest.approx(scores, abs=1e-5)
    for before, after, (slope, offset) in zip(raw, found, curves, strict=True):

        def curved(score, slope=slope, offset=offset):
            return pytest.approx(1 / (1 + np.exp(-(offset + slope * np.log(score / (1 - score))))), abs=1e-5)

        assert after.score == curved(before.score)
        assert after.whole.score == curved(before.whole.score)
        assert after.merged == curved(before.merged)
        assert [part.score for part in after.patches] == [curved(part.score) for part in before.patches]
        assert [part.share for part in after.patches] == [part.share for part in before.patches]
    assert abs(raw[0].score - found[0].score) > 0.03, "else this shows nothing"


@pytest.mark.parametrize("settings", [{"bank": True, "neighbours": 4}, {"learner": "regression"}, {}])
def test_every_kind_of_heads_is_explained(settings, tmp_path, monkeypatch):
    monkeypatch.setattr("fewtags.encoders.saved.build_backbone", lambda name, pretrained: TinyBackbone())
    save_model(tmp_path / "model", make_model(features="evidence", backbones=2, components=5, settings=settings))
    (image,) = noise(tmp_path / "noise", 1)
    explained = explain(tmp_path / "model", image, TAGS)
    assert explained.how == "activation"
    scores = Tagger(tmp_path / "model").tag(image)[0].scores
    assert {tag.tag: tag.score for tag in explained.tags} == pytest.approx(scores, abs=1e-5)
    assert all(tag.whole.heat.std() > 0 for tag in explained.tags)


def test_the_given_tags_come_first_then_the_nearest_misses():
    thresholds = np.array([0.5, 0.5, 0.5, 0.5, np.inf, 0.5])
    assert chosen(np.array([0.1, 0.9, 0.45, 0.6, 0.99, 0.4]), thresholds) == [1, 3, 2, 5]
    assert chosen(np.zeros(6), thresholds) == [0, 1]
    assert chosen(np.array([0.7]), np.array([np.inf])) == [0]
    many = chosen(np.linspace(0, 1, 40), np.full(40, 0.5))
    assert many == [*range(39, 39 - MOST_GIVEN, -1), *range(19, 19 - MISSES, -1)]


def test_given_tags_that_find_no_room_are_named(saved, monkeypatch):
    monkeypatch.setattr("fewtags.explain.reasons.MOST_GIVEN", 0)
    explained = explain(saved, "photo.png")
    assert [tag.tag for tag in explained.tags] == [tag for tag in ("red", "green") if tag not in explained.left_out]
    assert len(explained.left_out) > 0


def explained_tag(whole: float, patches: list[float], score: float, threshold: float | None) -> TagExplained:
    heat = np.zeros((2, 2), np.float32)
    parts = [Part(f"patch {number}", (0, 0, 1, 1), each, heat, 0.5) for number, each in enumerate(patches)]
    given = threshold is not None and score >= threshold
    merged = float(np.mean(patches)) if patches else None
    return TagExplained("sea", score, threshold, given, Part("whole", (0, 0, 1, 1), whole, heat), parts, merged)


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        (((0.9, [], 0.9, 0.5)), "0.90 reaches its threshold of 0.50"),
        (((0.4, [], 0.4999, 0.5)), "0.4999 stays below its threshold of 0.5000"),
        ((0.9, [0.8, 0.7], 0.8, 0.5), "0.80 reaches its threshold of 0.50; whole image and patches agree"),
        (
            (0.9, [0.3, 0.3], 0.6, 0.5),
            "reaches its threshold of 0.50; the whole image decided against the patches",
        ),
        ((0.4, [0.2, 0.9], 0.51, 0.5), "the patches decided, above all patch 1, against the whole image"),
        ((0.6, [0.1, 0.2], 0.4, 0.5), "stays below its threshold of 0.50; the patches decided against the whole image"),
        ((0.9, [0.9, 0.9], 0.9, None), "not given to any image: too few labelled images show this tag"),
    ],
)
def test_what_decided_is_said_in_words(tag, words):
    assert words in explained_tag(*tag).decided


def test_more_heat_is_brighter_in_grey_on_any_picture():
    ramp = np.tile(np.linspace(0, 1, 200, dtype=np.float32), (4, 1))
    part = Part("whole image", (0, 0, 1, 1), 0.5, ramp)
    for shade in (0, 128, 255):
        image = Image.new("RGB", (200, 4), (shade, shade, shade))
        grey = np.asarray(Image.fromarray(overlay(image, part, 1.0)).convert("L"), int)[2]
        assert (np.diff(grey) >= -1).all()
        assert grey[-1] > grey[0] + 80


@pytest.mark.slow
def test_the_picture_is_written_beside_the_person_and_says_what_decided(saved, capsys):
    assert run(["explain", "model", "photo.png"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("red ")
    assert "reaches its threshold of 0.30" in printed[0]
    assert printed[-1] == "photo-explain.png"
    with Image.open("photo-explain.png") as image:
        assert image.format == "PNG"
        assert image.width > 1000


def test_a_page_holds_everything_and_takes_names_as_text(saved, capsys):
    info = (saved / "model.json").read_text()
    (saved / "model.json").write_text(info.replace('"red"', '"<script>alert(1)</script>"'))
    shutil.move("photo.png", "a&b<i>.png")
    assert run(["explain", "model", "a&b<i>.png", "--out", "page.html", "--tag", "<script>alert(1)</script>"]) == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "a&amp;b&lt;i&gt;.png" in page
    assert re.findall(r"https?:|@import|url\(|<link|onload", page) == []
    sources = re.findall(r'src="([^"]{0,30})', page)
    assert len(sources) == 1 + 1 + 4  # the image, the heat of the whole, the patches
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)


@pytest.mark.slow
def test_names_are_drawn_as_they_stand(saved):
    info = (saved / "model.json").read_text()
    (saved / "model.json").write_text(info.replace('"red"', '"$\\\\frac{$ 海"'))
    explained = explain(saved, "photo.png")
    assert draw_figure(explained).startswith(b"\x89PNG")
    assert "$\\frac{$ 海" in draw_page(explained)


def test_one_scale_serves_all_pictures_of_a_tag(saved):
    (tag,) = explain(saved, "photo.png", ["red"]).tags
    assert max_heat(tag) == pytest.approx(max(part.heat.max() for part in (tag.whole, *tag.patches)))
    cold, hot = (overlay(picture(), part, max_heat(tag)).max() for part in (tag.patches[0], tag.patches[3]))
    assert hot > cold + 80


def refused(words: list[str], capsys, *told: str) -> None:
    before = sorted(Path().rglob("*"))
    capsys.readouterr()
    assert run(["explain", *words]) == 2
    message = capsys.readouterr().err
    assert message.startswith("fewtags: ")
    assert message.count("\n") == 1
    for words_told in told:
        assert words_told in message
    assert sorted(Path().rglob("*")) == before


@pytest.mark.usefixtures("saved")
class TestMistakes:
    def test_a_tag_that_the_model_does_not_know(self, capsys):
        refused(["model", "photo.png", "--tag", "rd"], capsys, "--tag rd: model knows no such tag; did you mean 'red'?")

    def test_an_image_that_is_missing_a_folder_or_no_image(self, capsys):
        refused(["model", "gone.png"], capsys, "gone.png: there is no such file")
        refused(["model", "model"], capsys, "model: is a folder; name one image in it")
        Path("text.png").write_text("no image")
        refused(["model", "text.png"], capsys, "text.png cannot be used: not an image")

    def test_an_out_that_is_neither_picture_nor_page_or_lies_nowhere(self, capsys):
        refused(["model", "photo.png", "--out", "x.jpg"], capsys, "--out x.jpg: name a .png file")
        refused(["model", "photo.png", "--out", "no/x.png"], capsys, "there is no folder no")
        Path("d.png").mkdir()
        refused(["model", "photo.png", "--out", "d.png"], capsys, "--out d.png: is a folder")
        refused(["model", "photo.png", "--out", "photo.png"], capsys, "this is the image itself")

    def test_a_run_without_a_model(self, capsys):
        Path("empty").mkdir()
        refused(["empty", "photo.png"], capsys, "empty holds no model")
        refused(["none", "photo.png"], capsys, "none: there is no such folder")
        Path("m.onnx").touch()
        refused(["m.onnx", "photo.png"], capsys, "m.onnx: an exported file holds scores only")
