"""What LL-R, LL-Ct and LL-Cp share (Kim et al., CVPR 2022): unlabelled cells count as absent until their loss is large.

On the view that clean labels are learned first, the cells with the largest loss are likely to be present after all.
Their number grows by `step` of all cells with every epoch; in the first one nothing is modified.
"""

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fewtags.losses import binary_cross_entropy
from fewtags.methods.base import Method, Pseudo, TeacherView, UnlabelledBatch
from fewtags.thresholds import largest


class LargeLoss(Method):
    """Assume absent, and doubt what is hardest to learn."""

    paper: ClassVar[str] = "Kim et al., CVPR"
    year: ClassVar[int] = 2022

    percent: float = Field(0.1, gt=0, le=10)
    """Cells in percent that are doubted more with every epoch; the papers try 0.1 to 0.5."""

    def begin_main(self, teacher: TeacherView) -> None:
        """No cell is corrected yet."""
        self.state["corrected"] = torch.zeros_like(teacher.unlabelled_scores, dtype=torch.bool)

    def begin_epoch(self, teacher: TeacherView) -> None:
        """The share of cells that is doubted in this epoch."""
        self.state["doubted"] = torch.tensor(min(1.0, teacher.epoch * self.percent / 100))

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """Absent, but for what was corrected for good and what is doubted now."""
        corrected = self.recall("corrected", batch.scores, batch.rows)
        targets = corrected.to(batch.student.dtype)
        share = float(self.state["doubted"])
        if share == 0:
            return Pseudo(targets)
        losses = binary_cross_entropy(torch.logit(batch.student, eps=1e-7), targets)
        return self.doubt(batch, targets, *largest(losses, ~corrected, math.ceil(losses.numel() * self.share(share))))

    def share(self, doubted: float) -> float:
        """Which part of a batch's cells is doubted."""
        return doubted

    def doubt(self, batch: UnlabelledBatch, targets: Tensor, chosen: Tensor, strictly: Tensor) -> Pseudo:
        """What to do with the cells of large loss."""
        raise TypeError(f"{type(self).__name__} has no rule for cells of large loss")

    def pseudo_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy: the asymmetric loss would take the loss from most absent cells."""
        return binary_cross_entropy(logits, targets)
