"""Which images get a tag: thresholds from calibrated probabilities, from labelled images, or from what names say."""

from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewtags.metrics.calibration import Calibration, fit_calibration
from fewtags.thresholds import metric_adaptive

Floats = NDArray[np.floating]
Prefer = Literal["precision", "balance", "recall"]
BETAS: dict[Prefer, float] = {"precision": 0.5, "balance": 1.0, "recall": 2.0}  # of the textbook F_beta
LOWEST = 0.75  # a tag's own threshold may lie so far below the common one; further down most tags would be wrong
LEAST_SURE = 1.25  # mean probability of the images that get a tag, in common thresholds; VOC's train images, scenes
POOL = 20_000  # unlabelled images that curves and thresholds are fitted on; more change nothing
CLEAR = 0.08  # evidence; with no label 97 of 100 tags that VOC's test images get are right (results/voc/words.csv: op)
IMAGES_PER_CLEAR_ONE: dict[Prefer, float] = {"precision": 0.5, "balance": 1.0, "recall": 2.0}


class NameThresholds(NamedTuple):
    """What tags' names say about thresholds; see `thresholds_by_name`."""

    alone: NDArray[Any]  # [K] for a tag that no labelled image shows; infinite: given to none
    named: NDArray[np.bool_]  # [K] whose names say something


def calibrated_thresholds(
    held_out: tuple[Floats, NDArray[np.int8]],
    pool: Floats,
    givable: NDArray[np.bool_],
    prefer: Prefer,
) -> tuple[Calibration, Floats]:
    """Curves of all tags, and the threshold [K] that the probability of each must reach.

    held_out: scores and labels [n, K] of labelled images that were not learned from; pool [M, K]: scores of the images
    to be tagged, by the final model (where there are none, those of the labelled images stand for them).
    """
    pool = some_rows(pool) if len(pool) else held_out[0]
    calibration = fit_calibration(*held_out, pool)
    return calibration, choose_thresholds(calibration(pool), givable, prefer)


def some_rows(pool: Floats) -> Floats:
    """At most POOL rows, the same for the same number of rows."""
    if len(pool) <= POOL:
        return pool
    return pool[np.sort(np.random.default_rng(0).permutation(len(pool))[:POOL])]


def choose_thresholds(probabilities: Floats, givable: NDArray[np.bool_], prefer: Prefer = "balance") -> Floats:
    """One threshold per tag [K], from the probabilities [M, K] of the images to be tagged; no label is needed.

    The common threshold c maximises the expected F_beta of all tags together, (1 + β²) Σ_given p / (|given| + β² Σ p).
    A tag may have a lower one if that serves its own F, but not below 0.75 c. It has a higher one where the images
    that get it would show it with a mean probability below 1.25 c. Tags that are not givable [K], and those that no
    image would get, have an infinite threshold.
    """
    thresholds = np.full(probabilities.shape[1], np.inf)
    columns = np.flatnonzero(givable)
    if not len(probabilities) or not len(columns):
        return thresholds
    beta = BETAS[prefer]
    common = best_threshold(probabilities[:, columns].ravel(), beta)
    for column in columns:
        own = best_threshold(probabilities[:, column], beta)
        least = _lowest_sure(probabilities[:, column], LEAST_SURE * common)
        thresholds[column] = max(min(common, max(own, LOWEST * common)), least)
    return np.where((probabilities >= thresholds).any(0), thresholds, np.inf)


def _lowest_sure(probabilities: Floats, mean: float) -> float:
    """The lowest threshold above which the mean probability [n] is at least this; infinite if there is none."""
    falling = np.append(-np.sort(-probabilities.astype(np.float64)), 0.0)
    means = np.cumsum(falling[:-1]) / np.arange(1, len(falling))
    sure = np.flatnonzero(means >= mean)
    # halfway to the next: a threshold that equals a probability would be missed by rounding
    return float(falling[sure[-1] : sure[-1] + 2].mean()) if len(sure) else np.inf


def best_threshold(probabilities: Floats, beta: float) -> float:
    """The threshold that maximises the expected F_beta of these cells [n]: F / (1 + β²), F being that maximum.

    A cell with a lower probability would bring F down, one with a higher raises it.

    >>> round(best_threshold(np.array([0.9, 0.8, 0.1, 0.1]), 1.0), 3)
    0.436
    """
    falling = np.sort(probabilities.astype(np.float64))[::-1]
    hits = np.cumsum(falling)
    return float(np.max(hits / (np.arange(1, len(falling) + 1) + beta**2 * max(hits[-1], 1e-12))))


def thresholds_of_learned(scores: Floats, labels: NDArray[np.int8], prefer: Prefer) -> Floats:
    """Where no labelled image was left out: the F_beta-optimal threshold of every tag [K] on the images [n, K] it
    learned.

    A model knows these by heart, so the thresholds are rough.
    """
    best = partial(metric_adaptive, metric="f_beta", beta=BETAS[prefer], textbook_beta=True)
    return best(scores, labels) if len(scores) else np.full(labels.shape[1], np.inf, scores.dtype)


def thresholds_by_name(scores: Floats, evidence: Floats, prefer: Prefer) -> NameThresholds:
    """Thresholds for tags that no label shows: as many images get a tag as show its classes clearly.

    scores [n, K] rank the images; evidence [n, K] is what a frozen classifier itself sees of a tag's classes. Its scale
    does not depend on the data, so a tag that no image shows is given to none; the ranking alone cannot tell.
    """
    wanted = np.ceil(IMAGES_PER_CLEAR_ONE[prefer] * (evidence >= CLEAR).sum(0)).astype(np.int64)
    ranked = -np.sort(-scores, axis=0)
    place = np.clip(wanted, 1, len(scores)) - 1
    reached = np.maximum(np.take_along_axis(ranked, place[None], 0)[0], 0.5)
    return NameThresholds(np.where(wanted > 0, reached, np.inf), evidence.std(0) > 1e-6)
