"""Rules and losses against what the official codes give; tests/data/README.md says how the arrays were made."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from fewtags.losses import binary_cross_entropy
from fewtags.methods import make_method
from fewtags.methods.base import Step, UnlabelledBatch
from fewtags.methods.freematch import fairness
from fewtags.thresholds import class_proportion, confident, decide, largest, selection_share
from fewtags.training.loop import make_optimisers, own_pace

FILE = Path(__file__).parents[1] / "golden" / "methods.npz"


@pytest.fixture(scope="module")
def golden():
    return np.load(FILE)


def tensor(golden, name):
    return torch.from_numpy(np.array(golden[name]))


@pytest.mark.parametrize(("mode", "share"), [("r", 1 - 0.9), ("ct", 1 - 0.9), ("cp", 0.05)])
def test_large_loss_cells_loss_and_gradient(golden, mode, share):
    logits = tensor(golden, "ll/logits").requires_grad_(True)
    observed = tensor(golden, "ll/observed")
    assumed = observed.clamp(min=0)
    losses = binary_cross_entropy(logits.detach(), assumed)
    chosen, strictly = largest(losses, observed == 0, math.ceil(losses.numel() * share))
    np.testing.assert_array_equal(strictly.numpy(), golden[f"ll/{mode}/strictly"])
    if mode == "r":
        loss = (binary_cross_entropy(logits, assumed) * ~chosen).mean()
    else:
        loss = binary_cross_entropy(logits, torch.where(chosen, 1 - assumed, assumed)).mean()
    loss.backward()
    assert loss.item() == pytest.approx(golden[f"ll/{mode}/loss"].item(), abs=1e-6)
    np.testing.assert_allclose(logits.grad.numpy(), golden[f"ll/{mode}/grad"], atol=1e-6)


@pytest.mark.parametrize("name", ["ll_r", "ll_ct", "ll_cp"])
def test_the_three_methods_give_the_official_loss_on_unlabelled_cells(golden, name):
    """All cells unknown, as for unlabelled images: sums instead of the official mean, otherwise the same."""
    logits = tensor(golden, "ll/logits")
    method = make_method(name, {"percent": 5})
    method.state["corrected"] = torch.zeros_like(logits, dtype=torch.bool)
    method.state["doubted"] = torch.tensor(0.1)
    rows = torch.arange(len(logits))
    made = method.pseudo_labels(UnlabelledBatch(rows, logits.sigmoid(), logits.sigmoid()))
    step = Step({"whole_make": logits[:0]}, logits[:0], {"whole_make": logits}, made)
    loss = method.loss(step)["unlabelled_whole"]
    cells = binary_cross_entropy(logits, torch.zeros_like(logits))
    count = math.ceil(logits.numel() * (0.05 if name == "ll_cp" else 0.1))
    worst = cells >= cells.flatten().topk(count).values[-1]
    flipped = binary_cross_entropy(logits, worst.float())
    expected = (cells * ~worst).sum() if name == "ll_r" else flipped.sum()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    kept = method.state["corrected"]
    assert kept.sum() == (count - 1 if name == "ll_cp" else 0)


@pytest.mark.parametrize("threshold", [0.6, 0.9])
def test_plc_targets_mask_and_loss(golden, threshold):
    scores = tensor(golden, f"plc/{threshold}/logits_w").sigmoid()
    targets, mask = confident(scores, threshold)
    np.testing.assert_array_equal(targets.numpy(), golden[f"plc/{threshold}/pseudo_label_hard"])
    np.testing.assert_array_equal(mask.numpy(), golden[f"plc/{threshold}/pseudo_label_mask"])
    cells = binary_cross_entropy(tensor(golden, f"plc/{threshold}/logits_s"), targets)
    loss = (cells * mask).sum() / mask.sum()
    assert loss.item() == pytest.approx(golden[f"plc/{threshold}/L_plc"].item(), abs=1e-6)


@pytest.mark.parametrize("case", ["some", "all"])
def test_adsh_thresholds(golden, case):
    scores = tensor(golden, f"adsh/{case}/scores")
    predicted = torch.nn.functional.one_hot(scores.argmax(1), scores.shape[1]).bool()
    ours = selection_share(scores, predicted, torch.full((5,), 0.95), majority=0)
    np.testing.assert_allclose(ours.numpy(), golden[f"adsh/{case}/thresholds"], atol=1e-6)


def test_adsh_keeps_the_least_where_the_official_code_keeps_everything(golden):
    """Not one confident majority prediction: the official code falls back to keeping all, we keep the best one."""
    scores = tensor(golden, "adsh/none/scores")
    predicted = torch.nn.functional.one_hot(scores.argmax(1), scores.shape[1]).bool()
    ours = selection_share(scores, predicted, torch.full((5,), 0.95), majority=0)
    best = torch.where(predicted, scores, torch.zeros_like(scores)).amax(0)
    np.testing.assert_allclose(ours[1:].numpy(), best[1:].clamp(max=0.95).numpy(), atol=1e-6)
    assert (ours[1:].numpy() > golden["adsh/none/thresholds"][1:]).all()


def test_freematch_state_and_thresholds_move_as_in_the_official_code(golden):
    method = make_method("freematch", {"momentum": 0.9})
    method.state.update(mean=torch.full((4,), 0.25), confidence=torch.tensor(0.25), share=torch.full((4,), 0.25))
    for step in range(3):
        scores = tensor(golden, f"freematch/{step}/scores")
        made = method.pseudo_labels(UnlabelledBatch(torch.arange(8), scores, scores))
        np.testing.assert_allclose(method.state["mean"].numpy(), golden[f"freematch/{step}/p_model"], atol=1e-6)
        assert method.state["confidence"].item() == pytest.approx(golden[f"freematch/{step}/time_p"].item(), abs=1e-6)
        best = scores.argmax(1)
        reached = made.targets[torch.arange(8), best]  # the official mask looks at the best class alone
        np.testing.assert_array_equal(reached.numpy(), golden[f"freematch/{step}/mask"])


@pytest.mark.parametrize("case", ["usual", "empty"])
def test_freematch_fairness_term_and_gradient(golden, case):
    logits = tensor(golden, "fairness/logits").requires_grad_(True)
    mask = tensor(golden, "fairness/mask")[:, None]
    mean, share = tensor(golden, "fairness/mean")[None], tensor(golden, f"fairness/{case}/share")[None]
    loss = fairness(logits.sigmoid(), mask, mean, share)
    loss.backward()
    assert loss.item() == pytest.approx(golden[f"fairness/{case}/loss"].item(), abs=1e-5)
    np.testing.assert_allclose(logits.grad[:, 0].numpy(), golden[f"fairness/{case}/grad"], atol=1e-5)


def test_cap_thresholds_pseudo_labels_and_mask(golden):
    scores = golden["cap/scores"]
    found = class_proportion(scores, golden["cap/shares"], missing_class="reference")
    np.testing.assert_array_equal(found.thresholds, golden["cap/thresholds"])
    np.testing.assert_array_equal(decide(scores, found.thresholds), golden["cap/pseudo"])
    mask = (scores >= found.sure_positive) | (scores <= found.sure_negative)
    np.testing.assert_array_equal(mask, golden["cap/mask"])


@pytest.fixture
def drml():
    """The official graph's weights in our heads, on the official small problem."""
    from torch import nn

    from fewtags.methods.drml import RelationHeads
    from fewtags.model.network import Network

    golden = np.load(FILE.with_name("drml.npz"))
    heads = RelationHeads(6, 4, hidden=(10, 9, 8, 7))
    network = Network(nn.Identity(), heads)
    load_weights(network, golden, "start")
    return golden, network


