"""Cross-validation on the labelled images: stratified folds and out-of-fold scores."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewtags.metrics import average_precision, mean_average_precision
from fewtags.solvers.regression import Basis, fit_folds, principal_basis

T = TypeVar("T")
FOLDS = 5
MIN_LABELLED = 20  # labelled images; with fewer nothing is chosen by cross-validation
STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1)  # L2 strengths, for vectors of mean square length one
SURE = 1.0  # standard errors by which a candidate must lead the default: less is chance, more misses what is better
MIN_CHOICE = 30  # labelled images; with fewer a choice costs more than it brings (VOC's train images, drawn scenes)
REPEATS, FEW = 3, 100  # other folds are tried too where fewer images than FEW are labelled
MAX_LABELLED = 600  # labelled images used for a choice; more make it slower, not better


def balanced_folds(
    targets: NDArray[np.int8], count: int = FOLDS, seed: int = 0, groups: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The fold [N] of every image, each tag spread over the folds as evenly as possible.

    Images of the rarest tag come first, each goes to the fold with the fewest of that tag, then the fewest images.
    groups [N]: images with the same number share a fold, or each would give the other away.
    """
    if groups is not None:
        numbers, of_group = np.unique(groups, return_inverse=True)
        together = np.zeros((len(numbers), targets.shape[1]), np.int8)
        np.maximum.at(together, of_group, (targets == 1).astype(np.int8))
        return balanced_folds(together, count, seed)[of_group]
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


def cross_validated(
    basis: Basis, targets: Tensor, strength: float, groups: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """The average precision [repeats, K] of a regression on the other folds; see `repeats`."""
    known, found = targets.cpu().numpy(), []
    for repeat in range(repeats(len(known))):
        fold = torch.from_numpy(balanced_folds(known, seed=repeat, groups=groups)).to(targets.device)
        models = fit_folds(basis, targets, strength, fold)
        vectors = basis.coordinates @ basis.axes.T + basis.centre
        scores = out_of_fold_scores(fold, [model.logits(vectors).sigmoid() for model in models])
        found.append(average_precision(scores.cpu().numpy(), known))
    return np.stack(found)


def repeats(labelled: int) -> int:
    """How often cross-validation is done, with other folds."""
    return REPEATS if labelled < FEW else 1


def choose_paired(tried: Mapping[T, NDArray[np.float64]], default: T, sure: float = SURE) -> T:
    """The candidate with the best mean, or the default where that lead may be chance.

    tried: the average precision [repeats, K] of every tag under each candidate. The lead must be so many times its
    standard error over tags.

    >>> choose_paired({"a": np.array([[0.5, 0.6, 0.7]]), "b": np.array([[0.6, 0.7, 0.8]])}, default="a")
    'b'
    """
    means = {name: values.mean(0) for name, values in tried.items()}  # NaN for a tag that no image shows
    best = max(means, key=lambda name: (float(np.nanmean(means[name])), name == default))
    lead = means[best] - means[default]
    lead = lead[~np.isnan(lead)]
    error = lead.std(ddof=1) / len(lead) ** 0.5 if len(lead) > 1 else np.inf
    return best if len(lead) and lead.mean() > sure * error else default
