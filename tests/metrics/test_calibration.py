"""Curves from scores to probabilities: what many labels know of a tag, what all tags know of one with few."""

import json

import numpy as np
import pytest

from fewtags.metrics import average_precision, calibration_error
from fewtags.metrics.calibration import OUTER_EDGE, Calibration, fit_calibration, logit, sigmoid


def made(slopes, offsets, images, seed=0, centre=-1.0, spread=2.0):
    """Scores and labels [images, K] of tags whose curves are known, and the true probabilities."""
    rng = np.random.default_rng(seed)
    x = rng.normal(centre, spread, (images, len(slopes)))
    truth = sigmoid(np.array(offsets) + np.array(slopes) * x)
    return sigmoid(x), (rng.random(truth.shape) < truth).astype(np.int8), truth


# --- one curve ---------------------------------------------------------------------------------------------------


def test_a_curve_is_a_line_in_log_odds():
    curve = Calibration(np.array([2.0, 0.5]), np.array([-1.0, 0.3]))
    found = curve(np.array([[0.2, 0.9]]))
    odds = np.exp(-1.0) * (0.2 / 0.8) ** 2, np.exp(0.3) * (0.9 / 0.1) ** 0.5
    np.testing.assert_allclose(found, [[odds[0] / (1 + odds[0]), odds[1] / (1 + odds[1])]], rtol=1e-6)
    assert found.dtype == np.float32


def test_scores_at_the_ends_stay_probabilities():
    found = Calibration(np.array([1.0]), np.array([0.0]))(np.array([[0.0], [1.0]]))
    np.testing.assert_allclose(found, [[OUTER_EDGE], [1 - OUTER_EDGE]], rtol=1e-3)


def test_the_pairs_of_a_curve_are_ready_for_json():
    curve = Calibration(np.array([2.0, 0.5]), np.array([-1.0, 0.25]))
    assert json.loads(json.dumps(curve.pairs())) == [[2.0, -1.0], [0.5, 0.25]]


def test_log_odds_and_probabilities_undo_each_other():
    x = np.array([-8.0, -1.0, 0.0, 3.0])
    np.testing.assert_allclose(logit(sigmoid(x)), x, atol=1e-9)
    np.testing.assert_allclose(logit(np.array([0.0, 1.0]), 0.01), logit(np.array([0.01, 0.99])))


# --- curves of many tags -----------------------------------------------------------------------------------------


def test_many_images_tell_every_tag_its_own_curve():
    slopes, offsets = [0.6, 1.0, 1.5, 2.5], [-1.0, 0.0, 1.0, 0.5]
    scores, labels, truth = made(slopes, offsets, 4000)
    found = fit_calibration(scores, labels, scores)
    np.testing.assert_allclose(found.slope, slopes, rtol=0.2)
    np.testing.assert_allclose(found.offset, offsets, atol=0.35)
    assert np.abs(found(scores) - truth).mean() < 0.02


def with_a_rare_tag(slope, positive=0, rare=(-4.0, 1.0)):
    """Six tags with one curve and many positives, and a seventh that a single image shows."""
    scores, labels, _ = made([slope] * 7, [-1.0] * 7, 300)
    pool, *_ = made([slope] * 7, [-1.0] * 7, 2000, seed=5)
    scores[:, 6] = sigmoid(np.random.default_rng(1).normal(*rare, 300))
    pool[:, 6] = sigmoid(np.random.default_rng(2).normal(*rare, 2000))
    labels[:, 6] = 0
    labels[positive, 6] = 1
    return scores, labels, pool


def test_a_tag_with_one_positive_follows_the_curve_of_the_others():
    steep, flat = (fit_calibration(*with_a_rare_tag(slope)).slope for slope in (2.5, 0.5))
    assert steep[:6].mean() > 2
    assert flat[:6].mean() < 0.7
    assert steep[6] > 1.6 * flat[6]


def test_where_the_only_positive_of_a_tag_was_ranked_changes_nothing():
    """The model that scored it knew of none."""
    scores, *_ = with_a_rare_tag(2.0)
    order = np.argsort(scores[:, 6])
    lowest, highest = (fit_calibration(*with_a_rare_tag(2.0, positive=order[end])) for end in (0, -1))
    np.testing.assert_array_equal(lowest.slope, highest.slope)
    np.testing.assert_array_equal(lowest.offset, highest.offset)


def test_where_two_positives_of_a_tag_were_ranked_changes_its_curve():
    scores, *_ = with_a_rare_tag(2.0)
    order = np.argsort(scores[:, 6])
    lowest, highest = (fit_calibration(*with_a_rare_tag(2.0, positive=order[rows])) for rows in ([0, 1], [-1, -2]))
    assert highest.slope[6] > lowest.slope[6] + 0.1


@pytest.mark.parametrize("centre", [-5.0, -1.0], ids=["all scores are low", "all scores are high"])
def test_the_probabilities_of_a_rare_tag_come_near_to_what_labels_show_of_it(centre):
    scores, labels, pool = with_a_rare_tag(2.0, rare=(centre, 1.0))
    found = fit_calibration(scores, labels, pool)
    common = sigmoid(found.offset[:6].mean() + found.slope[:6].mean() * logit(pool[:, 6])).mean()
    share = found(pool)[:, 6].mean()
    # one of 300 labelled images shows it; the curve of the others says a fourteenth of that, or 24 times as much
    assert abs(np.log(common * 300)) > 2.5
    assert abs(np.log(share * 300)) < 0.7 * abs(np.log(common * 300))


