"""How good it is without a test set: scores that never saw their labels, and what is made of them."""

import json

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import fewtags.cli
from fewtags.metrics import f1_scores, summarise
from fewtags.metrics.bootstrap import bootstrap, bootstrap_figures, percentile_interval, sample_weights
from fewtags.metrics.estimate import estimate, out_of_fold_decisions, tagging_thresholds, thresholds_for
from fewtags.training import crossfit as module
from fewtags.training.run_folder import RunFolder
from small_runs import ALL, HEADS, read_rows, tiny_folder, train, write_rows

pytestmark = pytest.mark.slow


def drawn(images=40, tags=3, seed=0):
    rng = np.random.default_rng(seed)
    truth = (rng.random((images, tags)) < 0.3).astype(np.int8)
    scores = np.clip(0.4 * truth + 0.6 * rng.random((images, tags)), 0, 1).round(2)  # with ties
    return scores, truth


def test_a_draw_gives_what_the_drawn_images_give():
    scores, truth = drawn()
    truth[3, 1] = truth[7, 2] = -1  # unknown
    decisions = (scores >= 0.5).astype(float)
    found = bootstrap(scores, truth, decisions)
    figures = bootstrap_figures(found)
    for number in (0, 1, 57, 199):
        rows = np.repeat(np.arange(40), sample_weights(40)[number])
        expected = f1_scores(decisions[rows], truth[rows])
        assert figures["cf1"][number] == pytest.approx(expected["cf1"])
        assert figures["of1"][number] == pytest.approx(expected["of1"])
        for tag in range(3):
            known = rows[truth[rows, tag] >= 0]
            by_hand = average_precision_score(truth[known, tag], scores[known, tag])
            assert found.ap[number, tag] == pytest.approx(by_hand)
        assert figures["map"][number] == pytest.approx(found.ap[number].mean())


def test_a_tag_that_no_image_shows_has_no_average_precision_in_any_draw():
    scores, truth = drawn()
    truth[:, 0] = 0
    found = bootstrap(scores, truth, scores >= 0.5)
    assert np.isnan(found.ap[:, 0]).all()
    assert percentile_interval(found.ap[:, 0]) is None
    assert not np.isnan(bootstrap_figures(found)["map"]).any()


def test_the_middle_holds_95_of_100():
    low, high = percentile_interval(np.arange(1001.0))
    assert (low, high) == (25, 975)


@pytest.mark.parametrize(("prefer", "beta"), [("precision", 0.5), ("balance", 1), ("recall", 2)])
def test_what_is_preferred_is_the_textbooks_f_beta(monkeypatch, prefer, beta):
    scores, truth = drawn(200)
    monkeypatch.setattr("fewtags.metrics.estimate.MAX_RESAMPLED", 100)  # the images themselves, no other draws of them

    def quality(threshold, tag):
        made = scores[:, tag] >= threshold
        hits, given, true = (made & (truth[:, tag] == 1)).sum(), made.sum(), (truth[:, tag] == 1).sum()
        return (1 + beta**2) * hits / (beta**2 * true + given)

    for tag, threshold in enumerate(thresholds_for(scores, truth, prefer)):
        assert quality(threshold, tag) == pytest.approx(max(quality(s, tag) for s in np.unique(scores)))


def test_thresholds_of_few_images_serve_new_images_better_in_the_mean_over_draws(monkeypatch):
    def bells(images, seed):
        rng = np.random.default_rng(seed)
        truth = (rng.random((images, 10)) < 0.1).astype(np.int8)
        return 2.0 * truth + rng.normal(size=truth.shape), truth

    def of1():
        found = []
        for seed in range(15):
            new_scores, new_truth = bells(2000, 100 + seed)
            thresholds = thresholds_for(*bells(60, seed), "balance")
            found.append(f1_scores(new_scores >= thresholds, new_truth)["of1"])
        return np.mean(found)

    over_draws = of1()
    monkeypatch.setattr("fewtags.metrics.estimate.MAX_RESAMPLED", 0)
    assert over_draws > of1() + 0.01


def test_a_tag_that_some_draws_miss_keeps_a_threshold_and_one_without_images_is_never_given():
    scores, truth = drawn(30)
    truth[:, 0], truth[:, 1] = 0, 0
    truth[4, 1] = 1
    thresholds = thresholds_for(scores, truth, "balance")
    assert thresholds[0] == np.inf
    assert 0 <= thresholds[1] <= 1


