"""A model that leaves the house: one ONNX file or a folder, the same tags as at home."""

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fewtags
from fewtags.cli import run
from fewtags.encoders import crops, evidence
from fewtags.encoders.cut import CutPatches
from fewtags.encoders.inputs import read_inputs
from fewtags.encoders.runtime import TorchEngine, traced
from fewtags.encoders.views import ViewSpec, make_views
from fewtags.model.onnx_export import export_onnx
from fewtags.model.onnx_tagger import OnnxTagger
from fewtags.model.saved import load_model, save_model
from fewtags.model.tagger import Tagger
from fewtags.report.card import model_card
from fewtags.training.run_folder import RunFolder
from small_models import TAGS, TinyBackbone, changed_model, make_model, noise
from small_runs import HEADS, tiny_folder, train

pytestmark = pytest.mark.slow

DEPLOY = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.fixture
def _tiny_backbones(monkeypatch):
    monkeypatch.setattr("fewtags.encoders.saved.build_backbone", lambda name, pretrained: TinyBackbone())


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A real run: the paper's whole image and four patches."""
    home = tmp_path_factory.mktemp("trained")
    return train(tiny_folder(home / "photos"), home / "run", *HEADS)


@pytest.fixture(scope="module")
def exported(trained) -> Path:
    file = trained.parent / "model.onnx"
    assert run(["export", str(trained), str(file)]) == 0
    return file


BOTH = ("whole_make", "patch_make")
KINDS = {
    "whole image": {"heads": ("whole_make",), "adapter": 4},
    "patches enlarged": {"heads": BOTH, "adapter": 4, "patches": 2},
    "nine patches, odd size, merged probabilities": {
        "heads": BOTH,
        "adapter": 4,
        "patches": 3,
        "size": 65,
        "merge": "probs",
    },
    "small patches": {"heads": BOTH, "adapter": 4, "patches": 2, "patch_size": "native"},
    "patches of the original": {"heads": BOTH, "adapter": 4, "patches": 2, "patch_source": "original"},
    "one head for image and patches": {"patches": 2, "settings": {"learner": "regression"}},
    "every weight learned": {"heads": BOTH, "patches": 2, "frozen": False},
    "evidence": {"features": "evidence", "backbones": 2, "components": 5},
    "evidence, pooled alone": {"features": "evidence", "components": 5, "blocks": "pooled"},
    "evidence with patches": {"features": "evidence", "components": 5, "heads": BOTH, "adapter": 3, "patches": 2},
    "regression": {"features": "evidence", "components": 5, "settings": {"learner": "regression"}},
    "bank": {"features": "evidence", "components": 5, "settings": {"bank": True, "neighbours": 4}},
    "calibrated": {"heads": ("whole_make",), "adapter": 4, "calibration": [(2.0, 0.5), (0.4, 0.0), (1.0, -1.5)]},
}


@pytest.mark.usefixtures("_tiny_backbones")
@pytest.mark.parametrize("kind", KINDS)
def test_torch_and_onnx_runtime_decide_alike_on_random_images(kind, tmp_path, monkeypatch):
    for encoder in (crops, evidence):
        monkeypatch.setattr(encoder, "make_engine", lambda reader, device: TorchEngine(reader, device))
    names = noise(tmp_path / "noise", 40)
    model = make_model(**KINDS[kind])
    save_model(tmp_path / "model", model)
    table = np.stack([one.value for one in Tagger(tmp_path / "model").scores(names)])
    assert table.std(0).min() > 0.001
    ordered = np.sort(table, axis=0)[15:25]
    widest = np.diff(ordered, axis=0).argmax(0)  # half of the images lie on either side
    thresholds = [float(column[place : place + 2].mean()) for column, place in zip(ordered.T, widest, strict=True)]
    save_model(tmp_path / "model", changed_model(model, thresholds=thresholds))
    at_home = Tagger(tmp_path / "model").tag(names)
    assert export_onnx(tmp_path / "model", tmp_path / "model.onnx") < 1e-4
    away = OnnxTagger(tmp_path / "model.onnx").tag(names)
    assert [one.tags for one in away] == [one.tags for one in at_home]
    theirs = np.array([list(one.scores.values()) for one in away])
    assert np.abs(theirs - table).max() < 1e-4
    assert 0.2 < np.mean([tag in one.tags for one in away for tag in TAGS]) < 0.8


