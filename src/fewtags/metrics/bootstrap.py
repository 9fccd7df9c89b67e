"""Figures under other draws of the same images (bootstrap): how far they may be chance."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewtags.metrics.multilabel import ratio

Floats = NDArray[np.float64]
DRAWS = 200


class Redrawn(NamedTuple):
    """Every draw of D, every tag of K."""

    ap: Floats  # [D, K] average precision, NaN where no positive was drawn
    hits: Floats  # [D, K] given and true
    given: Floats  # [D, K]
    true: Floats  # [D, K]


def draws_of(images: int, count: int = DRAWS) -> NDArray[np.int64]:
    """How often each image is drawn in each sample [count, images]; depends on these numbers alone.

    So two models that are measured on the same images are measured on the same draws of them.
    """
    rng = np.random.default_rng(images)
    return rng.multinomial(images, np.full(images, 1 / images), size=count)


def redraw(scores: NDArray[Any], truth: NDArray[Any], decisions: NDArray[Any]) -> Redrawn:
    """scores, decisions (0 or 1) and truth (1, 0, negative for unknown), all [N, K]; unknown cells do not count."""
    weights = draws_of(len(scores)).astype(np.float64)
    known, true = truth >= 0, truth == 1
    given = decisions.astype(bool) & known
    columns = [_average_precision(scores[known[:, k], k], true[known[:, k], k], weights[:, known[:, k]])
               for k in range(scores.shape[1])]  # fmt: skip
    return Redrawn(np.stack(columns, axis=1), weights @ (given & true), weights @ given, weights @ true)


def redrawn_figures(found: Redrawn) -> dict[str, Floats]:
    """mAP, CF1 and OF1 [D], as `summarise` would give them for each draw."""
    precision, recall = ratio(found.hits, found.given), ratio(found.hits, found.true)
    cp, cr = np.nan_to_num(precision).mean(1), np.nan_to_num(recall).mean(1)
    op, overall = ratio(found.hits.sum(1), found.given.sum(1)), ratio(found.hits.sum(1), found.true.sum(1))
    some = ~np.isnan(found.ap).all(1)
    mean = np.full(len(found.ap), np.nan)
    mean[some] = np.nanmean(found.ap[some], axis=1)
    cf1, of1 = (np.nan_to_num(ratio(2 * p * r, p + r)) for p, r in ((cp, cr), (op, overall)))
    return {"map": mean, "cf1": cf1, "of1": of1}


def middle(values: Floats) -> list[float] | None:
    """The middle 95 % of some draws, [low, high]; None where half of them say nothing."""
    said = values[~np.isnan(values)]
    if 2 * len(said) < len(values) or not len(said):
        return None
    low, high = np.percentile(said, [2.5, 97.5])
    return [float(low), float(high)]


def _average_precision(scores: NDArray[Any], true: NDArray[np.bool_], weights: Floats) -> Floats:
    """Average precision [D] of images that count as often as they were drawn [D, n], ties grouped."""
    if not len(scores):
        return np.full(len(weights), np.nan)
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    weights = weights[:, order]
    hits = np.cumsum(weights * true[order], axis=1)[:, ends]
    given = np.cumsum(weights, axis=1)[:, ends]
    gained = np.diff(hits, axis=1, prepend=0)
    return ratio((gained * np.nan_to_num(ratio(hits, given))).sum(1), hits[:, -1])
