"""How good tags will be, from scores of labelled images by models that never saw their labels."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewtags.metrics.bootstrap import middle, redraw, redrawn_figures
from fewtags.metrics.multilabel import average_precision, decision_counts, f1_scores, mean_average_precision, ratio
from fewtags.thresholds import decide, metric_adaptive

PREFER = {"precision": 0.5, "balance": 1.0, "recall": 2.0}  # beta of F_beta in the textbook's sense
DRAWN, MANY = 30, 5_000  # draws of the images that thresholds are the mean of, and images from which one is enough
ENOUGH = 5  # labelled images that show a tag, below which its figures say too little


def thresholds_for(scores: NDArray[Any], labels: NDArray[Any], prefer: str) -> NDArray[Any]:
    """The threshold of every tag [K] that serves F_beta on these images [N, K], in the mean over draws of them.

    The best threshold of few images lies at one of them by chance, and mostly too low: on VOC's train images the mean
    over draws gives OF1 81.0 in place of 79.3. Of many images one draw says the same.
    """
    best = partial(metric_adaptive, metric="f_beta", beta=PREFER[prefer], textbook_beta=True)
    found = best(scores, labels)
    if len(scores) > MANY:
        return found
    rng = np.random.default_rng(0)
    drawn = (rng.integers(0, len(scores), len(scores)) for _ in range(DRAWN))
    tables = np.stack([found, *(best(scores[rows], labels[rows]) for rows in drawn)])
    known = np.isfinite(tables)  # a draw without any image of a tag says nothing of it
    mean = np.where(known, tables, 0).sum(0) / np.maximum(known.sum(0), 1)
    return np.where(np.isfinite(found), mean, found).astype(scores.dtype)


def tagging_thresholds(
    held_out: tuple[NDArray[Any], NDArray[Any]] | None, learned: tuple[NDArray[Any], NDArray[Any]], prefer: str
) -> NDArray[Any]:
    """The thresholds [K] for tagging, from (scores, labels) of images whose labels were not learned.

    A tag that those do not show has its threshold from the images that were learned; one that these do not show either
    was not learned, and is never given.
    """
    by_heart = thresholds_for(*learned, prefer)
    if held_out is None:
        return by_heart
    found = thresholds_for(*held_out, prefer)
    return np.where(np.isfinite(found) & np.isfinite(by_heart), found, by_heart)


def decide_without_own(
    scores: NDArray[Any], labels: NDArray[Any], fold: NDArray[np.int64], prefer: str
) -> NDArray[Any]:
    """Decisions [N, K] by thresholds that the images of the same fold [N] had no part in."""
    decisions = np.zeros(scores.shape, scores.dtype)
    for number in np.unique(fold):
        out = fold == number
        decisions[out] = decide(scores[out], thresholds_for(scores[~out], labels[~out], prefer))
    return decisions


def estimate(
    scores: NDArray[Any],
    labels: NDArray[Any],
    fold: NDArray[np.int64],
    thresholds: NDArray[Any],
    tags: Sequence[str],
    prefer: str,
    how: str,
) -> dict[str, Any]:
    """Figures over all tags and for each, 0..1, with intervals; ready for JSON.

    scores, labels [N, K] of images whose scores never saw their labels; thresholds [K] are those that will tag.
    """
    decisions = decide_without_own(scores, labels, fold, prefer)
    redrawn = redraw(scores, labels, decisions)
    over_all = redrawn_figures(redrawn)
    hits, given, true = decision_counts(decisions, labels)
    figures = {
        "precision": (ratio(hits, given), ratio(redrawn.hits, redrawn.given)),
        "recall": (ratio(hits, true), ratio(redrawn.hits, redrawn.true)),
        "f1": (ratio(2 * hits, given + true), ratio(2 * redrawn.hits, redrawn.given + redrawn.true)),
        "ap": (average_precision(scores, labels), redrawn.ap),
    }
    rows = [
        {
            "tag": tag,
            "support": int(true[place]),
            "threshold": _plain(thresholds[place]),
            **{name: _plain(value[place]) for name, (value, _) in figures.items()},
            "intervals": {name: middle(draws[:, place]) for name, (_, draws) in figures.items()},
            "enough": bool(true[place] >= ENOUGH),
        }
        for place, tag in enumerate(tags)
    ]
    f1 = f1_scores(decisions, labels)
    return {
        "how": how,
        "prefer": prefer,
        "images": len(scores),
        "map": _plain(mean_average_precision(scores, labels)),
        "cf1": f1["cf1"],
        "of1": f1["of1"],
        "intervals": {name: middle(values) for name, values in over_all.items()},
        "per_tag": rows,
    }


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
