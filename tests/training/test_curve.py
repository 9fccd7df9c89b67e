"""What more labels should bring: curves through made-up points, and what a run says of them and of tags held back."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import fewtags.cli
from fewtags.cli.results import outlook
from fewtags.data.catalogue import MIN_POSITIVES
from fewtags.errors import Interrupted
from fewtags.metrics import average_precision
from fewtags.solvers.folds import FOLDS, MIN_CHOICE
from fewtags.training import curve as module
from fewtags.training import train as training
from fewtags.training.crossfit import HeldOut
from fewtags.training.curve import NEXT, POWER, LearningCurve, about, fit_curve, learning_curve, not_given
from fewtags.training.run_folder import RunFolder
from fewtags.utils.stopping import StopRequest
from small_runs import AUTO, TAGS, command, read_rows, tiny_folder, write_rows

SIZES = [100 / 3, 200 / 3, 80.0]
MANY = 10**9  # positives of a tag that follows its own curve alone


def points(top, fall, sizes=SIZES):
    """Average precision [sizes, K] of tags that follow top - fall * n ** -POWER exactly."""
    return np.array(top) - np.array(fall) * np.array(sizes)[:, None] ** -POWER


def test_points_on_a_curve_give_that_curve_and_its_gain():
    top, fall = np.array([0.9, 0.8]), np.array([2.0, 1.0])
    found = fit_curve(100, SIZES, points(top, fall), np.array([MANY, MANY]))
    np.testing.assert_allclose(found.fall, fall)
    of_all, of_tags = found.gain(300)
    now, later = points(top, fall, [100.0, 400.0])
    np.testing.assert_allclose(of_tags, later - now)
    assert of_all == pytest.approx((later - now).mean())
    again, _ = found.gain(100, start=300)
    np.testing.assert_allclose(again, (later - points(top, fall, [300.0])[0]).mean())


def test_a_tag_with_few_positives_follows_the_mean_of_all():
    fall = np.array([2.0, 1.0, 0.0])
    found = fit_curve(100, SIZES, points(0.7, fall), np.array([0, 10, MANY]))
    np.testing.assert_allclose(found.fall, [1.0, 1.0, 0.0], atol=1e-6)
    assert found.mean_fall == pytest.approx(1.0)
    assert found.error == pytest.approx(1 / 3**0.5)
    own = fit_curve(100, SIZES, points(0.7, fall), np.array([10, 10, 10]))
    np.testing.assert_allclose(own.fall, [1.5, 1.0, 0.5])


def test_where_more_labels_did_harm_no_loss_is_forecast():
    found = fit_curve(100, SIZES, points(0.5, [-1.0, -2.0]), np.array([MANY, 3]))
    assert found.gain(50)[0] == 0
    assert found.gain(50)[1].tolist() == [0, 0]
    mixed = fit_curve(100, SIZES, points(0.5, [3.0, -1.0]), np.array([MANY, MANY]))
    assert mixed.gain(50)[0] > 0
    assert mixed.gain(50)[1][1] == 0, "one tag among others does not fall either"


def test_no_tag_is_forecast_to_be_better_than_perfect():
    found = fit_curve(40, [13.0, 27.0, 32.0], points(1.2, [2.0], [13.0, 27.0, 32.0]), np.array([MANY]))
    assert found.ap[-1] + found.gain(1000)[1] == pytest.approx(1.0)


def test_a_tag_that_no_labelled_image_shows_has_a_forecast_that_can_be_written():
    ap = points(0.6, [1.0, 3.0])
    ap[:, 1] = np.nan
    found = fit_curve(100, SIZES, ap, np.array([MANY, 0]))
    np.testing.assert_allclose(found.fall, [1.0, 1.0])
    summary = found.summary(["seen", "unseen"])
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert [step["labels"] for step in summary["next"]] == list(NEXT) == [20, 50, 100]
    assert summary["labels"] == [33, 67, 80]
    assert summary["map"] == pytest.approx(ap[:, 0])
    assert summary["doubled"] == pytest.approx(found.gain(100)[0])
    assert summary["next"][1]["map"] == found.gain(50)[0]
    assert summary["next"][1]["per_tag"] == {"seen": found.gain(50)[1][0], "unseen": found.gain(50)[1][1]}


def test_from_most_labels_to_all_log_odds_rise_as_the_curve_does():
    steep, flat = (fit_curve(100, SIZES, points(0.7, [fall, fall]), np.array([9, 9])) for fall in (2.0, 0.0))
    rise, unsure = steep.shift(0.8)
    now = 0.7 - 2.0 * 80**-POWER
    assert rise == pytest.approx(2.0 * (80**-POWER - 100**-POWER) / (now * (1 - now)))
    assert unsure == pytest.approx(0, abs=1e-9)
    assert flat.shift(0.8) == pytest.approx((0, 0), abs=1e-9)
    assert steep.shift(1.0) == pytest.approx((0, 0), abs=1e-9)


@pytest.mark.parametrize(
    ("number", "said"),
    [(0.2, 1), (3, 3), (9.1, 10), (10, 10), (10.1, 20), (12, 20), (20, 20), (99, 100), (100, 100), (130, 200)],
)
def test_about_keeps_one_digit_and_rounds_up(number, said):
    assert about(number) == said


def test_tags_that_no_image_gets_are_named_with_the_labels_they_lack():
    labels = np.zeros((40, 4), np.int8)
    labels[:20, 0], labels[:2, 1], labels[:8, 2] = 1, 1, 1
    labels[2:, 3] = -1  # unknown of all but two images, neither of which shows it
    probabilities = np.tile(np.array([0.6, 0.01, 0.02, 0.5]), (100, 1))
    found = not_given(["given", "few", "many", "unknown"], labels, np.array([0.5, np.inf, 0.3, np.inf]), probabilities)
    assert [row["tag"] for row in found] == ["few", "many", "unknown"]
    assert [row["positives"] for row in found] == [2, 8, 0]
    lacking = (MIN_POSITIVES - 2, 8, MIN_POSITIVES)  # up to the least, then twice as many
    shares = (2.5 / 41, 8.5 / 41, 0.5)
    assert [row["more_labels"] for row in found] == [about(n / share) for n, share in zip(lacking, shares, strict=True)]
    assert json.loads(json.dumps(found)) == found


# --- how it is measured -----------------------------------------------------------------------------------------


class Quick:
    """A method that is the better the more labels it is told, and keeps which it was told."""

    def __init__(self, truth):
        self.truth, self.told = truth, []

    def __call__(self, targets):
        told = (targets >= 0).any(1).numpy()
        self.told.append(told)
        noise = np.random.default_rng(len(self.told)).normal(size=self.truth.shape)
        return torch.from_numpy(self.truth + 20 * noise * told.sum() ** -POWER)


def held_out(count=60, groups=None, tags=4):
    truth = (np.random.default_rng(0).random((count, tags)) < 0.3).astype(np.int8)
    groups = np.arange(count) if groups is None else groups
    return HeldOut(truth.astype(np.float32), truth, np.arange(count) % FOLDS, groups, "somehow", 0.8)


def measured(held, quick):
    return learning_curve(held, SimpleNamespace(quick_scores=quick), StopRequest())


def test_a_curve_is_measured_with_a_third_two_thirds_and_most_of_the_labels():
    held = held_out(60)
    quick = Quick(held.targets)
    found = measured(held, quick)
    assert found.sizes == [20, 40, 48]
    told = [told.sum() for told in quick.told]
    assert {size for size in told if size < 30} == {20}
    assert {size for size in told if 30 <= size < 45} == {40}
    assert max(told) <= 50
    assert found.gain(20)[0] > 0


def test_no_image_is_scored_by_what_learned_from_it_or_from_its_like():
    """A method that knows by heart what it was told, and nothing else, must look like chance."""
    groups = np.arange(60) // 3 * 3
    held = held_out(60, groups)
    of_group = {}

    def by_heart(targets):
        told = (targets >= 0).any(1).numpy()
        for group in set(groups.tolist()):
            of_group.setdefault(group, set()).add(len(set(told[groups == group].tolist())))
        seen = np.isin(groups, groups[told])[:, None]
        return torch.from_numpy(np.where(seen, held.targets, 0.5).astype(np.float32))

    found = measured(held, by_heart)
    assert all(kinds == {1} for kinds in of_group.values()), "alike images are learned together or not at all"
    chance = average_precision(np.full(held.targets.shape, 0.5), held.targets)
    np.testing.assert_allclose(found.ap, np.tile(chance, (3, 1)))


def test_there_is_no_curve_of_few_labels_of_none_that_shows_a_tag_or_of_a_slow_method():
    enough, few = held_out(MIN_CHOICE), held_out(MIN_CHOICE - 1)
    assert isinstance(measured(enough, Quick(enough.targets)), LearningCurve)
    assert measured(few, Quick(few.targets)) is None
    assert measured(enough, None) is None
    nothing = enough._replace(targets=np.zeros_like(enough.targets))
    assert measured(nothing, Quick(nothing.targets)) is None


def test_a_curve_is_stopped_between_two_fits():
    held, stop = held_out(60), StopRequest()
    quick = Quick(held.targets)

    def asked(targets):
        stop.requested = len(quick.told) == 2
        return quick(targets)

    with pytest.raises(Interrupted, match="model and tags are written, --resume adds the estimate"):
        learning_curve(held, SimpleNamespace(quick_scores=asked), stop)
    assert len(quick.told) == 3


# --- in whole runs ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def small_sheet():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fewtags.training.results.SHEET_IMAGES", 1)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Forty pictures, of which thirty-two are labelled as in truth; one image alone shows a fourth tag."""
    photos = tiny_folder(tmp_path_factory.mktemp("curve") / "photos", images=40)
    shown = []
    for number in range(32):
        red, green, striped = np.random.default_rng([0, number]).integers(0, 2, 3)
        shown.append([f"{number:02d}.png", red, green, striped, int(number == 0)])
    write_rows(photos / "labels.csv", [["image", *TAGS, "rare"], *shown])
    return photos


