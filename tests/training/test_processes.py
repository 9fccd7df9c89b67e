"""Two processes that share every batch take the steps of one."""

import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fewtags.cli
from fewtags.backbones.norm import TolerantBatchNorm, tolerate_single_values
from small_runs import (
    ALL,
    HEADS,
    command,
    model,
    odd_loop,
    read_rows,
    records,
    stopped_after,
    tiny_folder,
    train,
)

pytestmark = pytest.mark.slow

# Several commands in the processes of one launch: loading torch takes longer than all of them together.
SCRIPT = """
import json, os, runpy, sys
from pathlib import Path
from safetensors.torch import save_file
from small_runs import odd_loop, stopped_after

seen, rank = [], os.environ["RANK"]
folder = Path(sys.argv[1])
for words, steps in json.loads((folder / "commands.json").read_text()):
    sys.argv = ["fewtags", *words]
    with stopped_after(steps) as losses:
        try:
            runpy.run_module("fewtags", run_name="__main__", alter_sys=True)
        except SystemExit as leaving:
            seen.append((leaving.code, losses))
(folder / f"seen-{rank}.json").write_text(json.dumps(seen))
loop = odd_loop()
loop.run()
save_file(loop.network.state_dict(), folder / f"weights-{rank}")
save_file(loop.average.network.state_dict(), folder / f"average-{rank}")
"""

SMALL_BATCHES = ("patches=2", "labelled_batch=3", "unlabelled_batch=3")  # three in an epoch of the main stage
CASES = {
    "heads": HEADS,
    # in the last step of an epoch there are one labelled and one unlabelled image: a process has nothing at all
    "heads, odd batches": (*HEADS, "--set", "warmup_batch=7", "labelled_batch=1", "unlabelled_batch=7"),
    # one step a stage: a weight whose gradient is mere rounding moves as far as any other with AdamW, so that runs
    # in float32 drift apart from then on
    "all": (*ALL, "--epochs", "1", "--set", "patches=2", "labelled_batch=8", "unlabelled_batch=10"),
    # the last step of a warm-up epoch has one image: a single value for the BatchNorm of its 1 × 1 map
    "all, in doubles": (*ALL, "--warmup", "2", "--set", "precision=64-true", "warmup_batch=7", *SMALL_BATCHES),
}
# 64 px: over the few values of a smaller map BatchNorm makes more of the rounding
MIDDLE = (*ALL, "--size", "64", "--set", "patches=2", "labelled_batch=4", "unlabelled_batch=4")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("data") / "pictures")
    for name in ("12.png", "13.png", "30.png"):
        (folder / name).write_bytes(b"")
    return folder


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one process")
    return {case: train(data, folder / case, *options) for case, options in CASES.items()}


@pytest.fixture(scope="module")
def middle(data, tmp_path_factory):
    """A run in float32 that one process left in its second main epoch, and the losses of the step it does next.

    On a CPU torch sums in float32 for BatchNorm where channels come last, as in our networks, and in double where they
    do not: `exact` are the losses with the latter, which processes that join their sums in double must meet.
    """
    folder = tmp_path_factory.mktemp("in the middle")
    with stopped_after(3):
        assert fewtags.cli.run(command(data, folder / "plain", *MIDDLE)) == 130
    for name in ("exact", "two"):
        shutil.copytree(folder / "plain", folder / name)
    with stopped_after(1) as plain:
        assert fewtags.cli.run([*command(data, folder / "plain", *MIDDLE), "--resume"]) == 130
    with pytest.MonkeyPatch.context() as patch, stopped_after(1) as exact:
        forward = TolerantBatchNorm.forward
        patch.setattr(TolerantBatchNorm, "forward", lambda norm, x: forward(norm, x.contiguous()))
        assert fewtags.cli.run([*command(data, folder / "exact", *MIDDLE), "--resume"]) == 130
    return SimpleNamespace(two=folder / "two", plain=plain, exact=exact)


