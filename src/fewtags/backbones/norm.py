"""BatchNorm that bears small batches, and that several processes compute over the batch of all."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F


class SteadyBatchNorm(nn.BatchNorm2d):
    """BatchNorm2d that treats a single value a channel, which has no deviation, as it does after training.

    One image at 32 px comes to that: the last map is 1 × 1. Torch refuses it.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x [B, C, H, W]."""
        single = x.numel() == x.shape[1]
        if self.training and single and self.running_mean is not None and self.running_var is not None:
            # copies: whatever the same step normalises next moves the originals before the gradient needs them
            mean, variance = self.running_mean.clone(), self.running_var.clone()
            return F.batch_norm(x, mean, variance, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


class JoinedBatchNorm(nn.BatchNorm2d):
    """SteadyBatchNorm whose statistics are those of all processes; on any backend, CPUs included."""

    def forward(self, x: Tensor) -> Tensor:
        """x [B, C, H, W]; B may differ between processes and be 0."""
        if not self.training:
            return super().forward(x)
        self._check_input_dim(x)
        wide = x if x.dtype == torch.float64 else x.float()
        sums = wide.sum((0, 2, 3), dtype=torch.float64)  # in double, as torch does it for one process
        total = sum_of_all(torch.cat([sums, sums.new_tensor([x.numel() / x.shape[1]])]))
        count = total[-1]
        mean = self._unless_single(count, total[:-1] / count, self.running_mean)
        centred = wide - mean.to(wide.dtype).view(1, -1, 1, 1)
        variance = sum_of_all(centred.square().sum((0, 2, 3), dtype=torch.float64)) / count
        variance = self._unless_single(count, variance, self.running_var)
        with torch.no_grad():
            if self.running_mean is not None and self.running_var is not None and self.momentum is not None:
                self.running_mean.lerp_(mean.detach().to(wide.dtype), self.momentum)
                unbiased = variance.detach() * count / (count - 1).clamp(min=1)
                self.running_var.lerp_(unbiased.to(wide.dtype), self.momentum)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(count > 1)
        y = centred * torch.rsqrt(variance + self.eps).to(wide.dtype).view(1, -1, 1, 1)
        if self.weight is not None:
            y = y * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)
        return y.to(x.dtype)

    @staticmethod
    def _unless_single(count: Tensor, found: Tensor, running: Tensor | None) -> Tensor:
        """What was found in a batch, or the running value where it has a single value a channel."""
        return found if running is None else torch.where(count > 1, found, running.double())


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
    _turn_batch_norms(network, JoinedBatchNorm)


def steady_batch_norms(network: nn.Module) -> None:
    """Let every BatchNorm2d of a network bear a single value a channel."""
    _turn_batch_norms(network, SteadyBatchNorm)


def _turn_batch_norms(network: nn.Module, into: type[nn.BatchNorm2d]) -> None:
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = into
