"""L2-regularised logistic regression for many tags at once, by full-batch L-BFGS in float64."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

ROUNDS = 500


class Regression(NamedTuple):
    """Linear scores of vectors."""

    weight: Tensor  # [K, d]
    bias: Tensor  # [K]

    def logits(self, vectors: Tensor) -> Tensor:
        """[n, d] -> [n, K]."""
        return vectors.to(self.weight) @ self.weight.T + self.bias


class Basis(NamedTuple):
    """Vectors in the coordinates of their principal axes: the same distances in at most N dimensions."""

    centre: Tensor  # [d]
    axes: Tensor  # [d, r]
    coordinates: Tensor  # [N, r]
    lengths: Tensor  # [r] sum of squares along each axis (eigenvalues)


def fit_folds(
    vectors: Tensor | Basis, targets: Tensor, strength: float, fold: Tensor, tolerance: float = 1e-3
) -> list[Regression]:
    """One regression per fold, fitted without the labels of that fold; fold [N]."""
    basis = vectors if isinstance(vectors, Basis) else principal_basis(vectors)
    return [fit_regression(basis, known, strength, tolerance) for known in mask_folds(targets, fold)]


def mask_folds(targets: Tensor, fold: Tensor) -> list[Tensor]:
    """One copy of the targets per fold, with that fold's targets set to unknown."""
    return [targets.masked_fill((fold == number)[:, None], -1) for number in range(int(fold.max()) + 1)]


def fit_regression(vectors: Tensor | Basis, targets: Tensor, strength: float, tolerance: float = 1e-4) -> Regression:
    """The minimum of Σ BCE + strength/2 · |W|² over known cells; the bias is free.

    vectors [N, d], or their Basis if they are fitted more than once; targets [N, K]: 1, 0, a probability, or negative
    for unknown. A tag without positives or without negatives gets a constant: the logit of its share among the known
    cells, smoothed by one image of each kind. The search ends when no gradient component exceeds the tolerance.
    """
    basis = vectors if isinstance(vectors, Basis) else principal_basis(vectors)
    known = targets >= 0
    positives, counted = torch.where(known, targets, 0).sum(0), known.sum(0)
    decided = (positives > 0) & (positives < counted)
    share = ((positives + 1) / (counted + 2)).double()
    bias = torch.logit(share)
    weight = torch.zeros(len(decided), basis.axes.shape[1], dtype=torch.float64, device=share.device)
    if bool(decided.any()):
        weight[decided], bias[decided] = _minimise(
            basis, targets[:, decided], bias[decided], share[decided], strength, tolerance
        )
    weight = weight @ basis.axes.T
    return Regression(weight, bias - weight @ basis.centre)


def principal_basis(vectors: Tensor) -> Basis:
    """Principal axes by eigendecomposition of the smaller of the two Gram matrices of the centred vectors."""
    x = vectors.double()
    centre = x.mean(0)
    x = x - centre
    wide = x.shape[1] > len(x)
    values, found = torch.linalg.eigh(x @ x.T if wide else x.T @ x)
    real = values > 1e-12 * values[-1].clamp(min=1e-300)  # the others have no variance
    values, found = values[real], found[:, real]
    axes = x.T @ (found / values.sqrt()) if wide else found
    return Basis(centre, axes, x @ axes, values)


def _minimise(
    basis: Basis, targets: Tensor, first: Tensor, share: Tensor, strength: float, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Weights [K, r] along the axes and biases [K]; L-BFGS, preconditioned by the curvature at the start."""
    wanted, counts = targets.double().clamp(min=0), (targets >= 0).double()
    curvature = share * (1 - share)
    scale = (curvature[:, None] * basis.lengths + strength).rsqrt()
    bias_scale = (curvature * counts.sum(0)).rsqrt()
    scaled = torch.zeros_like(scale, requires_grad=True)
    moved = torch.zeros_like(first, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [scaled, moved],
        max_iter=ROUNDS,
        history_size=20,
        tolerance_grad=tolerance,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        weight = scaled * scale
        logits = basis.coordinates @ weight.T + first + moved * bias_scale
        cells = binary_cross_entropy_with_logits(logits, wanted, counts, reduction="sum")
        total = cells + strength / 2 * weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return (scaled * scale).detach(), (first + moved * bias_scale).detach()