def test_the_decision_on_an_image_has_no_part_of_its_own_label():
    scores, truth = drawn(50)
    fold = np.arange(50) % 5
    decisions = out_of_fold_decisions(scores, truth, fold, "balance")
    poisoned = truth.copy()
    poisoned[fold == 2] = 1 - poisoned[fold == 2]
    others = out_of_fold_decisions(scores, poisoned, fold, "balance")
    assert (decisions[fold == 2] == others[fold == 2]).all()
    assert (decisions[fold != 2] != others[fold != 2]).any()


def test_an_estimate_is_ready_for_json_and_says_where_it_knows_too_little():
    scores, truth = drawn(60)
    truth[:, 2] = 0
    truth[:3, 2] = 1
    thresholds = thresholds_for(scores, truth, "balance")
    found = estimate(scores, truth, np.arange(60) % 5, thresholds, ["a", "b", "c"], "balance", "somehow")
    assert json.loads(json.dumps(found)) == found
    assert [row["enough"] for row in found["per_tag"]] == [True, True, False]
    assert found["per_tag"][2]["support"] == 3
    for name in ("map", "cf1", "of1"):
        low, high = found["intervals"][name]
        assert low <= found[name] <= high
    decisions = out_of_fold_decisions(scores, truth, np.arange(60) % 5, "balance")
    assert found["of1"] == f1_scores(decisions, truth)["of1"]


def test_an_estimate_of_chance_is_no_better_than_chance():
    """Thresholds fitted on the very images that they are judged by would look better than they are."""
    rng = np.random.default_rng(1)
    scores, truth = rng.random((80, 20)), (rng.random((80, 20)) < 0.05).astype(np.int8)
    thresholds = thresholds_for(scores, truth, "balance")
    found = estimate(scores, truth, np.arange(80) % 5, thresholds, list("abcdefghijklmnopqrst"), "balance", "")
    fitted = summarise(scores, truth, thresholds, list("abcdefghijklmnopqrst"))
    fresh = (rng.random((3000, 20)) < 0.05).astype(np.int8)
    true = summarise(rng.random((3000, 20)), fresh, thresholds, list("abcdefghijklmnopqrst"))
    assert abs(found["of1"] - true["of1"]) < 0.03
    assert fitted["of1"] > true["of1"] + 0.015


def test_a_fold_is_scored_by_a_model_that_never_saw_its_labels(tmp_path):
    """Poison the labels of one fold: its own held-out scores stay, those of others change."""
    photos = tiny_folder(tmp_path / "photos", images=40)
    label_all(photos, 20)
    first = RunFolder(train(photos, tmp_path / "first", *HEADS))
    rows = read_rows(photos / "labels.csv")
    names = [name for name, role in read_rows(first.split_file)[1:] if role == "labelled"]
    fold = module.balanced_folds(first.scores()["labelled_targets"], 5)
    poisoned = {name for name, number in zip(names, fold, strict=True) if number == 1}
    for row in rows[1:]:
        if row[0] in poisoned:
            row[1:4] = [str(1 - int(value)) for value in row[1:4]]
    write_rows(photos / "labels.csv", rows)
    second = train_with_folds(photos, tmp_path / "second", fold)
    clean, other = first.scores(), second.scores()
    out = fold == 1
    np.testing.assert_allclose(clean["held_out"][out], other["held_out"][out], atol=1e-6)
    assert np.abs(clean["held_out"][~out] - other["held_out"][~out]).max() > 1e-3
    assert np.abs(clean["labelled"][out] - other["labelled"][out]).max() > 1e-3


def label_all(photos, count):
    """Make the first `count` pictures labelled, with what they show drawn from a seed."""
    rng = np.random.default_rng(0)
    rows = [row for row in read_rows(photos / "labels.csv") if row[-1] != "train"]
    rows += [[f"{number:02d}.png", *map(str, rng.integers(0, 2, 3)), "train"] for number in range(count)]
    write_rows(photos / "labels.csv", rows)


def train_with_folds(photos, out, fold):
    original = module.balanced_folds
    module.balanced_folds = lambda *_: fold
    try:
        return RunFolder(train(photos, out, *HEADS))
    finally:
        module.balanced_folds = original


def test_copies_of_an_image_are_in_one_fold():
    keys = [b"same" if number in (0, 3, 7, 11) else bytes([number]) for number in range(12)]
    labels = (np.arange(12)[:, None] % 3 == np.arange(3)).astype(np.int8)
    fold = module._fold_of(keys, labels, 5)
    assert len(set(fold[[0, 3, 7, 11]])) == 1
    assert len(set(fold)) > 2


