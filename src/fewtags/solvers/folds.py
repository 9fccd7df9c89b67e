"""Cross-validation on the labelled images: stratified folds and out-of-fold scores."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewtags.metrics import mean_average_precision
from fewtags.solvers.regression import fit_folds, principal_basis

FOLDS = 5
MIN_LABELLED = 20  # labelled images; with fewer nothing is chosen by cross-validation
STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1)  # L2 strengths, for vectors of mean square length one
MAX_LABELLED = 600  # labelled images used for a choice; more make it slower, not better


def balanced_folds(targets: NDArray[np.int8], count: int = FOLDS, seed: int = 0) -> NDArray[np.int64]:
    """The fold [N] of every image, each tag spread over the folds as evenly as possible.

    Images of the rarest tag come first, each goes to the fold with the fewest of that tag, then the fewest images.
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


class StrengthScore(NamedTuple):
    """The cross-validation result of one regularisation strength."""

    strength: float
    map: float  # of the out-of-fold scores


def select_strength(vectors: Tensor, targets: Tensor, strengths: Sequence[float] = STRENGTHS) -> StrengthScore:
    """The L2 strength with the best mAP in cross-validation; ties go to the larger.

    vectors [N, d] of mean square length one; at most MAX_LABELLED images are used.
    """
    asked = torch.from_numpy(np.random.default_rng(0).permutation(len(targets))[:MAX_LABELLED]).to(targets.device)
    vectors, targets = vectors[asked], targets[asked]
    fold = torch.from_numpy(balanced_folds(targets.cpu().numpy())).to(targets.device)

    basis = principal_basis(vectors)

    def tried(strength: float) -> StrengthScore:
        models = fit_folds(basis, targets, strength, fold)
        scores = out_of_fold_scores(fold, [model.logits(vectors).sigmoid() for model in models])
        return StrengthScore(strength, mean_average_precision(scores.cpu().numpy(), targets.cpu().numpy()))

    return max((tried(strength) for strength in strengths), key=lambda one: (round(one.map, 4), one.strength))


def out_of_fold_scores(fold: Tensor, scores: Sequence[Tensor]) -> Tensor:
    """Scores [N, K] of every image by the model that did not see its fold; scores: one [N, K] per fold, in order."""
    found = torch.empty_like(scores[0])
    for number, one in enumerate(scores):
        found[fold == number] = one[fold == number]
    return found
