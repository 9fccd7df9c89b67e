"""Top-k (from Xie et al., NeurIPS 2023): the k best tags of every image are present. Table 1, row "Top-*".

The row shows the better of Top-1 and Top-k.
"""

import math
from typing import ClassVar

import torch
from pydantic import Field

from fewtags.methods.base import Method, Pseudo, TeacherView, UnlabelledBatch, shares
from fewtags.thresholds import top_k


class TopK(Method):
    """Every image gets the same number of tags."""

    paper: ClassVar[str] = "Xie et al., NeurIPS"
    year: ClassVar[int] = 2023

    k: int | None = Field(None, ge=1)
    """Tags an image gets; none takes the mean number of a labelled image, rounded up (2 for VOC, 3 for COCO)."""

    def begin_main(self, teacher: TeacherView) -> None:
        """How many tags a labelled image carries."""
        mean = round(float(shares(teacher.targets).sum()), 4)  # a sum of shares may come out just above a whole number
        self.state["k"] = torch.tensor(self.k or max(1, math.ceil(mean)))

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """The best k; never more than there are."""
        return Pseudo(top_k(batch.scores, min(int(self.state["k"]), batch.scores.shape[1])))
