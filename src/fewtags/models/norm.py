"""BatchNorm over the batch of all processes, so that several of them learn what one would."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class JoinedBatchNorm(nn.BatchNorm2d):
    """BatchNorm2d whose statistics are those of all processes; on any backend, CPUs included."""

    def forward(self, x: Tensor) -> Tensor:
        """x [B, C, H, W]; B may differ between processes and be 0."""
        if not self.training:
            return super().forward(x)
        self._check_input_dim(x)
        x32 = x.float()
        sums = x32.sum((0, 2, 3), dtype=torch.float64)  # in double, as torch does it for one process
        total = sum_of_all(torch.cat([sums, sums.new_tensor([x.numel() / x.shape[1]])]))
        count = total[-1]
        mean = total[:-1] / count
        centred = x32 - mean.float().view(1, -1, 1, 1)
        variance = sum_of_all(centred.square().sum((0, 2, 3), dtype=torch.float64)) / count
        with torch.no_grad():
            if self.running_mean is not None and self.running_var is not None and self.momentum is not None:
                self.running_mean.lerp_(mean.detach().float(), self.momentum)
                unbiased = variance.detach() * count / (count - 1).clamp(min=1)
                self.running_var.lerp_(unbiased.float(), self.momentum)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        y = centred * torch.rsqrt(variance + self.eps).float().view(1, -1, 1, 1)
        if self.weight is not None:
            y = y * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)
        return y.to(x.dtype)


class _SumOfAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.contiguous().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # every process used the sum
        return _SumOfAll.forward(ctx, gradient)


def sum_of_all(value: Tensor) -> Tensor:
    """The sum of a tensor over all processes; gradients find their way back to each."""
    total: Tensor = _SumOfAll.apply(value)  # type: ignore[no-untyped-call]
    return total


def join_batch_norms(network: nn.Module) -> None:
    """Let every BatchNorm2d of a network see the batch of all processes."""
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = JoinedBatchNorm
