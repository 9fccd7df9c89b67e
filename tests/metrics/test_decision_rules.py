"""CF1 and OF1 under one rule for every method, and the scores that a run keeps for them."""

import json

import numpy as np
import pytest

from fewtags.errors import UserError
from fewtags.metrics import f1_scores, f1_under_rules
from fewtags.metrics.decision_rules import tags_per_image, top_k_per_image
from fewtags.training.run_folder import RunFolder
from small_runs import HEADS, read_rows, tiny_folder, train


def test_each_rule_decides_as_it_says():
    scores = np.array([[0.9, 0.6, 0.1], [0.2, 0.55, 0.4], [0.7, 0.3, 0.45]])
    truth = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 1]])
    labelled_scores = np.array([[0.8, 0.1, 0.2], [0.3, 0.2, 0.44], [0.1, 0.58, 0.3]])
    labelled = np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]])
    found = f1_under_rules(scores, truth, labelled_scores, labelled, np.array([0.95, 0.5, 0.0]))
    # just above the highest rejected labelled score: 0.3, 0.2, 0.3
    assert found["mat"] == f1_scores([[1, 1, 0], [0, 1, 1], [1, 1, 1]], truth)
    assert found["own"] == f1_scores([[0, 1, 1], [0, 1, 1], [0, 0, 1]], truth)
    assert found["half"] == f1_scores([[1, 1, 0], [0, 1, 0], [1, 0, 0]], truth)
    assert found["top_k"] == f1_scores([[1, 0, 0], [0, 1, 0], [1, 0, 0]], truth)
    assert "own" not in f1_under_rules(scores, truth, labelled_scores, labelled, None)


@pytest.mark.parametrize(("mean", "k"), [(0.2, 1), (1.0, 1), (1.46, 2), (2.9, 3), (9.0, 4)])
def test_k_is_the_mean_number_of_tags_rounded_up(mean, k):
    share = mean / 4
    labelled = (np.arange(100)[:, None] < 100 * share).astype(int) * np.ones((1, 4), int)
    assert tags_per_image(labelled) == k


def test_unknown_cells_do_not_count_for_k():
    assert tags_per_image(np.array([[1, -1], [1, -1], [1, 1], [0, -1]])) == 2  # 3 of 4 and 1 of 1


def test_of_equal_scores_the_first_is_taken():
    assert top_k_per_image(np.array([[0.5, 0.7, 0.5, 0.5]]), 2).tolist() == [[True, True, False, False]]


def test_a_run_keeps_the_scores_of_all_images_in_the_order_of_its_split(tmp_path):
    folder = RunFolder(train(tiny_folder(tmp_path / "photos"), tmp_path / "run", *HEADS))
    scores, result = folder.scores(), json.loads((folder.path / "result.json").read_text())
    for part, count in result["images"].items():
        assert scores[part].shape == (count, 3)
    assert scores["test_targets"].shape == scores["test"].shape
    assert np.isin(scores["labelled_targets"], (0, 1)).all()
    assert set(result["rules"]) == {"mat", "own", "half", "top_k"}
    names = [name for name, role in read_rows(folder.split_file)[1:] if role == "unlabelled"]
    given = {name: set(filter(None, tags.split("|"))) for name, tags in read_rows(folder.tags_file)[1:]}
    limits = json.loads((folder.path / "model" / "model.json").read_text())["thresholds"]
    limits = np.array([np.inf if one is None else one for one in limits])
    for name, row in zip(names, scores["unlabelled"], strict=True):
        assert {tag for tag, yes in zip(folder.config().tags, row >= limits, strict=True) if yes} == given[name]


def test_a_run_without_scores_says_so(tmp_path):
    with pytest.raises(UserError, match=r"scores\.safetensors cannot be read .* train again"):
        RunFolder(tmp_path).scores()
