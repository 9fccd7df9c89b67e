"""Scores of labelled images by models that never saw their labels: the labelled images in folds, each left out once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewtags.metrics import mean_average_precision
from fewtags.solvers.regression import fit_folds, own_basis

FOLDS = 5
FEW = 20  # labelled images below which nothing can be chosen by leaving some of them out
STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1)  # of the regression, for vectors of mean square length one
ASKED = 600  # labelled images at most by which something is chosen; more make the choice slower, not better


def balanced_folds(targets: NDArray[np.int8], count: int = FOLDS, seed: int = 0) -> NDArray[np.int64]:
    """The fold [N] of every image, each tag spread as evenly over the folds as it can be.

    Images of the rarest tag are dealt out first, each to the fold that has fewest of that tag, then fewest images.
    """
    present = targets == 1
    order = np.random.default_rng(seed).permutation(len(targets))
    totals = present.sum(0)
    # the rarest tag of every image; images without any come last
    rarity = np.where(present, totals, len(targets) + 1).min(axis=1, initial=len(targets) + 1)
    rarest = np.where(present, totals, len(targets) + 1).argmin(axis=1)
    held, sizes = np.zeros((count, present.shape[1]), np.int64), np.zeros(count, np.int64)
    fold = np.empty(len(targets), np.int64)
    for row in order[np.argsort(rarity[order], kind="stable")]:
        of_tag = held[:, rarest[row]] if present[row].any() else sizes
        place = int(np.lexsort((sizes, of_tag))[0])
        fold[row] = place
        held[place] += present[row]
        sizes[place] += 1
    return fold


class Tried(NamedTuple):
    """What cross-fitting says of one way."""

    strength: float
    map: float  # of the labelled images, each scored without its label


def try_strengths(vectors: Tensor, targets: Tensor, strengths: Sequence[float] = STRENGTHS) -> Tried:
    """The strength of the regression that serves the labelled images best, by cross-fitting; ties go to the larger.

    vectors [N, d] of mean square length one; of many images some are asked.
    """
    asked = torch.from_numpy(np.random.default_rng(0).permutation(len(targets))[:ASKED]).to(targets.device)
    vectors, targets = vectors[asked], targets[asked]
    fold = torch.from_numpy(balanced_folds(targets.cpu().numpy())).to(targets.device)

    basis = own_basis(vectors)

    def tried(strength: float) -> Tried:
        models = fit_folds(basis, targets, strength, fold)
        scores = held_out(fold, [model.logits(vectors).sigmoid() for model in models])
        return Tried(strength, mean_average_precision(scores.cpu().numpy(), targets.cpu().numpy()))

    return max((tried(strength) for strength in strengths), key=lambda one: (round(one.map, 4), one.strength))


def held_out(fold: Tensor, scores: Sequence[Tensor]) -> Tensor:
    """The scores [N, K] of every image by the model that did not see its fold; scores: one [N, K] a fold, in order."""
    found = torch.empty_like(scores[0])
    for number, one in enumerate(scores):
        found[fold == number] = one[fold == number]
    return found
