"""The estimated quality: figures with intervals that hold, from labelled images that were left out."""

import json

import numpy as np
import pytest

from fewtags.metrics import calibration_error, f1_scores
from fewtags.metrics import estimate as module
from fewtags.metrics.calibration import sigmoid
from fewtags.metrics.decisions import NameThresholds, calibrated_thresholds, some_rows
from fewtags.metrics.estimate import (
    FIGURES,
    estimate,
    expected_quality,
    givable_tags,
    interval,
    out_of_fold_decisions,
)
from fewtags.thresholds import decide

OVER_ALL = ("map", "cf1", "of1")


def made(images, tags=8, seed=0):
    """Scores and labels [images, K] by a known logistic model; tags are more and less frequent."""
    rng = np.random.default_rng(seed)
    x = rng.normal(-1, 1.5, (images, tags))
    truth = sigmoid(np.linspace(-2.5, -0.5, tags) + 1.7 * x)
    return sigmoid(x), (rng.random(truth.shape) < truth).astype(np.int8)


class Case:
    """Some labelled images and many to be tagged, and all that an estimate is made of."""

    def __init__(self, labelled=60, pool=600, tags=8, seed=0, names=None, prefer="balance", hidden=None):
        scores, labels = made(labelled + pool, tags, seed)
        self.scores, self.labels, self.pool = scores[:labelled], labels[:labelled], scores[labelled:]
        if hidden is not None:
            self.labels[:, hidden] = 0
        self.truth = labels[labelled:]
        self.fold = np.arange(labelled) % 5
        self.names, self.prefer, self.tags = names, prefer, [f"tag {number}" for number in range(tags)]
        known = (self.scores, self.labels)
        curves, self.thresholds = calibrated_thresholds(known, self.pool, givable_tags(self.labels, names), prefer)
        self.probabilities = curves(self.pool)
        self.held_out = out_of_fold_decisions(*known, self.fold, self.pool, prefer, names)

    def estimate(self, **changed):
        given = {
            "scores": self.scores,
            "labels": self.labels,
            "held_out": self.held_out,
            "thresholds": self.thresholds,
            "probabilities": self.probabilities,
            "tags": self.tags,
            "prefer": self.prefer,
            "how": "somehow",
            "names": self.names,
        }
        return estimate(**(given | changed))


def width(found, name="of1"):
    low, high = found["intervals"][name]
    return high - low


# --- what probabilities promise ----------------------------------------------------------------------------------


def test_what_probabilities_promise_is_the_mean_over_draws_of_labels():
    case = Case()
    found = expected_quality(case.probabilities, case.thresholds)
    rng = np.random.default_rng(0)
    given = case.probabilities >= case.thresholds
    drawn = rng.random((300, *case.probabilities.shape)) < case.probabilities
    np.testing.assert_allclose(found.given, given.mean(0))
    np.testing.assert_allclose(found.true, drawn.mean((0, 1)), rtol=0.05)
    np.testing.assert_allclose(found.precision, (drawn & given).sum((0, 1)) / (300 * given.sum(0)), rtol=0.05)
    np.testing.assert_allclose(found.recall, (drawn & given).sum((0, 1)) / drawn.sum((0, 1)), rtol=0.05)


def test_the_average_precision_to_expect_is_one_where_all_is_sure_and_the_share_where_nothing_is():
    sure = np.repeat([[1.0], [0.0]], [3, 7], axis=0)
    assert expected_quality(sure, np.array([0.5])).ap == pytest.approx([1.0])
    assert expected_quality(np.full((10, 1), 0.3), np.array([0.5])).ap == pytest.approx([0.3])


def test_a_tag_that_is_never_given_promises_neither_precision_nor_recall():
    found = expected_quality(np.full((10, 1), 0.3), np.array([np.inf]))
    assert (found.given[0], found.precision[0], found.recall[0]) == (0, 0, 0)


# --- decisions on images that were left out ----------------------------------------------------------------------


NAMES = NameThresholds(np.full(8, 0.7), np.arange(8) < 3)


@pytest.mark.parametrize("names", [None, NAMES], ids=["without names", "with names"])
@pytest.mark.parametrize("number", [0, 3])
def test_decisions_and_probabilities_of_an_image_have_no_part_of_its_own_label(number, names):
    case = Case()
    out = case.fold == number
    poisoned = np.where(out[:, None], 1 - case.labels, case.labels)
    ours, theirs = (
        out_of_fold_decisions(case.scores, one, case.fold, case.pool, "balance", names)
        for one in (case.labels, poisoned)
    )
    for clean, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(clean[out], other[out])
        assert (clean[~out] != other[~out]).any()


