"""FreeMatch (Wang et al., ICLR 2023), with sigmoid in place of softmax: thresholds follow the model's own confidence.
Table 1, row "FM".

Two readings of the paper's one sentence. A, the literal one: a global threshold follows the mean best score, and is
scaled down for tags with low scores. B: every tag is a two-class problem of its own, with a mask for both outcomes
and, where it has a weight, the fairness term. The state is updated before it is used, as in the original; it starts
from a pass over all unlabelled images, for 1,000 steps of memory are longer than a small data set's training.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fewtags.methods.base import Method, Pseudo, Step, TeacherView, UnlabelledBatch


class FreeMatch(Method):
    """Self-adaptive thresholds."""

    paper: ClassVar[str] = "Wang et al., ICLR"
    year: ClassVar[int] = 2023

    reading: Literal["A", "B"] = "A"
    """Which way from softmax to sigmoid."""
    momentum: float = Field(0.999, gt=0, lt=1)
    """How slowly the state follows a batch."""
    fairness: float = Field(0.0, ge=0)
    """Weight of the fairness term (reading B); the released default is 0.01 for single labels."""

    def begin_main(self, teacher: TeacherView) -> None:
        """The state that an endless pass over the unlabelled images would reach."""
        self.state.update(self._moments(teacher.unlabelled_scores))

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """Move the state, then decide with it."""
        for name, value in self._moments(batch.scores).items():
            self.state[name] = self.momentum * self.state[name].to(value) + (1 - self.momentum) * value
        mean, confidence = self.state["mean"], self.state["confidence"]
        if self.reading == "A":
            self.state["thresholds"] = confidence * mean / mean.max()
            return Pseudo((batch.scores >= self.state["thresholds"]).to(batch.scores.dtype))
        present = batch.scores >= 0.5
        larger = torch.maximum(mean, 1 - mean)
        weight = torch.where(present, mean / larger, (1 - mean) / larger)
        sure = torch.maximum(batch.scores, 1 - batch.scores) >= confidence * weight
        return Pseudo(present.to(batch.scores.dtype), sure.to(batch.scores.dtype))

    def loss(self, step: Step, update: str = "all") -> dict[str, Tensor]:
        """The common loss, and the fairness term where it is asked for."""
        terms = super().loss(step, update)
        if self.fairness and step.pseudo is not None and step.pseudo.mask is not None:
            scores = self._part(step.unlabelled["whole_make"]).sigmoid()
            terms["fairness"] = self.fairness * fairness(
                scores, step.pseudo.mask.bool(), self.state["mean"], self.state["share"]
            )
        return terms

    def _moments(self, scores: Tensor) -> dict[str, Tensor]:
        """Mean score, share of predicted positives, and confidence of some images [B, K]."""
        sure = scores.max(dim=1).values.mean() if self.reading == "A" else torch.maximum(scores, 1 - scores).mean(0)
        return {"mean": scores.mean(0), "share": (scores >= 0.5).to(scores.dtype).mean(0), "confidence": sure}


def fairness(scores: Tensor, sure: Tensor, mean: Tensor, share: Tensor) -> Tensor:
    """Sum over tags of the two-outcome fairness term; 0 for a tag without a sure image.

    scores [B, K] of the student, sure [B, K], running mean and share [K]. Shares of 0 weigh nothing.
    """
    count = sure.sum(0).clamp(min=1)
    mean_now = (scores * sure).sum(0) / count
    share_now = ((scores >= 0.5) & sure).sum(0) / count
    before = _normalised(torch.stack([mean, 1 - mean]), torch.stack([share, 1 - share]).to(mean))
    now = _normalised(torch.stack([mean_now, 1 - mean_now]), torch.stack([share_now, 1 - share_now]).to(mean_now))
    return ((before * torch.log(now + 1e-12)).sum(0) * (sure.sum(0) > 0)).sum()


def _normalised(mean: Tensor, share: Tensor) -> Tensor:
    weighed = mean * torch.where(share > 0, 1 / share, torch.zeros_like(share)).detach()
    return weighed / weighed.sum(0, keepdim=True).clamp(min=1e-12)
