"""What tags' names say: competition by a loop, scores refined without labels, labels weighed as another search does."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

import small_runs  # noqa: F401 - one thread
from fewtags.solvers import words as module
from fewtags.solvers.graph import find_neighbours, raised, smooth
from fewtags.solvers.regression import fit_regression, principal_basis
from fewtags.solvers.words import compete, fit_with_words, names_known, refine

UNKNOWN = -1
IMAGES, WIDTH, TAGS = 90, 5, 4


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def by_hand(scores, known):
    """Each score less 0.3 of the best other one of a tag whose name says something, cell by cell."""
    found = np.zeros_like(scores)
    for image, row in enumerate(scores):
        for tag in np.flatnonzero(known):
            others = [row[other] for other in np.flatnonzero(known) if other != tag]
            found[image, tag] = row[tag] - (0.3 * max(others) if others else 0.0)
    return found


@pytest.mark.parametrize(
    "known",
    [
        (True,) * 4,
        (True, False, True, True),
        (False, True, False, False),
        (False,) * 4,
        (True,),
        (False,),
        (True, True),
    ],
    ids=str,
)
def test_scores_compete_as_in_a_loop(known):
    scores = 2 * normal(30, len(known))
    found = compete(scores, torch.tensor(known))
    np.testing.assert_allclose(found, by_hand(scores.numpy(), np.array(known)), atol=1e-6)


def test_equal_scores_count_against_each_other_and_one_below_zero_counts_for_the_others():
    found = compete(torch.tensor([[2.0, 2.0, 1.0], [1.0, -1.0, -3.0]]), torch.ones(3, dtype=torch.bool))
    torch.testing.assert_close(found, torch.tensor([[1.4, 1.4, 0.4], [1.3, -1.3, -3.3]]))


def test_a_name_says_something_where_any_image_has_a_score():
    words = torch.zeros(5, 3)
    words[4, 1] = -0.1
    assert names_known(words).tolist() == [False, True, False]


# --- refined without labels -----------------------------------------------------------------------------------


def clusters(images=IMAGES, seed=0):
    """Vectors of three kinds of images, and noisy word scores of which the first three know one kind each."""
    kind = torch.arange(images) % 3
    vectors = 3 * torch.eye(WIDTH)[kind] + normal(images, WIDTH, seed=seed)
    vectors = vectors - vectors.mean(0)
    words = 2.0 * (kind[:, None] == torch.arange(TAGS)) + normal(images, TAGS, seed=seed + 1)
    words = (words - words.mean(0)) / words.std(0)
    words[:, 3] = 0
    return vectors, words, kind


def refined_of(vectors, words):
    return refine(words, vectors, find_neighbours(vectors, 8))


def test_refined_scores_are_standardised_and_zero_where_names_say_nothing():
    vectors, words, _ = clusters()
    found = refined_of(vectors, words)
    torch.testing.assert_close(found[:, :3].mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(found[:, :3].std(0, correction=0), torch.ones(3), atol=1e-5, rtol=0)
    assert not found[:, 3].any()
    assert torch.isfinite(found).all()


def test_refined_scores_are_the_mean_of_what_is_spread_and_what_is_learned():
    """Soft targets are learned as scikit-learn learns two copies of every image, weighted by what they show."""
    vectors, words, _ = clusters()
    graph = find_neighbours(vectors, 8)
    spread = raised(smooth(torch.sigmoid(words - 3.0), graph), torch.zeros(TAGS)).double().numpy()
    found, x = refine(words, vectors, graph), vectors.double().numpy()
    for tag in range(3):
        model = LogisticRegression(C=1.0, tol=1e-8, max_iter=10_000)
        both = np.repeat([1, 0], IMAGES), np.concatenate([spread[:, tag], 1 - spread[:, tag]])
        learned = model.fit(np.concatenate([x, x]), both[0], sample_weight=both[1]).predict_proba(x)[:, 1]
        mean = (learned + spread[:, tag]) / 2
        logits = np.log(mean / (1 - mean))
        np.testing.assert_allclose(found[:, tag], (logits - logits.mean()) / logits.std(), atol=2e-2)


def test_refined_scores_know_more_than_the_words_did():
    vectors, words, kind = clusters()
    found = refined_of(vectors, words)

    def apart(scores, tag):
        """How many standard deviations the images of a kind lie above the others."""
        return float(scores[kind == tag, tag].mean() - scores[kind != tag, tag].mean())

    for tag in range(3):
        assert apart(found, tag) > apart(words, tag) + 0.2


def test_the_order_of_images_plays_no_part_in_refinement():
    vectors, words, _ = clusters()
    order = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(5))
    plain, turned = refined_of(vectors, words), refined_of(vectors[order], words[order])
    torch.testing.assert_close(turned, plain[order], atol=2e-2, rtol=0)


def test_a_column_of_zeros_leaves_the_others_as_they_are():
    vectors, words, _ = clusters()
    torch.testing.assert_close(refined_of(vectors, words)[:, :3], refined_of(vectors, words[:, :3]), atol=2e-2, rtol=0)


def test_of_many_images_some_are_fitted_and_all_are_scored(monkeypatch):
    vectors, words, _ = clusters()
    every = refined_of(vectors, words)
    monkeypatch.setattr(module, "REFINED_ON", 60)
    some = refined_of(vectors, words)
    assert torch.equal(some, refined_of(vectors, words)), "the same images are drawn every time"
    assert not torch.equal(some, every)
    for tag in range(3):
        assert np.corrcoef(some[:, tag], every[:, tag])[0, 1] > 0.95


@pytest.mark.parametrize("images", [2, 3])
def test_few_images_can_be_refined(images):
    vectors = normal(images, WIDTH)
    found = refine(normal(images, TAGS, seed=1), vectors - vectors.mean(0), find_neighbours(vectors, 8))
    assert found.shape == (images, TAGS)
    assert torch.isfinite(found).all()


# --- weighed by labels -----------------------------------------------------------------------------------------


def task(labelled=30, images=IMAGES, unknown=0.2, seed=0):
    """Vectors of the labelled images, targets, refined scores of all; the name of the last tag says nothing."""
    vectors = normal(images, WIDTH, seed=seed) / WIDTH**0.5
    refined = normal(images, TAGS, seed=seed + 1)
    logits = 2 * vectors @ normal(WIDTH, TAGS, seed=seed + 2) + 1.5 * refined - 1
    targets = (logits + normal(images, TAGS, seed=seed + 3) > 0).to(torch.int8)[:labelled]
    hidden = torch.rand(targets.shape, generator=torch.Generator().manual_seed(seed)) < unknown
    refined[:, 3] = 0
    return vectors[:labelled], targets.masked_fill(hidden, UNKNOWN), refined


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def first_bias(targets, refined):
    """The bias at which as many images as expected show a tag, by trying 60,001 of them."""
    tried = np.linspace(-30, 30, 60_001)
    found = []
    for column, scores in zip(targets.numpy().T, refined.double().numpy().T, strict=True):
        known = column[column >= 0]
        expected = sigmoid(1.75 * scores - 3.6).mean()
        share = (known.sum() + 30 * expected) / (len(known) + 30)
        # the mean probability rises with the bias
        low, high = 0, len(tried) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if sigmoid(2.5 * scores + tried[middle]).mean() < share else (low, middle)
        found.append((tried[low] + tried[high]) / 2)
    return np.array(found)


def by_scipy(vectors, column, scores, first):
    """Weights, slope and bias of one tag: the minimum of the objective as it is written down, in centred vectors."""
    x = vectors.double().numpy()
    x = x - x.mean(0)
    known = column.numpy() >= 0
    x, y, r = x[known], column.double().numpy()[known], scores.double().numpy()[known]

    def objective(parameters):
        weight, slope, bias = parameters[:WIDTH], parameters[WIDTH], parameters[WIDTH + 1]
        logits = x @ weight + slope * r + bias
        cells = np.logaddexp(0, logits) - y * logits
        return (
            cells.sum() + 0.03 / 2 * (weight**2).sum() + (slope - 2.5) ** 2 / (2 * 3.0**2) + 0.05 * (bias - first) ** 2
        )

    found = minimize(
        objective, np.r_[np.zeros(WIDTH), 0.0, 0.0], method="BFGS", options={"gtol": 1e-7, "maxiter": 5000}
    )
    return found.x[:WIDTH], found.x[WIDTH], found.x[WIDTH + 1] - found.x[:WIDTH] @ vectors.double().numpy().mean(0)


@pytest.mark.parametrize("labelled", [30, 3, 1])
def test_the_fit_is_the_minimum_that_another_search_finds(labelled):
    vectors, targets, refined = task(labelled)
    found, first = fit_with_words(vectors, targets, refined, 0.1), first_bias(targets, refined)
    for tag in range(3):
        weight, slope, bias = by_scipy(vectors, targets[:, tag], refined[:labelled, tag], first[tag])
        np.testing.assert_allclose(found.weight[tag], weight, atol=3e-3)
        assert float(found.slope[tag]) == pytest.approx(slope, abs=3e-3)
        assert float(found.bias[tag]) == pytest.approx(bias, abs=3e-3)


def test_a_basis_stands_for_its_vectors():
    vectors, targets, refined = task()
    plain, basis = (fit_with_words(one, targets, refined, 0.1) for one in (vectors, principal_basis(vectors)))
    for ours, theirs in zip(plain, basis, strict=True):
        assert torch.equal(ours, theirs)
    logits = plain.logits(vectors, refined[:30])
    expected = vectors.double() @ plain.weight.T + plain.slope * refined[:30] + plain.bias
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("known", [(0, 1, 2), (0,), ()], ids=str)
def test_tags_without_words_are_fitted_as_if_there_were_no_words(known):
    vectors, targets, refined = task()
    silent = [tag for tag in range(TAGS) if tag not in known]
    refined[:, silent] = 0
    found, plain = fit_with_words(vectors, targets, refined, 0.1), fit_regression(vectors, targets[:, silent], 0.1)
    assert torch.equal(found.weight[silent], plain.weight)
    assert torch.equal(found.bias[silent], plain.bias)
    assert not found.slope[silent].any()
    assert bool((found.slope[list(known)] != 0).all())


def test_without_labels_the_bias_gives_every_tag_its_expected_share():
    refined = task()[2]
    found = fit_with_words(torch.empty(0, WIDTH), torch.empty(0, TAGS, dtype=torch.int8), refined, 0.1)
    assert not found.weight.any()
    assert found.weight.shape == (TAGS, WIDTH)
    assert found.slope.tolist() == [2.5, 2.5, 2.5, 0.0]
    mean = found.logits(torch.zeros(IMAGES, WIDTH), refined).sigmoid().mean(0)
    expected = torch.sigmoid(1.75 * refined.double() - 3.6).mean(0)
    torch.testing.assert_close(mean, expected, atol=1e-6, rtol=0)
    assert 0.02 < float(expected[3]) < 0.03


def test_images_of_which_nothing_is_known_are_no_labels():
    vectors, targets, refined = task()
    nothing = fit_with_words(torch.empty(0, WIDTH), targets[:0], refined, 0.1)
    unknown = fit_with_words(vectors, torch.full_like(targets, UNKNOWN), refined, 0.1)
    torch.testing.assert_close(unknown.weight[:3], nothing.weight[:3], atol=1e-6, rtol=0)
    torch.testing.assert_close(unknown.slope, nothing.slope, atol=1e-6, rtol=0)
    torch.testing.assert_close(unknown.bias[:3], nothing.bias[:3], atol=1e-4, rtol=0)


def test_labels_that_contradict_a_name_take_its_weight_and_those_that_agree_keep_it():
    _, _, refined = task()
    vectors = torch.zeros(60, WIDTH)  # nothing else could explain the labels
    agree = (refined[:60] > 0.5).to(torch.int8)
    contradict = (refined[:60] < -0.5).to(torch.int8)
    none, right, wrong = (
        fit_with_words(vectors[: len(one)], one, refined, 0.1).slope[:3] for one in (agree[:0], agree, contradict)
    )
    assert bool((right > none).all())
    assert bool((wrong < 0).all())
    few = fit_with_words(vectors[:3], contradict[:3], refined, 0.1).slope[:3]
    assert bool((few >= wrong).all())


def test_the_share_follows_the_labels_the_more_the_more_there_are():
    refined = task()[2]
    nothing, few, many = (
        fit_with_words(torch.zeros(count, WIDTH), torch.ones(count, TAGS, dtype=torch.int8), refined, 0.1)
        for count in (0, 1, 80)
    )

    def share(found):
        return found.logits(torch.zeros(IMAGES, WIDTH), refined).sigmoid().mean(0)[:3]

    assert bool((share(nothing) < share(few)).all())
    assert bool((share(few) < share(many)).all())
    assert bool((share(many) > 0.8).all())
