"""Bootstrap over images: the sampling distribution of metrics, and percentile intervals."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewtags.metrics.multilabel import ratio

Floats = NDArray[np.float64]
RESAMPLES = 200  # bootstrap samples


class BootstrapSamples(NamedTuple):
    """Counts and average precision of each bootstrap sample (S of them) and tag (K)."""

    ap: Floats  # [S, K] average precision, NaN where no positive was drawn
    hits: Floats  # [S, K] true positives
    given: Floats  # [S, K] predicted positives
    true: Floats  # [S, K] actual positives


def sample_weights(images: int, count: int = RESAMPLES) -> NDArray[np.int64]:
    """How often each image occurs in each bootstrap sample [count, images]; depends on these numbers alone.

    Two models evaluated on the same images are therefore evaluated on the same samples, which pairs them.
    """
    rng = np.random.default_rng(images)
    return rng.multinomial(images, np.full(images, 1 / images), size=count)


def bootstrap(scores: NDArray[Any], truth: NDArray[Any], decisions: NDArray[Any]) -> BootstrapSamples:
    """Evaluate all bootstrap samples. scores, decisions (0 or 1), truth (1, 0, negative: unknown, ignored): [N, K]."""
    weights = sample_weights(len(scores)).astype(np.float64)
    known, true = truth >= 0, truth == 1
    given = decisions.astype(bool) & known
    columns = [_average_precision(scores[known[:, k], k], true[known[:, k], k], weights[:, known[:, k]])
               for k in range(scores.shape[1])]  # fmt: skip
    return BootstrapSamples(np.stack(columns, axis=1), weights @ (given & true), weights @ given, weights @ true)


def bootstrap_figures(samples: BootstrapSamples) -> dict[str, Floats]:
    """mAP, CF1 and OF1 [S], as `summarise` computes them, of each sample."""
    precision, recall = ratio(samples.hits, samples.given), ratio(samples.hits, samples.true)
    cp, cr = np.nan_to_num(precision).mean(1), np.nan_to_num(recall).mean(1)
    hits = samples.hits.sum(1)
    op, overall = ratio(hits, samples.given.sum(1)), ratio(hits, samples.true.sum(1))
    some = ~np.isnan(samples.ap).all(1)
    mean = np.full(len(samples.ap), np.nan)
    mean[some] = np.nanmean(samples.ap[some], axis=1)
    cf1, of1 = (np.nan_to_num(ratio(2 * p * r, p + r)) for p, r in ((cp, cr), (op, overall)))
    return {"map": mean, "cf1": cf1, "of1": of1}


def percentile_interval(values: Floats) -> list[float] | None:
    """The 95 % percentile interval [low, high] of bootstrap values; None if more than half of them are NaN."""
    defined = values[~np.isnan(values)]
    if 2 * len(defined) < len(values) or not len(defined):
        return None
    low, high = np.percentile(defined, [2.5, 97.5])
    return [float(low), float(high)]


def _average_precision(scores: NDArray[Any], true: NDArray[np.bool_], weights: Floats) -> Floats:
    """Average precision [S] of n images with weights [S, n], ties grouped."""
    if not len(scores):
        return np.full(len(weights), np.nan)
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    weights = weights[:, order]
    hits = np.cumsum(weights * true[order], axis=1)[:, ends]
    given = np.cumsum(weights, axis=1)[:, ends]
    gained = np.diff(hits, axis=1, prepend=0)
    return ratio((gained * np.nan_to_num(ratio(hits, given))).sum(1), hits[:, -1])
