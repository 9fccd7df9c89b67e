import json
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import metrics as sk

from fewtags.metrics import (
    average_precision,
    coverage_error,
    f1_scores,
    label_ranking_average_precision,
    mean_average_precision,
    per_tag,
    ranking_loss,
    summarise,
)

quick = settings(max_examples=80, deadline=None)


def tables(codes: list[int]):
    """Pairs (scores, labels) [1..10, 2..5] with many equal scores; some tags and rows have no positive."""
    shapes = st.tuples(st.integers(1, 10), st.integers(2, 5))
    scores = st.integers(0, 6).map(lambda step: step / 6)
    return shapes.flatmap(
        lambda shape: st.tuples(
            hnp.arrays(np.float64, shape, elements=scores),
            hnp.arrays(np.int8, shape, elements=st.sampled_from(codes)),
        )
    )


@quick
@given(tables([0, 1, -1]))
def test_average_precision_is_that_of_scikit_learn_on_the_known_cells(table) -> None:
    scores, labels = table
    found = average_precision(scores, labels)
    for k, value in enumerate(found):
        known = labels[:, k] >= 0
        if (labels[:, k] == 1).any():
            assert value == pytest.approx(sk.average_precision_score(labels[known, k], scores[known, k]), abs=1e-12)
        else:
            assert np.isnan(value)


def test_a_tag_without_positives_is_skipped_or_counts_zero() -> None:
    scores, labels = np.array([[0.9, 0.5], [0.1, 0.6]]), np.array([[1, 0], [0, -1]])
    assert mean_average_precision(scores, labels) == 1.0
    assert mean_average_precision(scores, labels, empty="zero") == 0.5
    assert math.isnan(mean_average_precision(scores, labels * 0))
    with pytest.raises(ValueError, match="'skip' or 'zero'"):
        mean_average_precision(scores, labels, empty="none")  # type: ignore[arg-type]


@quick
@given(tables([0, 1]))
def test_f1_scores_are_those_of_scikit_learn(table) -> None:
    scores, labels = table
    decisions = (scores > 0.6).astype(int)
    found = f1_scores(decisions, labels)
    for average, p, r in (("macro", "cp", "cr"), ("micro", "op", "or")):
        precision, recall, f1, _ = sk.precision_recall_fscore_support(
            labels, decisions, average=average, zero_division=0
        )
        assert (found[p], found[r]) == pytest.approx((precision, recall), abs=1e-12)
        if average == "micro":
            assert found["of1"] == pytest.approx(f1, abs=1e-12)
    harmonic = 2 * found["cp"] * found["cr"] / ((found["cp"] + found["cr"]) or 1)
    assert found["cf1"] == pytest.approx(harmonic, abs=1e-12)


def test_the_two_averages_differ_for_tags_with_nothing_predicted_or_nothing_true() -> None:
    decisions, labels = np.array([[1, 0, 1], [1, 0, 0]]), np.array([[1, 1, 0], [0, 0, 0]])
    found = f1_scores(decisions, labels)
    assert found["cp"] == pytest.approx((1 / 2 + 0 + 0) / 3)
    assert found["cp_nanmean"] == pytest.approx((1 / 2 + 0) / 2)
    assert found["cr"] == pytest.approx((1 + 0 + 0) / 3)
    assert found["cr_nanmean"] == pytest.approx((1 + 0) / 2)
    assert found["cf1_nanmean"] == pytest.approx(2 * 0.25 * 0.5 / 0.75)


def test_nothing_predicted_and_nothing_true_gives_zeros() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(f1_scores(np.zeros((2, 3)), np.zeros((2, 3))).values()) == {0.0}


@quick
@given(tables([0, 1, -1]))
def test_decisions_on_unknown_cells_change_no_f1_score(table) -> None:
    scores, labels = table
    decisions = (scores > 0.5).astype(int)
    flipped = np.where(labels < 0, 1 - decisions, decisions)
    assert f1_scores(decisions, labels) == f1_scores(flipped, labels)
    known = labels >= 0
    hits = (decisions * labels)[known].sum()
    assert f1_scores(decisions, labels)["op"] == pytest.approx(hits / max(decisions[known].sum(), 1))