@pytest.fixture(scope="module")
def said(data, tmp_path_factory):
    """A finished run, and what it printed."""
    out = tmp_path_factory.mktemp("said") / "run"
    with pytest.MonkeyPatch.context() as patch:
        lines = []
        patch.setattr("builtins.print", lambda *words, **_: lines.append(" ".join(map(str, words))))
        assert fewtags.cli.run(command(data, out, *AUTO)) == 0
    return SimpleNamespace(run=RunFolder(out), lines=lines, result=RunFolder(out).result())


@pytest.mark.slow
def test_a_run_keeps_and_prints_what_more_labels_should_bring(said):
    curve = said.result["learning_curve"]
    assert curve["labels"] == [11, 21, 26]
    assert [step["labels"] for step in curve["next"]] == [20, 50, 100]
    gains = [step["map"] for step in curve["next"]]
    assert 0 <= gains[0] <= gains[1] <= gains[2]
    assert set(curve["next"][0]["per_tag"]) == {*TAGS, "rare"}
    told = f"what more labels should bring, in mAP: 20 more: {100 * gains[0]:+.1f}, 50 more: {100 * gains[1]:+.1f}"
    assert [line for line in said.lines if line.startswith(told)]


@pytest.mark.slow
def test_tags_held_back_are_kept_and_among_the_last_lines(said):
    model = json.loads((said.run.model_folder / "model.json").read_text())
    never = [tag for tag, limit in zip(model["tags"], model["thresholds"], strict=True) if limit is None]
    held_back = {row["tag"]: row for row in said.result["not_given"]}
    assert "rare" in never
    assert set(held_back) == set(never)
    assert held_back["rare"]["positives"] == 1
    assert not any("rare" in tags.split("|") for _, tags in read_rows(said.run.tags_file))
    (line,) = [line for line in said.lines if line.startswith("not given to any image, too few examples to be sure: ")]
    assert f"rare (about {held_back['rare']['more_labels']:,} more labels would help)" in line


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stopped", "struck"])
def test_a_run_that_ended_while_the_curve_was_measured_has_its_tags_and_goes_on(
    data, said, tmp_path, monkeypatch, capsys, end
):
    progress, steps = module.Progress, []

    class Asked(progress):
        def advance(self, *words, **named):
            steps.append(1)
            if end == "struck" and len(steps) == 3:
                raise RuntimeError("the machine went down")
            stop[0].requested = len(steps) == 3
            super().advance(*words, **named)

    stop, figures = [], training.figures

    def known(config, prepared, outcome, request):
        stop.append(request)
        return figures(config, prepared, outcome, request)

    words = command(data, tmp_path / "run", *AUTO)
    with monkeypatch.context() as patch:
        patch.setattr(module, "Progress", Asked)
        patch.setattr(training, "figures", known)
        if end == "stopped":
            assert fewtags.cli.run(words) == 130
            assert "model and tags are written, --resume adds the estimate" in capsys.readouterr().err
        else:
            with pytest.raises(RuntimeError, match="went down"):
                fewtags.cli.run(words)
    assert len(steps) == 3
    run = RunFolder(tmp_path / "run")
    assert run.tags_file.read_bytes() == said.run.tags_file.read_bytes()
    assert not run.result_file.exists()
    assert not run.finished
    assert fewtags.cli.run([*words, "--resume"]) == 0
    assert run.finished
    for name in ("model/model.safetensors", "model/model.json", "tags.csv", "scores.safetensors"):
        assert (run.path / name).read_bytes() == (said.run.path / name).read_bytes(), name
    assert run.result()["learning_curve"] == said.result["learning_curve"]
    assert run.result()["estimate"] == said.result["estimate"]


