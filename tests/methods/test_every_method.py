"""One battery of checks for every method that `fewtags methods` lists; a new file is checked without being named."""

import json

import pytest

import fewtags
from fewtags.cli import run
from fewtags.methods import make_method, method_names
from fewtags.scenes.draw import draw
from fewtags.testing import CHECKS


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", method_names())
def test_every_method_passes(name, check):
    check(lambda: make_method(name, {}))


# every method once, on either kind of features; those of the paper and of the default on both
ONCE = [(name, ("crops", "evidence")[place % 2]) for place, name in enumerate(method_names())]
BOTH = [(name, features) for name in ("d2l", "neighbours") for features in ("crops", "evidence")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "features"), sorted({*ONCE, *BOTH}))
def test_every_method_trains_tags_and_evaluates_on_scenes(name, features, tmp_path, capsys):
    out = tmp_path / "run"
    quick = [
        "--features",
        features,
        "--backbone",
        "efficientnet_lite0",
        "--size",
        "64",
        "--warmup",
        "1",
        "--epochs",
        "2",
    ]
    assert run(["train", "scenes:40", "--labelled", "0.3", "--method", name, "--out", str(out), *quick]) == 0
    picture = tmp_path / "scene.png"
    draw(1, 3)[0].save(picture)
    assert run(["tag", str(out), str(picture), "--scores"]) == 0
    assert "scene.png" in capsys.readouterr().out
    trained = json.loads((out / "result.json").read_text())
    assert fewtags.evaluate(out)["map"] == pytest.approx(trained["map"], abs=1e-3)
