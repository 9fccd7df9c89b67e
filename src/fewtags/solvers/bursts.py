"""Photos of one moment: near-duplicates, which must not be split between learning and testing."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from fewtags.solvers.graph import nearest

CLOSE = 0.25  # distance (1 - cosine) of near-duplicates at most; results/voc/honest/bursts.py tries it
USUAL = 0.5  # and at most so much of the distance from an ordinary image to its nearest neighbour
ORDINARY = 0.75  # quantile of those distances: bursts may be many, but not that many
SECONDS = 10.0  # between two photos of one moment
SAME_SCENE = 0.6  # distance of photos that were taken so close together
LOOKED_AT = 8  # nearest neighbours of an image
LARGEST_SHARE = 20  # a group holds at most one image in so many, or folds could not be balanced


def find_bursts(vectors: Tensor, times: Sequence[float | None] = (), close: float = CLOSE) -> NDArray[np.int64]:
    """The group [n] of every image; images of one moment share a number, which is the row of one of them.

    vectors [n, d], any scale; times: when each was taken, in seconds, or None where that is unknown; close: the
    distance of near-duplicates at most. The most alike are joined first.

    >>> find_bursts(torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.01, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])).tolist()
    [0, 0, 2, 3]
    """
    count = len(vectors)
    group = np.arange(count)
    if count < 3:
        return group
    units = normalize(vectors.float() - vectors.float().mean(0), dim=1)
    cosines, rows = (found.cpu().numpy() for found in nearest(units, units, min(LOOKED_AT, count - 1), own=True))
    distances = 1 - cosines
    limit = np.full(distances.shape, min(close, USUAL * float(np.quantile(distances[:, 0], ORDINARY))))
    if any(one is not None for one in times):
        taken = np.array([np.nan if one is None else one for one in times])
        limit[np.abs(taken[:, None] - taken[rows]) <= SECONDS] = SAME_SCENE
    first, place = np.nonzero(distances <= limit)
    order = np.argsort(distances[first, place], kind="stable")
    most = max(2, count // LARGEST_SHARE)
    members = {row: [row] for row in range(count)}
    for one, other in zip(first[order].tolist(), rows[first, place][order].tolist(), strict=True):
        small, large = sorted((int(group[one]), int(group[other])))
        if small != large and len(members[small]) + len(members[large]) <= most:
            group[members[large]] = small
            members[small] += members.pop(large)
    return group
