"""DiCaP (AAAI 2026), without its contrastive terms: pseudo-labels weighed by how often such scores are right.

A fifth of the labelled images is held out of the labelled loss, in the warm-up too. At every epoch's start they show,
tag by tag, how often a score in each of 20 bins is right; that share, interpolated, weighs the pseudo-labels. Two
thresholds a tag, the mid-range of the scores of positive and of negative images, leave out what lies between them.
The original adds an ML-Decoder, a contrastive loss on the cells between the thresholds, and a last stage on the
held-out images; it reports most of its gain for the weights and thresholds.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fewtags.methods.base import Method, Pseudo, Step, TeacherView, UnlabelledBatch
from fewtags.thresholds import correctness, mid_ranges


class DiCaP(Method):
    """Correctness-weighted dual thresholds with a held-out part."""

    paper: ClassVar[str] = "DiCaP, AAAI"
    year: ClassVar[int] = 2026

    held_out: float = Field(0.2, gt=0, le=0.5)
    """Share of the labelled images that measures instead of teaching: every n-th, 1/n being nearest to it."""
    bins: int = Field(20, ge=2)
    """Resolution of the correctness curve; 20 as reported."""

    def begin_epoch(self, teacher: TeacherView) -> None:
        """Correctness on the held-out images, thresholds on all labelled ones."""
        scores = teacher.labelled_scores
        targets = teacher.targets.to(scores.device)
        held = self._held(torch.arange(len(scores), device=scores.device))
        self.state["curve"] = correctness(scores[held], targets[held], self.bins)
        self.state["upper"], self.state["lower"] = mid_ranges(scores, targets)
        self.state["held_targets"], self.state["held_weights"] = self._judge(scores)

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """Sure cells, weighed."""
        return Pseudo(*self._judge(batch.scores))

    def loss(self, step: Step, update: str = "all") -> dict[str, Tensor]:
        """Held-out images are taught what the method makes of them, not what their labels say."""
        if step.rows is None:
            return super().loss(step, update)
        held = self._held(step.rows).to(step.targets.device)[:, None]
        unknown = torch.full_like(step.targets, -1)
        terms = super().loss(replace(step, targets=torch.where(held, unknown, step.targets)), update)
        if step.pseudo is None:
            return terms
        made, weights = (self.recall(name, held, step.rows) for name in ("held_targets", "held_weights"))
        cells = [self.pseudo_loss(self._part(step.labelled[f"{part}_make"]), made) for part in self._parts]
        return terms | {"held_out": (torch.stack(cells) * weights * held).sum()}

    def _held(self, rows: Tensor) -> Tensor:
        """Whether these labelled images are held out."""
        every = round(1 / self.held_out)
        return rows % every == every - 1

    def _judge(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Targets and weights [B, K] for scores [B, K]."""
        upper, lower, curve = (self.state[name].to(scores) for name in ("upper", "lower", "curve"))
        present = scores > upper
        right = at_scores(curve, scores)
        weights = torch.where(present, right, 1 - right) * (present | (scores < lower))
        return present.to(scores.dtype), weights


def at_scores(curve: Tensor, scores: Tensor) -> Tensor:
    """The curve [bins, K] at scores [B, K]: linear between the middles of the bins, level beyond them."""
    place = (scores * len(curve) - 0.5).clamp(0, len(curve) - 1)
    below = place.floor().long().clamp(max=len(curve) - 2)
    part = place - below
    return curve.gather(0, below) * (1 - part) + curve.gather(0, below + 1) * part
