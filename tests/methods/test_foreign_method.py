"""A method in a package of its own, with heads and a body of its own, goes every way that a built-in one goes."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import fewtags
from fewtags.cli import run
from fewtags.testing import check_method
from small_runs import TAGS, tiny_folder

pytestmark = pytest.mark.slow

METHOD = '''
"""Two halves: a body with a gate of its own, heads that add two opinions; pseudo-labels where both agree."""

import torch
from torch import nn

from fewtags.methods import Logits, Method, Pseudo, TeacherView, UnlabelledBatch


class Gate(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.narrow, self.widen = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, features):
        x = torch.nn.functional.normalize(features.float(), dim=-1)
        return x * self.widen(torch.tanh(self.narrow(x))).sigmoid()


class TwoOpinions(nn.Module):
    def __init__(self, width, tags):
        super().__init__()
        self.first, self.second = nn.Linear(width, tags), nn.Linear(width, tags)

    def forward(self, vectors, part) -> Logits:
        first, second = self.first(vectors), self.second(vectors)
        return {f"{part}_make": first + second, f"{part}_gap": first - second}


class Halves(Method):
    """Two heads that must agree."""

    def build_body(self, width: int, hidden: int) -> nn.Module:
        return Gate(width, hidden)

    def build_heads(self, width: int, tags: int) -> nn.Module:
        return TwoOpinions(width, tags)

    def begin_epoch(self, teacher: TeacherView) -> None:
        self.state["share"] = (teacher.targets == 1).float().mean(0)

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        return Pseudo((batch.scores > 0.5).float())

    def predict(self, logits: Logits) -> torch.Tensor:
        return (logits["whole_make"] - 0.1 * logits["whole_gap"].abs()).sigmoid()
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "their_package").mkdir()
    (tmp_path / "their_package" / "__init__.py").touch()
    (tmp_path / "their_package" / "halves.py").write_text(METHOD, encoding="utf-8")
    tiny_folder(tmp_path / "photos")
    return tmp_path


def test_it_passes_the_battery(package):
    check_method("their_package.halves")


def test_it_trains_tags_evaluates_explains_and_leaves_as_onnx(package, capsys):
    name, quick = "their_package.halves", ["--tune", "heads", "--size", "64", "--warmup", "2", "--epochs", "1"]
    batches = ["--set", "warmup_batch=3", "labelled_batch=2", "unlabelled_batch=5", "adapter=16"]
    assert run(["train", "photos", "--method", name, *quick, "--out", "run", *batches]) == 0
    image = next(str(path) for path in sorted((package / "photos").glob("*.png")))

    assert run(["tag", "run", image]) == 2
    assert f"--method {name}" in capsys.readouterr().err
    with pytest.raises(fewtags.errors.UserError, match="name it"):
        fewtags.load("run")

    mine = ["--method", name]
    assert run(["tag", "run", "photos", "--scores", "--out", "tags.csv", *mine]) == 0
    assert run(["evaluate", "run", "photos", "--json", *mine]) == 0
    assert 0 <= json.loads(capsys.readouterr().out.split("\n", 1)[1])["map"] <= 1
    assert run(["explain", "run", image, "--out", "why.png", *mine]) == 0
    assert (package / "why.png").stat().st_size > 1000
    assert run(["report", "run"]) == 0
    pytest.importorskip("onnxruntime")
    assert run(["export", "run", "model.onnx", *mine]) == 0
    assert run(["tag", "model.onnx", "photos", "--scores", "--out", "onnx.csv"]) == 0

    def scores(file):
        with Path(file).open(newline="") as lines:
            return np.array([[float(row[tag]) for tag in TAGS] for row in csv.DictReader(lines)])

    assert np.abs(scores("tags.csv") - scores("onnx.csv")).max() < 1e-3
    tagger = fewtags.load("run", methods=[name])
    assert np.allclose(tagger.predict_proba([image])[0], scores("tags.csv")[0], atol=1e-4)
