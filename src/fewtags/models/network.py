"""A body and its heads; the body is a backbone that reads pixels, or an adapter that reads stored features."""

import torch
from torch import Tensor, nn

from fewtags.models.heads import Logits


class Network(nn.Module):
    """body: [B, *x] -> [B, width]; heads: (vectors, part) -> logits by name."""

    def __init__(self, body: nn.Module, heads: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.heads = heads

    def forward(self, whole: Tensor, patches: Tensor | None = None) -> Logits:
        """whole [B, *x] and patches [B, n, *x] -> `whole_*` logits [B, K] and `patch_*` logits [B, n, K].

        Two passes through the body, whole images first: BatchNorm sees them as two batches, as released.
        """
        logits: Logits = dict(self.heads(self.body(whole), "whole"))
        if patches is not None and patches.shape[1] > 0:
            of_patches = self.heads(self.body(patches.flatten(0, 1)), "patch")
            logits |= {name: z.unflatten(0, patches.shape[:2]) for name, z in of_patches.items()}
        return logits


class Adapter(nn.Module):
    """Frozen features, brought to one length, plus a correction that starts at zero: x + W2 relu(W1 x).

    The correction is what labelled and unlabelled images learn in common when the backbone is frozen.
    """

    def __init__(self, width: int, hidden: int, length: float = 10.0) -> None:
        super().__init__()
        self.length = length
        self.narrow = nn.Linear(width, hidden)
        self.widen = nn.Linear(hidden, width)
        nn.init.zeros_(self.widen.weight)
        nn.init.zeros_(self.widen.bias)

    def forward(self, features: Tensor) -> Tensor:
        """features [B, width] -> [B, width]."""
        x = self.length * nn.functional.normalize(features.float(), dim=-1)
        corrected: Tensor = x + self.widen(torch.relu(self.narrow(x)))
        return corrected