def test_decisions_out_of_fold_are_by_curves_and_thresholds_of_the_other_folds():
    case = Case(names=NAMES, prefer="recall")
    decisions, probabilities = case.held_out
    for number in range(5):
        out = case.fold == number
        rest = case.scores[~out], case.labels[~out]
        curves, thresholds = calibrated_thresholds(rest, case.pool, givable_tags(rest[1], NAMES), "recall")
        np.testing.assert_array_equal(probabilities[out], curves(case.scores[out]))
        np.testing.assert_array_equal(decisions[out], decide(probabilities[out], thresholds))
    assert set(np.unique(decisions)) == {0, 1}


def test_a_tag_that_only_one_fold_shows_is_not_given_in_it_unless_its_name_is_clear():
    scores, labels = made(60)
    labels[:, 7] = 0
    labels[[5, 10], 7] = 1  # both in the first fold
    scores[[5, 10], 7] = 0.999
    fold, clear = np.arange(60) % 5, NameThresholds(np.full(8, 0.7), np.ones(8, bool))
    plain, named = (out_of_fold_decisions(scores, labels, fold, scores, "recall", one)[0] for one in (None, clear))
    assert not plain[fold == 0, 7].any()
    assert named[fold == 0, 7].any()


# --- the estimate ------------------------------------------------------------------------------------------------


def test_an_estimate_is_ready_for_json_and_inside_its_own_intervals():
    found = Case(hidden=2).estimate()
    assert json.loads(json.dumps(found)) == found
    for name in OVER_ALL:
        low, high = found["intervals"][name]
        assert 0 <= low < found[name] < high <= 1
    for place, row in enumerate(found["per_tag"]):
        for name in FIGURES if place != 2 else ("ap",):
            low, high = row["intervals"][name]
            assert 0 <= low < row[name] < high <= 1


def test_an_estimate_says_what_it_was_made_of_and_where_it_knows_too_little():
    case = Case(prefer="recall")
    case.labels[:, 1] = 0
    case.labels[:3, 1] = 1
    found = case.estimate()
    assert (found["how"], found["prefer"], found["images"]) == ("somehow", "recall", 60)
    assert [row["tag"] for row in found["per_tag"]] == case.tags
    assert [row["support"] for row in found["per_tag"]] == (case.labels == 1).sum(0).tolist()
    assert [row["threshold"] for row in found["per_tag"]] == case.thresholds.tolist()
    assert not found["per_tag"][1]["enough"]
    assert found["per_tag"][7]["enough"]
    assert found["calibration_error"] == calibration_error(case.held_out[1], case.labels)


def test_the_errors_of_an_image_are_those_that_its_probabilities_expect():
    p, thresholds = np.array([[0.9, 0.1], [0.4, 0.6]], np.float32), np.array([0.5, np.inf])
    labels = np.array([[1, 0], [0, 1]], np.int8)
    found = estimate(p, labels, (decide(p, thresholds), p), thresholds, p, ["a", "b"], "balance", "somehow")
    assert found["wrong_per_image"] == pytest.approx(0.1 / 2)
    assert found["missing_per_image"] == pytest.approx((0.1 + 0.4 + 0.6) / 2)


def test_where_everything_is_right_the_intervals_still_have_a_width():
    rng = np.random.default_rng(0)
    labels = (rng.random((640, 3)) < 0.3).astype(np.int8)
    scores = np.where(labels == 1, 0.95, 0.05)
    known, pool, fold = (scores[:40], labels[:40]), scores[40:], np.arange(40) % 5
    curves, thresholds = calibrated_thresholds(known, pool, np.ones(3, bool), "balance")
    held_out = out_of_fold_decisions(*known, fold, pool, "balance")
    assert (held_out[0] == known[1]).all()
    found = estimate(*known, held_out, thresholds, curves(pool), list("abc"), "balance", "somehow")
    for name in OVER_ALL:
        assert 0.9 < found[name] < 1
        assert width(found, name) > 0.02
    for row in found["per_tag"]:
        assert all(low < high for low, high in row["intervals"].values())
        assert row["intervals"]["precision"][0] < 0.98


def test_fewer_labels_make_intervals_wider():
    few, many = (Case(labelled).estimate() for labelled in (30, 300))
    for name in OVER_ALL:
        assert width(few, name) > 1.5 * width(many, name)


def test_the_counts_of_left_out_images_move_a_figure_away_from_what_probabilities_promise():
    """All that was given was wrong, though probabilities promise otherwise."""
    case = Case(labelled=300)
    promised = case.estimate()
    wrong = case.estimate(labels=np.where(case.held_out[0] == 1, 0, case.labels))
    for row, other in zip(wrong["per_tag"], promised["per_tag"], strict=True):
        assert row["precision"] < other["precision"] / 2


