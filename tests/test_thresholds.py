import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fewtags.errors import UserError
from fewtags.thresholds import decide, metric_adaptive

METRICS = ["f_beta", "f1", "precision", "recall"]
SCORES = np.array([0.955, 0.805, 0.725, 0.605, 0.415, 0.335, 0.205, 0.105, 0.075, 0.025])[:, None]
LABELS = np.array([1, 1, 0, 1, 0, 0, 1, 0, 0, 0])[:, None]


def tables(codes: list[int]):
    """Pairs (scores, labels) of one small shape, the scores on a coarse scale so that many are equal."""
    shapes = st.tuples(st.integers(0, 12), st.integers(1, 3))
    scores = st.integers(0, 8).map(lambda step: step / 8)
    return shapes.flatmap(
        lambda shape: st.tuples(
            hnp.arrays(np.float64, shape, elements=scores),
            hnp.arrays(np.int8, shape, elements=st.sampled_from(codes)),
        )
    )


def qualities(column, truth, candidates, metric: str, weight: float, scale: float = 1.0) -> np.ndarray:
    """The metric at each candidate, counted one by one; nan where it is undefined."""
    result = []
    for candidate in candidates:
        chosen = column >= candidate
        hits = (chosen & (truth == 1)).sum()
        with np.errstate(invalid="ignore", divide="ignore"):
            p, r = np.float64(hits) / chosen.sum(), np.float64(hits) / (truth == 1).sum()
            result.append({"precision": p, "recall": r}.get(metric, scale * p * r / (weight * p + r)))
    return np.array(result)


@pytest.mark.parametrize(
    ("settings_", "released", "exact"),
    [
        ({"metric": "f_beta", "beta": 0.5}, 0.42, np.nextafter(0.415, 1)),
        ({"metric": "f1"}, 0.42, np.nextafter(0.415, 1)),
        ({"metric": "precision"}, 0.73, np.nextafter(0.725, 1)),
        ({"metric": "recall"}, 0.0, 0.025),
        ({"metric": "f_beta", "beta": 0.5, "textbook_beta": True}, 0.73, np.nextafter(0.725, 1)),
    ],
)
def test_a_worked_example_for_every_metric(settings_: dict, released: float, exact: float) -> None:
    assert metric_adaptive(SCORES, LABELS, grid=0.01, **settings_) == np.float32(released)
    assert metric_adaptive(SCORES, LABELS, **settings_) == exact


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("textbook_beta", [False, True])
@settings(max_examples=60, deadline=None)
@given(table=tables([0, 1, -1]), beta=st.sampled_from([0.0, 0.5, 2.0]))
def test_exact_search_finds_the_lowest_best_of_all_scores(table, metric, textbook_beta, beta) -> None:
    scores, labels = table
    found = metric_adaptive(scores, labels, metric, beta, textbook_beta=textbook_beta)
    weight = 1.0 if metric == "f1" else beta**2 if textbook_beta else beta
    for k, threshold in enumerate(found):
        known = labels[:, k] >= 0
        column, truth = scores[known, k], labels[known, k]
        if not (truth == 1).any():
            assert threshold == np.inf
            continue
        candidates = np.unique(column)
        quality = qualities(column, truth, candidates, metric, weight)
        # A margin, because counting P and R apart rounds equal fractions to unequal numbers.
        best = candidates[quality > np.nanmax(quality) - 1e-9][0]
        rejected = column[column < best]
        assert threshold == (np.nextafter(rejected.max(), np.inf) if len(rejected) else best)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_grid_search_is_the_released_loop(metric: str, kind: type) -> None:
    random = np.random.default_rng(3)
    labels = random.integers(0, 2, (40, 30))
    # Half of the scores lie exactly on a step of the grid: >= and the float32 steps decide.
    scores = np.where(
        random.random(labels.shape) < 0.5,
        np.float32(0.01) * random.integers(0, 101, labels.shape).astype(np.float32),
        random.random(labels.shape, dtype=np.float32),
    ).astype(kind)
    steps = np.array([round(step * 0.01, 2) for step in range(100)], np.float32).astype(kind)
    weight, scale = (1.0, 2.0) if metric == "f1" else (0.5, 1.25)
    found = metric_adaptive(scores, labels, metric, 0.5, grid=0.01)
    for k, threshold in enumerate(found):
        best, expected = np.float32(0), kind(0)
        quality = qualities(scores[:, k], labels[:, k], steps, metric, weight, scale).astype(np.float32)
        for step, value in zip(steps, quality, strict=True):
            if value > best:
                best, expected = value, step
        assert threshold == expected