def test_a_run_says_how_good_it_is_and_tags_by_thresholds_that_never_saw_the_labels(tmp_path, capsys):
    photos = tiny_folder(tmp_path / "photos", images=40)
    label_all(photos, 20)
    rows = [row for row in read_rows(photos / "labels.csv") if row[-1] != "test"]
    write_rows(photos / "labels.csv", rows)
    folder = RunFolder(train(photos, tmp_path / "run", *HEADS, "--prefer", "recall"))
    scores, result = folder.scores(), json.loads((folder.path / "result.json").read_text())
    assert result["estimate"]["prefer"] == "recall"
    thresholds = thresholds_for(scores["held_out"], scores["held_out_targets"], "recall")
    model = json.loads((folder.path / "model" / "model.json").read_text())
    assert model["thresholds"] == pytest.approx(thresholds.tolist())
    printed = capsys.readouterr().out
    assert "estimated quality" in printed
    assert "20 labelled images in 5 parts" in printed


def test_without_folds_the_thresholds_come_from_what_was_learned(tmp_path):
    photos = tiny_folder(tmp_path / "photos", images=40)
    label_all(photos, 20)
    folder = RunFolder(train(photos, tmp_path / "run", *HEADS, "folds=0"))
    scores, result = folder.scores(), json.loads((folder.path / "result.json").read_text())
    assert "estimate" not in result
    assert "held_out" not in scores
    model = json.loads((folder.path / "model" / "model.json").read_text())
    expected = thresholds_for(scores["labelled"], scores["labelled_targets"], "balance")
    assert model["thresholds"] == pytest.approx(expected.tolist())


def test_where_every_weight_learns_a_part_is_kept_from_training(tmp_path):
    photos = tiny_folder(tmp_path / "photos", images=70)
    label_all(photos, 50)
    folder = RunFolder(train(photos, tmp_path / "run", *ALL, "--validate"))
    roles = [role for _, role in read_rows(folder.split_file)[1:]]
    scores, result = folder.scores(), json.loads((folder.path / "result.json").read_text())
    assert roles.count("held_out") == 10 == len(scores["held_out"]) == result["images"]["held_out"]
    assert roles.count("labelled") == 40 == len(scores["labelled"])
    assert "10 labelled images that were kept from training" in result["estimate"]["how"]


def test_validation_is_refused_where_it_makes_no_sense(tmp_path, capsys):
    photos = tiny_folder(tmp_path / "photos")
    for options, message in ((HEADS, "estimated from all labelled images already"), (ALL, "too few to keep some back")):
        words = ["train", str(photos), "--out", str(tmp_path / "run"), *options, "--validate"]
        assert fewtags.cli.run(words) == 2
        assert message in capsys.readouterr().err


def test_a_tag_that_held_out_images_miss_has_its_threshold_from_learned_ones_and_an_unlearned_one_is_never_given():
    scores, truth = drawn(60)
    held, learned = truth[:20].copy(), truth[20:].copy()
    held[:, 0], learned[:, 1] = 0, 0
    found = tagging_thresholds((scores[:20], held), (scores[20:], learned), "balance")
    assert found[0] == thresholds_for(scores[20:], learned, "balance")[0] < np.inf
    assert found[1] == np.inf
    assert found[2] == thresholds_for(scores[:20], held, "balance")[2]


def test_a_run_stopped_while_quality_is_estimated_goes_on_without_learning_again(tmp_path, monkeypatch, capsys):
    photos = tiny_folder(tmp_path / "photos", images=40)
    label_all(photos, 20)
    whole = train(photos, tmp_path / "whole", *HEADS)
    save, steps = module._FoldObserver.save, []

    def ask_to_stop(self, loop):
        steps.append(1)
        self._stop.requested = len(steps) == 3
        save(self, loop)

    monkeypatch.setattr(module._FoldObserver, "save", ask_to_stop)
    words = ["train", str(photos), "--out", str(tmp_path / "run"), *HEADS]
    assert fewtags.cli.run(words) == 130
    monkeypatch.setattr(module._FoldObserver, "save", save)
    monkeypatch.setattr("fewtags.training.run_folder.Watch.step", lambda self, report: pytest.fail("learned again"))
    assert fewtags.cli.run([*words, "--resume"]) == 0
    for name in ("model/model.safetensors", "scores.safetensors", "tags.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes()
