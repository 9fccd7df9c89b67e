"""DiCaP (AAAI 2026), without its contrastive terms: pseudo-labels weighed by how often such scores are right.

A fifth of the labelled images is held out of the labelled loss. At every epoch's start they show, tag by tag, how
often a score in each of 20 bins is right; that share, interpolated, weighs the pseudo-labels. Two thresholds a tag,
the mid-range of the scores of positive and of negative images, leave out what lies between them.
The original adds an ML-Decoder and a contrastive loss on the cells between the thresholds; it reports most of its
gain for the weights and thresholds.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fewtags.methods.base import Method, Pseudo, Seen, Step, UnlabelledBatch
from fewtags.thresholds import correctness, mid_ranges


class DiCaP(Method):
    """Correctness-weighted dual thresholds with a held-out part."""

    paper: ClassVar[str] = "DiCaP, AAAI"
    year: ClassVar[int] = 2026

    held_out: float = Field(0.2, gt=0, lt=1)
    """Share of the labelled images that measures instead of teaching."""
    bins: int = Field(20, ge=2)
    """Resolution of the correctness curve; 20 as reported."""

    def begin_main(self, seen: Seen) -> None:
        """Which labelled images are held out: every n-th, for the split has shuffled them."""
        count = len(seen.targets)
        every = max(2, round(1 / self.held_out))
        self.state["held"] = torch.arange(count) % every == every - 1

    def begin_epoch(self, seen: Seen) -> None:
        """Correctness on the held-out images, thresholds on all labelled ones."""
        held = self.state["held"]
        scores = seen.labelled_scores
        self.state["curve"] = correctness(scores[held], seen.targets[held], self.bins)
        self.state["upper"], self.state["lower"] = mid_ranges(scores, seen.targets)
        self.state["held_targets"], self.state["held_weights"] = self._judge(scores)

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """Sure cells, weighed."""
        return Pseudo(*self._judge(batch.scores))

    def loss(self, step: Step, update: str = "all") -> dict[str, Tensor]:
        """Held-out images are taught what the method makes of them, not what their labels say."""
        if step.pseudo is None or step.rows is None:
            return super().loss(step, update)
        held = self.state["held"].to(step.rows.device)[step.rows][:, None]
        targets = torch.where(held, step.targets.new_tensor(-1), step.targets)
        terms = super().loss(Step(step.labelled, targets, step.unlabelled, step.pseudo, step.rows), update)
        made, weights = (self.state[name].to(step.rows.device)[step.rows] for name in ("held_targets", "held_weights"))
        cells = self.cell_loss(self._part(step.labelled["whole_make"]), made)
        return terms | {"held_out": (cells * weights * held).sum()}

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
