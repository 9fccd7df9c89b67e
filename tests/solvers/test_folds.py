"""Cross-fitting: folds in which every tag is spread evenly, and scores that never saw the label they are about."""

import numpy as np
import pytest
import torch

from fewtags.metrics import mean_average_precision
from fewtags.solvers import folds as crossfit
from fewtags.solvers.folds import STRENGTHS, balanced_folds, out_of_fold_scores, select_strength
from fewtags.solvers.regression import fit_regression


def single(*counts):
    """Targets [N, K] of images with one tag each, so many of every tag."""
    targets = np.zeros((sum(counts), len(counts)), np.int8)
    targets[np.arange(len(targets)), np.repeat(np.arange(len(counts)), counts)] = 1
    return targets


def held(targets, fold, folds=5):
    """How many positives of every tag each fold holds [folds, K]."""
    return np.stack([(targets[fold == number] == 1).sum(0) for number in range(folds)])


@pytest.mark.parametrize("seed", range(3))
def test_every_tag_is_spread_within_one_image(seed):
    targets = single(1, 3, 5, 12, 29)
    counts = held(targets, balanced_folds(targets, seed=seed))
    assert (counts.max(0) - counts.min(0)).tolist() == [1, 1, 0, 1, 1]


@pytest.mark.parametrize("shares", [(0.1, 0.3, 0.5, 0.7), (0.08, 0.12, 0.2, 0.9)])
def test_so_is_every_tag_of_images_with_several(shares):
    for seed in range(20):
        targets = (np.random.default_rng(seed).random((60, 4)) < shares).astype(np.int8)
        counts = held(targets, balanced_folds(targets))
        assert (counts.max(0) - counts.min(0)).max() <= 1


def test_images_without_any_tag_fill_up_the_folds():
    targets = np.concatenate([single(7, 4), np.zeros((20, 2), np.int8)])
    fold = balanced_folds(targets)
    sizes = np.bincount(fold, minlength=5)
    assert sizes.max() - sizes.min() <= 1
    counts = held(targets, fold)
    assert (counts.max(0) - counts.min(0)).tolist() == [1, 1]


def test_unknown_cells_are_not_counted_as_tags():
    targets = np.where(single(6, 9) == 1, 1, -1).astype(np.int8)
    np.testing.assert_array_equal(balanced_folds(targets), balanced_folds(single(6, 9)))


@pytest.mark.parametrize(("images", "used"), [(5, 5), (23, 5), (3, 3), (0, 0)])
def test_every_fold_is_used_where_there_are_images_enough(images, used):
    targets = (np.random.default_rng(1).random((images, 3)) < 0.5).astype(np.int8)
    fold = balanced_folds(targets)
    assert len(fold) == images
    assert len(np.unique(fold)) == used
    assert set(fold.tolist()) <= set(range(5))


def test_the_same_labels_give_the_same_folds_and_the_seed_others():
    targets = single(10, 20)
    np.testing.assert_array_equal(balanced_folds(targets), balanced_folds(targets))
    assert (balanced_folds(targets) != balanced_folds(targets, seed=1)).any()
    assert sorted(np.unique(balanced_folds(targets, count=3))) == [0, 1, 2]


def test_an_image_gets_the_score_of_the_model_that_did_not_see_its_fold():
    fold = torch.tensor([1, 0, 2, 0, 1])
    scores = [torch.arange(10.0).view(5, 2) + 100 * number for number in range(3)]
    assert out_of_fold_scores(fold, scores).tolist() == [[100, 101], [2, 3], [204, 205], [6, 7], [108, 109]]


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit(vectors):
    return vectors / vectors.square().sum(1).mean().sqrt()


def test_where_noise_is_louder_than_the_tags_a_strong_penalty_is_taken():
    """As many directions of noise as images: a weak penalty learns the noise by heart."""
    targets = (normal(60, 4, seed=1) > 0).to(torch.int8)
    vectors = normal(60, 45)
    vectors[:, :4] += 1.2 * (2 * targets - 1)
    assert select_strength(unit(vectors), targets, (0.0001, 1.0)).strength == 1.0
    assert select_strength(unit(vectors), targets).strength == max(STRENGTHS)


def test_where_the_tags_lie_in_a_faint_direction_a_weak_penalty_is_taken():
    """A loud direction that tells nothing, a faint one that tells all: only large weights can use it."""
    targets = (normal(60, 1, seed=1) > 0).to(torch.int8)
    vectors = torch.cat([normal(60, 1), 0.03 * (2 * targets - 1)], dim=1)
    tried = select_strength(unit(vectors), targets, (0.0001, 1.0))
    assert tried.strength == 0.0001
    assert tried.map == pytest.approx(1.0)
    assert select_strength(unit(vectors), targets).strength < max(STRENGTHS)


@pytest.mark.parametrize("strengths", [(0.01, 1.0, 0.1), (1.0, 0.1, 0.01)])
def test_of_equals_the_larger_strength_is_taken(strengths):
    targets = (normal(30, 1, seed=1) > 0).to(torch.int8)
    assert select_strength((2.0 * targets - 1).double(), targets, strengths) == (1.0, 1.0)


def test_a_figure_is_the_map_of_scores_without_their_own_labels():
    """Labels that have nothing to do with the vectors: learned by heart they would give an mAP of one."""
    targets, vectors = (normal(40, 3, seed=1) > 0).to(torch.int8), unit(normal(40, 80))
    by_heart = fit_regression(vectors, targets, 0.001).logits(vectors)
    assert mean_average_precision(by_heart, targets) == 1.0
    assert select_strength(vectors, targets, (0.001,)).map < 0.75


def test_poisoned_labels_of_a_fold_leave_its_scores_as_they_are(monkeypatch):
    """One more time where it is used; the search ends early, so that scores agree to its precision."""
    fold = np.arange(40) % 5
    monkeypatch.setattr(crossfit, "balanced_folds", lambda targets: fold)
    monkeypatch.setattr(crossfit.np.random, "default_rng", lambda seed: InOrder())
    seen = []
    monkeypatch.setattr(crossfit, "mean_average_precision", lambda scores, targets: seen.append(scores) or 0.5)
    targets, vectors = (normal(40, 3, seed=1) > 0).to(torch.int8), unit(normal(40, 10))
    out = torch.from_numpy(fold == 2)
    poisoned = torch.where(out[:, None], 1 - targets, targets)
    for labels in (targets, poisoned):
        select_strength(vectors, labels, (0.1,))
    clean, other = map(torch.from_numpy, seen)
    torch.testing.assert_close(clean[out], other[out], atol=0, rtol=0)
    assert float((clean[~out] - other[~out]).abs().max()) > 0.3


class InOrder:
    """A generator that leaves everything where it is."""

    def permutation(self, count):
        return np.arange(count)


def test_of_many_images_some_are_asked(monkeypatch):
    """The figure is that of the images asked, whatever the others say."""
    monkeypatch.setattr(crossfit, "MAX_LABELLED", 40)
    asked = torch.from_numpy(np.random.default_rng(0).permutation(100)[:40])
    targets, vectors = (normal(100, 2, seed=1) > 0).to(torch.int8), unit(normal(100, 10))
    vectors[asked, :2] = 2 * targets[asked].double() - 1
    assert select_strength(vectors, targets, (0.1,)).map > 0.95
    others = torch.ones(100, dtype=torch.bool).index_fill(0, asked, False)
    changed = torch.where(others[:, None], 1 - targets, targets)
    assert select_strength(vectors, changed, (0.1,)) == select_strength(vectors, targets, (0.1,))