@pytest.mark.parametrize("size", [64, 97])
@pytest.mark.parametrize("patches", [2, 3])
def test_patches_are_cut_in_the_graph_byte_for_byte_as_pillow_cuts_them(size, patches):
    import onnxruntime

    spec = ViewSpec(size=size, patches=patches)
    pixels = np.random.default_rng(0).integers(0, 256, (80, 120, 3), dtype=np.uint8)
    wanted = make_views(Image.fromarray(pixels), "plain", spec, None)[1]
    whole = read_inputs(Image.fromarray(pixels), ["bicubic"], spec)["bicubic"]
    cut = CutPatches(spec)
    assert np.array_equal(cut(torch.from_numpy(whole.copy())[None])[0].numpy(), wanted)
    graph = traced(cut, {"whole": torch.zeros(2, size, size, 3, dtype=torch.uint8)}, "patches").SerializeToString()
    (found,) = onnxruntime.InferenceSession(graph).run(None, {"whole": whole[None]})
    assert np.array_equal(found[0], wanted)


def rows(file: str | Path) -> list[list[str]]:
    with Path(file).open(newline="", encoding="utf-8") as lines:
        return list(csv.reader(lines))


def test_tag_takes_the_file_in_the_place_of_the_run(trained, exported, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    photos = str(trained.parent / "photos")
    assert run(["tag", str(trained), photos, "--scores", "--out", "home.csv"]) == 0
    assert run(["tag", str(exported), photos, "--scores", "--out", "away.csv"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "26 images tagged: away.csv"
    home, away = rows("home.csv"), rows("away.csv")
    assert [row[:2] for row in away] == [row[:2] for row in home]
    scores = [np.array([row[2:] for row in table[1:]], float) for table in (home, away)]
    assert np.abs(scores[0] - scores[1]).max() <= 1e-4
    assert (
        fewtags.load(exported).tag(f"{photos}/00.png")[0].tags == fewtags.load(trained).tag(f"{photos}/00.png")[0].tags
    )


def test_folder_and_file_give_the_probabilities_that_the_run_kept(trained, exported):
    kept, names = RunFolder(trained).scores(), RunFolder(trained).split()
    info = load_model(trained).info
    assert info.calibration is not None
    assert info.calibration != [(1.0, 0.0)] * len(TAGS), "else this shows nothing"
    for part in ("labelled", "unlabelled", "test"):
        photos = [trained.parent / "photos" / name for name in names[part]]
        for model, near in ((fewtags.load(trained), 1e-5), (fewtags.load(exported), 1e-4)):
            assert model.calibrated
            assert np.abs(model.predict_proba(photos) - kept[part]).max() < near


def test_evaluate_measures_an_exported_file_on_data(trained, exported, capsys):
    assert run(["evaluate", str(trained), "--json"]) == 0
    at_home = json.loads(capsys.readouterr().out)
    assert run(["evaluate", str(exported), str(trained.parent / "photos"), "--json"]) == 0
    away = json.loads(capsys.readouterr().out)
    for name in ("map", "of1", "calibration_error"):
        assert away[name] == pytest.approx(at_home[name], abs=1e-4)


def test_bad_files_do_not_stop_the_others(exported, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    noise(Path("noise"), 5)
    Path("noise/1.png").write_bytes(b"no image")
    assert run(["tag", str(exported), "noise", "--out", "out.csv"]) == 0
    assert [row[0] for row in rows("out.csv")[1:]] == [f"noise/{n}.png" for n in (0, 2, 3, 4)]
    assert rows("out.bad.csv")[1][0] == "noise/1.png"


def test_torch_is_never_imported_to_tag_with_the_file(exported, tmp_path):
    (image,) = noise(tmp_path / "noise", 1)
    code = f"""
import sys
from fewtags.cli import run
assert run(["tag", {str(exported)!r}, {image!r}]) == 0
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("image,tags\n")
    loaded = set(done.stderr.split())
    assert "onnxruntime" in loaded
    assert loaded & {"torch", "lightning_fabric", "onnx", "onnxscript"} == set()


def test_the_metadata_says_all_that_a_program_needs(trained, exported):
    import onnxruntime

    info = load_model(trained).info
    session = onnxruntime.InferenceSession(exported)
    about = json.loads(session.get_modelmeta().custom_metadata_map["fewtags"])
    assert about["fewtags"] == fewtags.__version__
    assert about["tags"] == info.tags
    assert about["thresholds"] == info.thresholds
    assert about["calibration"] == [list(pair) for pair in info.calibration]
    assert list(about["inputs"]) == [one.name for one in session.get_inputs()] == ["bilinear", "bicubic"]
    assert all("64" in words and name.upper() in words for name, words in about["inputs"].items())
    assert about["size"] == 64
    assert [one.shape for one in session.get_inputs()] == [["batch", 64, 64, 3]] * 2
    assert [one.shape for one in session.get_outputs()] == [["batch", 3]]


def test_a_tag_that_is_never_given_stays_so(tmp_path, monkeypatch):
    monkeypatch.setattr("fewtags.encoders.saved.build_backbone", lambda name, pretrained: TinyBackbone())
    save_model(tmp_path / "model", make_model(heads=("whole_make",), thresholds=[None, 0.0, 0.0]))
    export_onnx(tmp_path / "model", tmp_path / "model.onnx")
    (tagging,) = OnnxTagger(tmp_path / "model.onnx").tag(noise(tmp_path / "noise", 1))
    assert sorted(tagging.tags) == ["green", "striped"]


def test_the_python_of_the_document_runs_with_onnx_runtime_and_pillow_alone(exported, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(exported, "model.onnx")
    (code,) = re.findall(r"^```python\n(.*?)^```$", DEPLOY, re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 16
    assert {line.split()[1] for line in code.splitlines() if line.startswith(("import", "from"))} == {
        "json",
        "numpy",
        "onnxruntime",
        "PIL",
    }
    for number in range(26):
        Image.open(exported.parent / "photos" / f"{number:02d}.png").save("photo.jpg", quality=95)
        exec(compile(code, "deploy.md", "exec"), {})
        printed = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()}
        (tagging,) = fewtags.load("model.onnx").tag("photo.jpg")
        assert printed == {tag: f"{tagging.scores[tag]:.2f}" for tag in TAGS if tag in tagging.tags}


def test_the_commands_of_the_document_run(trained, exported, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "run")
    noise(Path("noise"), 1)
    shutil.move("noise/0.png", "photo.jpg")
    monkeypatch.setattr(
        "fewtags.model.onnx_export.export_onnx", lambda run, file, methods: len(shutil.copy(exported, file).parts) * 0.0
    )
    commands = [
        line.split()[1:]
        for block in re.findall(r"^```sh\n(.*?)^```$", DEPLOY, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    assert [words[0] for words in commands] == ["export", "tag", "export", "tag"]
    for words in commands:
        assert run(words) == 0, words


def test_a_folder_with_a_model_card_tags_like_the_run(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["export", str(trained), "taken", "--format", "safetensors"]) == 0
    assert "tag images with it: fewtags tag taken IMAGES" in capsys.readouterr().out
    assert sorted(path.name for path in Path("taken").iterdir()) == ["README.md", "model.json", "model.safetensors"]
    assert [path.name for path in Path().iterdir()] == ["taken"]
    photos = str(trained.parent / "photos")
    assert run(["tag", str(trained), photos, "--out", "home.csv"]) == 0
    assert run(["tag", "taken", photos, "--out", "away.csv"]) == 0
    assert rows("away.csv") == rows("home.csv")


def test_the_card_tells_data_method_quality_and_limits(trained):
    card = model_card(trained, load_model(trained).info)
    assert "From the folder `photos`: 8 labelled images, 10 unlabelled images that it learned from too, 8 test" in card
    assert str(trained.parent) not in card
    for row in ("| method | d2l: ", "| backbone | efficientnet_lite0 |", "| setting `beta` | 0.5 |", "| seed | 1 |"):
        assert row in card
    result = json.loads((trained / "result.json").read_text())
    assert f"mAP {100 * result['map']:.1f}" in card
    for tag in result["per_tag"]:
        threshold = "never given" if tag["threshold"] is None else f"{tag['threshold']:.3f}"
        assert f"| {tag['tag']} | {tag['support']} | {threshold} | " in card
    assert "A score is a probability, calibrated on labelled images" in card
    raw = load_model(trained).info.model_copy(update={"calibration": None})
    assert "it is no calibrated probability" in model_card(trained, raw)


def estimate(**changed) -> dict:
    row = {"tag": "red", "support": 7, "threshold": 0.25, "precision": 0.8, "recall": 0.5, "f1": 0.615, "ap": 0.7}
    row |= {"intervals": {"precision": [0.6, 0.9], "recall": None, "f1": [0.4, 0.7], "ap": [0.5, 0.8]}, "enough": True}
    few = {"tag": "gr<b>een|", "support": 2, "threshold": None, "precision": None, "recall": 0.0, "f1": None, "ap": 1.0}
    few |= {"intervals": dict.fromkeys(("precision", "recall", "f1", "ap")), "enough": False}
    whole = {"how": "five folds", "prefer": "balance", "images": 8, "map": 0.7, "cf1": 0.6, "of1": 0.5}
    return whole | {"intervals": {"map": [0.6, 0.75]}, "per_tag": [row, few]} | changed


def test_the_card_shows_the_estimate_with_its_intervals_and_says_where_images_are_too_few(trained, tmp_path):
    copy = Path(shutil.copytree(trained, tmp_path / "run"))
    result = json.loads((copy / "result.json").read_text())
    (copy / "result.json").write_text(json.dumps({"images": result["images"], "estimate": estimate()}))
    info = load_model(copy).info.model_copy(update={"tags": ["red", "gr<b>een|", "c"], "thresholds": [0.25, None, 0.5]})
    card = model_card(copy, info)
    assert "mAP 70.0 (60.0–75.0), CF1 60.0, OF1 50.0" in card
    assert "| red | 7 | 0.250 | 80.0 (60.0–90.0) | 50.0 | 61.5 (40.0–70.0) | 70.0 (50.0–80.0) |" in card
    assert "| gr&lt;b>een\\| | 2 | never given | too few to say |  |  |  |" in card
    assert "Not given to any image, because too few labelled images show them: gr&lt;b>een|." in card
    assert "Fewer than 5 labelled images show gr&lt;b>een|" in card
    assert "On 8 images of the test split" not in card


def test_the_card_of_a_run_that_measured_nothing_says_so(trained, tmp_path):
    info = load_model(trained).info
    copy = Path(shutil.copytree(trained, tmp_path / "run"))
    (copy / "result.json").write_text('{"images": {"labelled": 8, "unlabelled": 10, "test": 0}}')
    assert "Not measured: the run has no test images and no estimate" in model_card(copy, info)
    alone = Path(shutil.copytree(trained / "model", tmp_path / "alone"))
    assert "nothing else is known without the run folder" in model_card(alone, info)


@pytest.fixture
def workplace(trained, tmp_path, monkeypatch) -> Path:
    """A folder to make mistakes in, with a copy of the run."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "run")
    Path("noise.png").write_bytes((trained.parent / "photos" / "00.png").read_bytes())
    return tmp_path


def refused(words: list[str], capsys, *told: str) -> None:
    """Exit code 2, one message with these words, and no new file."""
    before = sorted(Path().rglob("*"))
    capsys.readouterr()
    assert run(words) == 2
    message = capsys.readouterr().err
    assert message.splitlines()[-1].startswith("fewtags: ")
    assert "Traceback" not in message
    for words_told in told:
        assert words_told in message
    assert sorted(Path().rglob("*")) == before


WRONG_CURVES = {
    "too few": "3 tags but 2 curves in calibration",
    "none": "3 tags but 0 curves in calibration",
    "no pair": "calibration",
    "text": "calibration",
    "slope 0.0": "greater than 0",
    "slope -1.0": "greater than 0",
    "slope nan": "",
    "slope inf": "",
    "slope None": "valid number",
    "offset nan": "",
    "offset inf": "",
}


@pytest.mark.usefixtures("workplace")
class TestMistakes:
    def test_a_suffix_that_does_not_fit_the_format(self, capsys):
        refused(["export", "run", "model.pt"], capsys, "model.pt: name a file that ends in .onnx")
        refused(["export", "run", "m.onnx", "--format", "safetensors"], capsys, "name it without .onnx")
        refused(["export", "run", "m.safetensors", "--format", "safetensors"], capsys, "writes a folder")

    def test_a_file_in_a_folder_that_does_not_exist(self, capsys):
        refused(["export", "run", "no/where.onnx"], capsys, "there is no folder no; make it first")
        refused(["export", "run", "no/where", "--format", "safetensors"], capsys, "there is no folder no")

    def test_a_folder_in_the_place_of_a_file_and_one_that_is_full(self, capsys):
        Path("d.onnx").mkdir()
        refused(["export", "run", "d.onnx"], capsys, "d.onnx is a folder; name a file")
        refused(["export", "run", "run", "--format", "safetensors"], capsys, "run exists and is not empty")

    def test_a_run_that_is_missing_or_not_finished(self, capsys):
        refused(["export", "nothing", "m.onnx"], capsys, "nothing: there is no such folder")
        Path("run/tags.csv").unlink()
        refused(["export", "run", "m.onnx"], capsys, "run: its training has not ended", "--resume")
        refused(["export", "run", "m", "--format", "safetensors"], capsys, "its training has not ended")

    def test_a_damaged_model_or_result(self, capsys):
        Path("run/result.json").write_text("{")
        refused(["export", "run", "m", "--format", "safetensors"], capsys, "result.json is damaged")
        Path("run/model/model.safetensors").write_bytes(b"torn")
        refused(["export", "run", "m.onnx"], capsys, "model.safetensors")
        refused(["export", "run", "m", "--format", "safetensors"], capsys, "model.safetensors")

    def test_an_extra_that_is_not_installed(self, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "onnxscript", None)
        refused(["export", "run", "m.onnx"], capsys, "needs onnxscript", "pip install", "'onnxscript>=")
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        Path("m.onnx").touch()
        refused(["tag", "m.onnx", "noise.png"], capsys, "ONNX Runtime", "pip install", "'onnxruntime>=")

    def test_a_file_that_is_not_there_or_no_model_of_ours(self, exported, capsys):
        refused(["tag", "gone.onnx", "noise.png"], capsys, "gone.onnx: there is no such file")
        Path("torn.onnx").write_bytes(exported.read_bytes()[:1000])
        refused(["tag", "torn.onnx", "noise.png"], capsys, "torn.onnx: ONNX Runtime cannot open this")
        content = traced(nn.Identity(), {"x": torch.zeros(2, 3)}, "y")
        Path("other.onnx").write_bytes(content.SerializeToString())
        refused(["tag", "other.onnx", "noise.png"], capsys, "other.onnx is an ONNX file of another kind")
        content.metadata_props.add(key="fewtags", value='{"tags": []}')
        Path("odd.onnx").write_bytes(content.SerializeToString())
        refused(["tag", "odd.onnx", "noise.png"], capsys, "odd.onnx: what it says of itself does not fit")
        refused(["evaluate", str(exported)], capsys, "a model without its run", "DATA")

    @pytest.mark.parametrize(("change", "told"), WRONG_CURVES.items(), ids=WRONG_CURVES)
    def test_curves_that_cannot_be(self, change, told, exported, capsys):
        file = Path("run/model/model.json")
        about = json.loads(file.read_text())
        curves = about["calibration"]
        wrong = {"too few": curves[:-1], "none": [], "no pair": [[1.0], *curves[1:]], "text": "steep"}
        for place, what in enumerate(("slope", "offset")):
            for value in (0.0, -1.0, float("nan"), float("inf"), None):
                pair = [value if one == place else 1.0 for one in range(2)]
                wrong[f"{what} {value}"] = [*curves[:-1], pair]
        about["calibration"] = wrong[change]
        file.write_text(json.dumps(about))
        refused(["tag", "run", "noise.png"], capsys, f"{file} is damaged", "calibration", told)
        refused(["export", "run", "m.onnx"], capsys, "calibration", told)
        content = onnx.load(exported)
        described = json.loads(content.metadata_props[0].value) | {"calibration": wrong[change]}
        content.metadata_props[0].value = json.dumps(described)
        Path("odd.onnx").write_bytes(content.SerializeToString())
        refused(["tag", "odd.onnx", "noise.png"], capsys, "odd.onnx: what it says of itself does not fit", told)

    def test_a_backbone_that_cannot_be_traced(self, monkeypatch, capsys):
        def lost(module, examples, output):
            raise RuntimeError("data-dependent\nand more")

        monkeypatch.setattr("fewtags.model.onnx_export.traced", lost)
        Path("m.onnx").write_bytes(b"what was there before")
        refused(
            ["export", "run", "m.onnx"], capsys, "cannot be traced as ONNX (data-dependent)", "--format safetensors"
        )
        assert Path("m.onnx").read_bytes() == b"what was there before"

    def test_a_graph_that_gives_other_scores_is_not_written(self, monkeypatch, capsys):
        monkeypatch.setattr("fewtags.model.onnx_export._difference", lambda *_: float("nan"))
        monkeypatch.setattr("fewtags.model.onnx_export._traced", lambda *_: b"")
        refused(["export", "run", "m.onnx"], capsys, "gives other scores than torch")

    def test_a_model_too_large_for_one_file(self, monkeypatch, capsys):
        monkeypatch.setattr("fewtags.model.onnx_export.LARGEST", 1000)
        refused(["export", "run", "m.onnx"], capsys, "an ONNX file at most 2 GB", "--format safetensors")


def test_an_encoder_that_runs_by_itself_cannot_become_part_of_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    encoder = traced(nn.Sequential(nn.Conv2d(3, 4, 16, 16), nn.ReLU()), {"x": torch.zeros(2, 3, 64, 64)}, "map")
    Path("encoder.onnx").write_bytes(encoder.SerializeToString())
    data = tiny_folder(tmp_path / "photos")
    train(data, Path("run"), "--backbone", "onnx:encoder.onnx", *HEADS)
    refused(["export", "run", "m.onnx"], capsys, "onnx:encoder.onnx runs by itself", "--format safetensors")
    assert run(["export", "run", "taken", "--format", "safetensors"]) == 0
    Path("encoder.onnx").unlink()
    assert run(["tag", "taken", "photos/00.png"]) == 0
