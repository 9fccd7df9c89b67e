"""The order of questions, and what a review session shows."""

import json

import numpy as np
import pytest

from fewtags.review.log import Decision
from fewtags.review.order import active_learning_order, distances
from review_session import TAGS, make_session


def every(scores):
    return np.ones(np.shape(scores), bool)


def test_the_score_nearest_to_its_own_threshold_comes_first():
    scores = np.array([[0.9], [0.32], [0.1], [0.5]])
    order = active_learning_order(scores, np.array([0.3]), every(scores), np.array([5]))
    assert order.tolist() == [1, 3, 2, 0]


def test_distances_are_shares_of_the_way_to_the_end_of_the_scale():
    found = distances(np.array([[0.0, 0.2], [0.1, 0.6], [0.55, 1.0]]), np.array([0.1, np.inf]))
    np.testing.assert_allclose(found, [[1, 0.8], [0, 0.4], [0.5, 0]], atol=1e-12)


def test_a_rare_tag_comes_more_often_but_fills_the_beginning_not_alone():
    rng = np.random.default_rng(0)
    scores = np.zeros((200, 2))
    scores[:100, 0], scores[100:, 1] = rng.uniform(0.1, 1, 100), rng.uniform(0.1, 1, 100)
    open_cells = scores > 0
    order = active_learning_order(scores, np.array([0.5, 0.5]), open_cells, np.array([99, 24]))
    rare = (order[:30] >= 100).sum()
    assert rare == 20  # a quarter of the examples: two turns for one


def test_images_without_an_open_cell_come_last():
    scores = np.array([[0.5], [0.1], [0.5]])
    open_cells = np.array([[False], [True], [False]])
    assert active_learning_order(scores, np.array([0.5]), open_cells, np.array([0])).tolist() == [1, 0, 2]


def test_before_all_others_come_the_surest_images_of_a_tag_that_is_held_back():
    scores = np.array([[0.5, 0.1], [0.48, 0.2], [0.45, 0.3], [0.51, 0.05]] + [[0.4, 0.9 - n / 20] for n in range(8)])
    thresholds, examples = np.array([0.5, np.inf]), np.array([9, 2])
    order = active_learning_order(scores, thresholds, every(scores), examples).tolist()
    assert order[:5] == [4, 5, 6, 7, 8]  # as many as HELD_BACK_FIRST, not all
    assert order[5:9] == [0, 3, 1, 9]  # then the queues take turns again
    assert sorted(order) == list(range(12))


def test_several_held_back_tags_take_turns_the_rarer_more_often():
    scores = np.zeros((40, 3))
    scores[:20, 0], scores[20:, 1] = np.linspace(0.3, 0.1, 20), np.linspace(0.3, 0.1, 20)
    scores[:, 2] = 0.5
    order = active_learning_order(scores, np.array([np.inf, np.inf, 0.5]), scores > 0, np.array([3, 0, 9])).tolist()
    assert sorted(order[:10]) == [0, 1, 2, 3, 4, 20, 21, 22, 23, 24]
    assert order[:3] == [20, 0, 21]


def test_what_is_decided_of_a_held_back_tag_is_not_asked_again():
    scores = np.array([[0.1, 0.9], [0.5, 0.8], [0.3, 0.2]])
    open_cells = np.array([[True, False], [True, False], [True, True]])
    order = active_learning_order(scores, np.array([0.5, np.inf]), open_cells, np.array([9, 2]))
    assert order.tolist() == [2, 1, 0]


def test_without_any_example_every_tag_is_asked_about_in_turn():
    scores = np.array([[0.49, 0.1]] + [[0.1, 0.9 - n / 20] for n in range(6)])
    order = active_learning_order(scores, np.array([0.5, np.inf]), every(scores), np.array([0, 0]))
    assert order.tolist()[:3] == [0, 1, 2]


def test_images_are_asked_in_the_order_of_the_session_and_decided_ones_go_to_the_end(tmp_path):
    session = make_session(tmp_path)
    assert session.queue("stored") == [0, 1, 2, 3, 4]
    assert session.queue("teach") == [3, 2, 0, 1, 4]  # the surest of dog, which is held back; 4 is known to show it
    session.decide([(1, tag, "yes") for tag in range(3)])
    assert session.queue("teach")[-1] == 1
    assert session.first_open([1, 2]) == 1


def test_the_grid_asks_of_a_tag_what_is_open_and_shown_as_given_or_not(tmp_path):
    session = make_session(tmp_path)
    assert session.queue("teach", 0, given=True) == [1, 0]
    assert session.queue("stored", 0, given=True) == [0, 1]
    assert session.queue("teach", 0, given=False) == [3, 2]  # the labelled image is not asked about
    session.decide([(1, 0, "no"), (2, 0, "unsure")])
    assert session.queue("teach", 0, given=True) == [0]
    assert session.queue("teach", 0, given=False) == [3]
    assert session.with_tag(0, "stored") == [0]
    assert session.with_tag(2, "stored") == [4]  # by its label: the tag itself is never given


def test_an_image_shows_scores_labels_and_answers(tmp_path):
    session = make_session(tmp_path)
    session.decide([(4, 1, "unsure")])
    shown = session.image(4)
    assert shown["name"] == "004.png"
    assert shown["labels"] == [0, None, 1]
    assert shown["answers"] == [None, "unsure", None]
    assert shown["scores"] == pytest.approx([0.2, 0.1, 0.9])
    assert [tag["threshold"] for tag in session.tags()] == [0.5, 0.5, None]


def test_decisions_of_another_process_are_seen(tmp_path):
    session = make_session(tmp_path)
    entry = Decision("003.png", TAGS[0], "yes")._asdict() | {"when": "", "action": "other"}
    (tmp_path / "review.jsonl").write_text(json.dumps(entry) + "\n")
    assert session.image(3)["answers"][0] == "yes"
    assert session.progress() == {"images": 5, "touched": 1, "decisions": 1}
