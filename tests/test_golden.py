"""The small parts against inputs and outputs of the released D2L code (another file: FEWTAGS_GOLDEN)."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fewtags.losses import asymmetric_loss
from fewtags.metrics import f1_scores, mean_average_precision
from fewtags.thresholds import decide, metric_adaptive


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    here = Path(__file__).parent / "golden" / "d2l.npz"
    with np.load(os.environ.get("FEWTAGS_GOLDEN", here), allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.mark.parametrize(("name", "gamma_pos"), [("d2l", 0), ("default", 1)])
def test_asymmetric_loss_and_gradient(golden, name: str, gamma_pos: int) -> None:
    logits = torch.from_numpy(golden["asl_logits"]).requires_grad_()
    loss = asymmetric_loss(logits, torch.from_numpy(golden["asl_targets"]), gamma_pos=gamma_pos)
    loss.sum().backward()
    np.testing.assert_allclose(loss.detach(), golden[f"asl_{name}_loss"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(logits.grad, golden[f"asl_{name}_grad"], rtol=1e-5, atol=1e-5)


def test_patch_merge(golden) -> None:
    from fewtags.methods.parts.heads import merge_patches

    images = len(golden["patch_joint"])
    patches = torch.from_numpy(golden["patch_logits"]).unflatten(0, (-1, images)).transpose(0, 1)
    np.testing.assert_allclose(merge_patches(patches), golden["patch_joint"], rtol=1e-5, atol=1e-5)


def test_mixed_score_of_whole_and_patches(golden) -> None:
    from fewtags.methods.parts.heads import merge_patches

    merged = merge_patches(torch.from_numpy(golden["mat_patch"]))
    mixed = torch.sigmoid((torch.from_numpy(golden["mat_global"]) + merged) / 2)
    np.testing.assert_allclose(mixed, golden["mat_scores"], rtol=1e-5, atol=1e-5)


def test_grid_thresholds_are_exactly_the_released_ones(golden) -> None:
    names = [name for name in golden if name.startswith("mat_th_")]
    assert names
    for name in names:
        metric, beta = name.removeprefix("mat_th_").split("_")
        found = metric_adaptive(
            golden["mat_scores"],
            golden["mat_labels"],
            "f_beta" if metric == "fB" else metric,
            float(beta),
            grid=0.01,
            missing_class="reference",
        )
        np.testing.assert_array_equal(found, golden[name], err_msg=name, strict=True)


def test_map_cf1_and_of1(golden) -> None:
    scores, labels = golden["mat_scores"], golden["mat_labels"]
    found = f1_scores(decide(scores, golden["mat_th_fB_0.5"]), labels)
    mean_ap, cf1, of1 = golden["metrics_mAP_CF1_OF1"] / 100
    assert mean_average_precision(scores, labels, empty="zero") == pytest.approx(mean_ap, abs=1e-11)
    # The labels of this file were float32, so its recalls were rounded to float32 on the way.
    assert (found["cf1_nanmean"], found["of1"]) == pytest.approx((cf1, of1), rel=3e-7)


@pytest.mark.parametrize("run", "ABCD")
def test_thresholds_and_metrics_of_a_whole_run(run: str) -> None:
    """The scores of each epoch are given; the training that leads to them is not part of this test."""
    here = Path(__file__).parent / "golden" / "trajectory.npz"
    with np.load(os.environ.get("FEWTAGS_TRAJECTORY", here), allow_pickle=False) as arrays:
        truth, labels = arrays["in/te_labels"], arrays[f"{run}/labels"]
        epochs = {name: arrays[f"{run}/main/{name}"] for name in ("mat_scores", "thresholds", "metrics_raw")}
        tests = {name: arrays[f"{run}/main/test_raw_{name}"] for name in ("mixed", "whole", "patch")}
    for epoch, thresholds in enumerate(epochs["thresholds"]):
        scores = epochs["mat_scores"][epoch]
        found = metric_adaptive(scores, labels, grid=0.01, missing_class="reference")
        np.testing.assert_array_equal(found, thresholds, strict=True)
        mixed, whole, patch = (values[epoch] for values in tests.values())
        f1 = f1_scores(decide(mixed, thresholds), truth)
        maps = [mean_average_precision(values, truth, empty="zero") for values in (mixed, whole, patch)]
        metrics = 100 * np.array([maps[0], f1["cf1_nanmean"], f1["of1"], *maps[1:]])
        np.testing.assert_allclose(metrics, epochs["metrics_raw"][epoch], rtol=0, atol=1e-9)
