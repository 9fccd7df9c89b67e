"""LL-R (Kim et al., CVPR 2022): unlabelled cells count as absent; those of the largest loss are left out.

Table 1, row "LL-*" (the best of LL-R, LL-Ct, LL-Cp).
"""

from torch import Tensor

from fewtags.methods._large_loss import LargeLoss
from fewtags.methods.base import Pseudo, UnlabelledBatch


class LLR(LargeLoss):
    """Large-loss rejection."""

    def doubt(self, batch: UnlabelledBatch, targets: Tensor, chosen: Tensor, strictly: Tensor) -> Pseudo:
        """Leave them out of this step."""
        return Pseudo(targets, (~chosen).to(targets.dtype))
