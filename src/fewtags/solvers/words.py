"""What tags' names say of images: refined without labels, then weighed against labels. Pure functions on tensors.

A word score [n, K] says how much of a tag's own classes a frozen classifier sees in an image, standardised per tag; a
column of zeros is a tag whose name says nothing. Even without labels it can be made better: what it says is spread over
the graph of similar images, and a regression learns it from the vectors (`refine`). Labels then decide, tag by tag, how
much the result counts (`fit_with_words`).
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fewtags.solvers.graph import Neighbours, raised, smooth
from fewtags.solvers.regression import Basis, fit_regression, principal_basis

NOBODY = -1e9  # the score of a tag that takes no part
RIVALRY = 0.3  # how much the best other tag counts against a tag
SURE = 3.0  # standard deviations above the mean at which an image is as likely as not to show a tag
REFINED_ON = 6000  # images that the regression without labels is fitted on
REFINED_STRENGTH = 1.0  # its L2 penalty
SLOPE, SLOPE_SPREAD = 2.5, 3.0  # of a refined score in the logit before any label, and how freely labels change it
BIAS_PENALTY = 0.05
STRENGTH = 0.03  # L2 penalty of the weights that learn what words do not say
WORTH = 30  # labelled images that the share expected of a tag counts as much as
SHARE_SLOPE, SHARE_BIAS = 1.75, -3.6  # refined score -> probability, for the share expected of a tag
ROUNDS = 300


def compete(scores: Tensor, known: Tensor) -> Tensor:
    """Standardised word scores [n, K], each less a part of the best other tag's; 0 where a name says nothing.

    known [K]: which names say something.
    """
    if scores.shape[1] < 2:
        return scores * known
    best = scores.masked_fill(~known, NOBODY).topk(2, dim=1)
    own = best.indices[:, :1] == torch.arange(scores.shape[1], device=scores.device)
    others = torch.where(own, best.values[:, 1:], best.values[:, :1])
    return (scores - RIVALRY * others * (others > NOBODY)) * known


def names_known(words: Tensor) -> Tensor:
    """Which columns [K] of word scores [n, K] say anything."""
    return (words != 0).any(0)


def refine(words: Tensor, vectors: Tensor, graph: Neighbours) -> Tensor:
    """Word scores [n, K] spread over the graph and learned from the vectors [n, d]; standardised per tag."""
    spread = raised(smooth(torch.sigmoid(words - SURE), graph), words.new_zeros(words.shape[1]))
    some = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(0))[:REFINED_ON].to(vectors.device)
    learned = fit_regression(vectors[some], spread[some], REFINED_STRENGTH, tolerance=1e-2)
    logits = torch.logit((learned.logits(vectors).sigmoid().float() + spread) / 2, eps=1e-6)
    scores = (logits - logits.mean(0)) / logits.std(0, correction=0).clamp(min=1e-6)
    return scores * names_known(words)


class WordRegression(NamedTuple):
    """Linear scores of vectors beside refined word scores."""

    weight: Tensor  # [K, d]
    slope: Tensor  # [K] of the tag's own word score; 0 where its name says nothing
    bias: Tensor  # [K]

    def logits(self, vectors: Tensor, refined: Tensor) -> Tensor:
        """[n, d], [n, K] -> [n, K]."""
        return vectors.to(self.weight) @ self.weight.T + self.slope * refined.to(self.slope) + self.bias


def fit_with_words(vectors: Tensor | Basis, targets: Tensor, refined: Tensor, strength: float) -> WordRegression:
    """The most probable w, a and b of logit = w·x + a·r + b, given targets [N, K] of the first N images.

    vectors [N, d] of these, or their Basis; refined [n, K]: word scores of all images, the labelled ones first.
    a and b have priors: a lies around 2.5, and b where the expected share of images shows the tag, so that words decide
    until labels say otherwise. A tag whose name says nothing is fitted as `fit_regression` does, with `strength`.
    """
    known = names_known(refined)
    width = vectors.axes.shape[0] if isinstance(vectors, Basis) else vectors.shape[1]
    first = _first_bias(targets, refined)
    slope = SLOPE * known.double()
    weight = torch.zeros(len(known), width, dtype=torch.float64, device=refined.device)
    bias = first.clone()
    if not len(targets):
        return WordRegression(weight, slope, bias)
    basis = vectors if isinstance(vectors, Basis) else principal_basis(vectors)
    plain = fit_regression(basis, targets[:, ~known], strength)
    weight[~known], bias[~known] = plain.weight, plain.bias
    if bool(known.any()):
        found = _most_probable(basis, targets[:, known], refined[: len(targets), known], first[known])
        weight[known], slope[known], bias[known] = found
    return WordRegression(weight, slope, bias)


def _first_bias(targets: Tensor, refined: Tensor) -> Tensor:
    """The bias [K] at which the mean probability of all images is the share expected of the tag, by bisection."""
    seen = targets >= 0
    positives, counted = torch.where(seen, targets, 0).sum(0).double(), seen.sum(0).double()
    scores = refined.double()
    expected = torch.sigmoid(SHARE_SLOPE * scores + SHARE_BIAS).mean(0)
    share = (positives + WORTH * expected) / (counted + WORTH)
    low, high = torch.full_like(share, -30.0), torch.full_like(share, 30.0)
    for _ in range(50):
        middle = (low + high) / 2
        too_few = torch.sigmoid(SLOPE * scores + middle).mean(0) < share
        low, high = torch.where(too_few, middle, low), torch.where(too_few, high, middle)
    return (low + high) / 2


def _most_probable(basis: Basis, targets: Tensor, refined: Tensor, first: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights [K, d], slopes [K] and biases [K] by L-BFGS."""
    wanted, seen, scores = targets.double().clamp(min=0), (targets >= 0).double(), refined.double()
    scale = (0.1 * basis.lengths + STRENGTH).rsqrt()  # a step is as long along every axis
    scaled = torch.zeros(len(first), len(scale), dtype=torch.float64, device=first.device, requires_grad=True)
    more, moved = (torch.zeros_like(first, requires_grad=True) for _ in range(2))
    optimiser = torch.optim.LBFGS(
        [scaled, more, moved],
        max_iter=ROUNDS,
        history_size=20,
        tolerance_grad=1e-4,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        weight = scaled * scale
        logits = basis.coordinates @ weight.T + (SLOPE + more) * scores + first + moved
        cells = binary_cross_entropy_with_logits(logits, wanted, seen, reduction="sum")
        priors = STRENGTH / 2 * weight.square().sum() + more.square().sum() / (2 * SLOPE_SPREAD**2)
        total = cells + priors + BIAS_PENALTY * moved.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    weight = (scaled * scale).detach() @ basis.axes.T
    return weight, (SLOPE + more).detach(), (first + moved).detach() - weight @ basis.centre