def test_equal_fractions_are_equal_whatever_float64_makes_of_them() -> None:
    # At the second score 1 of 2, at the last 3 of 9: the same F, yet 2e-16 apart when P and R are rounded.
    scores = np.array([0.9, 0.8, 0.7, 0.65, 0.6, 0.55, 0.5, 0.3, 0.2])[:, None]
    labels = np.array([0, 1, 0, 0, 0, 0, 0, 1, 1])[:, None]
    assert metric_adaptive(scores, labels) == 0.2
    assert metric_adaptive(scores, labels, grid=0.01) == 0.0


def test_a_tag_without_positives_is_never_positive_unless_as_released() -> None:
    scores = np.array([[0.9, 0.9, 0.9], [0.1, 0.1, 0.1]])
    labels = np.array([[1, 0, -1], [0, 0, -1]])
    for grid in (None, 0.01):
        thresholds = metric_adaptive(scores, labels, grid=grid)
        assert thresholds[1:].tolist() == [np.inf, np.inf]
        assert decide(scores, thresholds)[:, 1:].sum() == 0
        released = metric_adaptive(scores, labels, grid=grid, missing_class="reference")
        assert released[1:].tolist() == [0, 0]
        assert released[0] == thresholds[0]


@pytest.mark.parametrize("grid", [None, 0.01])
@settings(max_examples=60, deadline=None)
@given(table=tables([0, 1, -1, -7]), metric=st.sampled_from(METRICS))
def test_unknown_cells_are_as_if_removed(table, grid, metric) -> None:
    scores, labels = table
    found = metric_adaptive(scores, labels, metric, grid=grid)
    for k, threshold in enumerate(found):
        known = labels[:, k] >= 0
        alone = metric_adaptive(scores[known, k : k + 1], labels[known, k : k + 1], metric, grid=grid)
        assert threshold == alone[0]


@pytest.mark.parametrize("grid", [None, 0.01])
def test_a_score_that_is_not_a_number_is_never_predicted(grid) -> None:
    scores = np.array([[np.nan], [np.nan], [0.75], [0.5]])
    found = metric_adaptive(scores, np.array([[1], [1], [0], [1]]), "precision", grid=grid)
    assert decide(scores, found)[:, 0].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_torch_in_torch_out_with_the_same_type_and_decisions(kind: torch.dtype) -> None:
    scores, labels = torch.from_numpy(SCORES).to(kind).requires_grad_(), torch.from_numpy(LABELS)
    thresholds = metric_adaptive(scores, labels)
    decisions = decide(scores, thresholds)
    assert thresholds.dtype == decisions.dtype == kind
    assert decisions[:, 0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_numpy_in_numpy_out_with_the_same_type_and_decisions(kind: type) -> None:
    thresholds = metric_adaptive(SCORES.astype(kind), LABELS)
    decisions = decide(SCORES.astype(kind), thresholds)
    assert isinstance(decisions, np.ndarray)
    assert thresholds.dtype == decisions.dtype == kind
    assert decisions[:, 0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]


def test_numpy_users_do_not_pay_for_torch() -> None:
    code = (
        "import sys, numpy as np; from fewtags.thresholds import metric_adaptive; import fewtags.metrics;"
        "metric_adaptive(np.ones((2, 1)), np.ones((2, 1))); sys.exit('torch' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"metric": "f_bata"}, "did you mean 'f_beta'"),
        ({"beta": -1.0}, "beta is -1.0"),
        ({"beta": float("nan")}, "beta is nan"),
        ({"grid": 0.0}, "grid is 0.0"),
        ({"missing_class": "ever"}, "'never' or 'reference'"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        metric_adaptive(SCORES, LABELS, **wrong)


def test_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="one shape"):
        metric_adaptive(SCORES, LABELS[:5])
