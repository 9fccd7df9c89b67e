"""Two processes that share every batch take the steps of one."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from small_runs import ALL, HEADS, command, model, odd_loop, read_rows, records, tiny_folder, train

# Several commands in the processes of one launch: loading torch takes longer than all of them together.
SCRIPT = """
import json, os, runpy, signal, sys
from pathlib import Path
from safetensors.torch import save_file
from fewtags.training.run import Watch
from small_runs import odd_loop

codes, rank = [], os.environ["RANK"]
step = Watch.step

def step_and_ask(self, report):
    step(self, report)
    if report["stage"] == "main" and rank == "1":
        os.kill(os.getpid(), signal.SIGTERM)

folder = Path(sys.argv[1])
for words, asked_to_stop in json.loads((folder / "commands.json").read_text()):
    Watch.step = step_and_ask if asked_to_stop else step
    sys.argv = ["fewtags", *words]
    try:
        runpy.run_module("fewtags", run_name="__main__", alter_sys=True)
    except SystemExit as leaving:
        codes.append(leaving.code)
(folder / f"codes-{rank}.json").write_text(json.dumps(codes))
loop = odd_loop()
loop.run()
save_file(loop.network.state_dict(), folder / f"weights-{rank}")
save_file(loop.average.network.state_dict(), folder / f"average-{rank}")
"""

CASES = {
    "heads": HEADS,
    # in the last step of an epoch there are one labelled and one unlabelled image: a process has nothing at all
    "heads, odd batches": (*HEADS, "--set", "warmup_batch=7", "labelled_batch=1", "unlabelled_batch=7"),
    # one step a stage: a weight whose gradient is mere rounding moves as far as any other with AdamW, so that runs
    # in float32 drift apart from then on
    "all": (*ALL, "--epochs", "1", "--set", "patches=2", "labelled_batch=8", "unlabelled_batch=10"),
}


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
def together(data, cache, alone, tmp_path_factory):
    """The same commands by two processes with a cache of their own, and one that is stopped and resumed."""
    folder = tmp_path_factory.mktemp("two processes")
    (folder / "cache").mkdir()
    (folder / "cache" / "engines").symlink_to(cache / "engines")
    runs = {case: folder / case for case in (*CASES, "stopped")}
    commands = [(command(data, runs[case], *options), False) for case, options in CASES.items()]
    stopped = command(data, runs["stopped"], *HEADS)
    commands += [(stopped, True), ([*stopped, "--resume"], False)]
    (folder / "commands.json").write_text(json.dumps(commands))
    (folder / "script.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "FEWTAGS_CACHE": str(folder / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [*launch, str(folder / "script.py"), str(folder)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert said.returncode == 0, said.stderr
    codes = [json.loads((folder / f"codes-{rank}.json").read_text()) for rank in (0, 1)]
    return SimpleNamespace(runs=runs, codes=codes, said=said, folder=folder)


def test_every_process_ends_with_the_same_code(together):
    assert together.codes[0] == together.codes[1] == [0] * len(CASES) + [130, 0]


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
