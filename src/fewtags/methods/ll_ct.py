"""LL-Ct (Kim et al., CVPR 2022): unlabelled cells count as absent; those of the largest loss count as present now.

Table 1, row "LL-*" (the best of LL-R, LL-Ct, LL-Cp).
"""

from torch import Tensor

from fewtags.methods._large_loss import LargeLoss
from fewtags.methods.base import Pseudo, UnlabelledBatch


class LLCt(LargeLoss):
    """Large-loss temporary correction."""

    def doubt(self, batch: UnlabelledBatch, targets: Tensor, chosen: Tensor, strictly: Tensor) -> Pseudo:
        """Turn them round for this step."""
        return Pseudo((targets.bool() | chosen).to(targets.dtype))
