"""A small student of soft labels, the scaling of frozen features it reads, and a bank of the images it learned from."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fewtags.methods.parts.heads import FIRST_BIAS, Logits
from fewtags.solvers.graph import LOWEST, POWER, find_neighbours
from fewtags.solvers.words import compete

LENGTH = 10.0
LEAST_DEVIATION = 1e-3  # of a word score that tells images apart


class Centred(nn.Module):
    """Frozen features moved to mean zero and brought to a root mean square length of 10 over the training images.

    words: so many of the last numbers are word scores, one per tag; they are standardised and compete with each other.
    """

    centre: Tensor
    factor: Tensor
    per_word: Tensor

    def __init__(self, width: int, words: int = 0) -> None:
        super().__init__()
        self.words = words
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("factor", torch.ones(()))
        if words:
            self.register_buffer("per_word", torch.ones(words))

    def fit(self, centre: Tensor, spread: Tensor) -> None:
        """Take the mean of the training images' numbers [width] and their mean square distances to it [width]."""
        plain = len(centre) - self.words
        self.centre.copy_(centre)
        self.factor.fill_(LENGTH / max(float(spread[:plain].sum()) ** 0.5, 1e-12))
        if self.words:
            deviation = spread[plain:].sqrt()
            self.per_word.copy_(torch.where(deviation > LEAST_DEVIATION, 1 / deviation, 0.0))

    def forward(self, features: Tensor) -> Tensor:
        """features [B, width] -> [B, width]."""
        centred = features.float() - self.centre
        if not self.words:
            return centred * self.factor
        words = compete(centred[:, -self.words :] * self.per_word, self.per_word > 0)
        return torch.cat([centred[:, : -self.words] * self.factor, words], dim=1)


class Student(nn.Module):
    """Vectors -> hidden layer -> logits; without a hidden layer (0) a linear one. Mixes images while it learns.

    words: the last numbers of a vector are word scores; the score of a tag's own name is added to its logit by a slope.
    """

    def __init__(
        self, width: int, hidden: int, tags: int, dropout: float = 0.0, mixup: float = 0.0, words: int = 0
    ) -> None:
        super().__init__()
        width -= words
        self.slope = nn.Parameter(torch.ones(words)) if words else None
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
        plain = vectors if self.slope is None else vectors[:, : -len(self.slope)]
        logits: Tensor = self.top(plain if self.hidden is None else self.hidden(plain))
        return logits if self.slope is None else logits + self.slope * vectors[:, -len(self.slope) :]


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
        found = find_neighbours(vectors[:, : self.vectors.shape[1]], self.neighbours, self.vectors)
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
        cosines, rows = (normalize(vectors[:, : len(self.among)].float(), dim=1) @ self.among).topk(
            self.neighbours, dim=1
        )
        weights = cosines.clamp(min=LOWEST).pow(POWER)
        weights = weights / weights.sum(1, keepdim=True)
        found = (self.soft[rows] * weights[:, :, None]).sum(1)
        return {f"{part}_make": torch.logit((own + found) / 2, eps=1e-6)}
