"""Binary cross-entropy on the labelled images alone: row "BCE" of Table 1 of D2L."""

from typing import ClassVar

from torch import Tensor

from fewtags.losses import binary_cross_entropy
from fewtags.methods.base import Method


class BCE(Method):
    """Every tag is a separate yes-or-no question, and all cells have the same weight."""

    uses_unlabelled: ClassVar[bool] = False

    def cell_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy instead of the asymmetric loss."""
        return binary_cross_entropy(logits, targets)
