"""Our loop under the paper's protocol against the released training code, step by step.

tests/data/trajectory.npz holds whole runs of the released code on a tiny network with fixed inputs (README there).
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fewtags.methods.d2l import D2L
from fewtags.methods.parts.heads import Heads
from fewtags.model.network import Network
from fewtags.training.loop import Loop, Observer, Targets
from fewtags.training.recipe import Recipe
from fewtags.training.source import Batch, Views

FILE = Path(os.environ.get("FEWTAGS_TRAJECTORY", Path(__file__).parents[1] / "golden" / "trajectory.npz"))
HEADS = {"fc1": "whole_make", "fc2": "patch_make", "fc3": "whole_use", "fc4": "patch_use"}


class TinyBody(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(16)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(x))).mean((2, 3))


class FixedSource:
    """The same tensors in every epoch, as in the released run that was recorded."""

    def __init__(self, golden):
        self.views = {
            ("labelled", "strong"): golden["in/lb_strong"],
            ("labelled", "weak"): golden["in/lb_weak"],
            ("labelled", "plain"): golden["in/lb_weak"],  # for thresholds of the warm-up, which nothing depends on
            ("unlabelled", "strong"): golden["in/ub_strong"],
            ("unlabelled", "weak"): golden["in/ub_weak"],
            ("test", "plain"): golden["in/te"],
        }

    def take(self, part, rows, kind):
        images = torch.from_numpy(self.views[part, kind][rows])
        return Views(images[:, 0], images[:, 1:])

    def steps(self, plan, epoch):
        for step in plan:
            labelled = self.take("labelled", step.labelled, "strong")
            if len(step.unlabelled) == 0:
                yield Batch(labelled, None, None)
            else:
                weak = self.take("unlabelled", step.unlabelled, "weak")
                yield Batch(labelled, weak, self.take("unlabelled", step.unlabelled, "strong"))

    def sweep(self, part, rows, kind, epoch):
        yield self.take(part, rows, kind)


class Recorder(Observer):
    def __init__(self):
        self.steps, self.epochs, self.weights = [], [], []

    def step(self, report):
        self.steps.append(
            {**report, "losses": {k: float(v) for k, v in report["losses"].items()}}
            | ({"pseudo": report["pseudo"].clone()} if "pseudo" in report else {})
        )

    def epoch(self, record):
        self.epochs.append(record)

    def save(self, loop):
        if loop.position.step == 0:
            raw, average = (
                {k: v.clone() for k, v in net.state_dict().items()} for net in (loop.network, loop.average.network)
            )
            self.weights.append((raw, average))


def our_name(name):
    part, _, rest = name.partition(".")
    return f"heads.{HEADS[part]}.{rest}" if part in HEADS else f"body.{name}"


def weights_of(golden, prefix, index=None):
    return {
        our_name(key.removeprefix(prefix)): torch.from_numpy(
            np.array(golden[key] if index is None else golden[key][index])
        )
        for key in golden.files
        if key.startswith(prefix)
    }


def run_ours(golden, run):
    setting = {
        key.removeprefix(f"{run}/set/"): golden[key].item() for key in golden.files if key.startswith(f"{run}/set/")
    }
    recipe = Recipe(
        tune="all",
        protocol="paper",
        warmup=int(setting["warmup_epochs"]),
        epochs=int(setting["main_epochs_run"]),
        warmup_learning_rate=setting["lr"],
        learning_rate=setting["lr"],
        weight_decay=setting["weight_decay"],
        warmup_batch=int(setting["warmup_batch"]),
        labelled_batch=int(setting["lb_batch"]),
        unlabelled_batch=int(setting["ub_batch"]),
        ema_decay=setting["ema_decay"],
        labelled_view="strong",
    )
    assert recipe.stages(True)[1].planned_epochs == int(setting["planned_epochs"])
    method = D2L(grid=0.01, beta=setting["beta"], missing_class="reference")
    network = Network(TinyBody(), Heads(16, 5, method.head_names))
    network.load_state_dict(weights_of(golden, "init/"))
    targets = Targets(
        labelled=torch.from_numpy(golden[f"{run}/labels"]),
        unlabelled=30,
        truth=torch.from_numpy(golden["in/ub_labels"]),
        test=torch.from_numpy(golden["in/te_labels"]),
    )
    recorder = Recorder()
    loop = Loop(network, FixedSource(golden), method, recipe, targets, observer=recorder)
    # the recorded runs never shuffle
    loop.stages = [stage.__class__(**{**vars(stage), "shuffle": False}) for stage in loop.stages]
    chosen = loop.run()
    return loop, recorder, chosen


@pytest.fixture(scope="module")
def golden():
    return np.load(FILE)


@pytest.fixture(scope="module", params=["A", "B", "C", "D"])
def both(request, golden):
    return request.param, *run_ours(golden, request.param)


def close(ours, theirs, tolerance=1e-5):
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=0, atol=tolerance)


def test_losses_of_every_step_are_those_of_the_released_loop(both, golden):
    run, _, recorder, _ = both
    warm = [step for step in recorder.steps if step["stage"] == "warmup"]
    ours = [[step["losses"]["labelled_whole"], step["losses"]["labelled_patch"]] for step in warm]
    np.testing.assert_allclose(ours, golden[f"{run}/warm/loss"], rtol=1e-5)
    names = ("labelled_whole", "labelled_patch", "unlabelled_whole", "unlabelled_patch")
    main = [[step["losses"][name] for name in names] for step in recorder.steps if step["stage"] == "main"]
    np.testing.assert_allclose(main, golden[f"{run}/main/loss"].reshape(-1, 4), rtol=1e-5)


def test_learning_rate_and_beta1_of_every_step(both, golden):
    run, _, recorder, _ = both
    for stage, name in (("warmup", "warm"), ("main", "main")):
        ours = [[s["learning_rate"], s["beta1"]] for s in recorder.steps if s["stage"] == stage]
        close(ours, golden[f"{run}/{name}/lr_beta1"].reshape(-1, 2), 1e-9)


def test_thresholds_scores_and_pseudo_labels(both, golden):
    run, _, recorder, _ = both
    mains = [record for record in recorder.epochs if record["stage"] == "main"]
    close([record["thresholds"] for record in mains], golden[f"{run}/main/thresholds"], 1e-6)
    for epoch in range(3):
        steps = [s for s in recorder.steps if s["stage"] == "main" and s["epoch"] == epoch]
        close(torch.cat([s["scores"] for s in steps]), golden[f"{run}/main/teacher_scores"][epoch])
        pseudo = torch.cat([s["pseudo"] for s in steps]).numpy()
        np.testing.assert_array_equal(pseudo, golden[f"{run}/main/pseudo"][epoch])


def test_weights_and_their_average_after_every_epoch(both, golden):
    run, _, recorder, _ = both
    places = [("warm", 0), ("warm", 1), ("main", 0), ("main", 1), ("main", 2)]
    assert len(recorder.weights) == len(places)
    for (stage, epoch), (raw, average) in zip(places, recorder.weights, strict=True):
        for name, theirs in weights_of(golden, f"{run}/{stage}/raw/", epoch).items():
            close(raw[name], theirs)
        for name, theirs in weights_of(golden, f"{run}/{stage}/ema/", epoch).items():
            if "num_batches" not in name:
                close(average[name], theirs)


def test_metrics_of_every_epoch_and_the_choice_of_the_best(both, golden):
    run, loop, recorder, chosen = both
    mains = [record for record in recorder.epochs if record["stage"] == "main"]
    keys = ("map_paper", "cf1_nanmean", "of1", "map_whole", "map_patch")
    close([[100 * r[key] for key in keys] for r in mains], golden[f"{run}/main/metrics_ema"], 1e-9)
    close([[100 * r[f"raw_{key}"] for key in keys] for r in mains], golden[f"{run}/main/metrics_raw"], 1e-9)
    warm = [[100 * r["raw_map_paper"], 100 * r["map_paper"]] for r in recorder.epochs if r["stage"] == "warmup"]
    close(warm, golden[f"{run}/warm/mAP"], 1e-9)
    best = loop.evaluator.best
    ours = [
        100 * best["map_paper"],
        100 * best["cf1_nanmean"],
        100 * best["of1"],
        best["epoch"],
        best["average"],
    ]
    close(ours, golden[f"{run}/main/best"], 1e-9)
    kind = "ema" if best["average"] else "raw"
    for name, theirs in weights_of(golden, f"{run}/main/{kind}/", best["epoch"]).items():
        if "num_batches" not in name:
            close(chosen.state_dict()[name], theirs)
