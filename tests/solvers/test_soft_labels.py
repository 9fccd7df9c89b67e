"""Soft labels from a few labelled images: the same numbers as the functions they are made of, and choices by them."""

import numpy as np
import pytest
import torch

from fewtags.metrics import average_precision
from fewtags.solvers import soft_labels as module
from fewtags.solvers.folds import FEW, MIN_CHOICE, REPEATS, SURE, balanced_folds
from fewtags.solvers.graph import clamp_known, find_neighbours, smooth
from fewtags.solvers.regression import fit_regression
from fewtags.solvers.soft_labels import CLEARLY, SoftChoice, SoftLabeller, choose_smoothing
from fewtags.solvers.words import compete, fit_with_words, refine

LABELLED, ALL, WIDTH, TAGS = 40, 100, 6, 3
SHARES = (0.0, 0.25, 0.5)


def drawn(labelled=LABELLED, seed=0, unknown=0.1):
    """Vectors [n, d] of mean zero, and labels that mostly follow from them."""
    random = torch.Generator().manual_seed(seed)
    vectors = torch.randn(labelled + 60, WIDTH, generator=random)
    vectors = vectors - vectors.mean(0)
    logits = 2 * vectors @ torch.randn(WIDTH, TAGS, generator=random) + torch.randn(
        len(vectors), TAGS, generator=random
    )
    targets = (logits > 0).to(torch.int8)[:labelled]
    return vectors, targets.masked_fill(torch.rand(targets.shape, generator=random) < unknown, -1), logits


def words_of(logits, silent=2):
    """Scores of names: two know something, the third says nothing."""
    scores = logits + 2 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(9))
    known = torch.arange(TAGS) != silent
    return compete((scores - scores.mean(0)) / scores.std(0) * known, known)


def silent(vectors):
    return torch.zeros(len(vectors), 0)


def labeller_of(vectors, words=None, labelled=LABELLED):
    return SoftLabeller(vectors, silent(vectors) if words is None else words, labelled, neighbours=5, rounds=4)


# --- what is taught ----------------------------------------------------------------------------------------------


def test_without_words_probabilities_are_the_regression_with_known_cells_as_labelled():
    vectors, targets, _ = drawn()
    labeller = labeller_of(vectors)
    expected = fit_regression(vectors[:LABELLED], targets, 0.05).logits(vectors).sigmoid().float()
    expected[:LABELLED] = clamp_known(expected[:LABELLED], targets)
    found = labeller.fit(targets, 0.05)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert labeller.refined is None
    known = targets >= 0
    assert torch.equal(found[:LABELLED][known], targets[known].float())


def test_with_words_it_is_the_regression_on_features_and_refined_words():
    vectors, targets, logits = drawn()
    words = words_of(logits)
    labeller = labeller_of(vectors, words)
    refined = refine(words, vectors, find_neighbours(vectors, 5))
    torch.testing.assert_close(labeller.refined, refined)
    assert labeller.named.tolist() == [True, True, False]
    fitted = fit_with_words(vectors[:LABELLED], targets, refined, 0.05).logits(vectors, refined).sigmoid().float()
    torch.testing.assert_close(labeller.fit(targets, 0.05)[LABELLED:], fitted[LABELLED:], atol=1e-4, rtol=0)
    deaf = labeller.fit(targets, 0.05, with_words=False)
    torch.testing.assert_close(deaf, labeller_of(vectors).fit(targets, 0.05))
    assert float((deaf - labeller.fit(targets, 0.05)).abs().max()) > 0.02


def test_smoothing_spreads_over_the_graph_and_a_share_of_zero_changes_nothing():
    vectors, targets, _ = drawn()
    labeller = labeller_of(vectors)
    first = labeller.fit(targets, 0.05)
    torch.testing.assert_close(labeller.smooth(first, 0.5), smooth(first, find_neighbours(vectors, 5), 0.5, 4))
    assert labeller.smooth(first, 0.0) is first
    assert "graph" not in vars(labeller_of(vectors))  # only made where it is needed


