"""The images of the gallery: a random sample, the most and least certain ones, and likely label errors."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewtags.metrics import average_precision
from fewtags.report.facts import Facts

SAMPLE, MAX_PER_GROUP, MISTAKES = 96, 240, 60  # images per group
MAX_PER_TAG = 12  # images per tag in a group
UNCERTAIN_MARGIN = 0.1  # a score this close to its threshold is uncertain
MIN_CONFIDENCE = 0.75  # of a model that contradicts a label
MIN_AP = 0.7  # average precision of a tag; below it, contradictions are not reliable


class Selected(NamedTuple):
    """An image of the gallery and the tags it is shown for, each with its score (0..1)."""

    part: str  # labelled, unlabelled, test, held_out
    row: int  # among the images of that part
    tags: list[tuple[int, float]]


class ImageGroup(NamedTuple):
    """A group of the gallery, in the order of display."""

    name: str
    images: list[Selected]
    room: int  # maximum number of images


def select_images(facts: Facts) -> list[ImageGroup]:
    """The four groups; the last is empty if there are no held-out scores."""
    return [
        ImageGroup("sample", _sample(facts), SAMPLE),
        ImageGroup("confident", _confident(facts), MAX_PER_GROUP),
        ImageGroup("uncertain", _uncertain(facts), MAX_PER_GROUP),
        ImageGroup("mistakes", _mistakes(facts), MISTAKES),
    ]


def _sample(facts: Facts) -> list[Selected]:
    count = len(facts.scores)
    rows = np.random.default_rng(facts.config.recipe.seed).permutation(count)[:SAMPLE]
    return [_selected(facts, int(row), np.flatnonzero(facts.given[row])) for row in np.sort(rows)]


def _confident(facts: Facts) -> list[Selected]:
    """For every tag in turn, the images that get it with the highest scores."""
    orders = []
    for place in range(len(facts.tags)):
        rows = np.flatnonzero(facts.given[:, place])
        orders.append(rows[np.argsort(-facts.scores[rows, place], kind="stable")[:MAX_PER_TAG]])
    return [_selected(facts, row, np.flatnonzero(facts.given[row])) for row, _ in _round_robin(orders)]


def _uncertain(facts: Facts) -> list[Selected]:
    """For every tag in turn, the images with scores nearest to its threshold."""
    orders = []
    for place, limit in enumerate(facts.thresholds):
        distance = np.abs(facts.scores[:, place] - limit)
        rows = np.flatnonzero(distance <= UNCERTAIN_MARGIN)  # none if the threshold is infinite
        orders.append(rows[np.argsort(distance[rows], kind="stable")[:MAX_PER_TAG]])
    return [_selected(facts, row, np.array(places)) for row, places in _round_robin(orders)]


def _mistakes(facts: Facts) -> list[Selected]:
    """Labelled images with a label that a model not trained on it contradicts, the largest loss first.

    Only tags that these models recognise well: for the others every label would look wrong.
    """
    if facts.held_out is None:
        return []
    scores, labels = facts.held_out
    able = np.nan_to_num(average_precision(scores, labels)) >= MIN_AP
    doubt = np.where(labels == 1, 1 - scores, scores) * ((labels >= 0) & able)  # the loss grows with it
    rows, places = np.nonzero(doubt >= MIN_CONFIDENCE)
    found: dict[int, list[int]] = {}
    for number in np.argsort(-doubt[rows, places], kind="stable"):
        found.setdefault(int(rows[number]), []).append(int(places[number]))
    some = list(found.items())[:MISTAKES]
    return [Selected("held_out", row, [(place, float(scores[row, place])) for place in places]) for row, places in some]


def _selected(facts: Facts, row: int, places: NDArray[np.int64]) -> Selected:
    """An image with these tags, highest score first."""
    order = places[np.argsort(-facts.scores[row, places], kind="stable")]
    return Selected(facts.part, row, [(int(place), float(facts.scores[row, place])) for place in order])


def _round_robin(orders: list[NDArray[np.int64]]) -> Iterable[tuple[int, list[int]]]:
    """The first row of every order, then the second, …; each row once, with the orders that contain it."""
    found: dict[int, list[int]] = {}
    for rank in range(MAX_PER_TAG):
        for place, order in enumerate(orders):
            if rank < len(order):
                row = int(order[rank])
                if row in found or len(found) < MAX_PER_GROUP:
                    found.setdefault(row, []).append(place)
    return found.items()
