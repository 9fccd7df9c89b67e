"""A body and its heads; the body is a backbone that reads pixels, or an adapter that reads stored features."""

from torch import Tensor, nn

from fewtags.methods.parts.heads import Logits


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
