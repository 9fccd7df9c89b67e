"""Counts for the charts: reliability of scores, and co-occurrence of tags."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BINS = 10


class Bin(NamedTuple):
    """The decisions with scores between two bounds."""

    low: float
    high: float
    decisions: int
    score: float  # mean; nan without decisions
    positive_share: float  # nan without decisions


def reliability_bins(scores: NDArray[Any], targets: NDArray[Any]) -> list[Bin]:
    """Scores and targets [n, K] in BINS of equal width; unknown targets are left out."""
    known = targets >= 0
    values, present = scores[known].astype(np.float64), targets[known] == 1
    place = np.minimum((values * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    sums = (np.bincount(place, weights=weights, minlength=BINS) for weights in (values, present))
    score, positive_share = (np.divide(one, counts, out=np.full(BINS, np.nan), where=counts > 0) for one in sums)
    return [
        Bin(
            number / BINS, (number + 1) / BINS, int(counts[number]), float(score[number]), float(positive_share[number])
        )
        for number in range(BINS)
    ]


class CoOccurrence(NamedTuple):
    """How often pairs of tags are given to the same image."""

    tags: list[str]
    counts: NDArray[np.int64]  # [k, k] images with both tags; diagonal: with the tag

    def pairs(self, most: int) -> list[tuple[str, str, int]]:
        """The `most` most frequent pairs."""
        first, second = np.triu_indices(len(self.tags), 1)
        order = np.argsort(-self.counts[first, second], kind="stable")[:most]
        found = [(self.tags[first[n]], self.tags[second[n]], int(self.counts[first[n], second[n]])) for n in order]
        return [pair for pair in found if pair[2]]


def co_occurrence_counts(given: NDArray[np.bool_], tags: list[str], most: int) -> CoOccurrence:
    """Co-occurrence of the `most` most frequent tags, in the order of `tags`. given [n, K]."""
    often = given.sum(0)
    chosen = np.sort(np.argsort(-often, kind="stable")[:most])
    chosen = chosen[often[chosen] > 0]
    table = given[:, chosen].astype(np.float32)  # exact up to 16 million images
    return CoOccurrence([tags[place] for place in chosen], np.rint(table.T @ table).astype(np.int64))
