"""PLC (Xie et al., NeurIPS 2022, stage one of LAGC): confident weak predictions supervise the strong view.

Where the teacher is sure either way, its decision is taught; the rest is left out. Table 1, row "PLC".
The original asks the student and averages over the cells that count; here, as for all methods, the teacher is
asked and cells are summed.
"""

from typing import ClassVar

from pydantic import Field

from fewtags.methods.base import Method, Pseudo, UnlabelledBatch
from fewtags.thresholds import confident


class PLC(Method):
    """Consistency of pseudo-labels: one threshold for presence, its mirror for absence."""

    paper: ClassVar[str] = "Xie et al., NeurIPS"
    year: ClassVar[int] = 2022

    threshold: float = Field(0.6, gt=0.5, lt=1)
    """Sure from here upwards, and below 1 - threshold; 0.9 serves mAP where scores are inflated, and costs F1."""

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """What the teacher is sure of."""
        return Pseudo(*confident(batch.scores, self.threshold))
