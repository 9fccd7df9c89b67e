"""Bootstrap figures against a plain loop over resampled images, and the paired bootstrap test."""

import itertools

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from fewtags.bench.significance import difference_interval, is_significant
from fewtags.metrics import f1_scores
from fewtags.metrics.bootstrap import RESAMPLES, bootstrap, sample_weights
from fewtags.metrics.bootstrap import bootstrap_figures as figures_of_samples
from fewtags.thresholds import decide


def bootstrap_figures(scores, truth, thresholds):
    return figures_of_samples(bootstrap(scores, truth, decide(scores, thresholds)))


def drawn_scores(images=40, tags=4, seed=0):
    rng = np.random.default_rng(seed)
    truth = (rng.random((images, tags)) < 0.3).astype(np.int8)
    scores = np.round(0.5 * truth + rng.random((images, tags)), 1)  # one digit: many ties
    return scores.astype(np.float32), truth, np.full(tags, 0.8)


def by_hand(scores, truth, thresholds):
    """Every sample written out: the rows repeated, scikit-learn's average precision, our own F1."""
    found = {"map": [], "cf1": [], "of1": []}
    for counts in sample_weights(len(scores)):
        rows = np.repeat(np.arange(len(scores)), counts)
        each = []
        for tag in range(truth.shape[1]):
            known = truth[rows, tag] >= 0
            if (truth[rows, tag] == 1).any():
                each.append(average_precision_score(truth[rows, tag][known], scores[rows, tag][known]))
        f1 = f1_scores(decide(scores[rows], thresholds), truth[rows])
        for name, value in (("map", np.mean(each) if each else np.nan), ("cf1", f1["cf1"]), ("of1", f1["of1"])):
            found[name].append(value)
    return {name: np.array(values) for name, values in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("unknown", [0.0, 0.2])
def test_every_sample_gives_what_a_loop_over_repeated_images_gives(unknown):
    scores, truth, thresholds = drawn_scores()
    truth[np.random.default_rng(1).random(truth.shape) < unknown] = -1
    ours, theirs = bootstrap_figures(scores, truth, thresholds), by_hand(scores, truth, thresholds)
    for name in ("map", "cf1", "of1"):
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-9, err_msg=name)


def test_a_tag_without_positives_in_a_sample_does_not_count_in_its_mean():
    scores, truth, thresholds = drawn_scores(images=12)
    truth[:, 0] = 0
    truth[3, 0] = 1
    missed = (sample_weights(12)[:, 3] == 0).sum()
    assert 0 < missed < RESAMPLES
    np.testing.assert_allclose(
        bootstrap_figures(scores, truth, thresholds)["map"], by_hand(scores, truth, thresholds)["map"]
    )


def test_samples_depend_on_the_number_of_images_alone():
    assert sample_weights(30).shape == (RESAMPLES, 30)
    assert (sample_weights(30) == sample_weights(30)).all()
    assert (sample_weights(30).sum(1) == 30).all()


def figures_of(noise, seed=0):
    """mAP of all samples for a model with scores of truth plus noise."""
    rng = np.random.default_rng(seed)
    truth = (np.random.default_rng(5).random((120, 5)) < 0.3).astype(np.int8)
    scores = truth + noise * rng.normal(size=truth.shape)
    return bootstrap_figures(scores, truth, np.full(5, 0.5))["map"]


def test_identical_runs_do_not_differ_significantly_and_clearly_different_ones_do():
    good, same, bad = ({seed: figures_of(noise, seed) for seed in (1, 2, 3)} for noise in (0.5, 0.5, 3.0))
    assert difference_interval(good, same) == (0.0, 0.0)
    assert not is_significant(good, same)
    assert is_significant(good, bad)
    assert is_significant(bad, good)
    low, high = difference_interval(good, bad)
    assert 0 < low < high


def test_with_one_seed_only_the_images_are_resampled():
    assert is_significant({1: figures_of(0.5)}, {1: figures_of(3.0)})
    assert not is_significant({1: figures_of(0.5, seed=1)}, {1: figures_of(0.5, seed=2)})


def test_the_interval_is_over_every_resample_of_seeds_and_every_sample_of_images():
    rng = np.random.default_rng(3)
    ours, theirs = ({seed: rng.normal(size=40) for seed in (1, 2, 3)} for _ in range(2))
    values = [ours[seed] - theirs[seed] for seed in (1, 2, 3)]
    means = [np.mean([values[one] for one in chosen], axis=0) for chosen in itertools.product(range(3), repeat=3)]
    assert difference_interval(ours, theirs) == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])))


def test_rounding_errors_around_zero_are_removed():
    base = np.array([70.1, 70.3, 70.7])
    ours = {seed: base + shift for seed, shift in ((1, 0.1), (2, 0.2), (3, -0.3))}
    theirs = {seed: base + shift for seed, shift in ((1, 0.0), (2, 0.1), (3, -0.1))}
    low, high = difference_interval(ours, theirs)  # +0.1, +0.1, -0.2: the median of the 27 resamples is zero
    assert (low, high) == (-0.2, 0.1)
    assert difference_interval({1: base + 0.1, 2: base}, {1: base, 2: base})[0] == 0.0


def test_many_seeds_are_resampled_at_random():
    flat = np.zeros(10)
    low, high = difference_interval({seed: flat + seed for seed in range(8)}, dict.fromkeys(range(8), flat))
    spread = np.std(range(8)) / np.sqrt(8)
    assert (low, high) == pytest.approx((3.5 - 1.96 * spread, 3.5 + 1.96 * spread), abs=0.15)


def test_a_difference_that_seeds_disagree_about_is_not_significant():
    flat = np.zeros(100)
    assert not is_significant({1: flat + 5, 2: flat - 5, 3: flat + 1}, dict.fromkeys((1, 2, 3), flat))


def test_only_common_seeds_are_compared_and_without_any_nothing_is_significant():
    flat = np.zeros(100)
    ours, theirs = {1: flat + 1, 2: flat - 9}, {1: flat, 3: flat}
    assert difference_interval(ours, theirs) == (1.0, 1.0)
    assert difference_interval({2: flat}, {3: flat}) is None
    assert not is_significant({2: flat + 50}, {3: flat})
