"""IAT (from Xie et al., NeurIPS 2023): one fixed threshold for every tag. Table 1, row "IAT".

The threshold of the paper's runs is in no released file; 0.5 is the natural reading.
"""

from typing import ClassVar

from pydantic import Field

from fewtags.methods.base import Method, Pseudo, UnlabelledBatch


class IAT(Method):
    """Instance-aware thresholding: present from one threshold upwards, absent below."""

    paper: ClassVar[str] = "Xie et al., NeurIPS"
    year: ClassVar[int] = 2023

    threshold: float = Field(0.5, gt=0, lt=1)
    """The same for all tags and epochs."""

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """What reaches the threshold."""
        return Pseudo((batch.scores >= self.threshold).to(batch.scores.dtype))
