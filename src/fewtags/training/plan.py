"""Which images meet in which step: a pure function of seed, stage and epoch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class StepRows:
    """The images of one step, as positions among the labelled and among the unlabelled images."""

    labelled: Rows
    unlabelled: Rows

    def share(self, rank: int, processes: int) -> "StepRows":
        """What one of several processes takes of the step."""
        return StepRows(self.labelled[rank::processes], self.unlabelled[rank::processes])


def plan_epoch(
    labelled: int, unlabelled: int, labelled_batch: int, unlabelled_batch: int, key: tuple[int, ...] | None
) -> list[StepRows]:
    """The steps of one epoch. `key` seeds the shuffling; None keeps the order of the split.

    With unlabelled images every one of them is met once, and the labelled ones start over as often as needed;
    `unlabelled_batch` 0 means one pass over the labelled images. Last batches may be smaller; without labelled
    images theirs are empty.
    """
    if unlabelled_batch == 0:
        nothing = np.empty(0, np.int64)
        return [StepRows(rows, nothing) for rows in _batches(_order(labelled, key, 0), labelled_batch)]
    steps: list[StepRows] = []
    passes = 0
    left: list[Rows] = []
    for rows in _batches(_order(unlabelled, key, 0), unlabelled_batch):
        if not left:
            passes += 1
            left = _batches(_order(labelled, key, passes), labelled_batch)
        steps.append(StepRows(left.pop(0) if left else np.empty(0, np.int64), rows))
    return steps


def _order(count: int, key: tuple[int, ...] | None, part: int) -> Rows:
    if key is None:
        return np.arange(count)
    return np.random.default_rng([*key, part]).permutation(count)


def _batches(rows: Rows, size: int) -> list[Rows]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
