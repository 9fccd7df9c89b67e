"""CF1 and OF1 under the same decision rules for every method."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewtags.metrics.multilabel import f1_scores
from fewtags.thresholds import decide, metric_adaptive

RULES = {
    "mat": "the threshold of every tag that serves F1 best on the labelled images",
    "own": "the method's own thresholds for pseudo-labels, where it has some for every tag",
    "half": "one half for every tag",
    "top_k": "the k best tags of every image, k as many as a labelled image carries, rounded up",
}


def f1_under_rules(
    scores: NDArray[Any],
    truth: NDArray[Any],
    labelled_scores: NDArray[Any],
    labelled: NDArray[Any],
    own: NDArray[Any] | None,
) -> dict[str, dict[str, float]]:
    """`f1_scores` of the test images [T, K] under each of RULES; `own` [K]: the method's thresholds, if any."""
    decisions = {
        "mat": decide(scores, metric_adaptive(labelled_scores, labelled, "f1")),
        "half": scores >= 0.5,
        "top_k": top_k_per_image(scores, tags_per_image(labelled)),
    }
    if own is not None:
        decisions["own"] = decide(scores, own)
    return {name: f1_scores(decisions[name], truth) for name in RULES if name in decisions}


def tags_per_image(labelled: NDArray[Any]) -> int:
    """The mean number of tags per labelled image [N, K], rounded up: 2 for VOC, 3 for COCO, 2 for NUS-WIDE."""
    known = np.maximum((labelled >= 0).sum(0), 1)
    mean = round(float(((labelled == 1).sum(0) / known).sum()), 4)
    return min(int(labelled.shape[1]), max(1, math.ceil(mean)))


def top_k_per_image(scores: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """The k highest-scoring tags of every image [n, K]; ties go to the first tag."""
    chosen = np.zeros(scores.shape, bool)
    np.put_along_axis(chosen, np.argsort(-scores, axis=1, kind="stable")[:, :k], True, axis=1)
    return chosen
