"""CF1 and OF1 under the same rules for every method: who decides which score is high enough."""

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
    """What `f1_scores` says of the test images [T, K] under each of RULES; `own` [K] thresholds, if there are any."""
    decisions = {
        "mat": decide(scores, metric_adaptive(labelled_scores, labelled, "f1")),
        "half": scores >= 0.5,
        "top_k": best_of_each(scores, tags_an_image(labelled)),
    }
    if own is not None:
        decisions["own"] = decide(scores, own)
    return {name: f1_scores(decisions[name], truth) for name in RULES if name in decisions}


def tags_an_image(labelled: NDArray[Any]) -> int:
    """How many tags a labelled image [N, K] carries in the mean, rounded up: 2 for VOC, 3 for COCO, 2 for NUS-WIDE."""
    known = np.maximum((labelled >= 0).sum(0), 1)
    mean = round(float(((labelled == 1).sum(0) / known).sum()), 4)
    return min(int(labelled.shape[1]), max(1, math.ceil(mean)))


def best_of_each(scores: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """The k best tags of every image [n, K]; of equal scores the first."""
    chosen = np.zeros(scores.shape, bool)
    np.put_along_axis(chosen, np.argsort(-scores, axis=1, kind="stable")[:, :k], True, axis=1)
    return chosen
