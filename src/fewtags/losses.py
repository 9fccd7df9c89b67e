"""Element-wise losses for targets that may be unknown, always computed in float32."""

import torch
import torch.nn.functional as F
from torch import Tensor

_SMALLEST = 1e-8  # keeps the logarithm finite; too small for float16, one reason to compute in float32


def binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each cell: -[y log p + (1 - y) log(1 - p)], p = sigmoid(logit).

    logits [N, K]; targets [N, K] of 1, 0, values between for soft targets, negative for unknown.
    Returns [N, K] float32. An unknown cell has loss 0 and no gradient.
    """
    logits, targets, known = _known_cells(logits, targets)
    return _only(known, F.binary_cross_entropy_with_logits(logits, targets, reduction="none"))


def asymmetric_loss(
    logits: Tensor,
    targets: Tensor,
    gamma_neg: float = 4,
    gamma_pos: float = 0,
    clip: float = 0.05,
) -> Tensor:
    """Asymmetric loss (Ridnik et al., ICCV 2021): easy negatives are down-weighted, very easy ones are dropped.

    With p = sigmoid(logit) and p' = min(1 - p + clip, 1) the loss is -(1 - p)^gamma_pos log p for a present
    tag and -(1 - p')^gamma_neg log p' for an absent one; the power is a weight without gradient.
    logits [N, K]; targets [N, K] of 1, 0, values between (the two losses mixed), negative for unknown.
    Returns [N, K] float32. An unknown cell has loss 0 and no gradient.

    >>> asymmetric_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, -1.0]]))
    tensor([[0.6931, 0.0000]])
    """
    logits, targets, known = _known_cells(logits, targets)
    present = torch.sigmoid(logits)
    absent = (1 - present + clip).clamp(max=1)
    loss = targets * _focal(present, gamma_pos) + (1 - targets) * _focal(absent, gamma_neg)
    return _only(known, loss)


def _focal(probability: Tensor, gamma: float) -> Tensor:
    """-(1 - p)^gamma log p; the weight is detached, so an outer no_grad stays in force."""
    weight = (1 - probability.detach()) ** gamma
    return -weight * probability.clamp(min=_SMALLEST).log()


def _known_cells(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Float32 logits and targets with zeros in the unknown cells, and the mask of known cells."""
    if logits.shape != targets.shape:
        raise ValueError(f"logits {tuple(logits.shape)} and targets {tuple(targets.shape)} differ in shape")
    targets = targets.float()
    known = targets >= 0
    # Replaced before the loss: a non-finite logit in an unknown cell would make the gradient NaN.
    return _only(known, logits.float()), _only(known, targets), known


def _only(known: Tensor, values: Tensor) -> Tensor:
    return torch.where(known, values, torch.zeros_like(values))
