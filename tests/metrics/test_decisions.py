"""Thresholds on probabilities: those that maximise the expected F, and what no image gets."""

import numpy as np
import pytest

from fewtags.metrics import decisions as module
from fewtags.metrics.calibration import fit_calibration
from fewtags.metrics.decisions import (
    BETAS,
    LEAST_SURE,
    LOWEST,
    best_threshold,
    calibrated_thresholds,
    choose_thresholds,
    some_rows,
    thresholds_of_learned,
)

PREFERENCES = ("precision", "balance", "recall")


def probabilities(*means, images=200, seed=0):
    """[images, K] of tags that are so frequent: most cells are low, a few high."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.beta(0.4 * mean / (1 - mean), 0.4, images) for mean in means], axis=1)


def expected_f(cells, given, beta):
    """(1 + β²) times the hits to expect, over the cells that are given and β² times those that are true."""
    return (1 + beta**2) * cells[given].sum() / (given.sum() + beta**2 * cells.sum())


# --- one threshold -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("mean", [0.02, 0.2, 0.6])
def test_no_cut_is_expected_to_be_better_than_the_best_threshold(beta, mean):
    cells = probabilities(mean)[:, 0]
    threshold = best_threshold(cells, beta)
    best = max(expected_f(cells, cells >= cut, beta) for cut in cells)
    assert expected_f(cells, cells >= threshold, beta) == pytest.approx(best)
    assert threshold == pytest.approx(best / (1 + beta**2))


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_the_expected_f_is_the_mean_over_draws_of_labels(beta):
    cells = probabilities(0.3, images=1500)[:, 0]
    threshold = best_threshold(cells, beta)
    rng = np.random.default_rng(0)
    drawn = rng.random((200, 1500)) < cells
    given = cells >= threshold
    found = (1 + beta**2) * drawn[:, given].sum(1) / (given.sum() + beta**2 * drawn.sum(1))
    assert threshold * (1 + beta**2) == pytest.approx(found.mean(), abs=0.01)


def test_cells_that_are_all_zero_have_a_threshold():
    assert best_threshold(np.zeros(3, np.float32), 1.0) == 0.0


# --- one per tag -------------------------------------------------------------------------------------------------


ALL = np.ones(4, bool)


def surest(p, least):
    """Halfway below the lowest cut of a tag [M] at which the images that get it have a mean probability of `least`."""
    cut = min((float(one) for one in p if p[p >= one].astype(np.float64).mean() >= least), default=np.inf)
    return cut if cut == np.inf else (cut + max((float(one) for one in p if one < cut), default=0.0)) / 2


@pytest.mark.parametrize("prefer", PREFERENCES)
def test_a_threshold_is_the_tags_own_within_bounds_that_the_common_one_sets(prefer):
    p = probabilities(0.02, 0.1, 0.4, 0.7)
    common = best_threshold(p.ravel(), BETAS[prefer])
    found = choose_thresholds(p, ALL, prefer)
    assert (found >= LOWEST * common).all()
    for tag, threshold in enumerate(found):
        own = best_threshold(p[:, tag], BETAS[prefer])
        within = np.clip(own, LOWEST * common, common)
        assert threshold == pytest.approx(max(within, surest(p[:, tag], LEAST_SURE * common)))


def test_no_threshold_is_far_below_the_common_one_though_a_tags_own_f_would_have_it_there():
    """A tag that many images may show a little, beside one that is sure."""
    faint = np.repeat([0.99, 0.28, 0.05], [12, 12, 1000])
    sure = np.repeat([1.0, 0.0], [200, 824])
    both = np.stack([faint, sure], axis=1)
    common = best_threshold(both.ravel(), 1.0)
    assert best_threshold(faint, 1.0) < 0.28 < LOWEST * common
    assert faint[:24].mean() > LEAST_SURE * common
    assert choose_thresholds(both, ALL[:2]).tolist() == [LOWEST * common, common]


def test_a_tag_is_given_to_as_few_images_as_make_it_probable_enough_in_the_mean():
    """Far more unsure images than sure ones: by its own F the tag would be given to all of them."""
    p = np.concatenate([np.full(5, 0.9), np.linspace(0.42, 0.4, 95)])
    sure = np.repeat([1.0, 0.0], [40, 60])
    both = np.stack([p, sure], axis=1)
    common = best_threshold(both.ravel(), 1.0)
    (found, other) = choose_thresholds(both, ALL[:2])
    assert best_threshold(p, 1.0) < common
    given = p >= found
    assert p[given].mean() >= LEAST_SURE * common > np.append(p[given], p[~given].max()).mean()
    assert 5 < given.sum() < 95
    assert other <= common


def test_a_tag_of_which_nothing_is_sure_is_given_to_none():
    p = probabilities(0.2, 0.3, 0.2, 0.3)
    p[:, 2] = np.linspace(0, 0.15, len(p))
    found = choose_thresholds(p, ALL)
    assert found[2] == np.inf
    assert np.isfinite(found[[0, 1, 3]]).all()


def test_a_tag_that_is_not_givable_is_given_to_none_and_plays_no_part():
    p = probabilities(0.1, 0.2, 0.3, 0.4)
    found = choose_thresholds(p, np.array([True, True, False, True]))
    assert found[2] == np.inf
    assert found[[0, 1, 3]].tolist() == choose_thresholds(p[:, [0, 1, 3]], ALL[:3]).tolist()


@pytest.mark.parametrize(("p", "givable"), [(np.empty((0, 2)), [True, True]), (probabilities(0.1, 0.5), [False] * 2)])
def test_without_images_or_givable_tags_nothing_is_given(p, givable):
    assert choose_thresholds(p, np.array(givable)).tolist() == [np.inf, np.inf]


def test_who_prefers_recall_gets_all_that_others_get_and_more():
    p = probabilities(0.02, 0.1, 0.4, 0.7)
    precision, balance, recall = (p >= choose_thresholds(p, ALL, prefer) for prefer in PREFERENCES)
    assert (precision <= balance).all()
    assert (balance <= recall).all()
    assert precision.sum() < balance.sum() < recall.sum()


# --- with curves -------------------------------------------------------------------------------------------------


def held_out(images=60, seed=0):
    rng = np.random.default_rng(seed)
    labels = (rng.random((images, 3)) < 0.3).astype(np.int8)
    return np.clip(0.3 * labels + 0.6 * rng.random((images, 3)), 0.01, 0.99), labels


@pytest.mark.parametrize("prefer", PREFERENCES)
def test_thresholds_are_of_the_calibrated_probabilities_of_the_pool(prefer):
    scores, labels = held_out()
    pool, givable = held_out(300, seed=1)[0], np.array([True, False, True])
    curves, thresholds = calibrated_thresholds((scores, labels), pool, givable, prefer)
    expected = fit_calibration(scores, labels, pool)
    np.testing.assert_array_equal(curves.slope, expected.slope)
    np.testing.assert_array_equal(curves.offset, expected.offset)
    np.testing.assert_array_equal(thresholds, choose_thresholds(expected(pool), givable, prefer))


def test_without_images_to_tag_the_labelled_ones_stand_for_them():
    scores, labels = held_out()
    found, expected = (
        calibrated_thresholds((scores, labels), pool, ALL[:3], "balance") for pool in (scores[:0], scores)
    )
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[0].offset, expected[0].offset)


def test_of_a_large_pool_the_same_rows_are_taken_every_time(monkeypatch):
    monkeypatch.setattr(module, "POOL", 10)
    pool = np.arange(60).reshape(30, 2)
    found = some_rows(pool)
    assert len(found) == 10
    assert (np.diff(found[:, 0]) > 0).all()  # each at most once, in their order
    np.testing.assert_array_equal(some_rows(pool), found)
    np.testing.assert_array_equal(some_rows(pool + 7), found + 7)
    np.testing.assert_array_equal(some_rows(pool[:10]), pool[:10])


def test_curves_and_thresholds_are_fitted_on_some_of_a_large_pool(monkeypatch):
    scores, labels = held_out()
    pool = held_out(300, seed=1)[0]
    monkeypatch.setattr(module, "POOL", 100)
    some = some_rows(pool)
    found, expected = (calibrated_thresholds((scores, labels), one, ALL[:3], "balance") for one in (pool, some))
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[0].slope, expected[0].slope)


# --- where no labelled image was left out ------------------------------------------------------------------------


@pytest.mark.parametrize(("prefer", "beta"), [("precision", 0.5), ("balance", 1), ("recall", 2)])
def test_thresholds_of_learned_images_maximise_the_textbooks_f_beta(prefer, beta):
    scores, labels = held_out(100)

    def quality(threshold, tag):
        given = scores[:, tag] > threshold
        hits, true = (given & (labels[:, tag] == 1)).sum(), (labels[:, tag] == 1).sum()
        return (1 + beta**2) * hits / max(beta**2 * true + given.sum(), 1)

    for tag, threshold in enumerate(thresholds_of_learned(scores, labels, prefer)):
        below = np.nextafter(threshold, -1)  # a score that reaches the threshold is given
        assert quality(below, tag) == pytest.approx(max(quality(cut, tag) for cut in [-1, *scores[:, tag]]))


def test_without_a_labelled_image_no_threshold_is_chosen():
    found = thresholds_of_learned(np.empty((0, 3), np.float32), np.empty((0, 3), np.int8), "balance")
    assert found.tolist() == [np.inf] * 3
    assert found.dtype == np.float32
