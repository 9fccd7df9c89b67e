"""The order of questions by active learning: least certain first, balanced over tags."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
HELD_BACK_FIRST = 5  # images of a tag that no image gets


def distances(scores: Floats, thresholds: Floats) -> NDArray[np.float64]:
    """The distance of each score [N, K] from its tag's threshold [K]: 0 at the threshold, 1 at a score of 0 or 1.

    The threshold of a tag that is never given is infinite: the highest score counts as nearest.
    """
    scores = np.asarray(scores, np.float64)
    reach = np.where(np.isfinite(thresholds), thresholds, 1.0)
    below = (reach - scores) / np.maximum(reach, 1e-9)
    above = (scores - reach) / np.maximum(1 - reach, 1e-9)
    return np.clip(np.where(scores < reach, below, above), 0, 1)


def active_learning_order(
    scores: Floats, thresholds: Floats, open_cells: NDArray[np.bool_], examples: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Rows of scores [N, K], those with the most informative open cells [N, K] first; rows without open cells last.

    Every tag has a queue of its open cells, nearest to its threshold first. The queues take turns; a tag with few
    examples [K] comes more often: with a quarter of the examples, twice as often. So no tag dominates the
    beginning, and scores need not be comparable between tags. The rank of an image is that of its first cell. Before
    all others come the surest images of tags that are held back, a few for each: these lack examples most.
    """
    count, tags = scores.shape
    away = distances(scores, thresholds)
    away[~open_cells] = np.inf
    turns = np.empty((count, tags))
    places = np.arange(1, count + 1)
    for tag in range(tags):
        queue = np.argsort(away[:, tag], kind="stable")
        turns[queue, tag] = places * np.sqrt(examples[tag] + 1.0)
    if examples.any():  # otherwise every tag lacks examples
        held_back = np.isinf(thresholds)
        first = turns[:, held_back] <= HELD_BACK_FIRST * np.sqrt(examples[held_back] + 1.0)
        turns[:, held_back] *= np.where(first, 1 / (count * tags + 1), 1.0)
    turns[~open_cells] = np.inf
    return np.argsort(turns.min(axis=1, initial=np.inf), kind="stable")
