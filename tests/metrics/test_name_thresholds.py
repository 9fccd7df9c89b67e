"""Thresholds of tags by their names, where no label shows them: as many images as show a tag clearly."""

import numpy as np
import pytest

from fewtags.metrics.decisions import NameThresholds, thresholds_by_name
from fewtags.metrics.estimate import givable_tags


def seen(*clear, images=10):
    """Evidence [images, K]: so many images show each tag clearly, the others next to nothing."""
    rng = np.random.default_rng(0)
    found = rng.uniform(0, 0.05, (images, len(clear)))
    for tag, count in enumerate(clear):
        found[rng.permutation(images)[:count], tag] = 0.5
    return found


def ranked(images=10, tags=3, low=0.5, high=0.95):
    """Scores [images, K], no two of a tag alike."""
    rng = np.random.default_rng(1)
    return np.stack([rng.permutation(np.linspace(low, high, images)) for _ in range(tags)], axis=1)


@pytest.mark.parametrize(("prefer", "counts"), [("balance", (3, 1)), ("precision", (2, 1)), ("recall", (6, 2))])
def test_as_many_images_get_a_tag_as_show_its_classes_clearly(prefer, counts):
    scores = ranked(tags=2)
    found = thresholds_by_name(scores, seen(3, 1), prefer)
    assert tuple((scores >= found.alone).sum(0)) == counts
    assert found.named.all()


def test_a_tag_that_no_image_shows_is_given_to_none_however_it_is_ranked():
    found = thresholds_by_name(ranked(tags=2), seen(0, 2), "recall")
    assert found.alone[0] == np.inf
    assert np.isfinite(found.alone[1])
    assert found.named.tolist() == [True, True]


def test_evidence_that_is_the_same_everywhere_says_nothing():
    evidence = seen(2, 2)
    evidence[:, 1] = -0.001
    found = thresholds_by_name(ranked(tags=2), evidence, "balance")
    assert found.named.tolist() == [True, False]
    assert found.alone[1] == np.inf


def test_no_image_below_one_half_is_given_a_tag_by_its_name():
    scores = ranked(tags=1, low=0.1, high=0.6)
    found = thresholds_by_name(scores, seen(8), "balance")
    assert found.alone[0] == 0.5
    assert 0 < (scores >= 0.5).sum() < 8


def test_no_more_images_are_wanted_than_there_are():
    scores = ranked(images=4, tags=1)
    found = thresholds_by_name(scores, seen(4, images=4), "recall")
    assert found.alone[0] == scores.min()


def test_the_mark_of_a_clear_image_counts():
    evidence = np.array([[0.08], [0.0799], [0.01]])
    scores = np.array([[0.9], [0.8], [0.7]])
    assert thresholds_by_name(scores, evidence, "balance").alone.tolist() == [0.9]


# --- which tags may be given -------------------------------------------------------------------------------------


def test_a_tag_may_be_given_where_a_label_shows_it_or_something_is_clearly_seen_of_its_name():
    labels = np.array([[1, 0, 0, -1], [0, -1, 0, 0]], np.int8)
    assert givable_tags(labels, None).tolist() == [True, False, False, False]
    names = NameThresholds(np.array([np.inf, 0.7, np.inf, 0.6]), np.array([True, True, True, False]))
    assert givable_tags(labels, names).tolist() == [True, True, False, False]


def test_without_a_labelled_image_names_alone_say_which_tags_may_be_given():
    found = thresholds_by_name(ranked(), seen(0, 2, 1), "balance")
    assert givable_tags(np.empty((0, 3), np.int8), found).tolist() == [False, True, True]
    assert givable_tags(np.empty((0, 3), np.int8), None).tolist() == [False] * 3