def test_of_many_tags_held_back_the_first_are_named_and_the_others_counted():
    rows = [{"tag": f"t{number}", "positives": 1, "more_labels": 1000 + number} for number in range(11)]
    (line,) = outlook({"not_given": rows})
    assert "t0 (about 1,000 more labels would help)" in line
    assert line.endswith("t7 (about 1,007 more labels would help), and 3 more")
    assert "t8" not in line


def test_the_tags_that_gain_most_are_named_if_they_gain_a_point():
    steps = [
        {"labels": labels, "map": gain, "per_tag": {"a": gain, "b": 0.009, "c": 4 * gain, "d": 2 * gain, "e": 3 * gain}}
        for labels, gain in ((20, 0.004), (50, 0.01), (100, 0.02))
    ]
    (line,) = outlook({"learning_curve": {"next": steps}})
    told = "what more labels should bring, in mAP: 20 more: +0.4, 50 more: +1.0, 100 more: +2.0"
    assert line == f"{told} (most after 100: c +8, e +6, d +4)"
    for step in steps:
        step["per_tag"] = dict.fromkeys("abcde", 0.001)
    assert outlook({"learning_curve": {"next": steps}}) == [told]


def test_a_result_without_an_outlook_says_nothing_more():
    assert outlook({"estimate": {}, "not_given": []}) == []
