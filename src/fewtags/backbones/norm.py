"""BatchNorm that tolerates a single value per channel, and BatchNorm synchronised across processes."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F


class TolerantBatchNorm(nn.BatchNorm2d):
    """BatchNorm2d that normalises a single value per channel, which has no variance, with the running statistics.

    This happens with one image at 32 px, where the last map is 1 × 1; torch raises an error.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x [B, C, H, W]."""
        single = x.numel() == x.shape[1]
        if self.training and single and self.running_mean is not None and self.running_var is not None:
            # copies: later calls in the same step change the originals before the backward pass needs them
            mean, variance = self.running_mean.clone(), self.running_var.clone()
            return F.batch_norm(x, mean, variance, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


class SynchronisedBatchNorm(nn.BatchNorm2d):
    """TolerantBatchNorm with statistics over all processes; works on any backend, including CPUs."""

    def forward(self, x: Tensor) -> Tensor:
        """x [B, C, H, W]; B may differ between processes and be 0."""
        if not self.training:
            return super().forward(x)
        self._check_input_dim(x)
        wide = x if x.dtype == torch.float64 else x.float()
        sums = wide.sum((0, 2, 3), dtype=torch.float64)  # in float64, as torch does in one process
        total = all_reduce_sum(torch.cat([sums, sums.new_tensor([x.numel() / x.shape[1]])]))
        count = total[-1]
        mean = self._unless_single(count, total[:-1] / count, self.running_mean)
        centred = wide - mean.to(wide.dtype).view(1, -1, 1, 1)
        variance = all_reduce_sum(centred.square().sum((0, 2, 3), dtype=torch.float64)) / count
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
        """The statistic of the batch, or the running one if there is a single value per channel."""
        return found if running is None else torch.where(count > 1, found, running.double())


class _AllReduceSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.contiguous().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # every process used the sum
        return _AllReduceSum.forward(ctx, gradient)


def all_reduce_sum(value: Tensor) -> Tensor:
    """The sum of a tensor over all processes; differentiable."""
    total: Tensor = _AllReduceSum.apply(value)  # type: ignore[no-untyped-call]
    return total


def synchronise_batch_norms(network: nn.Module) -> None:
    """Synchronise every BatchNorm2d of a network across processes."""
    _convert_batch_norms(network, SynchronisedBatchNorm)


def tolerate_single_values(network: nn.Module) -> None:
    """Let every BatchNorm2d of a network accept a single value per channel."""
    _convert_batch_norms(network, TolerantBatchNorm)


def _convert_batch_norms(network: nn.Module, into: type[nn.BatchNorm2d]) -> None:
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = into
