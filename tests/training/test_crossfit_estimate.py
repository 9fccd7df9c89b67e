"""How good it is without a test set: scores that never saw their labels, and what is made of them."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file
from sklearn.metrics import average_precision_score

import fewtags.cli
from fewtags.data.catalogue import Catalogue, Names, Role
from fewtags.metrics import f1_scores, summarise
from fewtags.metrics.bootstrap import bootstrap, bootstrap_figures, percentile_interval, sample_weights
from fewtags.metrics.decisions import calibrated_thresholds, thresholds_of_learned
from fewtags.metrics.estimate import estimate, givable_tags, out_of_fold_decisions
from fewtags.training import crossfit as module
from fewtags.training import train as training
from fewtags.training.crossfit import moments
from fewtags.training.run_folder import RunFolder
from small_runs import ALL, AUTO, HEADS, read_rows, tiny_folder, train, write_rows

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
def test_what_is_preferred_is_the_textbooks_f_beta(prefer, beta):
    scores, truth = drawn(200)

    def quality(threshold, tag):
        made = scores[:, tag] >= threshold
        hits, given, true = (made & (truth[:, tag] == 1)).sum(), made.sum(), (truth[:, tag] == 1).sum()
        return (1 + beta**2) * hits / (beta**2 * true + given)

    for tag, threshold in enumerate(thresholds_of_learned(scores, truth, prefer)):
        assert quality(threshold, tag) == pytest.approx(max(quality(s, tag) for s in np.unique(scores)))


def test_calibrated_thresholds_serve_new_images_better_than_those_that_serve_few_labelled_ones_best():
    def bells(images, seed):
        rng = np.random.default_rng(seed)
        truth = (rng.random((images, 10)) < 0.1).astype(np.int8)
        return 1 / (1 + np.exp(2 - 2.0 * truth - rng.normal(size=truth.shape))), truth

    ours, fitted = [], []
    for seed in range(8):
        scores, truth = bells(60, seed)
        new_scores, new_truth = bells(2000, 100 + seed)
        calibration, thresholds = calibrated_thresholds(
            (scores, truth), new_scores, givable_tags(truth, None), "balance"
        )
        ours.append(f1_scores(calibration(new_scores) >= thresholds, new_truth)["of1"])
        best = thresholds_of_learned(scores, truth, "balance")
        fitted.append(f1_scores(new_scores >= best, new_truth)["of1"])
    assert np.mean(ours) > np.mean(fitted) + 0.03


def test_a_tag_without_positives_is_never_given():
    scores, truth = drawn(30)
    truth[:, 0] = 0
    thresholds = thresholds_of_learned(scores, truth, "balance")
    _, calibrated = calibrated_thresholds((scores, truth), scores, givable_tags(truth, None), "balance")
    for found in (thresholds, calibrated):
        assert found[0] == np.inf
        assert (found[1:] <= 1).all()


def test_a_tag_that_held_out_images_miss_may_be_given_and_one_that_was_not_learned_never():
    scores, truth = drawn(60)
    held, learned = truth[:20].copy(), truth.copy()
    held[:, 0], learned[:, 1] = 0, 0
    pool = np.vstack([scores, np.ones((5, 3))])  # some images show everything, surely
    _, thresholds = calibrated_thresholds((scores[:20], held), pool, givable_tags(learned, None), "recall")
    assert np.isfinite(thresholds).tolist() == [True, False, True]


def test_the_decision_on_an_image_has_no_part_of_its_own_label():
    scores, truth = drawn(50)
    fold = np.arange(50) % 5
    decisions, probabilities = out_of_fold_decisions(scores, truth, fold, scores, "balance")
    poisoned = truth.copy()
    poisoned[fold == 2] = 1 - poisoned[fold == 2]
    others, moved = out_of_fold_decisions(scores, poisoned, fold, scores, "balance")
    assert (probabilities[fold == 2] == moved[fold == 2]).all()
    assert (probabilities[fold != 2] != moved[fold != 2]).any()
    assert (decisions[fold == 2] == others[fold == 2]).all()
    assert (decisions[fold != 2] != others[fold != 2]).any()


def estimated(scores, truth, tags, fold=None):
    """What a model that scored all of these images would be told of itself."""
    fold = np.arange(len(scores)) % 5 if fold is None else fold
    calibration, thresholds = calibrated_thresholds((scores, truth), scores, givable_tags(truth, None), "balance")
    held_out = out_of_fold_decisions(scores, truth, fold, scores, "balance")
    found = estimate(scores, truth, held_out, thresholds, calibration(scores), tags, "balance", "somehow")
    return found, calibration, thresholds


def test_an_estimate_is_ready_for_json_and_says_where_it_knows_too_little():
    scores, truth = drawn(60)
    truth[:, 2] = 0
    truth[:3, 2] = 1
    found, _, _ = estimated(scores, truth, ["a", "b", "c"])
    assert json.loads(json.dumps(found)) == found
    assert [row["enough"] for row in found["per_tag"]] == [True, True, False]
    assert found["per_tag"][2]["support"] == 3
    for name in ("map", "cf1", "of1"):
        low, high = found["intervals"][name]
        assert low <= found[name] <= high


def test_an_estimate_of_chance_is_no_better_than_chance():
    """Thresholds fitted on the very images that they are judged by would look better than they are."""
    rng = np.random.default_rng(1)
    scores, truth = rng.random((80, 20)), (rng.random((80, 20)) < 0.05).astype(np.int8)
    tags = list("abcdefghijklmnopqrst")
    found, calibration, thresholds = estimated(scores, truth, tags)
    fitted = summarise(scores, truth, thresholds_of_learned(scores, truth, "balance"), tags)
    fresh = (rng.random((3000, 20)) < 0.05).astype(np.int8)
    true = summarise(calibration(rng.random((3000, 20))), fresh, thresholds, tags)
    assert abs(found["of1"] - true["of1"]) < 0.05
    low, high = found["intervals"]["of1"]
    assert low <= true["of1"] <= high
    assert fitted["of1"] > true["of1"] + 0.05


def outcome_of(data, out, *options):
    """A finished run, and what its training ended with."""
    kept, write = [], training.write_tags

    def keep(folder, config, prepared, outcome):
        kept.append(outcome)
        write(folder, config, prepared, outcome)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "write_tags", keep)
        run = RunFolder(train(data, out, *options))
    return run, kept[0]


FIXED = (*AUTO, "strength=0.01", "share=0.5")  # so that no label chooses them


@pytest.mark.parametrize("options", [HEADS, FIXED], ids=["d2l", "neighbours"])
def test_a_fold_is_scored_by_a_model_that_never_saw_its_labels(tmp_path, monkeypatch, options):
    """Poison the labels of one fold: its own held-out scores stay, those of others change."""
    photos = tiny_folder(tmp_path / "photos", images=40)
    label_all(photos, 20)
    first, clean = outcome_of(photos, tmp_path / "first", *options)
    rows = read_rows(photos / "labels.csv")
    names = [name for name, role in read_rows(first.split_file)[1:] if role == "labelled"]
    fold = clean.held_out.fold
    poisoned = {name for name, number in zip(names, fold, strict=True) if number == 1}
    for row in rows[1:]:
        if row[0] in poisoned:
            row[1:4] = [str(1 - int(value)) for value in row[1:4]]
    write_rows(photos / "labels.csv", rows)
    monkeypatch.setattr(module, "balanced_folds", lambda *_, **__: fold)
    _, other = outcome_of(photos, tmp_path / "second", *options)
    out = fold == 1
    np.testing.assert_allclose(clean.held_out.scores[out], other.held_out.scores[out], atol=1e-6)
    assert np.abs(clean.held_out.scores[~out] - other.held_out.scores[~out]).max() > 1e-3
    assert np.abs(clean.raw_scores["labelled"][out] - other.raw_scores["labelled"][out]).max() > 1e-3


def label_all(photos, count):
    """Make the first `count` pictures labelled, with what they show drawn from a seed."""
    rng = np.random.default_rng(0)
    rows = [row for row in read_rows(photos / "labels.csv") if row[-1] != "train"]
    rows += [[f"{number:02d}.png", *map(str, rng.integers(0, 2, 3)), "train"] for number in range(count)]
    write_rows(photos / "labels.csv", rows)


class Photos:
    """Images that are only named; some say when they were taken."""

    def __init__(self, taken):
        self._taken = taken

    def taken(self, name):
        return self._taken.get(name)


def moments_of(vectors, keys=None, taken=None, words=0):
    """The groups of labelled images with these vectors [n, d]."""
    count = len(vectors)
    names = [f"{place}.png" for place in range(count)]
    roles, unknown = np.full(count, Role.LABELLED, np.int8), np.zeros((count, 1), np.int8)
    catalogue = Catalogue(("a",), Names(names), unknown, roles, Photos(taken or {}))
    prepared = SimpleNamespace(catalogue=catalogue, keys=keys or [bytes([place]) for place in range(count)])
    loop = SimpleNamespace(
        method=SimpleNamespace(words=words), features=lambda part: torch.as_tensor(vectors, dtype=torch.float32)
    )
    return moments(prepared, loop)


def apart(count, seed=0):
    """Vectors that have nothing to do with each other."""
    return np.random.default_rng(seed).normal(size=(count, 64))


def test_copies_of_an_image_are_one_moment_however_many_they_are():
    keys = [b"same" if number in (0, 3, 7, 11) else bytes([number]) for number in range(12)]
    vectors = apart(12)
    vectors[[3, 7, 11]] = vectors[0]
    groups = moments_of(vectors, keys)
    assert len(set(groups[[0, 3, 7, 11]])) == 1
    assert len(set(groups)) == 9
    fold = module.balanced_folds((np.arange(12)[:, None] % 3 == np.arange(3)).astype(np.int8), 5, groups=groups)
    assert len(set(fold[[0, 3, 7, 11]])) == 1
    assert len(set(fold)) > 2


def test_near_copies_are_one_moment_and_the_copies_of_each_go_with_it():
    vectors = apart(12)
    vectors[5] = vectors[2] + 0.05 * apart(1, seed=1)
    keys = [bytes([number]) for number in range(12)]
    keys[9], vectors[9] = keys[5], vectors[5]
    groups = moments_of(vectors, keys)
    assert groups[2] == groups[5] == groups[9]
    assert len(set(groups)) == 10


def test_what_names_say_makes_no_images_alike():
    vectors = np.hstack([apart(12), np.full((12, 3), 0.0)])
    vectors[:2, -3:] = 1000.0
    assert len(set(moments_of(vectors, words=3))) == 12
    assert len(set(moments_of(vectors))) == 11, "else the test shows nothing"


def test_photos_taken_within_seconds_are_one_moment_if_they_are_alike_at_all():
    vectors = apart(12)
    vectors[4] = vectors[3] + 1.2 * apart(1, seed=1)  # alike, but no copy
    taken = {"3.png": 100.0, "4.png": 105.0, "6.png": 106.0, "8.png": None}
    assert len(set(moments_of(vectors))) == 12
    groups = moments_of(vectors, taken=taken)
    assert groups[3] == groups[4]
    assert len(set(groups)) == 11
    assert len(set(moments_of(vectors, taken={**taken, "4.png": 111.0}))) == 12


def test_a_picture_and_its_relit_copy_are_tagged_by_a_model_that_saw_neither(tmp_path):
    photos = tiny_folder(tmp_path / "photos", images=40)
    label_all(photos, 20)
    with Image.open(photos / "03.png") as picture:
        picture.point(lambda value: 0.96 * value + 4).save(photos / "11.png")
    (photos / "12.png").write_bytes((photos / "05.png").read_bytes())
    run, outcome = outcome_of(photos, tmp_path / "run", *HEADS)
    names = [name for name, role in read_rows(run.split_file)[1:] if role == "labelled"]
    place = {name: row for row, name in enumerate(names)}
    fold, groups = outcome.held_out.fold, outcome.held_out.groups
    for one, other in (("03.png", "11.png"), ("05.png", "12.png")):
        assert groups[place[one]] == groups[place[other]]
        assert fold[place[one]] == fold[place[other]]
    together = 20 - len(set(groups))
    how = json.loads(run.result_file.read_text())["estimate"]["how"]
    assert f"({together} of them so like another that both are in the same part)" in how


def test_a_run_says_how_good_it_is_and_tags_by_thresholds_that_never_saw_the_labels(tmp_path, capsys):
    photos = tiny_folder(tmp_path / "photos", images=40)
    label_all(photos, 20)
    rows = [row for row in read_rows(photos / "labels.csv") if row[-1] != "test"]
    write_rows(photos / "labels.csv", rows)
    run, outcome = outcome_of(photos, tmp_path / "run", *HEADS, "--prefer", "recall")
    result = json.loads(run.result_file.read_text())
    assert result["estimate"]["prefer"] == "recall"
    held, pool = outcome.held_out, outcome.raw_scores["unlabelled"]
    calibration, thresholds = calibrated_thresholds(held.known, pool, givable_tags(held.targets, None), "recall")
    model = json.loads((run.model_folder / "model.json").read_text())
    assert model["calibration"] == [list(pair) for pair in calibration.pairs()]
    assert model["thresholds"] == [float(np.float32(one)) if np.isfinite(one) else None for one in thresholds]
    np.testing.assert_array_equal(run.scores()["unlabelled"], calibration(pool))
    given = [set(filter(None, tags.split("|"))) for _, tags in read_rows(run.tags_file)[1:]]
    reached = calibration(pool) >= thresholds.astype(np.float32)
    assert given == [{tag for tag, there in zip(model["tags"], row, strict=True) if there} for row in reached]
    printed = capsys.readouterr().out
    assert "estimated quality" in printed
    assert "20 labelled images in 5 parts" in printed


def test_the_kept_probabilities_of_a_labelled_image_are_by_a_curve_that_never_saw_its_label(tmp_path):
    photos = tiny_folder(tmp_path / "photos", images=40)
    label_all(photos, 20)
    run, outcome = outcome_of(photos, tmp_path / "run", *HEADS)
    held, pool = outcome.held_out, outcome.raw_scores["unlabelled"]
    _, nested = out_of_fold_decisions(*held.known, held.fold, pool, "balance")
    np.testing.assert_array_equal(run.scores()["held_out"], nested)
    assert np.abs(nested - outcome.calibration(held.scores)).max() > 1e-4


def test_without_folds_the_thresholds_come_from_what_was_learned(tmp_path):
    photos = tiny_folder(tmp_path / "photos", images=40)
    label_all(photos, 20)
    folder = RunFolder(train(photos, tmp_path / "run", *HEADS, "folds=0"))
    scores, result = folder.scores(), json.loads((folder.path / "result.json").read_text())
    assert not {"estimate", "learning_curve", "not_given"} & result.keys()
    assert result["calibration_error"] is None
    assert "held_out" not in scores
    model = json.loads((folder.path / "model" / "model.json").read_text())
    assert model["calibration"] is None
    expected = thresholds_of_learned(scores["labelled"], scores["labelled_targets"], "balance")
    assert model["thresholds"] == pytest.approx(expected.tolist())


@pytest.mark.parametrize(("count", "enough"), [(4, False), (5, True)])
def test_five_labelled_images_are_enough_for_an_estimate(tmp_path, count, enough):
    photos = tiny_folder(tmp_path / "photos")
    label_all(photos, count)
    run = RunFolder(train(photos, tmp_path / "run", *AUTO))
    result = json.loads(run.result_file.read_text())
    assert ("estimate" in result) == enough
    assert ("held_out" in load_file(run.scores_file)) == enough
    assert "learning_curve" not in result, "too few for a curve"
    if enough:
        assert result["estimate"]["images"] == 5
        assert "5 labelled images in 5 parts" in result["estimate"]["how"]


def test_where_all_labelled_images_are_copies_of_one_nothing_is_estimated(tmp_path):
    photos = tiny_folder(tmp_path / "photos")
    label_all(photos, 6)
    for number in range(1, 6):
        (photos / f"{number:02d}.png").write_bytes((photos / "00.png").read_bytes())
    run = RunFolder(train(photos, tmp_path / "run", *HEADS))
    assert "estimate" not in json.loads(run.result_file.read_text())
    assert len(read_rows(run.tags_file)) == 1 + 12


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
