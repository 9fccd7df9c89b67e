"""Whole runs on image-text models: tags read by a text tower, with ten labels and with none."""

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import fewtags
from fewtags.api import data_of
from fewtags.cli import run as fewtags_run
from fewtags.model.saved import load_model
from fewtags.review.session import open_session
from fewtags.training.run_folder import RunFolder
from small_runs import command, model, read_rows, tiny_folder, write_rows

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

TAGS = ("dog", "sea", "potted plant")  # words that the small tokenizer knows
IMAGES = 24
SMALL = ("--features", "evidence", "--size", "32", "--epochs", "20", "--set", "hidden=16", "components=8")


def small_models() -> ModuleType:
    """What the tests of the backbones build."""
    file = Path(__file__).parents[1] / "backbones" / "test_image_text.py"
    spec = importlib.util.spec_from_file_location("small_image_text", file)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module", params=["CLIP", "Siglip"])
def backbone(request, tmp_path_factory) -> str:
    made, folder = small_models(), tmp_path_factory.mktemp(request.param)
    made.save_model(folder, request.param)
    made.save_tokenizer(folder)
    return f"hf:{folder}"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> SimpleNamespace:
    """Pictures of 40 px, ten of them labelled in labels.csv."""
    folder = tiny_folder(tmp_path_factory.mktemp("image-text") / "pictures", IMAGES)
    rows = [row[:4] for row in read_rows(folder / "labels.csv")[1:]]
    (folder / "labels.csv").unlink()
    labels = folder.parent.parent / f"{folder.parent.name}.csv"
    write_rows(labels, [["image", *TAGS], *rows[:10]])
    return SimpleNamespace(folder=folder, labels=labels)


@pytest.fixture(scope="module", params=["labels", "none"])
def trained(request, backbone, data, tmp_path_factory) -> SimpleNamespace:
    run = tmp_path_factory.mktemp("run") / "run"
    told = ("--labels", str(data.labels)) if request.param == "labels" else ("--tags", ",".join(TAGS))
    options = ("--backbone", backbone, *told, *SMALL)
    assert fewtags_run(command(data.folder, run, *options)) == 0
    return SimpleNamespace(run=run, labelled=10 if request.param == "labels" else 0, options=options)


def test_names_are_read_by_the_text_tower(trained, data):
    result = json.loads((trained.run / "result.json").read_text(encoding="utf-8"))
    assert result["images"] == {"labelled": trained.labelled, "unlabelled": IMAGES - trained.labelled, "test": 0}
    assert RunFolder(trained.run).config().words == "on"
    loaded = load_model(trained.run)
    assert loaded.encoder.words == len(TAGS)
    assert loaded.encoder.backbones[0].tag_count == len(TAGS)
    scores = RunFolder(trained.run).scores()["unlabelled"]
    assert np.isfinite(scores).all()
    assert scores.std(0).min() > 1e-4, "names tell images apart"


def test_a_saved_model_gives_the_scores_of_the_run(trained, data):
    names = RunFolder(trained.run).split()["unlabelled"]
    found = fewtags.load(trained.run).predict_proba([data.folder / name for name in names])
    np.testing.assert_allclose(found, RunFolder(trained.run).scores()["unlabelled"], atol=1e-4)


def test_the_same_run_once_more_is_the_same_to_the_last_byte(trained, data, tmp_path):
    assert fewtags_run(command(data.folder, tmp_path / "run", *trained.options)) == 0
    assert model(tmp_path / "run") == model(trained.run)


def test_a_model_is_loaded_without_the_text_tower(trained, backbone, data, tmp_path):
    """The folder of the backbone has to be there for its shape; its tokenizer and text are not read again."""
    folder, hidden = Path(backbone.removeprefix("hf:")), tmp_path / "hidden"
    before = fewtags.load(trained.run).predict_proba([data.folder / "20.png"])
    hidden.mkdir()
    gone = [file for file in folder.iterdir() if file.name.startswith("token") or file.suffix == ".safetensors"]
    assert len(gone) > 1
    for file in gone:
        shutil.move(file, hidden / file.name)
    try:
        after = fewtags.load(trained.run).predict_proba([data.folder / "20.png"])
    finally:
        for file in gone:
            shutil.move(hidden / file.name, file)
    assert after.tolist() == before.tolist()


