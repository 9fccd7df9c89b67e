"""`bench paper`: the plan of the paper's grid with its hours, and a real run of it on a handful of images."""

import json
import re

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

import fewtags.bench.budget
from fewtags.backbones.base import build_backbone
from fewtags.bench.budget import Speed, _StepTimer, seconds
from fewtags.bench.grid import PAPER
from fewtags.bench.records import read_records
from fewtags.bench.task import job_of
from fewtags.cli import run
from fewtags.training.recipe import Recipe
from small_grids import small_grid

pytestmark = pytest.mark.slow

TAGS = ("cat", "dog")


def picture(file, number):
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file)


def has(number, place):
    """Every image has one of the two tags, every third both."""
    return number % 2 == place or number % 3 == 0


def voc(root, train, test):
    main = root / "VOCdevkit" / "VOC2012" / "ImageSets" / "Main"
    main.mkdir(parents=True)
    for part, numbers in (("train", range(train)), ("val", range(train, train + test))):
        for number in numbers:
            picture(main.parents[1] / "JPEGImages" / f"i{number:03d}.jpg", number)
        for place, tag in enumerate(TAGS):
            lines = [f"i{number:03d} {1 if has(number, place) else -1}\n" for number in numbers]
            (main / f"{tag}_{part}.txt").write_text("".join(lines))


def coco(root, train, test):
    (root / "annotations").mkdir(parents=True)
    for part, numbers in (("train", range(train)), ("val", range(train, train + test))):
        for number in numbers:
            picture(root / f"{part}2014" / f"{number}.jpg", number)
        content = {
            "categories": [{"id": place + 1, "name": tag} for place, tag in enumerate(TAGS)],
            "images": [{"id": number, "file_name": f"{number}.jpg"} for number in numbers],
            "annotations": [
                {"id": 2 * number + place, "image_id": number, "category_id": place + 1, "iscrowd": 0}
                for number in numbers
                for place in range(2)
                if has(number, place)
            ],
        }
        (root / "annotations" / f"instances_{part}2014.json").write_text(json.dumps(content))


def nus(root, train, test):
    truth = root / "Groundtruth" / "TrainTestLabels"
    for folder in (truth, root / "ImageList"):
        folder.mkdir(parents=True)
    for part, numbers in (("Train", range(train)), ("Test", range(train, train + test))):
        for number in numbers:
            picture(root / "Flickr" / "all" / f"{number}.jpg", number)
        (root / "ImageList" / f"{part}Imagelist.txt").write_text("".join(f"all\\{n}.jpg\n" for n in numbers))
        for place, tag in enumerate(TAGS):
            lines = "".join(f"{int(has(number, place))}\n" for number in numbers)
            (truth / f"Labels_{tag}_{part}.txt").write_text(lines)


MAKERS = {"voc": voc, "coco": coco, "nus": nus}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The options that make the paper's network small, and random weights of it."""
    file = tmp_path_factory.mktemp("weights") / "resnet18.safetensors"
    save_file(build_backbone("resnet18", pretrained=False).state_dict(), file)
    return ["--backbone", "resnet18", "--weights", str(file), "--size", "32"]


def plan_lines(text):
    """Name of the row: runs, hours per run, hours."""
    found = {}
    for line in text.splitlines():
        parts = re.fullmatch(r"(\S.*?)\s{2,}(\d+)\s+([\d.]*)\s+([\d.]+)\s*", line)
        if parts:
            found[parts[1]] = (int(parts[2]), float(parts[3] or 0), float(parts[4]))
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_the_dry_plan_has_the_papers_grid_and_runs_nothing(name, small, tmp_path, monkeypatch, capsys):
    MAKERS[name](tmp_path / "data", 100, 4)
    monkeypatch.setattr(fewtags.bench.budget, "time_steps", lambda job: Speed(3.6, 7.2, 1.8))
    monkeypatch.chdir(tmp_path)
    assert run(["bench", "paper", name, "data", *small, "--dry-run"]) == 0
    lines = plan_lines(capsys.readouterr().out)
    assert len(lines) == 14 + 2 + 1
    assert {runs for row, (runs, _, _) in lines.items() if row != "all"} == {5 * 5}
    assert lines["all"][0] == 16 * 25
    assert lines["all"][2] == pytest.approx(sum(hours for row, (*_, hours) in lines.items() if row != "all"), abs=1)
    assert lines["D2L + MAT"][1] > lines["ASL"][1] > 0
    assert not (tmp_path / f"paper-{name}").exists()


