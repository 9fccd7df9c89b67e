"""Soft labels for all training images from a few labelled ones: a regression, smoothed over the graph of neighbours.

What labels do not change (graph, refined word scores, principal axes) is computed once, so that trying other labels,
as cross-validation does, costs a fraction of a second.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewtags.metrics import average_precision
from fewtags.solvers.folds import MIN_CHOICE, SURE, balanced_folds, choose_paired, out_of_fold_scores, repeats
from fewtags.solvers.graph import Neighbours, clamp_known, find_neighbours, smooth
from fewtags.solvers.regression import fit_regression, mask_folds, principal_basis
from fewtags.solvers.words import fit_with_words, names_known, refine

CLEARLY = 2.0  # standard errors by which a candidate must lead where names are read: graph and names then do no harm


class SoftLabeller:
    """Scores of n training images, the labelled ones first; each is a probability per tag."""

    def __init__(self, vectors: Tensor, words: Tensor, labelled: int, neighbours: int, rounds: int) -> None:
        """vectors [n, d] of mean zero; words [n, K or 0]: what tags' names say, standardised."""
        self.vectors, self.words, self.labelled = vectors, words, labelled
        self._neighbours, self._rounds = neighbours, rounds
        self.named = names_known(words)
        self._basis = principal_basis(vectors[:labelled]) if labelled else vectors[:0]

    @cached_property
    def graph(self) -> Neighbours:
        """Neighbours of every image."""
        return find_neighbours(self.vectors, self._neighbours)

    @cached_property
    def refined(self) -> Tensor | None:
        """Word scores learned from the vectors without labels; None where no names are read."""
        return refine(self.words, self.vectors, self.graph) if len(self.named) else None

    def fit(self, targets: Tensor, strength: float, with_words: bool = True, tolerance: float = 1e-4) -> Tensor:
        """Probabilities [n, K] by labels [labelled, K] (1, 0, negative for unknown) and words; known cells stay."""
        if with_words and self.refined is not None:
            logits = fit_with_words(self._basis, targets, self.refined, strength).logits(self.vectors, self.refined)
        else:
            logits = fit_regression(self._basis, targets, strength, tolerance).logits(self.vectors)
        probabilities = logits.sigmoid().float()
        return torch.cat([clamp_known(probabilities[: self.labelled], targets), probabilities[self.labelled :]])

    def smooth(self, probabilities: Tensor, share: float) -> Tensor:
        """Probabilities [n, K] spread over the graph."""
        return smooth(probabilities, self.graph, share, self._rounds) if share else probabilities

    def out_of_fold(
        self,
        targets: Tensor,
        fold: NDArray[np.int64],
        strength: float,
        shares: Sequence[float],
        with_words: bool = True,
    ) -> dict[float, Tensor]:
        """Scores [labelled, K] of labelled images by the labels of the other folds, for each share of the graph."""
        folds = torch.from_numpy(fold).to(targets.device)
        fitted = [self.fit(known, strength, with_words, tolerance=1e-3) for known in mask_folds(targets, folds)]
        return {
            share: out_of_fold_scores(folds, [self.smooth(one, share)[: self.labelled] for one in fitted])
            for share in shares
        }


class SoftChoice(NamedTuple):
    """What the labelled images prefer."""

    share: float
    with_words: bool


def choose_smoothing(
    labeller: SoftLabeller,
    targets: Tensor,
    strength: float,
    shares: Sequence[float],
    default: float,
    groups: NDArray[np.int64] | None = None,
) -> SoftChoice:
    """Share of the graph, and whether names are heard, by cross-validation, repeated where labels are few."""
    known = targets.cpu().numpy()
    sure = CLEARLY if bool(labeller.named.any()) else SURE
    usual = SoftChoice(default, True)
    if len(known) < MIN_CHOICE or not (known == 1).any():
        return usual
    found: dict[SoftChoice, list[NDArray[np.float64]]] = {}
    for repeat in range(repeats(len(known))):
        fold = balanced_folds(known, seed=repeat, groups=groups)
        for with_words in (True, False) if bool(labeller.named.any()) else (True,):
            held = labeller.out_of_fold(targets, fold, strength, sorted({*shares, default}), with_words)
            for share, scores in held.items():
                precision = average_precision(scores.cpu().numpy(), known)
                found.setdefault(SoftChoice(share, with_words), []).append(precision)
    return choose_paired({name: np.stack(values) for name, values in found.items()}, usual, sure)
