"""Named linear heads, and how what they say about patches and the whole image becomes one score."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

# What a network says of a batch: "whole_make" and "whole_use" [B, K], "patch_make" and "patch_use" [B, n, K].
# Heads that make pseudo-labels learn from labels; heads that use them learn from pseudo-labels.
Logits = dict[str, Tensor]
Merge = Literal["logits", "probs"]
FIRST_BIAS = -2.5  # a tag is rare before anything is known: sigmoid(-2.5) is 8 %


def merge_patches(values: Tensor, alpha: float = 1.0) -> Tensor:
    """One value a tag out of its values on n patches: their mean, weighted by softmax(values / alpha).

    values [B, n, K], logits or probabilities -> [B, K], between the mean and the maximum.

    >>> merge_patches(torch.tensor([[[2.0], [0.0], [0.0], [-2.0]]]))
    tensor([[1.5232]])
    """
    return (torch.softmax(values / alpha, dim=1) * values).sum(dim=1)


def patch_logits(values: Tensor, merge: Merge = "logits", alpha: float = 1.0) -> Tensor:
    """Patch logits [B, n, K] -> the logit [B, K] of what the patches say together.

    `logits` merges logits, as the released code does; `probs` merges probabilities, as Eq. 4 of the paper.
    """
    if merge == "logits":
        return merge_patches(values, alpha)
    return torch.logit(merge_patches(values.sigmoid(), alpha), eps=1e-6)


def mixed_scores(logits: Logits, merge: Merge = "logits", alpha: float = 1.0) -> Tensor:
    """The score [B, K] in 0..1 of the heads that learn from labels: whole image and patches in equal parts."""
    whole = logits["whole_make"].float()
    if "patch_make" not in logits:
        return whole.sigmoid()
    patch = logits["patch_make"].float()
    if merge == "logits":
        return ((whole + merge_patches(patch, alpha)) / 2).sigmoid()
    return (whole.sigmoid() + merge_patches(patch.sigmoid(), alpha)) / 2


class Heads(nn.Module):
    """One linear layer a name; `whole_*` reads whole images, `patch_*` reads patches.

    Where no head is made for patches, the one of the whole image reads them.
    """

    def __init__(self, width: int, tags: int, names: Sequence[str]) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, nn.Linear(width, tags))

    def start_at(self, bias: float) -> "Heads":
        """Zero weights and one bias: on few labels the first steps then depend on the data alone."""
        for head in self.children():
            assert isinstance(head, nn.Linear)  # noqa: S101 - for the type checker
            nn.init.zeros_(head.weight)
            nn.init.constant_(head.bias, bias)
        return self

    def forward(self, vectors: Tensor, part: str) -> Logits:
        """vectors [B, width], part "whole" or "patch" -> the logits [B, K] of every head of that part."""
        heads = dict(self.named_children())
        if part == "patch" and "patch_make" not in heads:
            return {"patch_make": heads["whole_make"](vectors)}
        return {name: head(vectors) for name, head in heads.items() if name.startswith(part)}

    def without(self, names: Sequence[str]) -> "Heads":
        """The same heads but for these."""
        kept = {name: head for name, head in self.named_children() if name not in names}
        fewer = Heads(0, 0, ())
        for name, head in kept.items():
            fewer.add_module(name, head)
        return fewer

    @torch.no_grad()
    def copy_make_to_use(self) -> None:
        """Let the heads that use pseudo-labels start where the ones that make them are."""
        heads = dict(self.named_children())
        for name in heads.keys() & {"whole_use", "patch_use"}:
            heads[name].load_state_dict(heads[name.replace("use", "make")].state_dict())


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
