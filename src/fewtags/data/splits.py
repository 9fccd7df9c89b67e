"""Semi-supervised splits: hide the labels of some labelled images."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fewtags.data.catalogue import Catalogue, Role
from fewtags.errors import UserError, nearest

SPLITS = ("paper", "balanced")


def hide(catalogue: Catalogue, share: float, seed: int, how: str = "paper") -> Catalogue:
    """A catalogue in which a share of the labelled images stays labelled and the rest becomes unlabelled.

    paper: the first int(share·n) of RandomState(seed).permutation(n). balanced: as many, stratified so that every
    tag keeps its share and, if possible, at least one image. Rows are reordered:
    labelled, hidden, previously unlabelled, test. Targets of hidden rows are kept as ground truth for evaluation.
    """
    rows = catalogue.rows(Role.LABELLED)
    kept = _count(len(rows), share)
    if not 0 <= seed < 2**32:
        raise UserError(f"seed {seed}: must be between 0 and {2**32 - 1}")
    if how not in SPLITS:
        raise UserError(f"split {how!r} is unknown{nearest(how, SPLITS)}; there are {' and '.join(SPLITS)}")
    order = np.random.RandomState(seed).permutation(len(rows))  # the papers' generator
    if how == "balanced" and kept:
        chosen = _balanced(catalogue.targets[rows[order]] == 1, kept)
        order = np.concatenate([order[chosen], order[~chosen]])
    drawn = rows[order]
    others = [catalogue.rows(Role.UNLABELLED), catalogue.rows(Role.TEST)]
    result = catalogue.take(np.concatenate([drawn, *others]))
    roles = result.roles.copy()
    roles[kept : len(rows)] = Role.UNLABELLED
    return replace(result, roles=roles)


def _count(labelled: int, share: float) -> int:
    if not 0 <= share < 1:
        raise UserError(f"labelled share {share}: must be between 0 and 1; leave it out to use every label")
    if not labelled:
        raise UserError("no labelled training image to hide labels of")
    kept = int(share * labelled)
    if share and not kept:
        raise UserError(f"labelled share {share} of {labelled} images is less than one image; ask for more")
    return kept


def _balanced(present: NDArray[np.bool_], kept: int) -> NDArray[np.bool_]:
    """Choose exactly `kept` rows of present [n, K], which is in random order -> [n] of bool.

    First one row for every tag, rarest tag first. Then iterative stratification: row by row, beginning with the
    rarest remaining tag, each row goes to the side that lacks the larger part of its tags.
    """
    chosen = _cover(present, kept)
    free = ~chosen
    sizes = np.array([len(present) - kept, kept])  # hidden, chosen
    room = sizes - [0, chosen.sum()]
    # A last column that every row has fills both sides evenly.
    brings = np.column_stack([present, np.ones(len(present), dtype=bool)])
    goal = sizes[:, None] / len(present) * brings.sum(axis=0)  # [2, K + 1]
    lack = goal - np.stack([np.zeros(goal.shape[1]), brings[chosen].sum(axis=0)])
    left = present[free].sum(axis=0)
    while left.any():
        tag = int(np.argmin(np.where(left > 0, left, left.max() + 1)))
        for row in np.flatnonzero(present[:, tag] & free):
            mine = brings[row]
            wants = (lack[:, mine] / goal[:, mine]).sum(axis=1)
            side = int(np.argmax(np.where(room > 0, wants, -np.inf)))
            chosen[row] = side == 1
            lack[side] -= mine
            room[side] -= 1
            left -= present[row]
            free[row] = False
    chosen[np.flatnonzero(free)[: room[1]]] = True  # rows without tags fill the rest
    return chosen


def _cover(present: NDArray[np.bool_], kept: int) -> NDArray[np.bool_]:
    """At most `kept` rows [n] that cover every tag that occurs, or as many tags as possible."""
    chosen = np.zeros(len(present), dtype=bool)
    totals = present.sum(axis=0)
    bare = totals > 0
    for _ in range(kept):
        if not bare.any():
            break
        tag = int(np.argmin(np.where(bare, totals, len(present) + 1)))
        rows = np.flatnonzero(present[:, tag])
        if bare.sum() > kept - chosen.sum():  # too few for one row each: take the row with the most missing tags
            rows = rows[[np.argmax(present[rows][:, bare].sum(axis=1))]]
        chosen[rows[0]] = True
        bare &= ~present[rows[0]]
    return chosen
