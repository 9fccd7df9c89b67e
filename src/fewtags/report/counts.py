"""What the charts count: how often a score is right, and which tags go together."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BINS = 10


class Bin(NamedTuple):
    """The decisions whose score lies between two bounds."""

    low: float
    high: float
    decisions: int
    score: float  # in the mean; nan without decisions
    right: float  # share in which the tag is there; nan without decisions


def reliability(scores: NDArray[Any], targets: NDArray[Any]) -> list[Bin]:
    """Scores and targets [n, K] in BINS of equal width; cells whose target is unknown are left out."""
    known = targets >= 0
    values, present = scores[known].astype(np.float64), targets[known] == 1
    place = np.minimum((values * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    sums = (np.bincount(place, weights=weights, minlength=BINS) for weights in (values, present))
    score, right = (np.divide(one, counts, out=np.full(BINS, np.nan), where=counts > 0) for one in sums)
    return [
        Bin(number / BINS, (number + 1) / BINS, int(counts[number]), float(score[number]), float(right[number]))
        for number in range(BINS)
    ]


class Together(NamedTuple):
    """How often tags are given to the same image."""

    tags: list[str]
    counts: NDArray[np.int64]  # [k, k] images with both; the diagonal: with the one

    def pairs(self, most: int) -> list[tuple[str, str, int]]:
        """The pairs that occur most often."""
        first, second = np.triu_indices(len(self.tags), 1)
        order = np.argsort(-self.counts[first, second], kind="stable")[:most]
        found = [(self.tags[first[n]], self.tags[second[n]], int(self.counts[first[n], second[n]])) for n in order]
        return [pair for pair in found if pair[2]]


def together(given: NDArray[np.bool_], tags: list[str], most: int) -> Together:
    """The tags that are given most often, at most so many, in their own order. given [n, K]."""
    often = given.sum(0)
    chosen = np.sort(np.argsort(-often, kind="stable")[:most])
    chosen = chosen[often[chosen] > 0]
    table = given[:, chosen].astype(np.float32)  # exact up to 16 million images
    return Together([tags[place] for place in chosen], np.rint(table.T @ table).astype(np.int64))
