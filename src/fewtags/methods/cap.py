"""CAP (Xie et al., NeurIPS 2023): every tag keeps its labelled share of positives among the unlabelled images.

Once an epoch the teacher scores all unlabelled images; per tag the best ones, as many as its share in the labelled
images says, become positive, and the few negatives just below that line are left out. Table 1, row "CAP".
With `patches=2 patch_heads=false` it is trained as ever and sees the five views of D2L when it tags.
"""

from typing import ClassVar, Literal

from pydantic import Field

from fewtags.methods.base import Method, Pseudo, TeacherView, UnlabelledBatch, shares
from fewtags.thresholds import class_proportion, decide


class CAP(Method):
    """Class-aware pseudo-labels: quantiles of the unlabelled scores, frozen for an epoch."""

    paper: ClassVar[str] = "Xie et al., NeurIPS"
    year: ClassVar[int] = 2023

    positives: float = Field(1.0, gt=0, le=1)
    """Share of the positives that counts (eta 1)."""
    negatives: float = Field(0.998, gt=0, le=1)
    """Share of the negatives that counts (eta 0); the release clips it here."""
    missing_class: Literal["never", "reference"] = "never"
    """A tag without labelled positives is never pseudo-labelled; `reference` finds it everywhere, as released."""

    def begin_epoch(self, teacher: TeacherView) -> None:
        """Quantiles of the teacher's scores, and the pseudo-labels of the whole epoch."""
        scores = teacher.unlabelled_scores
        found = class_proportion(
            scores,
            shares(teacher.targets),
            positives=self.positives,
            negatives=self.negatives,
            missing_class=self.missing_class,
        )
        self.state["thresholds"] = found.thresholds
        self.state["pseudo"] = decide(scores, found.thresholds).bool()
        self.state["mask"] = (scores >= found.sure_positive) | (scores <= found.sure_negative)

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """Those made at the epoch's start."""
        targets, mask = (self.recall(name, batch.scores, batch.rows) for name in ("pseudo", "mask"))
        return Pseudo(targets.to(batch.scores.dtype), mask.to(batch.scores.dtype))
