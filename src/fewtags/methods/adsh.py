"""ADSH (Guo & Li, ICML 2022), with sigmoid in place of softmax: every tag keeps the share of its predictions that
the majority tag keeps at a high threshold. Table 1, row "ADSH".

A prediction is a score of at least 0.5, the label-wise analogue of "the best class is k". Where no prediction of the
majority tag is confident, the original keeps everything; here the least is kept.
"""

from typing import ClassVar

import torch
from pydantic import Field

from fewtags.methods.base import Method, Pseudo, TeacherView, UnlabelledBatch, shares
from fewtags.thresholds import decide, selection_share


class ADSH(Method):
    """Adaptive thresholds by selection share, once an epoch."""

    paper: ClassVar[str] = "Guo & Li, ICML"
    year: ClassVar[int] = 2022

    confident: float = Field(0.95, gt=0.5, lt=1)
    """The majority tag's threshold, and the highest of any tag."""
    drop_uncertain: bool = False
    """Leave out scores between 0.5 and the threshold; the paper's objective counts every cell."""

    def begin_epoch(self, teacher: TeacherView) -> None:
        """Thresholds from the teacher's scores of all unlabelled images."""
        scores = teacher.unlabelled_scores
        before = self.state.get("thresholds", torch.full_like(scores[0], self.confident)).to(scores)
        majority = int(shares(teacher.targets).argmax())
        self.state["thresholds"] = selection_share(scores, scores >= 0.5, before, majority, self.confident)

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """What reaches its tag's threshold."""
        targets = decide(batch.scores, self.state["thresholds"].to(batch.scores))
        if not self.drop_uncertain:
            return Pseudo(targets)
        return Pseudo(targets, ((targets > 0) | (batch.scores < 0.5)).to(batch.scores.dtype))
