"""L2 logistic regression for many tags at once, by full-batch L-BFGS in float64. Pure functions on tensors."""

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


def fit_folds(vectors: Tensor, targets: Tensor, strength: float, fold: Tensor, tolerance: float) -> list[Regression]:
    """For every fold [N] a regression that has not seen its labels."""
    return [fit_regression(vectors, known, strength, tolerance) for known in without_folds(targets, fold)]


def without_folds(targets: Tensor, fold: Tensor) -> list[Tensor]:
    """The targets as they are known without fold 0, without fold 1, …"""
    return [targets.masked_fill((fold == number)[:, None], -1) for number in range(int(fold.max()) + 1)]


def fit_regression(vectors: Tensor, targets: Tensor, strength: float, tolerance: float = 1e-4) -> Regression:
    """The minimum of Σ BCE + strength/2 · |W|² over known cells; the bias is free.

    vectors [N, d]; targets [N, K]: 1, 0 or negative for unknown. A tag without a positive or a negative gets the
    logit of its share among the known cells, smoothed by one image of each kind, for every image. The search ends
    where no slope is steeper than the tolerance: 1e-4 puts probabilities within 1e-3 of the minimum's.
    """
    known = targets >= 0
    positives, counted = ((targets == 1) & known).sum(0), known.sum(0)
    decided = (positives > 0) & (positives < counted)
    turn, x = _own_basis(vectors.double())
    wanted = targets[:, decided].double().clamp(min=0)
    counts = known[:, decided].double()
    share = (positives + 1) / (counted + 2)
    first = torch.logit(share.double())
    weight = torch.zeros(wanted.shape[1], x.shape[1], dtype=torch.float64, device=x.device, requires_grad=True)
    bias = first[decided].clone().requires_grad_(True)
    if wanted.shape[1]:
        _minimise(x, wanted, counts, weight, bias, strength, tolerance)
    whole = torch.zeros(len(decided), vectors.shape[1], dtype=torch.float64, device=x.device)
    whole[decided] = weight.detach() @ turn.T
    biases = first.clone()
    biases[decided] = bias.detach()
    return Regression(whole, biases)


def _minimise(
    x: Tensor, wanted: Tensor, counts: Tensor, weight: Tensor, bias: Tensor, strength: float, tolerance: float
) -> None:
    optimiser = torch.optim.LBFGS(
        [weight, bias],
        max_iter=ROUNDS,
        history_size=20,
        tolerance_grad=tolerance,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        cells = binary_cross_entropy_with_logits(x @ weight.T + bias, wanted, counts, reduction="sum")
        total = cells + strength / 2 * weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimiser.step(loss)  # type: ignore[no-untyped-call]


def _own_basis(x: Tensor) -> tuple[Tensor, Tensor]:
    """(turn [d, r], x @ turn): with fewer vectors than dimensions the solution lies in the span of the vectors."""
    if len(x) >= x.shape[1]:
        return torch.eye(x.shape[1], dtype=x.dtype, device=x.device), x
    turn, _ = torch.linalg.qr(x.T)
    return turn, x @ turn
