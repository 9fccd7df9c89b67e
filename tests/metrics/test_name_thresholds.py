"""Thresholds of tags by their names: as many images as show a tag clearly, and chosen ones shrunk towards one half."""

import json
import math

import numpy as np
import pytest

from fewtags.metrics import f1_scores
from fewtags.metrics.estimate import (
    NameThresholds,
    estimate,
    out_of_fold_decisions,
    tagging_thresholds,
    thresholds_by_name,
    thresholds_for,
)
from fewtags.thresholds import decide


def seen(*clear, images=10):
    """Evidence [images, K]: so many images show each tag clearly, the others next to nothing."""
    rng = np.random.default_rng(0)
    found = rng.uniform(0, 0.05, (images, len(clear)))
    for tag, count in enumerate(clear):
        found[rng.permutation(images)[:count], tag] = 0.5
    return found


def ranked(images=10, tags=3, low=0.5, high=0.95):
    """Scores [images, K], no two of a tag alike."""
    rng = np.random.default_rng(1)
    return np.stack([rng.permutation(np.linspace(low, high, images)) for _ in range(tags)], axis=1)


@pytest.mark.parametrize(("prefer", "counts"), [("balance", (3, 1)), ("precision", (2, 1)), ("recall", (6, 2))])
def test_as_many_images_get_a_tag_as_show_its_classes_clearly(prefer, counts):
    scores = ranked(tags=2)
    found = thresholds_by_name(scores, seen(3, 1), prefer)
    assert tuple((scores >= found.alone).sum(0)) == counts
    assert found.named.all()


def test_a_tag_that_no_image_shows_is_given_to_none_however_it_is_ranked():
    found = thresholds_by_name(ranked(tags=2), seen(0, 2), "recall")
    assert found.alone[0] == np.inf
    assert np.isfinite(found.alone[1])
    assert found.named.tolist() == [True, True]


def test_evidence_that_is_the_same_everywhere_says_nothing():
    evidence = seen(2, 2)
    evidence[:, 1] = -0.001
    found = thresholds_by_name(ranked(tags=2), evidence, "balance")
    assert found.named.tolist() == [True, False]
    assert found.alone[1] == np.inf


def test_no_image_below_one_half_is_given_a_tag_by_its_name():
    scores = ranked(tags=1, low=0.1, high=0.6)
    found = thresholds_by_name(scores, seen(8), "balance")
    assert found.alone[0] == 0.5
    assert 0 < (scores >= 0.5).sum() < 8


def test_no_more_images_are_wanted_than_there_are():
    scores = ranked(images=4, tags=1)
    found = thresholds_by_name(scores, seen(4, images=4), "recall")
    assert found.alone[0] == scores.min()


def test_the_mark_of_a_clear_image_counts():
    evidence = np.array([[0.08], [0.0799], [0.01]])
    scores = np.array([[0.9], [0.8], [0.7]])
    assert thresholds_by_name(scores, evidence, "balance").alone.tolist() == [0.9]


# --- beside thresholds that labels chose -------------------------------------------------------------------------


def logit(p):
    return math.log(p / (1 - p))


@pytest.mark.parametrize("positives", [1, 2, 5, 100])
@pytest.mark.parametrize("chosen", [0.01, 0.3, 0.5, 0.9])
def test_the_logit_of_a_threshold_is_shrunk_by_two_images_worth(chosen, positives):
    names = NameThresholds(np.array([0.7]), np.array([True]))
    (found,) = names.beside(np.array([chosen]), np.array([positives]))
    assert logit(found) == pytest.approx(logit(chosen) * positives / (positives + 2), abs=1e-9)


def test_thresholds_of_nameless_tags_stay_and_tags_without_positives_go_by_name():
    names = NameThresholds(np.array([0.7, 0.8, np.inf, 0.6]), np.array([False, True, True, True]))
    chosen = np.array([0.2, np.inf, np.inf, 0.1], np.float32)
    found = names.beside(chosen, np.array([1, 0, 0, 2]))
    assert found.dtype == np.float32
    assert found[:3].tolist() == pytest.approx([0.2, 0.8, np.inf])
    assert found[3] == pytest.approx(1 / (1 + 3), rel=1e-5)  # half of the logit of 0.1


@pytest.mark.parametrize("chosen", [0.0, 1.0, 1.5])
def test_thresholds_at_the_ends_stay_thresholds(chosen):
    names = NameThresholds(np.array([0.7]), np.array([True]))
    (found,) = names.beside(np.array([chosen]), np.array([50]))
    assert 0 < found < 1


# --- the estimate ------------------------------------------------------------------------------------------------


def drawn(images=60, tags=3):
    rng = np.random.default_rng(0)
    truth = (rng.random((images, tags)) < 0.3).astype(np.int8)
    truth[:, 2] = 0
    truth[7, 2] = 1  # in a single fold
    return 0.4 * np.clip(0.4 * truth + 0.6 * rng.random((images, tags)), 0, 1), truth  # thresholds far from one half


NAMES = NameThresholds(np.array([0.7, 0.7, 0.9]), np.array([True, False, True]))


def test_decisions_out_of_fold_are_corrected_by_the_positives_of_the_other_folds():
    scores, truth = drawn()
    fold = np.arange(60) % 5
    found = out_of_fold_decisions(scores, truth, fold, "balance", NAMES)
    for number in range(5):
        out = fold == number
        chosen = thresholds_for(scores[~out], truth[~out], "balance")
        assert np.isfinite(chosen[2]) == (number != 2)  # the fold of image 7 leaves the others without
        expected = NAMES.beside(chosen, (truth[~out] == 1).sum(0))
        assert (found[out] == decide(scores[out], expected)).all()
    plain = out_of_fold_decisions(scores, truth, fold, "balance")
    assert (plain[:, 0] != found[:, 0]).any()
    assert (plain[:, 1] == found[:, 1]).all()  # its name says nothing


def test_the_decision_on_an_image_has_no_part_of_its_own_label_with_names_either():
    scores, truth = drawn()
    fold = np.arange(60) % 5
    poisoned = np.where((fold == 2)[:, None], 1 - truth, truth)
    ours, theirs = (out_of_fold_decisions(scores, one, fold, "balance", NAMES) for one in (truth, poisoned))
    assert (ours[fold == 2] == theirs[fold == 2]).all()
    assert (ours[fold != 2] != theirs[fold != 2]).any()


def test_an_estimate_is_of_decisions_with_names():
    scores, truth = drawn()
    fold, tags = np.arange(60) % 5, ["a", "b", "c"]
    thresholds = NAMES.beside(thresholds_for(scores, truth, "balance"), (truth == 1).sum(0))
    found = estimate(scores, truth, fold, thresholds, tags, "balance", "somehow", NAMES)
    assert json.loads(json.dumps(found)) == found
    decisions = out_of_fold_decisions(scores, truth, fold, "balance", NAMES)
    assert found["of1"] == f1_scores(decisions, truth)["of1"]
    assert found["of1"] != estimate(scores, truth, fold, thresholds, tags, "balance", "somehow")["of1"]


def test_without_a_labelled_image_no_threshold_is_chosen():
    nothing = np.empty((0, 3), np.float32), np.empty((0, 3), np.int8)
    found = tagging_thresholds(None, nothing, "balance")
    assert found.tolist() == [np.inf] * 3
    assert NAMES.beside(found, np.zeros(3, int)).tolist() == pytest.approx([0.7, 0.7, 0.9])
