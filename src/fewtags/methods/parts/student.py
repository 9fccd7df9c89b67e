"""A small student of soft labels, the scaling of frozen features it reads, and a bank of the images it learned from."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fewtags.methods.parts.heads import FIRST_BIAS, Logits
from fewtags.solvers.graph import LOWEST, POWER, find_neighbours

LENGTH = 10.0


class Centred(nn.Module):
    """Frozen features moved to mean zero and brought to a root mean square length of 10 over the training images."""

    centre: Tensor
    factor: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("factor", torch.ones(()))

    def fit(self, centre: Tensor, length: float) -> None:
        """Take the mean of the training images, and the root of the mean square of their distance to it."""
        self.centre.copy_(centre)
        self.factor.fill_(LENGTH / max(length, 1e-12))

    def forward(self, features: Tensor) -> Tensor:
        """features [B, width] -> [B, width]."""
        return (features.float() - self.centre) * self.factor


class Student(nn.Module):
    """Vectors -> hidden layer -> logits; without a hidden layer (0) a linear one. Mixes images while it learns."""

    def __init__(self, width: int, hidden: int, tags: int, dropout: float = 0.0, mixup: float = 0.0) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout)) if hidden else None
        self.top = nn.Linear(hidden or width, tags)
        nn.init.zeros_(self.top.weight)
        nn.init.constant_(self.top.bias, FIRST_BIAS)
        self.mixup = mixup

    def forward(self, vectors: Tensor, part: str) -> Logits:
        """vectors [B, width] -> logits [B, K]; while learning also `mix` [B, 2]: own share, and the partner's row."""
        if not (self.training and self.mixup and part == "whole" and len(vectors)):
            return {f"{part}_make": self._logits(vectors)}
        share = torch.distributions.Beta(self.mixup, self.mixup).sample().to(vectors)
        partner = torch.randperm(len(vectors), device=vectors.device)
        mixed = share * vectors + (1 - share) * vectors[partner]
        return {
            f"{part}_make": self._logits(mixed),
            "mix": torch.stack([share.expand(len(vectors)), partner.to(vectors)], dim=1),
        }

    def _logits(self, vectors: Tensor) -> Tensor:
        logits: Tensor = self.top(vectors if self.hidden is None else self.hidden(vectors))
        return logits


class Bank(nn.Module):
    """Half of a score from the heads, half from the nearest of the training images."""

    vectors: Tensor
    soft: Tensor

    def __init__(self, heads: nn.Module, images: int, width: int, tags: int, neighbours: int) -> None:
        super().__init__()
        self.heads = heads
        self.neighbours = neighbours
        self.register_buffer("vectors", torch.zeros(images, width, dtype=torch.float16))
        self.register_buffer("soft", torch.zeros(images, tags))

    def forward(self, vectors: Tensor, part: str) -> Logits:
        """vectors [B, width] -> logits [B, K]."""
        own = self.heads(vectors, part)[f"{part}_make"].sigmoid()
        found = find_neighbours(vectors, self.neighbours, self.vectors)
        return {f"{part}_make": torch.logit((own + found.average(self.soft)) / 2, eps=1e-6)}


class TraceableBank(nn.Module):
    """A Bank in steps that can be traced: every similarity at once, for any number of images."""

    among: Tensor
    soft: Tensor

    def __init__(self, bank: Bank) -> None:
        super().__init__()
        self.heads = bank.heads
        self.neighbours = min(bank.neighbours, len(bank.vectors))
        self.register_buffer("among", normalize(bank.vectors.float(), dim=1).T.contiguous())
        self.register_buffer("soft", bank.soft)

    def forward(self, vectors: Tensor, part: str) -> Logits:
        """vectors [B, width] -> logits [B, K]."""
        own = self.heads(vectors, part)[f"{part}_make"].sigmoid()
        cosines, rows = (normalize(vectors.float(), dim=1) @ self.among).topk(self.neighbours, dim=1)
        weights = cosines.clamp(min=LOWEST).pow(POWER)
        weights = weights / weights.sum(1, keepdim=True)
        found = (self.soft[rows] * weights[:, :, None]).sum(1)
        return {f"{part}_make": torch.logit((own + found) / 2, eps=1e-6)}
