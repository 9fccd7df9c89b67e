"""How far a difference may be chance: figures of a run under other draws of its test images, the same for all runs.

Every run on the same test images is measured on the same DRAWS bootstrap samples of them. The difference of two runs,
draw by draw, is then a paired test; over several seeds the seeds are drawn too.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewtags.thresholds import decide

DRAWS = 200
Floats = NDArray[np.float64]


def draws_of(images: int, count: int = DRAWS) -> NDArray[np.int64]:
    """How often each image is drawn in each sample [count, images]; depends on the number of images alone."""
    rng = np.random.default_rng(images)
    return rng.multinomial(images, np.full(images, 1 / images), size=count)


def redrawn_figures(scores: NDArray[Any], truth: NDArray[Any], thresholds: NDArray[Any]) -> dict[str, Floats]:
    """mAP, CF1 and OF1 [DRAWS] of test images [N, K] under every draw; unknown cells do not count."""
    weights = draws_of(len(scores)).astype(np.float64)
    known, true = truth >= 0, truth == 1
    given = decide(scores, thresholds).astype(bool) & known
    precision = [_average_precision(scores[known[:, k], k], true[known[:, k], k], weights[:, known[:, k]])
                 for k in range(scores.shape[1])]  # fmt: skip
    hits, made, there = (weights @ table for table in (given & true, given, true & known))
    with np.errstate(invalid="ignore", divide="ignore"):
        cp, cr = np.nan_to_num(hits / made).mean(1), np.nan_to_num(hits / there).mean(1)
        op, overall = hits.sum(1) / made.sum(1), hits.sum(1) / there.sum(1)
        cf1, of1 = (np.nan_to_num(2 * p * r / (p + r)) for p, r in ((cp, cr), (op, overall)))
        stacked = np.stack(precision, axis=1)
        mean = np.nansum(stacked, axis=1) / (~np.isnan(stacked)).sum(axis=1)  # NaN where a draw has no positive at all
    return {"map": mean, "cf1": cf1, "of1": of1}


def _average_precision(scores: NDArray[Any], true: NDArray[np.bool_], weights: Floats) -> Floats:
    """Average precision [draws] with weighted images, ties grouped; NaN where no positive is drawn."""
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True)) if len(scores) else np.zeros(0, int)
    weights = weights[:, order]
    hits = np.cumsum(weights * true[order], axis=1)[:, ends]
    made = np.cumsum(weights, axis=1)[:, ends]
    total = hits[:, -1:] if hits.shape[1] else np.zeros((len(weights), 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        gained = np.diff(hits, axis=1, prepend=0) / total
        summed: Floats = np.where(total[:, 0] > 0, (gained * np.nan_to_num(hits / made)).sum(1), np.nan)
    return summed


def difference(ours: Mapping[int, Floats], theirs: Mapping[int, Floats]) -> tuple[float, float] | None:
    """The middle 95 % of (ours - theirs) over draws of images and of the seeds that both have; None without any."""
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    table = np.stack([np.asarray(ours[seed]) - np.asarray(theirs[seed]) for seed in seeds])  # [seeds, draws]
    chosen = np.random.default_rng(0).integers(0, len(seeds), (len(seeds), table.shape[1]))
    low, high = np.percentile(np.take_along_axis(table, chosen, 0).mean(0), [2.5, 97.5])
    return float(low), float(high)


def is_noise(ours: Mapping[int, Floats], theirs: Mapping[int, Floats]) -> bool:
    """Whether the difference may be chance; without a common seed nothing is shown, so it may be."""
    found = difference(ours, theirs)
    return found is None or found[0] <= 0 <= found[1]