def test_the_counts_of_a_tag_with_a_single_positive_are_left_out_unless_its_name_says_something():
    """The model that tagged its only image knew of none."""
    case = Case()
    case.labels[:, 0] = 0
    case.labels[5, 0] = 1
    missed, found = np.zeros_like(case.held_out[0]), np.zeros_like(case.held_out[0])
    found[5, 0] = 1

    def of_tag(decisions, names):
        row = case.estimate(held_out=(decisions, case.held_out[1]), names=names, thresholds=np.full(8, 0.4))
        return row["per_tag"][0]["recall"]

    assert of_tag(missed, None) == of_tag(found, None)
    assert of_tag(missed, NAMES) < of_tag(found, NAMES) - 0.05


def test_a_tag_that_is_never_given_counts_zero_precision_and_recall():
    case = Case(hidden=7)
    assert case.thresholds[7] == np.inf
    found = case.estimate()
    row = found["per_tag"][7]
    assert row["threshold"] is None
    for name in ("precision", "recall", "f1"):
        assert row[name] == 0
        assert row["intervals"][name] == [0, 0]
    assert row["ap"] > 0
    # the same images without the tag: the mean over tags has one zero less
    one_less = Case(hidden=7)
    keep = np.arange(8) < 7
    rest = one_less.estimate(
        scores=case.scores[:, keep],
        labels=case.labels[:, keep],
        held_out=tuple(one[:, keep] for one in case.held_out),
        thresholds=case.thresholds[keep],
        probabilities=case.probabilities[:, keep],
        tags=case.tags[:7],
    )
    assert found["cf1"] == pytest.approx(rest["cf1"] * 7 / 8, abs=0.02)


def test_a_shift_raises_every_figure_and_its_doubt_widens_the_intervals():
    case = Case(hidden=7)
    plain, raised, doubted = (case.estimate(shift=one) for one in ((0.0, 0.0), (0.5, 0.0), (0.0, 1.0)))
    for name in OVER_ALL:
        assert raised[name] > plain[name] + 0.03
        assert width(doubted, name) > 1.3 * width(plain, name)
    assert raised["per_tag"][7]["recall"] == 0  # what is never given stays so


def test_figures_over_all_tags_are_made_as_f1_scores_makes_them(monkeypatch):
    """Without any doubt of the probabilities, of which there are many, an estimate is what they promise."""
    for name in ("MISFIT", "OWN_MISFIT", "SAMPLE"):
        monkeypatch.setattr(module, name, 0.0)
    for name in ("WORTH", "AP_WORTH"):
        monkeypatch.setattr(module, name, 1e6)
    case = Case(pool=4000)
    found = case.estimate()
    drawn = (np.random.default_rng(0).random(case.probabilities.shape) < case.probabilities).astype(np.int8)
    expected = f1_scores(decide(case.probabilities, case.thresholds), drawn)
    for name in ("cf1", "of1"):
        assert found[name] == pytest.approx(expected[name], abs=0.02)


def test_errors_in_one_image_come_together_and_leave_a_doubt_that_no_probability_shows(monkeypatch):
    for name in ("MISFIT", "OWN_MISFIT"):
        monkeypatch.setattr(module, name, 0.0)
    for name in ("WORTH", "AP_WORTH"):
        monkeypatch.setattr(module, name, 1e6)
    few, many = (Case(labelled).estimate() for labelled in (30, 300))
    for name in OVER_ALL:
        assert width(few, name) > 0.1
        assert width(few, name) > 2 * width(many, name)


def test_an_estimate_is_of_some_of_many_images_to_be_tagged(monkeypatch):
    monkeypatch.setattr("fewtags.metrics.decisions.POOL", 100)
    case = Case()
    assert case.estimate() == case.estimate(probabilities=some_rows(case.probabilities))


def test_the_same_images_give_the_same_estimate():
    assert Case().estimate() == Case().estimate()


def test_the_truth_is_inside_the_intervals_as_often_as_they_promise():
    """Forty times forty labelled images of a known model; the intervals are not wide enough to hold everything."""
    inside, widths = 0, []
    for seed in range(40):
        case = Case(labelled=40, pool=1000, seed=seed)
        found = case.estimate()
        truth = f1_scores(decide(case.probabilities, case.thresholds), case.truth)["of1"]
        low, high = found["intervals"]["of1"]
        inside += low <= truth <= high
        widths.append(high - low)
    assert inside >= 0.85 * 40
    assert np.mean(widths) < 0.4


def test_an_interval_is_the_middle_95_of_100():
    assert interval(np.arange(1001.0)) == [25, 975]
