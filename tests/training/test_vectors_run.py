"""Training on vectors: every verb that needs no pixels works, and those that do say so."""

import csv
import json
import shutil

import numpy as np
import pytest
from sklearn.datasets import load_digits

import fewtags
from fewtags.cli import run
from fewtags.errors import UserError
from small_runs import HEADS, tiny_folder

pytestmark = pytest.mark.slow

QUICK = ["--set", "epochs=3", "hidden=16"]
TAGS = ("even", "large")


def digits(rows=260):
    data = load_digits()
    X, y = (data.data / 16).astype(np.float32)[:rows], data.target[:rows]
    return X, np.stack([y % 2 == 0, y >= 5], axis=1).astype(np.int8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("vectors")
    X, Y = digits()
    np.savez(place / "x.npz", vectors=X[:200], ids=np.array([f"d{row}" for row in range(200)]))
    np.save(place / "new.npy", X[200:])
    with (place / "labels.csv").open("w") as file:
        file.write("id,tags,split\n")
        for row in [*range(30), *range(150, 200)]:
            tags = "|".join(tag for tag, there in zip(TAGS, Y[row], strict=True) if there)
            file.write(f"d{row},{tags},{'train' if row < 30 else 'test'}\n")
    return place


@pytest.fixture(scope="module")
def trained(folder):
    assert run(["train", f"vectors:{folder / 'x.npz'}", "--out", str(folder / "run"), *QUICK]) == 0
    return folder / "run"


def test_the_unlabelled_rows_are_tagged_and_quality_is_estimated(trained):
    rows = list(csv.DictReader((trained / "tags.csv").open()))
    assert [row["image"] for row in rows] == [f"d{number}" for number in range(30, 150)]
    result = json.loads((trained / "result.json").read_text())
    assert result["map"] > 0.8
    assert result["estimate"]["images"] == 30
    assert not (trained / "tags.png").exists()


def test_the_model_tags_evaluates_reports_and_leaves_as_onnx(trained, folder, tmp_path, capsys):
    new = f"vectors:{folder / 'new.npy'}"
    assert run(["tag", str(trained), new, "--out", str(tmp_path / "a.csv")]) == 0
    assert run(["evaluate", str(trained), "--json"]) == 0
    assert run(["report", str(trained), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "even" in page
    assert "<img" not in page
    assert run(["export", str(trained), str(tmp_path / "folder"), "--format", "safetensors"]) == 0
    card = (tmp_path / "folder" / "README.md").read_text()
    assert "# Tags vectors with 2 tags" in card
    assert "None" not in card.partition("setting `")[0]
    pytest.importorskip("onnxruntime")
    assert run(["export", str(trained), str(tmp_path / "m.onnx")]) == 0
    assert run(["tag", str(tmp_path / "m.onnx"), new, "--out", str(tmp_path / "b.csv")]) == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 61


def test_arrays_give_the_model_that_the_file_gives(folder, tmp_path, trained):
    X, Y = digits()
    hidden = Y[:150].astype(int)
    hidden[30:] = -1
    ids = [f"d{row}" for row in range(150)]
    found = fewtags.train(
        vectors=X[:150], labels=hidden, ids=ids, tags=TAGS, out=tmp_path / "run", settings={"epochs": 3, "hidden": 16}
    )
    scores = found.tagger().predict_proba(X[200:])
    assert np.allclose(scores, fewtags.load(trained).predict_proba(X[200:]), atol=1e-6)
    again = fewtags.api.data_of(fewtags.training.run_folder.RunFolder(tmp_path / "run"))
    assert list(again.names) == ids
    assert (found.tagger().predict(X[200:]) == (scores >= list(found.tagger().thresholds.values()))).all()
    assert found.tagger().encode(X[200:]).shape == (60, 64)
    assert found.tagger().classes_.tolist() == list(TAGS)


def test_long_vectors_are_reduced_and_the_model_keeps_how(tmp_path):
    X, Y = digits(120)
    wide = np.hstack([X, X**2])
    hidden = Y.astype(int)
    hidden[30:] = -1
    settings = {"epochs": 1, "hidden": 8, "components": 20, "folds": 0}
    found = fewtags.train(vectors=wide, labels=hidden, out=tmp_path / "run", settings=settings).tagger()
    assert found.info.components == 20
    assert found.encode(wide[:5]).shape == (5, 20)
    with pytest.raises(UserError, match="vectors of 64 numbers, and the model learned from 128"):
        found.predict(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--size", "64"], "there are no images to read"),
        (["--backbone", "resnet18"], "there are no images to read"),
        (["--tune", "all"], "trains on pixels"),
        (["--method", "d2l", "--set", "patches=2"], "vectors have no patches"),
    ],
)
def test_options_about_pixels_are_refused(folder, tmp_path, capsys, options, message):
    assert run(["train", f"vectors:{folder / 'x.npz'}", "--out", str(tmp_path / "run"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_model_of_vectors_refuses_images_and_the_other_way_round(trained, folder, tmp_path, capsys):
    (tmp_path / "a.png").write_bytes(b"")
    assert run(["tag", str(trained), str(tmp_path / "a.png")]) == 2
    assert "reads vectors, not images" in capsys.readouterr().err
    assert run(["explain", str(trained), str(tmp_path / "a.png")]) == 2
    assert "no picture" in capsys.readouterr().err
    new = f"vectors:{folder / 'new.npy'}"
    assert run(["tag", str(trained), new, new]) == 2
    assert "one file of vectors at a time" in capsys.readouterr().err
    photos = tiny_folder(tmp_path / "photos")
    assert run(["train", str(photos), "--out", str(tmp_path / "run"), *HEADS]) == 0
    capsys.readouterr()
    assert run(["tag", str(tmp_path / "run"), new]) == 2
    assert "reads images, not vectors" in capsys.readouterr().err


def test_every_heads_method_learns_from_vectors(folder, tmp_path):
    quick = ["--warmup", "1", "--epochs", "1", "--set", "folds=0", "adapter=8"]
    for method in ("asl", "d2l", "drml"):
        place = tmp_path / method
        assert run(["train", f"vectors:{folder / 'x.npz'}", "--method", method, "--out", str(place), *quick]) == 0
        assert (place / "tags.csv").exists()


def test_a_review_of_vectors_is_learned_from(trained, folder, tmp_path):
    (trained / "review.jsonl").write_text(
        '{"image": "d40", "tag": "even", "answer": "yes", "when": "2026-01-01T00:00:00+00:00", "action": "a"}\n'
    )
    assert run(["train", str(trained), "--with-review", "--out", str(tmp_path / "again")]) == 0
    assert "d40" not in (tmp_path / "again" / "tags.csv").read_text()


def test_labels_of_arrays_are_hidden_as_asked_and_the_run_folder_knows(tmp_path):
    X, Y = digits(100)
    settings = {"epochs": 1, "hidden": 8, "folds": 0}
    found = fewtags.train(vectors=X, labels=Y.astype(int), out=tmp_path / "run", labelled=0.3, settings=settings)
    assert found.result["images"]["labelled"] == 30
    again = fewtags.api.data_of(fewtags.training.run_folder.RunFolder(found.path))
    assert (again.roles == 0).sum() == 30


def test_a_report_imports_nothing_that_a_file_names(trained, tmp_path, monkeypatch, capsys):
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    copy = tmp_path / "run"
    shutil.copytree(trained, copy)
    config = copy / "config.yaml"
    config.write_text(config.read_text().replace("method: neighbours", "method: evil.m"))
    assert run(["report", str(copy)]) == 0
    (copy / "review.jsonl").write_text("")
    assert run(["train", str(copy), "--with-review", "--out", str(tmp_path / "again")]) == 2
    assert "name it: --method evil.m" in capsys.readouterr().err
