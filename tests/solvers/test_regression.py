"""Logistic regression for many tags at once: the optimum that scikit-learn finds for each tag alone."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import binary_cross_entropy_with_logits

from fewtags.solvers.regression import fit_folds, fit_regression, mask_folds

UNKNOWN = -1
EXACT = 1e-8  # steepest slope left at the end of a search that is compared with another


def task(images=40, width=6, tags=4, unknown=0.0, seed=0):
    """Vectors [N, d] and targets [N, K] that have something to do with them."""
    random = torch.Generator().manual_seed(seed)
    vectors = torch.randn(images, width, generator=random) / width**0.5
    logits = 3 * vectors @ torch.randn(width, tags, generator=random) + torch.randn(images, tags, generator=random)
    targets = (logits > 0.3).to(torch.int8)
    hidden = torch.rand(images, tags, generator=random) < unknown
    return vectors, targets.masked_fill(hidden, UNKNOWN)


def probabilities(vectors, targets, strength):
    return fit_regression(vectors, targets, strength, EXACT).logits(vectors).sigmoid()


def by_sklearn(vectors, targets, strength):
    """The same tag by tag, each on the images that know it."""
    columns = []
    for column in targets.T.numpy():
        known = column >= 0
        model = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=10_000)
        model.fit(vectors.double().numpy()[known], column[known])
        columns.append(model.predict_proba(vectors.double().numpy())[:, 1])
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("strength", [0.01, 0.1, 3.0])
@pytest.mark.parametrize(("images", "width"), [(40, 6), (30, 60)], ids=["more images", "more numbers"])
def test_every_tag_gets_the_probabilities_of_scikit_learn(images, width, strength):
    vectors, targets = task(images, width)
    expected = by_sklearn(vectors, targets, strength)
    np.testing.assert_allclose(probabilities(vectors, targets, strength), expected, atol=1e-4)


@pytest.mark.parametrize(("images", "width"), [(40, 6), (30, 60)], ids=["more images", "more numbers"])
def test_an_unknown_cell_leaves_its_image_out_for_that_tag_alone(images, width):
    vectors, targets = task(images, width, unknown=0.4)
    assert bool((targets < 0).any(0).all())
    found = probabilities(vectors, targets, 0.1)
    np.testing.assert_allclose(found, by_sklearn(vectors, targets, 0.1), atol=1e-4)
    other = targets.masked_fill(targets < 0, -7)
    torch.testing.assert_close(probabilities(vectors, other, 0.1), found)


def slopes(vectors, targets, strength, found):
    """The steepest slope of the documented loss where a fit has ended, by autograd in float64."""
    weight, bias = (part.clone().requires_grad_(True) for part in found)
    known = targets >= 0
    cells = binary_cross_entropy_with_logits(
        vectors.double() @ weight.T + bias, targets.double().clamp(min=0), reduction="none"
    )
    (cells[known].sum() + strength / 2 * weight.square().sum()).backward()
    return float(torch.cat([weight.grad.flatten(), bias.grad]).abs().max())


@pytest.mark.parametrize("strength", [0.003, 0.1, 3.0])
@pytest.mark.parametrize(("images", "width"), [(40, 6), (30, 60), (30, 30)])
def test_the_fit_ends_where_the_loss_has_no_slope(images, width, strength):
    vectors, targets = task(images, width, unknown=0.2)
    assert slopes(vectors, targets, strength, fit_regression(vectors, targets, strength, EXACT)) < 1e-5
    assert slopes(vectors, targets, strength, fit_regression(vectors, targets, strength)) < 1e-3


@pytest.mark.parametrize("strength", [0.003, 0.1])
def test_a_search_that_ends_early_is_within_a_thousandth(strength):
    vectors, targets = task(60, 30)
    early = fit_regression(vectors, targets, strength).logits(vectors).sigmoid()
    torch.testing.assert_close(early, probabilities(vectors, targets, strength), atol=1e-3, rtol=0)


def test_numbers_in_which_images_do_not_differ_change_nothing():
    """The same images in 8 dimensions and turned into 30: fewer dimensions than images, and more."""
    vectors, targets = task(10, 8, tags=3)
    turn, _ = torch.linalg.qr(torch.randn(30, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    narrow = fit_regression(vectors, targets, 0.1, EXACT)
    wide = fit_regression(vectors.double() @ turn.T, targets, 0.1, EXACT)
    torch.testing.assert_close(wide.weight, narrow.weight @ turn.T, atol=1e-4, rtol=0)
    torch.testing.assert_close(wide.bias, narrow.bias, atol=1e-4, rtol=0)


def test_copies_of_an_image_among_few_images_are_borne():
    vectors, targets = task(6, 20, tags=2, seed=3)
    vectors, targets = torch.cat([vectors, vectors]), torch.cat([targets, targets])
    np.testing.assert_allclose(probabilities(vectors, targets, 0.1), by_sklearn(vectors, targets, 0.1), atol=1e-4)


def test_a_tag_that_is_always_or_never_there_gets_its_smoothed_share_for_every_image():
    vectors, targets = task(tags=4)
    targets[:, 0], targets[:, 1], targets[:, 2] = 0, 1, UNKNOWN
    targets[:10, 0] = UNKNOWN
    found = probabilities(vectors, targets, 0.1)
    expected = torch.tensor([1 / 32, 41 / 42, 1 / 2], dtype=torch.float64)
    torch.testing.assert_close(found[:, :3], expected.expand(40, 3))
    torch.testing.assert_close(found[:, 3:], probabilities(vectors, targets[:, 3:], 0.1), atol=1e-5, rtol=0)


def test_where_no_tag_can_be_learned_nothing_is():
    vectors, targets = task()
    found = fit_regression(vectors, torch.zeros_like(targets), 0.1)
    assert not found.weight.any()
    torch.testing.assert_close(found.bias.sigmoid(), torch.full((4,), 1 / 42, dtype=torch.float64))


def test_tags_in_another_order_get_the_same_weights_in_that_order():
    vectors, targets = task(30, 60, unknown=0.2)
    targets[:, 1] = 0
    order = torch.tensor([2, 0, 3, 1])
    plain = fit_regression(vectors, targets, 0.1, EXACT)
    turned = fit_regression(vectors, targets[:, order], 0.1, EXACT)
    torch.testing.assert_close(turned.weight, plain.weight[order], atol=1e-4, rtol=0)
    torch.testing.assert_close(turned.bias, plain.bias[order], atol=1e-4, rtol=0)


def test_the_bias_is_free():
    """However strong the penalty, a tag of nine images in ten has the probability 0.9."""
    vectors, targets = task(40, 6, tags=1)
    targets[:36], targets[36:] = 1, 0
    torch.testing.assert_close(
        probabilities(vectors, targets, 1e6), torch.full((40, 1), 0.9, dtype=torch.float64), atol=1e-3, rtol=0
    )


fold_of = torch.arange(40) % 4


def test_the_model_of_a_fold_is_the_one_fitted_without_its_labels():
    vectors, targets = task(unknown=0.2)
    models = fit_folds(vectors, targets, 0.1, fold_of, EXACT)
    assert len(models) == 4
    for number, model in enumerate(models):
        rest = fold_of != number
        alone = fit_regression(vectors[rest], targets[rest], 0.1, EXACT)
        torch.testing.assert_close(model.weight, alone.weight, atol=1e-4, rtol=0)
        torch.testing.assert_close(model.bias, alone.bias, atol=1e-4, rtol=0)


def test_poisoned_labels_of_a_fold_leave_its_own_model_as_it_is():
    vectors, targets = task()
    models = fit_folds(vectors, targets, 0.1, fold_of, EXACT)
    for number in range(4):
        poisoned = torch.where((fold_of == number)[:, None], 1 - targets, targets)
        others = fit_folds(vectors, poisoned, 0.1, fold_of, EXACT)
        moved = [float((one.weight - other.weight).abs().max()) for one, other in zip(models, others, strict=True)]
        assert moved.pop(number) < 1e-4
        assert min(moved) > 0.1


def test_without_a_fold_its_labels_are_unknown_and_all_others_as_they_were():
    _, targets = task(unknown=0.2)
    kept = targets.clone()
    for number, known in enumerate(mask_folds(targets, fold_of)):
        out = fold_of == number
        assert bool((known[out] < 0).all())
        assert torch.equal(known[~out], targets[~out])
    assert number == 3
    assert torch.equal(targets, kept)