@pytest.fixture(scope="module")
def together(data, cache, alone, middle, tmp_path_factory):
    """The same commands by two processes with a cache of their own, and two that are stopped and resumed."""
    folder = tmp_path_factory.mktemp("two processes")
    (folder / "cache").mkdir()
    (folder / "cache" / "engines").symlink_to(cache / "engines")
    runs = {case: folder / case for case in (*CASES, "stopped")}
    commands = [(command(data, runs[case], *options), 0) for case, options in CASES.items()]
    stopped = command(data, runs["stopped"], *HEADS)
    commands += [(stopped, 1), ([*stopped, "--resume"], 0)]
    commands += [(command(data, middle.two, *MIDDLE, "--resume"), 1)]
    (folder / "commands.json").write_text(json.dumps(commands))
    (folder / "script.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "FEWTAGS_CACHE": str(folder / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [*launch, str(folder / "script.py"), str(folder)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert said.returncode == 0, said.stderr
    seen = [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in (0, 1)]
    codes = [[code for code, _ in of_rank] for of_rank in seen]
    return SimpleNamespace(runs=runs, codes=codes, last=[losses for *_, (_, losses) in seen], said=said, folder=folder)


def test_every_process_ends_with_the_same_code(together):
    assert together.codes[0] == together.codes[1] == [0] * len(CASES) + [130, 0, 130]


@pytest.mark.parametrize("case", CASES)
def test_losses_of_two_processes_are_those_of_one(alone, together, case):
    ours, theirs = records(together.runs[case]), records(alone[case])
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        losses = [name for name in other if name == "loss" or name.startswith(("labelled_", "unlabelled_"))]
        assert losses
        for name in losses:
            assert one[name] == pytest.approx(other[name], rel=1e-5), (other["stage"], other["epoch"], name)


def test_in_the_middle_of_float32_training_the_next_step_of_two_processes_has_the_losses_of_one(middle, together):
    (exact,), (plain,) = middle.exact, middle.plain
    assert exact.keys() == {f"{known}_{part}" for known in ("labelled", "unlabelled") for part in ("whole", "patch")}
    for losses in together.last:
        assert losses == [pytest.approx(exact, rel=1e-5)]
        assert losses == [pytest.approx(plain, rel=1e-4)]  # the rounding of torch's own sums


@pytest.mark.parametrize("case", CASES)
def test_thresholds_pseudo_labels_and_figures_are_those_of_one(alone, together, case):
    ours, theirs = records(together.runs[case]), records(alone[case])
    for one, other in zip(ours, theirs, strict=True):
        assert one.get("pseudo_positives") == other.get("pseudo_positives")
        if "thresholds" in other:
            np.testing.assert_allclose(
                np.array(one["thresholds"], float), np.array(other["thresholds"], float), rtol=1e-4
            )
        if "map" in other:
            assert one["map"] == pytest.approx(other["map"], abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_the_run_folder_is_that_of_one(alone, together, case):
    ours, theirs = together.runs[case], alone[case]
    for name in ("split.csv", "bad.csv", "config.yaml"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    tagged = read_rows(ours / "tags.csv")
    assert [row[0] for row in tagged] == [row[0] for row in read_rows(theirs / "tags.csv")]
    assert [row[0] for row in read_rows(ours / "bad.csv")[1:]] == ["12.png", "13.png", "30.png"]
    assert len(tagged) == 1 + 8


def test_a_signal_to_one_process_stops_all_at_the_same_step_and_they_go_on_exactly(together):
    assert "go on with" in together.said.stderr
    assert model(together.runs["stopped"]) == model(together.runs["heads"])


def test_progress_and_results_are_said_by_one_process(together):
    assert together.said.stdout.count("images tagged") == len(CASES) + 1


def test_weights_of_two_processes_are_those_of_one_when_shares_are_uneven_or_empty(together):
    loop = odd_loop()
    loop.run()
    for name, network in (("weights", loop.network), ("average", loop.average.network)):
        expected = network.state_dict()
        first, second = (load_file(together.folder / f"{name}-{rank}") for rank in (0, 1))
        for key, value in expected.items():
            assert torch.equal(first[key], second[key]), key
            torch.testing.assert_close(first[key], value, rtol=1e-4, atol=1e-5)


def test_a_single_value_a_channel_is_normalised_by_the_running_statistics_and_leaves_them():
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4)
    norm(3 * torch.randn(8, 4, 2, 2) + 1)
    tolerate_single_values(norm)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    x = torch.randn(1, 4, 1, 1, requires_grad=True)
    found = norm(x)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())
    torch.testing.assert_close(found, nn.BatchNorm2d.forward(norm.eval(), x))
    norm.train()(torch.randn(2, 4, 1, 1))  # the patches of the same step move the statistics before its gradient
    found.sum().backward()
    torch.testing.assert_close(x.grad.flatten(), torch.rsqrt(before["running_var"] + norm.eps))
    assert norm.num_batches_tracked == 2