def test_scores_are_not_taken_for_decisions() -> None:
    with pytest.raises(ValueError, match="apply the thresholds first"):
        f1_scores(np.array([[0.7]]), np.array([[1]]))


@quick
@given(tables([0, 1]))
def test_row_metrics_are_those_of_scikit_learn(table) -> None:
    scores, labels = table
    assert coverage_error(scores, labels) == pytest.approx(sk.coverage_error(labels, scores))
    assert ranking_loss(scores, labels) == pytest.approx(sk.label_ranking_loss(labels, scores))
    expected = sk.label_ranking_average_precision_score(labels, scores)
    assert label_ranking_average_precision(scores, labels) == pytest.approx(expected)


@pytest.mark.parametrize("metric", [coverage_error, ranking_loss, label_ranking_average_precision])
@quick
@given(table=tables([0, 1, -1]))
def test_row_metrics_use_the_known_cells_of_a_row_only(metric, table) -> None:
    scores, labels = table
    rows = [
        metric(values[None, truth >= 0], truth[None, truth >= 0]) for values, truth in zip(scores, labels, strict=True)
    ]
    assert metric(scores, labels) == pytest.approx(np.mean(rows))


def test_a_score_that_is_not_a_number_is_refused_only_where_the_label_is_known() -> None:
    scores = np.array([[np.nan, 0.5], [0.5, 0.2]])
    assert mean_average_precision(scores, np.array([[-1, 1], [1, 0]])) == 1.0
    with pytest.raises(ValueError, match="not a number"):
        mean_average_precision(scores, np.array([[0, 1], [1, 0]]))


def test_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="one shape"):
        average_precision(np.zeros((3, 2)), np.zeros((2, 2)))


def test_torch_tensors_are_read_whatever_their_type() -> None:
    scores = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.bfloat16, requires_grad=True)
    labels = torch.tensor([[0, 0], [1, 1]])
    assert average_precision(scores, labels).tolist() == [0.5, 1.0]
    assert f1_scores(scores > 0.3, labels)["or"] == 1.0


SCORES = np.array([[0.9, 0.2, 0.4], [0.6, 0.3, 0.5], [0.1, 0.8, 0.6]])
LABELS = np.array([[1, 0, -1], [0, 0, -1], [1, -1, -1]])
THRESHOLDS = np.array([0.5, np.inf, 0.5])


def test_the_table_has_a_row_for_each_tag_that_json_can_hold() -> None:
    rows = per_tag(SCORES, LABELS, THRESHOLDS, ["sun", "sea", "dog"])
    empty = {"support": 0, "ap": None, "precision": None, "recall": None, "f1": None}
    assert json.loads(json.dumps(rows, allow_nan=False)) == [
        {"tag": "sun", "support": 2, "known": 3, "ap": pytest.approx(5 / 6), "threshold": 0.5}
        | {"precision": 0.5, "recall": 0.5, "f1": 0.5},
        {"tag": "sea", "known": 2, "threshold": None} | empty,
        {"tag": "dog", "known": 0, "threshold": 0.5} | empty,
    ]


def test_the_summary_names_the_tags_that_map_leaves_out() -> None:
    found = summarise(SCORES, LABELS, THRESHOLDS, ["sun", "sea", "dog"])
    json.dumps(found, allow_nan=False)
    assert found["tags_without_positives"] == ["sea", "dog"]
    assert found["map"] == pytest.approx(5 / 6)
    assert found["map_paper"] == pytest.approx(5 / 18)
    assert found["cf1"] == pytest.approx(1 / 6)
    assert found["cf1_nanmean"] == found["of1"] == 0.5
    assert set(found) >= {"cp", "cr", "op", "or", "cp_nanmean", "cr_nanmean"}


def test_a_summary_of_nothing_known_has_no_map() -> None:
    assert summarise(SCORES, LABELS * 0 - 1, THRESHOLDS, ["sun", "sea", "dog"])["map"] is None


def test_tags_that_do_not_fit_the_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        per_tag(SCORES, LABELS, THRESHOLDS, ["sun", "sea"])
    with pytest.raises(ValueError, match="zip"):
        summarise(SCORES, LABELS, THRESHOLDS, ["sun", "sea"])