def load_weights(network, golden, when):
    names = [name for name in golden.files if name.startswith(f"{when}/") and name.endswith(("weight", "bias"))]
    network.load_state_dict({f"heads.{name.removeprefix(f'{when}/')}": tensor(golden, name) for name in names})


def test_drml_four_losses_and_one_update_of_each_optimiser(drml):
    golden, network = drml
    method = make_method("drml", {})
    optimisers = make_optimisers(network, method, weight_decay=1e-2)
    labelled, unlabelled = tensor(golden, "labelled"), tensor(golden, "unlabelled")
    for name, optimiser in optimisers.items():
        step = Step(network(labelled), tensor(golden, "targets"), network(unlabelled))
        terms = method.loss(step, name)
        everything, _, _, _, apart = golden[f"{name}/losses"]
        expected = {
            "classify": everything, "disagree": everything - apart, "agree": apart, "relate": everything
        }[name]  # fmt: skip
        total = sum(terms.values())
        assert total.item() == pytest.approx(expected, abs=1e-6)
        rate, beta1 = own_pace(method, name, 0.123, 0.5)
        optimiser.param_groups[0].update(lr=rate, betas=(beta1, 0.999))
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        for key, weight in network.heads.named_parameters():
            ours, theirs = weight.detach().numpy(), golden[f"{name}/{key}"]
            # TensorFlow's Adam adds its epsilon elsewhere, which shows where a gradient is next to nothing
            clear = np.ones_like(ours, bool) if weight.grad is None else (weight.grad.abs() > 1e-4).numpy()
            np.testing.assert_allclose(ours[clear], theirs[clear], rtol=0, atol=5e-3 * rate + 1e-6)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=rate)
        load_weights(network, golden, name)  # the next update starts where the official one does
    scores = network(labelled)["whole_make"].sigmoid()
    np.testing.assert_allclose(scores.detach().numpy(), golden["relation_scores"], atol=1e-4)
