"""The teacher: an exponential moving average of a network's weights and buffers."""

import copy

import torch
from torch import Tensor

from fewtags.model.network import Network


class Average:
    """A copy of a network that follows it slowly: v' <- decay · v' + (1 - decay) · v, buffers included."""

    def __init__(self, network: Network, decay: float) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self.decay = decay

    @torch.no_grad()
    def follow(self, network: Network) -> None:
        """One update, to be called after every optimiser step."""
        slow: list[Tensor] = []
        fast: list[Tensor] = []
        for ours, theirs in zip(self.network.state_dict().values(), network.state_dict().values(), strict=True):
            if ours.is_floating_point():
                slow.append(ours)
                fast.append(theirs)
            else:
                ours.copy_(theirs)  # counters cannot be averaged
        torch._foreach_mul_(slow, self.decay)
        torch._foreach_add_(slow, fast, alpha=1 - self.decay)