def test_the_probabilities_of_common_tags_add_up_to_what_labels_show_of_them():
    scores, labels, _ = made([0.7, 1.0, 2.0], [0.0, -1.5, -1.0], 1000)
    pool, *_ = made([0.7, 1.0, 2.0], [0.0, -1.5, -1.0], 3000, seed=1)
    np.testing.assert_allclose(fit_calibration(scores, labels, pool)(pool).mean(0), labels.mean(0), rtol=0.1)


@pytest.mark.parametrize("moved", [-1.5, 1.5])
def test_a_pool_on_another_scale_pulls_the_curves_towards_it(moved):
    """The final model learned from more labels than those that scored the labelled images."""
    scores, labels, _ = made([1.5] * 5, [-1.0] * 5, 60)
    pool, *_ = made([1.5] * 5, [-1.0] * 5, 2000, seed=1)
    pool = sigmoid(logit(pool) + moved)
    share = labels.mean()
    tied, untied = (fit_calibration(scores, labels, one)(pool).mean() for one in (pool, scores))
    assert abs(tied - share) < 0.8 * abs(untied - share)


def test_curves_rise_so_that_order_and_average_precision_stay():
    scores, labels, _ = made([0.6, 1.0, 2.0], [-1.0, 0.0, 1.0], 80)
    labels[:, 1] = 1 - labels[:, 1]  # ranked upside down
    found = fit_calibration(scores, labels, scores)
    assert (found.slope > 0).all()
    np.testing.assert_array_equal(np.argsort(found(scores), axis=0), np.argsort(scores, axis=0))
    np.testing.assert_array_equal(average_precision(found(scores), labels), average_precision(scores, labels))


def test_unknown_cells_play_no_part():
    scores, labels, _ = made([1.0, 2.0], [-1.0, 0.0], 80)
    pool, *_ = made([1.0, 2.0], [-1.0, 0.0], 200, seed=1)
    labels[50:] = -1
    labels[:5, 0] = -1
    other = np.where(labels < 0, 1 - scores, scores)
    found, again, cut = (
        fit_calibration(*given, pool) for given in ((scores, labels), (other, labels), (scores[:50], labels[:50]))
    )
    np.testing.assert_array_equal(found.slope, again.slope)
    np.testing.assert_array_equal(found.offset, again.offset)
    np.testing.assert_array_equal(found.slope, cut.slope)


def test_a_tag_that_no_label_shows_is_improbable_everywhere():
    scores, labels, _ = made([1.5] * 4, [-1.0] * 4, 1000)
    labels[:, 3] = 0
    found = fit_calibration(scores, labels, scores)(scores).mean(0)
    assert found[3] < found[:3].min() / 4


@pytest.mark.parametrize("value", [0, -1])
def test_without_any_positive_there_still_are_curves(value):
    scores, labels, _ = made([1.0, 1.0], [0.0, 0.0], 20)
    found = fit_calibration(scores, np.full_like(labels, value), scores)
    assert np.isfinite(found.offset).all()
    assert (found.slope > 0).all()


# --- how far probabilities are from the truth --------------------------------------------------------------------


def error_by_hand(probabilities, labels, low):
    """Bin by bin: the share of cells times the distance of the means."""
    cells = [
        (float(p), int(label))
        for p, label in zip(probabilities.ravel(), labels.ravel(), strict=True)
        if label >= 0 and p >= low
    ]
    total = 0.0
    for number in range(10):
        of_bin = [(p, label) for p, label in cells if min(int(p * 10), 9) == number]
        if of_bin:
            mean, share = (sum(column) / len(of_bin) for column in zip(*of_bin, strict=True))
            total += len(of_bin) / len(cells) * abs(mean - share)
    return total


@pytest.mark.parametrize("low", [0.0, 0.2, 0.65])
def test_the_calibration_error_is_the_mean_distance_over_bins(low):
    rng = np.random.default_rng(0)
    probabilities, labels = rng.random((60, 5)), rng.integers(-1, 2, (60, 5))
    labels[probabilities >= 0.9] = 1
    probabilities[0], labels[0] = 1.0, 0  # these belong to the last bin, too
    assert calibration_error(probabilities, labels, low) == pytest.approx(error_by_hand(probabilities, labels, low))


def test_cells_below_the_lowest_bin_do_not_hide_errors_among_the_others():
    probabilities, labels = np.array([[0.9], [0.1], [0.1]]), np.array([[0], [0], [0]])
    assert calibration_error(probabilities, labels) == pytest.approx(0.9)
    assert calibration_error(probabilities, labels, 0.0) == pytest.approx(1.1 / 3)


@pytest.mark.parametrize("labels", [[[-1], [-1]], [[-1], [1]]], ids=["all unknown", "the known one too low"])
def test_without_a_cell_there_is_no_calibration_error(labels):
    assert calibration_error(np.array([[0.9], [0.1]]), np.array(labels)) is None


def test_probabilities_that_labels_were_drawn_from_have_a_small_error():
    _, labels, truth = made([1.0, 2.0], [0.0, -1.0], 4000)
    assert calibration_error(truth, labels) < 0.02
    assert calibration_error(np.sqrt(truth), labels) > 0.1
