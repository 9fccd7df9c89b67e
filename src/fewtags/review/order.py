"""In which order to ask: what teaches most first, or as stored."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def distances(scores: Floats, thresholds: Floats) -> NDArray[np.float64]:
    """How far each score [N, K] lies from its tag's own threshold [K], 0 at it and 1 at the end of its side.

    A tag that is never given has no threshold (infinite): the highest score counts as the nearest.
    """
    scores = np.asarray(scores, np.float64)
    reach = np.where(np.isfinite(thresholds), thresholds, 1.0)
    below = (reach - scores) / np.maximum(reach, 1e-9)
    above = (scores - reach) / np.maximum(1 - reach, 1e-9)
    return np.clip(np.where(scores < reach, below, above), 0, 1)


def teaching_order(
    scores: Floats, thresholds: Floats, open_cells: NDArray[np.bool_], examples: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Rows of scores [N, K], those first whose open cells [N, K] teach most; rows without an open cell last.

    Every tag has a queue of its open cells, nearest to its own threshold first. The queues take turns, and a tag with
    few examples [K] comes more often: one with a quarter of the examples has two turns for one. So no tag fills the
    beginning alone, and scores of different tags need not mean the same. An image stands where its first cell does.
    """
    count, tags = scores.shape
    away = distances(scores, thresholds)
    away[~open_cells] = np.inf
    turns = np.empty((count, tags))
    places = np.arange(1, count + 1)
    for tag in range(tags):
        queue = np.argsort(away[:, tag], kind="stable")
        turns[queue, tag] = places * np.sqrt(examples[tag] + 1.0)
    turns[~open_cells] = np.inf
    return np.argsort(turns.min(axis=1, initial=np.inf), kind="stable")