def test_what_labels_do_not_change_is_computed_once(monkeypatch):
    vectors, targets, logits = drawn()
    labeller, calls = labeller_of(vectors, words_of(logits)), []
    for name in ("find_neighbours", "refine"):
        made = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, name=name, made=made: calls.append(name) or made(*given))
    for labels in (targets, 1 - targets.clamp(min=0)):
        labeller.smooth(labeller.fit(labels, 0.05), 0.5)
    assert sorted(calls) == ["find_neighbours", "refine"]


def test_without_a_labelled_image_names_alone_teach():
    vectors, targets, logits = drawn(labelled=0)
    words = words_of(logits)
    found = labeller_of(vectors, words, labelled=0).fit(targets, 0.05)
    assert found.shape == (60, TAGS)
    assert np.corrcoef(found[:, 0], words[:, 0])[0, 1] > 0.3
    assert float(found[:, 2].std()) < 1e-6


# --- scores of images that were left out -------------------------------------------------------------------------


fold_of = np.arange(LABELLED) % 5


@pytest.mark.parametrize("with_words", [True, False])
def test_an_image_is_scored_by_the_labels_of_the_other_folds(with_words):
    vectors, targets, logits = drawn()
    labeller = labeller_of(vectors, words_of(logits))
    held = labeller.out_of_fold(targets, fold_of, 0.05, SHARES, with_words)
    assert held.keys() == set(SHARES)
    for number in range(5):
        out = torch.from_numpy(fold_of == number)
        rest = labeller.fit(targets.masked_fill(out[:, None], -1), 0.05, with_words)
        for share, scores in held.items():
            expected = labeller.smooth(rest, share)[:LABELLED][out]
            torch.testing.assert_close(scores[out], expected, atol=0.01, rtol=0)


@pytest.mark.parametrize("number", [0, 4])
@pytest.mark.parametrize("with_words", [True, False])
def test_poisoned_labels_of_a_fold_leave_its_scores_as_they_are(number, with_words):
    vectors, targets, logits = drawn(unknown=0.0)
    labeller, out = labeller_of(vectors, words_of(logits)), torch.from_numpy(fold_of == number)
    poisoned = torch.where(out[:, None], 1 - targets, targets)
    clean, other = (labeller.out_of_fold(one, fold_of, 0.05, SHARES, with_words) for one in (targets, poisoned))
    for share in SHARES:
        torch.testing.assert_close(clean[share][out], other[share][out], atol=0, rtol=0)
        assert float((clean[share][~out] - other[share][~out]).abs().max()) > 0.05


# --- choices -----------------------------------------------------------------------------------------------------


class Prepared:
    """A labeller whose scores of left-out images are as good as wanted: [share, with words] -> how good, 0..1."""

    def __init__(self, targets, quality, words=True):
        self.targets, self.quality, self.folds = targets, quality, []
        self.named = torch.tensor([bool(words)])

    def out_of_fold(self, targets, fold, strength, shares, with_words=True):
        self.folds.append((fold, with_words))
        noise = torch.rand(targets.shape, generator=torch.Generator().manual_seed(len(fold)))
        return {share: self.quality.get((share, with_words), 0.5) * self.targets + noise for share in shares}


def clear(count=60):
    return (torch.rand(count, 8, generator=torch.Generator().manual_seed(1)) < 0.4).to(torch.int8)


def chosen(quality, targets=None, default=0.5, words=True, shares=SHARES, groups=None):
    targets = clear() if targets is None else targets
    return choose_smoothing(Prepared(targets, quality, words), targets, 0.05, shares, default, groups)


def test_what_ranks_left_out_images_best_is_chosen():
    assert chosen({(0.0, True): 1.5}) == SoftChoice(0.0, True)
    assert chosen({(0.25, False): 1.5}) == SoftChoice(0.25, False)
    assert chosen({(0.5, False): 1.5}) == SoftChoice(0.5, False)


def test_where_all_are_the_same_the_default_stays():
    assert chosen({}) == SoftChoice(0.5, True)
    assert chosen({}, default=0.25) == SoftChoice(0.25, True)


