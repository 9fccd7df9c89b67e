"""D2L + MAT (Xiao et al., ECCV 2024): whole image and patches learn apart, and so do the heads that make and
use pseudo-labels; every tag gets the threshold that maximises a metric on the labelled images.

CDD: one head reads the whole image, another its patches (Eq. 4 merges them); the mean of both decides.
GUD: pseudo-labels train heads of their own; only labels train the heads that make them.
MAT: at the start of an epoch the teacher's scores on labelled images set the thresholds (Eq. 7).
Table 1, row "Ours"; its ablation: `patches=1 separate_heads=false` is MAT alone, `separate_heads=false` MAT + CDD;
`thresholds=proportion` replaces MAT by the quantiles of CAP.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field

from fewtags.methods.base import Method, Pseudo, TeacherView, UnlabelledBatch, shares
from fewtags.thresholds import class_proportion, decide, metric_adaptive


class D2L(Method):
    """Dual-decoupling learning with metric-adaptive thresholds."""

    paper: ClassVar[str] = "Xiao et al., ECCV"
    year: ClassVar[int] = 2024

    patches: int = Field(2, ge=1, le=8)
    """Patches per side (CDD); 2 × 2 is best in the paper, more cut objects apart. 1 sees the whole image only."""
    separate_heads: bool = True
    """GUD: wrong pseudo-labels then never touch the heads that make the next ones."""
    thresholds: Literal["metric", "proportion"] = "metric"
    """MAT, or the quantiles of CAP instead."""
    metric: Literal["f_beta", "f1", "precision", "recall"] = "f_beta"
    """What MAT maximises for every tag."""
    beta: float = Field(0.5, gt=0)
    """Below 1 precision counts more: a wrong pseudo-label does more harm than a missing one."""
    textbook_beta: bool = False
    """F_beta with beta squared; the paper and its code write beta."""
    grid: float | None = Field(None, gt=0, lt=1)
    """Step of the released threshold search (0.01); none searches every labelled score."""
    missing_class: Literal["never", "reference"] = "never"
    """A tag without labelled positives is never pseudo-labelled; `reference` finds it everywhere, as released."""

    @property
    def separates_heads(self) -> bool:  # type: ignore[override]
        """GUD is a setting here."""
        return self.separate_heads

    def begin_epoch(self, teacher: TeacherView) -> None:
        """The threshold of every tag: MAT's from the labelled images, or CAP's from the unlabelled ones."""
        if self.thresholds == "proportion":
            found = class_proportion(
                teacher.unlabelled_scores, shares(teacher.targets), missing_class=self.missing_class
            )
            self.state["thresholds"] = found.thresholds
            return
        self.state["thresholds"] = metric_adaptive(
            teacher.labelled_scores,
            teacher.targets,
            self.metric,
            self.beta,
            grid=self.grid,
            textbook_beta=self.textbook_beta,
            missing_class=self.missing_class,
        )

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """Present where the score reaches the threshold; tags that have none are left out of the loss."""
        thresholds = self.recall("thresholds", batch.scores)
        known = torch.isfinite(thresholds).to(batch.scores).expand_as(batch.scores)
        return Pseudo(decide(batch.scores, thresholds), known)