@pytest.mark.parametrize("name", MAKERS)
def test_steps_are_really_timed(name, small, tmp_path, monkeypatch, capsys):
    MAKERS[name](tmp_path / "data", 12, 4)
    monkeypatch.chdir(tmp_path)
    words = ["--methods", "asl", "cap", "--labelled", "0.5", "--seeds", "1", "--dry-run", "--jobs", "2"]
    assert run(["bench", "paper", name, "data", *small, *words]) == 0
    printed = capsys.readouterr().out
    assert {name: runs for name, (runs, *_) in plan_lines(printed).items()} == {"ASL": 1, "CAP": 1, "all": 2}
    assert "estimated from a few steps timed here: " in printed
    assert "with 2 at a time" in printed


def test_hours_are_those_of_steps_and_of_scored_images(small, tmp_path):
    voc(tmp_path, 20, 4)
    options = {"backbone": "resnet18", "weights": small[3], "size": 32, "epochs": 2, "warmup": 3, "tune": "all",
               "protocol": "paper"}  # fmt: skip
    grid = small_grid(f"voc:{tmp_path}", ["d2l"], [0.25], [1], **options)
    job = job_of(grid, grid.cells[0])
    recipe = job.recipe
    assert (recipe.warmup, recipe.epochs) == (3, 2)
    labelled, unlabelled, test = 5, 15, 4
    steps = 3 * -(-labelled // recipe.warmup_batch), 2 * -(-unlabelled // recipe.unlabelled_batch)
    images = (
        steps[0] * min(labelled, recipe.warmup_batch),
        steps[1] * (min(labelled, recipe.labelled_batch) + min(unlabelled, recipe.unlabelled_batch)),
    )
    scored = 3 * (2 * test + labelled) + 2 * (2 * test + labelled + unlabelled)
    expected = 1.0 * images[0] + 10.0 * images[1] + 100.0 * scored
    assert seconds(grid, grid.cells[0], job, Speed(1.0, 10.0, 100.0)) == pytest.approx(expected)


def test_the_first_step_is_not_counted_unless_it_is_the_only_one(monkeypatch):
    stage = Recipe().stages(True)[0]
    for ends, expected in (([5.0, 6.0, 7.0], 1.0), ([5.0], 5.0), ([], 0.0)):
        times = iter([0.0, *ends])
        monkeypatch.setattr(fewtags.bench.budget.time, "monotonic", lambda times=times: next(times))
        clock = _StepTimer()
        clock.stage(stage, 3, 0)
        for _ in ends:
            clock.step({"stage": "warmup"})
        assert clock.seconds_per_step("warmup") == expected
        assert clock.seconds_per_step("main") == 0.0


def test_the_papers_protocol_runs_on_a_handful_of_images(small, tmp_path, monkeypatch, capsys):
    voc(tmp_path / "data", 12, 4)
    monkeypatch.setattr(fewtags.bench.budget, "time_steps", lambda job: Speed(3.6, 7.2, 1.8))
    monkeypatch.chdir(tmp_path)
    words = ["--labelled", "0.5", "--seeds", "1", "--warmup", "1", "--epochs", "1"]
    assert run(["bench", "paper", "voc", "data", *small, *words]) == 0
    printed = capsys.readouterr().out
    assert printed.index("The plan") < printed.index("16 of 16 cells are done: paper-voc")
    records = read_records(tmp_path / "paper-voc")
    assert {one.row.name for one in records} == {*PAPER, "mat", "mat+cdd"}
    assert {(one.protocol, one.tune, one.backbone, one.features) for one in records} == {
        ("paper", "all", "resnet18", "pixels")
    }
    mine = next(one for one in records if one.row.name == "d2l")
    assert mine.made["command"].startswith("fewtags train voc:PATH --method d2l --seed 1 --labelled 0.5")
    assert run(["bench", "table", "paper-voc", "--paper"]) == 0
    printed = capsys.readouterr()
    assert "DRML" in printed.out
    assert "nothing was published of these methods at these shares" in printed.err  # at 50 %
