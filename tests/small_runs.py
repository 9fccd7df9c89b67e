"""What the tests of training share: a loop on a tiny network, a folder of tiny pictures, runs of a second."""

import csv
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import fewtags.cli
from fewtags.backbones.norm import synchronise_batch_norms
from fewtags.encoders.views import generator
from fewtags.methods.d2l import D2L
from fewtags.methods.parts.heads import Heads
from fewtags.model.network import Network
from fewtags.training.build import make_fabric, processes
from fewtags.training.loop import Loop, Targets
from fewtags.training.recipe import Recipe
from fewtags.training.run_folder import Watch
from fewtags.training.source import KIND_CODES, PART_CODES, Batch, Views

# Threads that share out tiny batches spend their time waiting for each other when a core is busy elsewhere.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)

HEADS = ("--method", "d2l", "--tune", "heads", "--size", "64", "--warmup", "2", "--epochs", "2")
HEADS += ("--set", "warmup_batch=3", "labelled_batch=2", "unlabelled_batch=5", "adapter=16")
AUTO = ("--tune", "heads", "--size", "64", "--epochs", "2")
AUTO += ("--set", "labelled_batch=2", "unlabelled_batch=5", "hidden=16", "components=8")
ALL = ("--method", "d2l", "--tune", "all", "--size", "32", "--warmup", "1", "--epochs", "2", "--workers", "0")
ALL += ("--set", "warmup_batch=8", "labelled_batch=2", "unlabelled_batch=6", "patches=1")
TAGS = ("red", "green", "striped")