def test_it_is_tagged_and_exported_alike_or_told_why_not(trained, data, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    file = tmp_path / "model.onnx"
    code = fewtags_run(["export", str(trained.run), str(file)])
    printed = capsys.readouterr()
    if code == 2:
        assert "--format safetensors" in printed.err
        assert "Traceback" not in printed.err
        pytest.skip(printed.err)
    for source, out in ((trained.run, "ours.csv"), (file, "theirs.csv")):
        assert fewtags_run(["tag", str(source), str(data.folder), "--out", str(tmp_path / out)]) == 0
    assert (tmp_path / "ours.csv").read_bytes() == (tmp_path / "theirs.csv").read_bytes()


def test_report_explanation_and_review_open(trained, data, tmp_path):
    assert fewtags_run(["report", str(trained.run), "--out", str(tmp_path / "report.html")]) == 0
    assert (
        fewtags_run(["explain", str(trained.run), str(data.folder / "20.png"), "--out", str(tmp_path / "w.html")]) == 0
    )
    session = open_session(RunFolder(trained.run), data_of(RunFolder(trained.run)))
    assert sorted(session.queue("teach")) == list(range(IMAGES))


def test_a_review_teaches_it(trained, tmp_path):
    run = Path(shutil.copytree(trained.run, tmp_path / "run"))
    session = open_session(RunFolder(run), data_of(RunFolder(run)))
    fresh = [number for number in session.queue("teach") if session.data.labels[number, 0] < 0][:4]
    session.decide([(number, 0, "yes") for number in fresh])
    assert fewtags_run(["train", str(run), "--with-review", "--out", str(tmp_path / "again")]) == 0
    result = json.loads((tmp_path / "again" / "result.json").read_text(encoding="utf-8"))
    assert result["images"]["labelled"] == trained.labelled + len(fresh)


def test_with_words_off_the_text_tower_is_not_asked(backbone, data, tmp_path, monkeypatch):
    monkeypatch.setattr("fewtags.backbones.image_text.embed_texts", None)
    options = ("--backbone", backbone, "--labels", str(data.labels), *SMALL, "--words", "off")
    assert fewtags_run(command(data.folder, tmp_path / "run", *options)) == 0
    loaded = load_model(tmp_path / "run")
    assert (loaded.encoder.words, loaded.encoder.backbones[0].tag_count) == (0, 0)


def test_beside_a_network_that_knows_classes_both_have_a_say(backbone, data, tmp_path):
    options = ("--backbone", f"{backbone}+efficientnet_lite0", "--tags", ",".join(TAGS), *SMALL, "--size", "64")
    assert fewtags_run(command(data.folder, tmp_path / "run", *options)) == 0
    loaded = load_model(tmp_path / "run")
    assert loaded.encoder.words == len(TAGS)
    assert np.isfinite(RunFolder(tmp_path / "run").scores()["unlabelled"]).all()
    assert fewtags_run(["tag", str(tmp_path / "run"), str(data.folder), "--out", str(tmp_path / "tags.csv")]) == 0
    ours, theirs = (dict(read_rows(one)) for one in (tmp_path / "tags.csv", tmp_path / "run" / "tags.csv"))
    assert {Path(name).name: tags for name, tags in ours.items()} == theirs


def test_a_name_no_table_knows_is_read_by_the_text_tower(backbone, data, tmp_path, capsys):
    options = ("--backbone", backbone, "--tags", "zzqqx,dog", *SMALL)
    assert fewtags_run(command(data.folder, tmp_path / "run", *options)) == 0
    assert "never given" not in capsys.readouterr().err
    assert load_model(tmp_path / "run").encoder.words == 2
