"""Scores to probabilities, one curve per tag, and how far they are from the truth.

Platt's curve has two numbers per tag, p = sigmoid(offset + slope * logit(score)), and a tag with three examples cannot
tell them. So all tags share a prior that is learned from all of them (empirical Bayes): a tag with few examples follows
the common curve, one with many its own. A second source needs no label: the probabilities of all unlabelled images must
add up to what the labelled ones show of the tag. It also ties curves, which are fitted to scores of models that learned
from fewer labels, to the scale of the final model.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewtags.thresholds import as_numpy

Floats = NDArray[np.float64]
EDGE = 1e-4  # scores below it, or above its complement, count as one when curves are fitted
OUTER_EDGE = 1e-7  # and when they are used
STEP = 0.05  # of the logits at which scores are counted
OFFSETS, LOG_SLOPES = np.linspace(-9.0, 6.0, 46), np.linspace(np.log(0.15), np.log(5.0), 13)
GRID = np.stack([one.ravel() for one in np.meshgrid(OFFSETS, LOG_SLOPES, indexing="ij")])  # [2, G]
ROUNDS = 15  # of expectation and maximisation
FIRST_SPREAD = np.array([1.5, 0.5])  # standard deviations of offset and log slope between tags
USUAL_SPREAD, USUAL_WORTH = np.array([0.8, 0.5]), 5.0  # a prior on them, worth so many tags
LEAST_SPREAD = np.array([0.15, 0.1])
SEEN = 2  # positives; the only positive of a tag was scored by a model that knew of none
LOW = 0.2  # calibration error: cells below it are mostly absent tags, which everything gets right
BINS = 10


class Calibration(NamedTuple):
    """p = sigmoid(offset + slope * logit(score)) for every tag; rising, so the order of images stays."""

    slope: Floats  # [K], above zero
    offset: Floats  # [K]

    def __call__(self, scores: NDArray[Any]) -> NDArray[np.float32]:
        """Scores [n, K] in 0..1 -> probabilities [n, K]."""
        return sigmoid(self.offset + self.slope * logit(scores, OUTER_EDGE)).astype(np.float32)

    def pairs(self) -> list[tuple[float, float]]:
        """Slope and offset of every tag, ready for JSON."""
        return [(float(a), float(b)) for a, b in zip(self.slope, self.offset, strict=True)]


def logit(scores: NDArray[Any], edge: float = EDGE) -> Floats:
    """Log odds; scores are kept at least `edge` away from 0 and 1."""
    inside = np.clip(np.asarray(scores, np.float64), edge, 1 - edge)
    found: Floats = np.log(inside) - np.log(1 - inside)
    return found


def sigmoid(logits: NDArray[Any]) -> Floats:
    """Probabilities of log odds."""
    found: Floats = 0.5 * (1 + np.tanh(0.5 * logits))
    return found


def fit_calibration(scores: NDArray[Any], labels: NDArray[Any], pool: NDArray[Any]) -> Calibration:
    """The curves of K tags.

    scores [n, K] and labels [n, K] (1, 0, negative for unknown) of labelled images that were scored by models that had
    not learned from them; pool [M, K]: scores of unlabelled images by the final model.
    """
    present, absent = labels == 1, labels == 0
    positives, known = present.sum(0), (labels >= 0).sum(0)
    centres = _centres()
    of_present, of_absent, of_pool = (
        _counts(scores, present), _counts(scores, absent), _counts(pool, np.ones(pool.shape, bool))
    )  # fmt: skip
    of_pool = of_pool / max(1, len(pool))
    counted = positives >= SEEN
    total = of_present[counted].sum(0)
    x = centres - (total @ centres / total.sum() if total.sum() else 0.0)
    z = GRID[0][:, None] + np.exp(GRID[1])[:, None] * x  # [G, bins]
    likelihood = -(of_present @ np.logaddexp(0, -z).T + of_absent @ np.logaddexp(0, z).T) * counted[:, None]
    curves = sigmoid(z)
    share = np.clip(of_pool @ curves.T, 1e-9, 1 - 1e-9)  # [K, G] of the pool that shows the tag
    likelihood += positives[:, None] * np.log(share) + (known - positives)[:, None] * np.log1p(-share)
    curve = _posterior(likelihood, positives > 0) @ curves  # [K, bins] the mean over all that is plausible
    return _straightened(centres, curve, of_pool)


def _posterior(likelihood: Floats, learn: NDArray[np.bool_]) -> Floats:
    """How plausible each point of the grid is for each tag [K, G], under a prior learned from the tags in `learn`."""
    mean, spread = np.zeros(2), FIRST_SPREAD
    for _ in range(ROUNDS if learn.any() else 1):
        log_density = likelihood - (((GRID - mean[:, None]) / spread[:, None]) ** 2).sum(0) / 2
        weights = np.exp(log_density - log_density.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        if not learn.any():
            break
        means = weights[learn] @ GRID.T
        variances = weights[learn] @ (GRID.T**2) - means**2
        mean = means.mean(0)
        squares = ((means - mean) ** 2 + variances).sum(0) + USUAL_WORTH * USUAL_SPREAD**2
        spread = np.maximum(np.sqrt(squares / (learn.sum() + USUAL_WORTH)), LEAST_SPREAD)
    found: Floats = weights
    return found


def _straightened(x: Floats, curve: Floats, of_pool: Floats) -> Calibration:
    """The lines [K] nearest to curves [K, bins] in log odds, where most of the pool is undecided."""
    inside = np.clip(curve, 1e-9, 1 - 1e-9)
    y = np.log(inside) - np.log1p(-inside)
    weight = of_pool * (curve * (1 - curve) + 1e-4) + 1e-9
    weight /= weight.sum(1, keepdims=True)
    mean_x, mean_y = weight @ x, (weight * y).sum(1)
    variance = weight @ x**2 - mean_x**2
    slope = ((weight * y) @ x - mean_x * mean_y) / np.maximum(variance, 1e-12)
    slope = np.clip(slope, *np.exp(LOG_SLOPES[[0, -1]]))
    return Calibration(slope, mean_y - slope * mean_x)


def _centres() -> Floats:
    top = float(logit(np.array(1.0)))
    return np.arange(-top, top + STEP, STEP)


def _counts(scores: NDArray[Any], cells: NDArray[np.bool_]) -> Floats:
    """How many of these cells [n, K] have a logit near each centre [K, bins]."""
    centres = _centres()
    place = np.clip(np.rint((logit(scores) - centres[0]) / STEP).astype(np.int64), 0, len(centres) - 1)
    found = [np.bincount(place[cells[:, k], k], minlength=len(centres)) for k in range(scores.shape[1])]
    return np.stack(found).astype(np.float64)


def calibration_error(probabilities: ArrayLike, labels: ArrayLike, low: float = LOW) -> float | None:
    """Expected calibration error over the known cells with a probability of `low` or more, in ten bins; None: no cell.

    The mean distance, weighted by the number of cells, between the mean probability of a bin and how often the tag is
    there.

    >>> calibration_error(np.array([[0.8], [0.8], [0.8], [0.8], [0.8]]), np.array([[1], [1], [1], [1], [0]]))
    0.0
    """
    values, truth = as_numpy(probabilities), as_numpy(labels)
    asked = (truth >= 0) & (values >= low)
    count = int(asked.sum())
    if not count:
        return None
    p, present = values[asked].astype(np.float64), truth[asked] == 1
    place = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(place, p - present, minlength=BINS)
    return round(float(np.abs(gaps).sum() / count), 12)