class TinyBody(nn.Module):
    """Pixels [B, 3, 6, 6] -> [B, 4], with the BatchNorm and dropout that make exactness hard."""

    def __init__(self, dropout):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        return self.drop(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class DrawnSource:
    """Views that depend on (seed, stage, epoch, part, image, kind) alone, as those of real sources do."""

    def take(self, part, rows, kind, epoch):
        images = np.zeros((len(rows), 5, 3, 6, 6), np.float32)
        key = (epoch.seed, epoch.stage, epoch.number, PART_CODES[part], KIND_CODES[kind])
        for image, row in zip(images, rows, strict=True):
            image += generator(PART_CODES[part], int(row)).normal(size=image.shape)
            image += 0.1 * generator(*key, int(row)).normal(size=image.shape)
        views = torch.from_numpy(images)
        return Views(views[:, 0], views[:, 1:])

    def steps(self, plan, epoch):
        for step in plan:
            labelled = self.take("labelled", step.labelled, epoch.labelled_view, epoch)
            if not epoch.unlabelled:
                yield Batch(labelled, None, None)
            else:
                weak = self.take("unlabelled", step.unlabelled, "weak", epoch)
                yield Batch(labelled, weak, self.take("unlabelled", step.unlabelled, "strong", epoch))

    def sweep(self, part, rows, kind, epoch):
        yield self.take(part, rows, kind, epoch)


def tiny_loop(method=None, observer=None, truth=None, test=None, dropout=0.2, fabric=None, **recipe):
    """A loop of five labelled, eleven unlabelled and four test images: 2 × 2 warm-up and 2 × 2 main steps."""
    method = method or D2L()
    settings = {"tune": "all", "warmup": 2, "epochs": 2, "warmup_batch": 3, "labelled_batch": 2, "unlabelled_batch": 6}
    torch.manual_seed(0)
    network = Network(TinyBody(dropout), Heads(4, 3, method.head_names))
    if fabric is not None and fabric.world_size > 1:
        synchronise_batch_norms(network)
    rng = np.random.default_rng(0)

    def drawn(rows):
        return torch.from_numpy(rng.integers(0, 2, (rows, 3)).astype(np.int8))

    labelled, of_unlabelled, of_test = drawn(5), drawn(11), drawn(4)
    targets = Targets(
        labelled=labelled,
        unlabelled=11,
        truth=of_unlabelled if truth is None else truth,
        test=of_test if test is None else test,
    )
    return Loop(network, DrawnSource(), method, Recipe(**{**settings, **recipe}), targets, fabric, observer)


def odd_loop():
    """A tiny loop for any number of processes: one labelled image a step, one unlabelled image in the last."""
    fabric = make_fabric(Recipe())
    return tiny_loop(fabric=fabric, dropout=0.0, warmup_batch=4, labelled_batch=1, unlabelled_batch=5)


def weights(network):
    """A copy of every weight and buffer."""
    return {name: value.clone() for name, value in network.state_dict().items()}


def same(ours, theirs):
    """Whether two state dicts are equal to the last bit."""
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def tiny_folder(folder: Path, images: int = 26, seed: int = 0) -> Path:
    """Pictures of 40 × 40 px and labels.csv in wide form: the first 8 labelled, the last 8 for testing."""
    folder.mkdir(parents=True)
    rows = [["image", *TAGS, "split"]]
    for number in range(images):
        rng = np.random.default_rng([seed, number])
        red, green, striped = rng.integers(0, 2, 3, dtype=np.uint8)
        pixels = rng.integers(0, 90, (40, 40, 3), dtype=np.uint8)
        pixels[:20, :, 0] += 160 * red
        pixels[20:, :, 1] += 160 * green
        pixels[::4] //= 1 + 3 * striped
        name = f"{number:02d}.png"
        Image.fromarray(pixels).save(folder / name)
        part = "test" if number >= images - 8 else "train"
        if number < 8 or part == "test":
            rows.append([name, red, green, striped, part])
    write_rows(folder / "labels.csv", rows)
    return folder


def read_rows(file: Path) -> list[list[str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.reader(lines))


def write_rows(file: Path, rows) -> None:
    with file.open("w", newline="", encoding="utf-8") as lines:
        csv.writer(lines).writerows(rows)


def command(data, out: Path, *options: str) -> list[str]:
    """The words after `fewtags`."""
    return ["train", str(data), "--out", str(out), *options]


def train(data, out: Path, *options: str) -> Path:
    """A finished run."""
    assert fewtags.cli.run(command(data, out, *options)) == 0
    return out


def model(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def records(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@contextmanager
def stopped_after(steps: int) -> Iterator[list[dict[str, float]]]:
    """A signal to the last process after so many steps of the main stage (0: never); gives the losses of each step."""
    rank, count = processes()
    step, losses = Watch.step, []

    def step_and_ask(self, report):
        step(self, report)
        if report["stage"] == "main":
            losses.append({name: value.item() for name, value in report["losses"].items()})
            if len(losses) == steps and rank == count - 1:
                os.kill(os.getpid(), signal.SIGTERM)

    Watch.step = step_and_ask
    try:
        yield losses
    finally:
        Watch.step = step


class Stopped(Exception):
    """What stands for the end of a process in tests that stay within one."""


def die() -> None:
    """The end that no process can prepare for."""
    os.kill(os.getpid(), signal.SIGKILL)


def run_and_die(words: list[str], moment: str, cache: Path) -> None:
    """Run a command in this process and be killed: within features, a checkpoint or the estimate, or after a step."""
    from fewtags.encoders import extract, store
    from fewtags.training import checkpoint, run_folder
    from fewtags.training import train as training

    os.environ["FEWTAGS_CACHE"] = str(cache)
    run_folder.SAVE_SECONDS = 0
    extract.KEEP_EVERY = 4
    save = run_folder.Watch.save

    def write_half_and_die(path, offset, data):
        with path.open("ab") as file:
            file.write(data[: len(data) // 2])
        die()

    def die_before_the_name(*_, **__):
        os.fsync = lambda handle: die()
        return b"all of it, in a temporary file"

    def save_and_die(self, loop):
        save(self, loop)
        if " ".join(map(str, vars(loop.position).values())) == moment:
            die()

    if moment == "features":
        third_time(store, "_write_at", write_half_and_die)
    elif moment == "checkpoint":
        third_time(checkpoint, "save", die_before_the_name)
    elif moment == "estimate":
        training.figures = lambda *_: die()
    else:
        run_folder.Watch.save = save_and_die
    fewtags.cli.run(words)


def third_time(module, name, instead):
    """Let a function of a module do something else when it is called for the third time."""
    original, calls = getattr(module, name), []

    def counted(*args, **kwargs):
        calls.append(1)
        return (instead if len(calls) == 3 else original)(*args, **kwargs)

    setattr(module, name, counted)
