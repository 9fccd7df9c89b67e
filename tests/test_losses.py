import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fewtags.losses import asymmetric_loss, binary_cross_entropy

LOSSES = [asymmetric_loss, binary_cross_entropy]


def logit(p: float) -> float:
    return math.log(p / (1 - p))


@pytest.mark.parametrize(
    ("p", "present", "absent"),
    [
        (0.05, 2.995732, 0.0),
        (0.3, 1.203973, 0.001124),
        (0.5, 0.693147, 0.024515),
        (0.9, 0.105361, 0.990308),
        (0.99, 0.010050, 2.196567),
    ],
)
def test_asymmetric_loss_has_the_published_values(p: float, present: float, absent: float) -> None:
    losses = asymmetric_loss(torch.full((1, 2), logit(p)), torch.tensor([[1.0, 0.0]]))
    np.testing.assert_allclose(losses.numpy(), [[present, absent]], atol=2e-6)


def test_a_very_easy_negative_has_no_loss_and_no_gradient() -> None:
    z = torch.tensor([[logit(0.04), logit(0.06)]], requires_grad=True)
    losses = asymmetric_loss(z, torch.zeros(1, 2))
    losses.sum().backward()
    assert losses[0, 0] == z.grad[0, 0] == 0
    assert losses[0, 1] > 0
    assert z.grad[0, 1] > 0


def test_without_focusing_and_clip_the_asymmetric_loss_is_cross_entropy() -> None:
    logits, targets = torch.linspace(-6, 6, 14).view(2, 7), torch.tensor([[1.0], [0.0]]).expand(2, 7)
    plain = asymmetric_loss(logits, targets, gamma_neg=0, clip=0)
    torch.testing.assert_close(plain, binary_cross_entropy(logits, targets))


def test_cross_entropy_is_minus_log_of_the_probability_given_to_the_truth() -> None:
    losses = binary_cross_entropy(torch.full((1, 2), logit(0.8)), torch.tensor([[1, 0]]))
    np.testing.assert_allclose(losses.numpy(), [[-math.log(0.8), -math.log(0.2)]], rtol=1e-6)


def test_the_focusing_weight_has_no_gradient() -> None:
    z = torch.tensor([[1.3]], requires_grad=True)
    (gradient,) = torch.autograd.grad(asymmetric_loss(z, torch.zeros(1, 1)).sum(), z)
    p = torch.sigmoid(z.detach())
    shifted = 1 - p + 0.05
    torch.testing.assert_close(gradient, (1 - shifted) ** 4 * p * (1 - p) / shifted)


def test_no_grad_around_the_loss_stays_in_force() -> None:
    with torch.no_grad():
        loss = asymmetric_loss(torch.zeros(1, 1, requires_grad=True), torch.zeros(1, 1))
        assert not torch.is_grad_enabled()
    assert not loss.requires_grad


@pytest.mark.parametrize("loss", LOSSES)
def test_a_soft_target_mixes_the_losses_of_present_and_absent(loss) -> None:
    z = torch.tensor([[0.7, -2.0]])
    mixed = 0.3 * loss(z, torch.ones(1, 2)) + 0.7 * loss(z, torch.zeros(1, 2))
    torch.testing.assert_close(loss(z, torch.full((1, 2), 0.3)), mixed)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_huge_logits_give_finite_float32_losses_and_gradients(loss, kind: torch.dtype) -> None:
    extremes = torch.tensor([-1e4, -100.0, -17.5, 0.0, 17.5, 100.0, 1e4], dtype=kind)
    for target in (0.0, 0.5, 1.0):
        z = extremes[None].clone().requires_grad_()
        losses = loss(z, torch.full((1, 7), target))
        losses.sum().backward()
        assert losses.dtype == torch.float32
        assert torch.isfinite(losses).all()
        assert torch.isfinite(z.grad).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_half_precision_logits_lose_nothing_inside(loss) -> None:
    z, targets = torch.tensor([[-20.0, -3.25, 0.5, 8.0]]), torch.tensor([[0.0, 1.0, 0.0, 1.0]])
    assert torch.equal(loss(z.half(), targets.half()), loss(z, targets))


@pytest.mark.parametrize("loss", LOSSES)
def test_targets_of_another_shape_are_refused(loss) -> None:
    with pytest.raises(ValueError, match="differ in shape"):
        loss(torch.zeros(3, 4), torch.zeros(3, 1))


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=50, deadline=None)
@given(
    logits=hnp.arrays(np.float32, (3, 4), elements=st.floats(-30, 30, width=32)),
    targets=hnp.arrays(np.float32, (3, 4), elements=st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0])),
)
def test_unknown_cells_are_as_if_removed(loss, logits: np.ndarray, targets: np.ndarray) -> None:
    y = torch.from_numpy(targets)
    known = y >= 0
    whole = torch.from_numpy(logits).requires_grad_()
    part = torch.from_numpy(logits)[known].requires_grad_()
    losses, expected = loss(whole, y), loss(part, y[known])
    losses.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(losses[known], expected)
    torch.testing.assert_close(whole.grad[known], part.grad)
    assert (losses[~known] == 0).all()
    assert (whole.grad[~known] == 0).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_an_unknown_cell_with_a_broken_logit_spoils_nothing(loss) -> None:
    z = torch.tensor([[math.nan, math.inf, 1.0]], requires_grad=True)
    loss(z, torch.tensor([[-1, -1, 1]])).sum().backward()
    assert z.grad[0, :2].tolist() == [0, 0]
    assert z.grad[0, 2] < 0
