"""Which images the gallery shows: a random sample, the surest, the least certain, and likely mistakes in labels."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewtags.metrics import average_precision
from fewtags.report.facts import Facts

SAMPLE, OF_ALL_TAGS, MISTAKES = 96, 240, 60  # images in a group
OF_A_TAG = 12  # images that one tag brings into a group
CLOSE = 0.1  # a score no further from its threshold is a near thing
SURE = 0.75  # from here on the model contradicts a label loudly enough to ask
ABLE = 0.7  # average precision of a tag that the model may contradict: of others it knows too little


class Pick(NamedTuple):
    """An image of the gallery and the tags it is shown for, each with what the model gives it (0..1)."""

    part: str  # labelled, unlabelled, test, held_out
    row: int  # among the images of that part
    tags: list[tuple[int, float]]


class Group(NamedTuple):
    """Images that answer one question, in the order to look at them."""

    name: str
    picks: list[Pick]
    room: int  # images that it may hold


def groups(facts: Facts) -> list[Group]:
    """The four groups; the last is empty where no model was kept away from the labels."""
    return [
        Group("sample", _sample(facts), SAMPLE),
        Group("confident", _confident(facts), OF_ALL_TAGS),
        Group("uncertain", _uncertain(facts), OF_ALL_TAGS),
        Group("mistakes", _mistakes(facts), MISTAKES),
    ]


def _sample(facts: Facts) -> list[Pick]:
    count = len(facts.scores)
    rows = np.random.default_rng(facts.config.recipe.seed).permutation(count)[:SAMPLE]
    return [_pick(facts, int(row), np.flatnonzero(facts.given[row])) for row in np.sort(rows)]


def _confident(facts: Facts) -> list[Pick]:
    """For every tag in turn the images that get it with the highest scores."""
    orders = []
    for place in range(len(facts.tags)):
        rows = np.flatnonzero(facts.given[:, place])
        orders.append(rows[np.argsort(-facts.scores[rows, place], kind="stable")[:OF_A_TAG]])
    return [_pick(facts, row, np.flatnonzero(facts.given[row])) for row, _ in _in_turn(orders)]


def _uncertain(facts: Facts) -> list[Pick]:
    """For every tag in turn the images whose score is nearest to its threshold."""
    orders = []
    for place, limit in enumerate(facts.thresholds):
        distance = np.abs(facts.scores[:, place] - limit)
        rows = np.flatnonzero(distance <= CLOSE)  # none where the threshold is infinite
        orders.append(rows[np.argsort(distance[rows], kind="stable")[:OF_A_TAG]])
    return [_pick(facts, row, np.array(places)) for row, places in _in_turn(orders)]


def _mistakes(facts: Facts) -> list[Pick]:
    """Labelled images with a label that a model which never saw it contradicts, the largest loss first.

    Only tags that these models tell apart well are asked about: where they are blind, every label looks wrong.
    """
    if facts.held_out is None:
        return []
    scores, labels = facts.held_out
    able = np.nan_to_num(average_precision(scores, labels)) >= ABLE
    doubt = np.where(labels == 1, 1 - scores, scores) * ((labels >= 0) & able)  # the loss grows with it
    rows, places = np.nonzero(doubt >= SURE)
    found: dict[int, list[int]] = {}
    for number in np.argsort(-doubt[rows, places], kind="stable"):
        found.setdefault(int(rows[number]), []).append(int(places[number]))
    some = list(found.items())[:MISTAKES]
    return [Pick("held_out", row, [(place, float(scores[row, place])) for place in places]) for row, places in some]


def _pick(facts: Facts, row: int, places: NDArray[np.int64]) -> Pick:
    """An image with these tags, the highest score first."""
    order = places[np.argsort(-facts.scores[row, places], kind="stable")]
    return Pick(facts.part, row, [(int(place), float(facts.scores[row, place])) for place in order])


def _in_turn(orders: list[NDArray[np.int64]]) -> Iterable[tuple[int, list[int]]]:
    """The first rows of every order, then the second ones, …, each row once with the orders that named it."""
    found: dict[int, list[int]] = {}
    for rank in range(OF_A_TAG):
        for place, order in enumerate(orders):
            if rank < len(order):
                row = int(order[rank])
                if row in found or len(found) < OF_ALL_TAGS:
                    found.setdefault(row, []).append(place)
    return found.items()
