"""LL-Cp (Kim et al., CVPR 2022): unlabelled cells count as absent; those of the largest loss become present for good.

Table 1, row "LL-*" (the best of LL-R, LL-Ct, LL-Cp). In both released codes a comparison by identity turns LL-Cp into
LL-Ct; this is the method as described.
"""

from torch import Tensor

from fewtags.methods._large_loss import LargeLoss
from fewtags.methods.base import Pseudo, UnlabelledBatch


class LLCp(LargeLoss):
    """Large-loss permanent correction."""

    def share(self, doubted: float) -> float:
        """The same small part in every step: what was corrected stays so."""
        return self.percent / 100

    def doubt(self, batch: UnlabelledBatch, targets: Tensor, chosen: Tensor, strictly: Tensor) -> Pseudo:
        """Turn them round in this step, and keep those strictly above the limit."""
        corrected = self.state["corrected"]
        rows = batch.rows.to(corrected.device)
        corrected[rows] |= strictly.to(corrected.device)
        return Pseudo((targets.bool() | chosen).to(targets.dtype))