def test_names_that_say_nothing_are_not_left_out_on_trial():
    targets = clear()
    labeller = Prepared(targets, {}, words=False)
    assert choose_smoothing(labeller, targets, 0.05, SHARES, 0.5).with_words
    assert {with_words for _, with_words in labeller.folds} == {True}


def test_a_default_beside_the_shares_is_tried_too():
    assert chosen({(0.3, True): 1.5}, default=0.3) == SoftChoice(0.3, True)
    assert chosen({(0.25, True): 1.5}, default=0.3) == SoftChoice(0.25, True)


@pytest.mark.parametrize("count", [0, MIN_CHOICE - 1])
def test_with_few_labels_the_default_is_taken_untried(count):
    assert chosen({(0.0, False): 1.5}, clear(count)) == SoftChoice(0.5, True)


@pytest.mark.filterwarnings("error")
def test_without_a_positive_the_default_is_taken_untried():
    assert chosen({(0.0, False): 1.5}, torch.zeros(60, 3, dtype=torch.int8)) == SoftChoice(0.5, True)


@pytest.mark.parametrize(("count", "times"), [(MIN_CHOICE, REPEATS), (FEW - 1, REPEATS), (FEW, 1)])
def test_few_labels_are_put_into_folds_several_times(count, times):
    targets = clear(count)
    labeller = Prepared(targets, {})
    choose_smoothing(labeller, targets, 0.05, SHARES, 0.5)
    folds = [fold for fold, with_words in labeller.folds if with_words]
    for repeat, fold in enumerate(folds):
        np.testing.assert_array_equal(fold, balanced_folds(targets.numpy(), seed=repeat))
    assert len(folds) == times


def test_near_duplicates_share_a_fold():
    targets, groups = clear(), np.arange(60) // 2
    labeller = Prepared(targets, {})
    choose_smoothing(labeller, targets, 0.05, SHARES, 0.5, groups)
    for fold, _ in labeller.folds:
        assert (fold[::2] == fold[1::2]).all()


def test_where_what_looks_alike_is_not_tagged_alike_the_graph_is_left_out():
    """Tags lie in faint directions, which the regression finds and the loud others hide from the graph."""
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn(160, 15, generator=random) * torch.tensor([0.3] * 6 + [1.0] * 9)
    vectors = vectors - vectors.mean(0)
    targets = (vectors[:100, :6] > 0).to(torch.int8)
    labeller = labeller_of(vectors, labelled=100)
    held = labeller.out_of_fold(targets, balanced_folds(targets.numpy()), 0.05, SHARES)
    figure = {share: average_precision(one.numpy(), targets.numpy()).mean() for share, one in held.items()}
    assert figure[0.0] > figure[0.25] > figure[0.5]
    assert choose_smoothing(labeller, targets, 0.05, SHARES, 0.5) == SoftChoice(0.0, True)


def test_where_names_are_read_shares_of_the_graph_are_chosen_less_readily():
    """The graph does no harm then, so that a lead which would do elsewhere may be chance."""
    assert CLEARLY > SURE
    targets = torch.zeros(100, 4, dtype=torch.int8)
    targets[:20] = 1
    wrong_of = {"usual": (1, 1, 1, 1), "other": (0, 0, 0, 1)}  # whether an image without the tag is ranked first

    class Listed:
        named = torch.ones(1, dtype=torch.bool)

        def out_of_fold(self, targets, fold, strength, shares, with_words):
            held = {}
            for share in shares:
                table = 0.4 * targets.double() + 0.1
                for tag, wrong in enumerate(wrong_of["usual" if share == 0.5 else "other"]):
                    table[99, tag] = 0.9 if wrong else 0.1
                held[share] = table
            return held

    assert choose_smoothing(Listed(), targets, 0.05, (0.0, 0.5), 0.5) == SoftChoice(0.0, True)
    wrong_of["other"] = (0, 0, 1, 1)
    assert choose_smoothing(Listed(), targets, 0.05, (0.0, 0.5), 0.5) == SoftChoice(0.5, True)
    Listed.named = torch.zeros(1, dtype=torch.bool)
    assert choose_smoothing(Listed(), targets, 0.05, (0.0, 0.5), 0.5) == SoftChoice(0.0, True)
