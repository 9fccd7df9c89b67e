"""Cross-fitting: folds in which every tag is spread evenly, scores that never saw their label, choices by them."""

import numpy as np
import pytest
import torch

from fewtags.metrics import average_precision, mean_average_precision
from fewtags.solvers import folds as crossfit
from fewtags.solvers.folds import (
    FEW,
    REPEATS,
    STRENGTHS,
    SURE,
    balanced_folds,
    choose_paired,
    cross_validated,
    out_of_fold_scores,
    repeats,
    select_strength,
)
from fewtags.solvers.regression import fit_regression, principal_basis


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


# --- images that share a fold ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_images_of_a_group_share_a_fold(seed):
    targets = (np.random.default_rng(seed).random((60, 4)) < 0.2).astype(np.int8)
    groups = np.random.default_rng(seed + 10).integers(0, 25, 60)
    fold = balanced_folds(targets, seed=seed, groups=groups)
    for number in np.unique(groups):
        assert len(np.unique(fold[groups == number])) == 1
    assert len(np.unique(fold)) == 5


def test_the_tags_of_groups_are_spread_over_the_folds():
    """Ten pairs show a tag, one image of a pair each; ten others show none."""
    targets = np.zeros((40, 1), np.int8)
    targets[:20:2] = 1
    counts = held(targets, balanced_folds(targets, groups=np.arange(40) // 2))
    assert counts.tolist() == [[2]] * 5


def test_unknown_cells_of_a_group_are_not_counted_as_tags():
    targets, groups = single(6, 9, 15), np.arange(30) // 2
    unknown = np.where(targets == 1, 1, -1).astype(np.int8)
    np.testing.assert_array_equal(balanced_folds(unknown, groups=groups), balanced_folds(targets, groups=groups))


@pytest.mark.parametrize("numbers", [np.arange(30), 1000 - 7 * np.arange(30)], ids=["in order", "any numbers"])
def test_groups_of_one_image_are_spread_as_images_are(numbers):
    targets = single(10, 20)
    counts = held(targets, balanced_folds(targets, groups=numbers))
    assert (counts == [2, 4]).all()


# --- choices -----------------------------------------------------------------------------------------------------


def tags_of(mean, *away):
    """The average precision [1, K] of tags around a mean."""
    return mean + np.array([away])


def test_a_candidate_that_leads_on_every_tag_is_taken():
    tried = {"usual": tags_of(0.5, 0, 0.1, 0.2), "other": tags_of(0.51, 0, 0.1, 0.2), "worse": tags_of(0.4, 0, 0, 0)}
    assert choose_paired(tried, "usual") == "other"


def test_where_a_lead_may_be_chance_the_default_stays():
    usual, by_chance = tags_of(0.5, 0, 0, 0, 0), tags_of(0.51, 0.2, -0.2, 0.1, -0.1)
    assert choose_paired({"usual": usual, "other": by_chance}, "usual") == "usual"
    assert choose_paired({"usual": usual, "other": by_chance}, "other") == "other"


@pytest.mark.parametrize("sure", [None, 0.3, 2.0])
def test_a_lead_must_exceed_so_many_standard_errors(sure):
    away = np.array([0.2, -0.2, 0.2, -0.2])
    enough = (SURE if sure is None else sure) * away.std(ddof=1) / 2  # of four tags
    how = {} if sure is None else {"sure": sure}
    for lead, expected in ((0.99 * enough, "usual"), (1.01 * enough, "other")):
        tried = {"usual": np.zeros((1, 4)), "other": (away + lead)[None]}
        assert choose_paired(tried, "usual", **how) == expected


def test_repeats_are_averaged_before_tags_are_compared():
    """Two repeats that disagree about every tag, and agree in the mean."""
    noise = np.array([[0.3, -0.3, 0.3], [-0.3, 0.3, -0.3]])
    tried = {"usual": np.zeros((2, 3)), "other": noise + np.array([0.01, 0.012, 0.011])}
    assert choose_paired(tried, "usual") == "other"


def test_tags_that_no_image_shows_are_left_out():
    usual, other = tags_of(0.5, 0, 0.1, 0.2, np.nan), tags_of(0.6, 0, 0.1, 0.2, np.nan)
    assert choose_paired({"usual": usual, "other": other}, "usual") == "other"
    assert choose_paired({"usual": other, "other": usual}, "usual") == "usual"


def test_a_single_tag_decides_nothing():
    assert choose_paired({"usual": tags_of(0.1, 0), "other": tags_of(0.9, 0)}, "usual") == "usual"
    one_known = tags_of(0.1, 0, np.nan), tags_of(0.9, 0, np.nan)
    assert choose_paired(dict(zip(("usual", "other"), one_known, strict=True)), "usual") == "usual"


def test_of_candidates_that_are_the_same_the_default_is_taken():
    same = tags_of(0.5, 0, 0.1)
    for default in ("a", "b", "c"):
        assert choose_paired({"a": same, "b": same, "c": same}, default) == default


def test_few_labelled_images_are_put_into_folds_several_times():
    assert [repeats(count) for count in (30, FEW - 1, FEW, 5000)] == [REPEATS, REPEATS, 1, 1]


def test_cross_validation_is_the_average_precision_of_scores_without_their_own_labels():
    targets = (normal(40, 3, seed=1) > 0).to(torch.int8)
    targets[:6, 1] = -1
    vectors = unit(normal(40, 8) + 0.5 * targets[:, :1])
    found = cross_validated(principal_basis(vectors), targets, 0.1)
    assert found.shape == (REPEATS, 3)
    for repeat in range(REPEATS):
        fold = balanced_folds(targets.numpy(), seed=repeat)
        scores = torch.empty(40, 3, dtype=torch.float64)
        for number in range(5):
            out = torch.from_numpy(fold == number)
            model = fit_regression(vectors, targets.masked_fill(out[:, None], -1), 0.1, tolerance=1e-6)
            scores[out] = model.logits(vectors)[out]
        np.testing.assert_allclose(found[repeat], average_precision(scores.numpy(), targets.numpy()), atol=0.01)
    assert len({tuple(one) for one in found.tolist()}) == REPEATS  # other folds each time


def test_cross_validation_keeps_near_duplicates_in_one_fold():
    """Pairs of copies, labelled at random: who has seen the one knows the other by heart."""
    targets = (normal(30, 2, seed=1) > 0).to(torch.int8).repeat_interleave(2, 0)
    vectors = unit(normal(30, 40).repeat_interleave(2, 0))
    basis = principal_basis(vectors)
    apart, together = (cross_validated(basis, targets, 0.001, groups) for groups in (None, np.arange(60) // 2))
    assert apart.mean() > 0.8
    assert together.mean() < 0.6


def test_a_tag_that_no_image_shows_has_no_figure():
    targets = torch.zeros(30, 2, dtype=torch.int8)
    targets[::3, 0] = 1
    found = cross_validated(principal_basis(normal(30, 4)), targets, 0.1)
    assert np.isnan(found[:, 1]).all()
    assert not np.isnan(found[:, 0]).any()
