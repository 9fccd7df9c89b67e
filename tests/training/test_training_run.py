"""Whole runs: what they leave behind, what changes them and what must not, and how they end when something is wrong."""

import json
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file

import fewtags.cli
from fewtags.errors import Fault
from fewtags.methods.asl import ASL
from fewtags.training.evaluator import EpochEvaluator
from fewtags.training.loop import Observer
from fewtags.training.recipe import Recipe
from small_runs import (
    ALL,
    HEADS,
    TAGS,
    command,
    model,
    read_rows,
    records,
    same,
    tiny_folder,
    tiny_loop,
    train,
    weights,
    write_rows,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def small_sheet():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fewtags.training.results.SHEET_IMAGES", 1)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("data") / "pictures")


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return train(data, tmp_path_factory.mktemp("runs") / "run", *HEADS)


@pytest.fixture(scope="module")
def run_all(data, tmp_path_factory):
    return train(data, tmp_path_factory.mktemp("runs") / "all", *ALL)


def with_labels(data, folder, change):
    """A copy of the data in which `change` was at the rows of labels.csv."""
    shutil.copytree(data, folder)
    rows = read_rows(folder / "labels.csv")
    change(rows)
    write_rows(folder / "labels.csv", rows)
    return folder


def flip(row):
    row[1:4] = ["0" if cell == "1" else "1" for cell in row[1:4]]


def test_config_holds_every_setting_as_resolved(run, data):
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["fewtags"] == fewtags.__version__
    assert config["data"] == str(data)
    assert config["tags"] == list(TAGS)
    assert config["recipe"].keys() == Recipe.model_fields.keys()
    asked = {"tune": "heads", "size": 64, "warmup": 2, "epochs": 2, "warmup_batch": 3, "adapter": 16, "seed": 1}
    assert config["recipe"].items() >= asked.items()
    assert config["method_settings"].items() >= {"patches": 2, "beta": 0.5, "grid": None}.items()
    assert len(config["data_digest"]) == len(config["weights_digest"]) == 64


def test_split_names_the_role_of_every_image(run):
    header, *rows = read_rows(run / "split.csv")
    assert header == ["image", "role"]
    roles = ["labelled"] * 8 + ["unlabelled"] * 10 + ["test"] * 8
    assert sorted(rows) == [[f"{number:02d}.png", role] for number, role in enumerate(roles)]


def test_metrics_hold_one_object_an_epoch(run):
    found = records(run)
    assert [(one["stage"], one["epoch"]) for one in found] == [("warmup", 0), ("warmup", 1), ("main", 0), ("main", 1)]
    terms = {"labelled_whole", "labelled_patch"}
    for one in found:
        assert one["seconds"] >= 0
        parts = terms if one["stage"] == "warmup" else terms | {"unlabelled_whole", "unlabelled_patch"}
        assert one["loss"] == pytest.approx(sum(one[name] for name in parts))
    for one in found[2:]:
        assert all(0 <= one[name] <= 1 for name in ("map", "cf1", "of1", "map_paper", "map_whole", "map_patch"))
        assert len(one["thresholds"]) == len(TAGS)
        assert "pseudo_cf1" not in one  # nobody knows what the unlabelled images show


def test_the_model_folder_is_all_that_tagging_needs(run):
    info = json.loads((run / "model" / "model.json").read_text())
    assert info["tags"] == list(TAGS)
    assert (info["backbone"], info["size"], info["patches"]) == ("efficientnet_lite0", 64, 2)
    assert len(info["thresholds"]) == len(TAGS)
    names = load_file(run / "model" / "model.safetensors").keys()
    assert {name.split(".")[0] for name in names} == {"backbone", "top"}
    heads = {name.split(".")[2] for name in names if name.startswith("top.heads.")}
    assert heads == {"whole_make", "patch_make"}  # those that use pseudo-labels are for training alone
    assert not [name for name in names if "use" in name]


def test_every_unlabelled_image_is_tagged(run):
    header, *rows = read_rows(run / "tags.csv")
    assert header == ["image", "tags"]
    assert [name for name, _ in rows] == [f"{number:02d}.png" for number in range(8, 18)]
    assert {tag for _, tags in rows for tag in tags.split("|") if tag} <= set(TAGS)
    assert (run / "tags.png").exists()
    result = json.loads((run / "result.json").read_text())
    assert result["images"] == {"labelled": 8, "unlabelled": 10, "test": 8}
    assert "chosen_on_the_test_split" not in result
    assert not (run / "bad.csv").exists()


def test_the_same_seed_gives_the_same_model_and_another_seed_another(run, data, tmp_path):
    assert model(train(data, tmp_path / "again", *HEADS)) == model(run)
    assert model(train(data, tmp_path / "other", *HEADS, "--seed", "2")) != model(run)


def test_the_number_of_workers_changes_nothing(run_all, data, tmp_path):
    assert "--workers" in ALL
    two = train(data, tmp_path / "two", *ALL, "--workers", "2")
    assert model(two) == model(run_all)
    assert [one["loss"] for one in records(two)] == [one["loss"] for one in records(run_all)]


def test_with_tune_all_the_backbone_learns_and_with_heads_it_rests(run, run_all):
    from fewtags.backbones.base import build_backbone

    start = build_backbone("efficientnet_lite0").state_dict()
    for found, learns in ((run, False), (run_all, True)):
        tensors = load_file(found / "model" / "model.safetensors")
        moved = [name for name, value in start.items() if not torch.equal(tensors[f"backbone.0.{name}"], value)]
        assert bool(moved) == learns


def test_labels_of_test_images_change_no_model(run, data, tmp_path):
    def poison(rows):
        for row in rows:
            if row[-1] == "test":
                flip(row)

    poisoned = train(with_labels(data, tmp_path / "poisoned", poison), tmp_path / "run", *HEADS)
    assert model(poisoned) == model(run)
    assert (poisoned / "tags.csv").read_bytes() == (run / "tags.csv").read_bytes()
    maps = [[one["map"] for one in records(found) if "map" in one] for found in (poisoned, run)]
    assert maps[0] != maps[1]  # they were read, and measured against


def test_hidden_truth_of_unlabelled_images_changes_no_model(data, tmp_path):
    options = [*HEADS, "--labelled", "0.5"]
    clean = train(data, tmp_path / "clean", *options)
    hidden = {name for name, role in read_rows(clean / "split.csv") if role == "unlabelled"}

    def poison(rows):
        for row in rows:
            if row[0] in hidden:
                flip(row)

    poisoned = train(with_labels(data, tmp_path / "poisoned", poison), tmp_path / "run", *options)
    assert read_rows(poisoned / "split.csv") == read_rows(clean / "split.csv")
    assert model(poisoned) == model(clean)
    measured = [[one["pseudo_cf1"] for one in records(found)[2:]] for found in (poisoned, clean)]
    assert measured[0] != measured[1]


def test_the_papers_protocol_says_that_the_test_split_chose(data, tmp_path, capsys):
    found = train(data, tmp_path / "run", *ALL, "--protocol", "paper")
    said = capsys.readouterr()
    assert "the test split chooses the epoch" in said.err
    assert "chosen on the test split" in said.out
    result = json.loads((found / "result.json").read_text())
    chosen = result["chosen_on_the_test_split"]
    mains = [one for one in records(found) if one["stage"] == "main"]
    best = max(max(one["map_paper"], one["raw_map_paper"]) for one in mains)
    assert chosen["map_paper"] == best == result["map_paper"]
    name = "map_paper" if chosen["average"] else "raw_map_paper"
    assert mains[chosen["epoch"]][name] == best


def test_our_protocol_does_not_speak_of_a_choice(run, data, tmp_path, capsys):
    train(data, tmp_path / "run", *HEADS)
    said = capsys.readouterr()
    assert "chose" not in said.err + said.out


def test_the_released_early_stop_waits_six_epochs():
    evaluator = EpochEvaluator(paper=True)
    evaluator.last_gain, evaluator.top = {"raw": 2, "average": 1}, {"raw": 0.5, "average": 0.6}
    assert not evaluator.stalled({"epoch": 7, "map_paper": 0.5})
    assert evaluator.stalled({"epoch": 8, "map_paper": 0.5})
    assert not evaluator.stalled({"epoch": 8, "map_paper": 0.6})  # the average is at its best again
    ours = EpochEvaluator(paper=False)
    ours.last_gain, ours.top = evaluator.last_gain, evaluator.top
    assert not ours.stalled({"epoch": 8, "map_paper": 0.5})


def test_a_whole_network_learns_from_scenes(tmp_path):
    options = ["--tune", "all", "--size", "32", "--labelled", "0.5", "--warmup", "6", "--epochs", "1", "--workers", "0"]
    settings = ["warmup_batch=9", "warmup_learning_rate=2e-3", "labelled_view=weak", "patches=1"]
    found = records(train("scenes:24", tmp_path / "run", *options, "--set", *settings))
    warm = [one["loss"] for one in found if one["stage"] == "warmup"]
    assert warm[-1] < 0.7 * warm[0]


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        (["--epochs", "0"], {"warmup": 2}),
        (["--warmup", "0"], {"main": 2}),
        (["--method", "asl"], {"warmup": 4}),
        (["--method", "bce", "--set", "patches=2"], {"warmup": 4}),
    ],
)
def test_a_run_may_have_one_stage_only(data, tmp_path, options, stages):
    found = train(data, tmp_path / "run", *HEADS, *options)
    counted = [one["stage"] for one in records(found)]
    assert {stage: counted.count(stage) for stage in counted} == stages
    assert len(read_rows(found / "tags.csv")) == 11


@pytest.fixture
def with_bad_images(data, tmp_path):
    folder = shutil.copytree(data, tmp_path / "pictures")
    (folder / "00.png").write_bytes(b"no picture")  # labelled
    (folder / "12.png").write_bytes(b"")
    (folder / "13.png").write_bytes(b"")
    return folder


@pytest.mark.parametrize("options", [HEADS, ALL], ids=["heads", "all"])
def test_bad_images_are_listed_and_training_goes_on(with_bad_images, tmp_path, capsys, options):
    found = train(with_bad_images, tmp_path / "run", *options)
    header, *rows = read_rows(found / "bad.csv")
    assert header == ["image", "reason"]
    assert [row[0] for row in rows] == ["00.png", "12.png", "13.png"]
    assert all(reason for _, reason in rows)
    assert "3 images" in capsys.readouterr().err
    assert not {"00.png", "12.png", "13.png"} & {row[0] for row in read_rows(found / "split.csv")}
    assert len(read_rows(found / "tags.csv")) == 1 + 8


def test_strict_stops_at_bad_images(with_bad_images, tmp_path, capsys):
    assert fewtags.cli.run(command(with_bad_images, tmp_path / "run", *HEADS, "--strict")) == 2
    assert "00.png" in capsys.readouterr().err
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


class Spoiled(ASL):
    """A loss that is no number, or has no gradient, from the given step on."""

    step: int = 0
    """When it begins."""
    what: str = "loss"
    """What is not finite."""

    def loss(self, step, update="all"):
        terms = super().loss(step, update)
        self.state["steps"] = self.state.get("steps", torch.zeros(1)) + 1
        if self.state["steps"].item() > self.step:
            total = terms["labelled_whole"]
            steep = (total - total.detach()) ** 0.5  # nothing, with an infinite slope
            odd = {"loss": total * float("nan"), "infinite loss": total / 0, "gradient": steep}
            terms["labelled_whole"] = total + odd[self.what]
        return terms


@pytest.mark.parametrize("what", ["loss", "infinite loss", "gradient"])
def test_what_is_not_finite_stops_before_the_weights_are_touched(what):
    class Keep(Observer):
        def step(self, report):
            self.after = weights(self.loop.network)

    keep = Keep()
    keep.loop = loop = tiny_loop(Spoiled(step=3, what=what), observer=keep)
    with pytest.raises(Fault, match=f"the {what.split()[-1]} is not finite in epoch 1, step 1"):
        loop.run()
    ours, before = dict(loop.network.named_parameters()), keep.after
    assert all(torch.equal(value, before[name]) for name, value in ours.items())
    assert all(torch.isfinite(value).all() for value in loop.average.network.state_dict().values())


SPOILED = '''
import torch
from fewtags.methods.d2l import D2L


class Odd(D2L):
    """Spoils the main stage."""

    what: str = "loss"
    """What is not finite."""

    def loss(self, step, update="all"):
        terms = super().loss(step, update)
        if step.pseudo is not None:
            total = terms["unlabelled_whole"]
            odd = total * float("nan") if self.what == "loss" else (total - total.detach()) ** 0.5
            terms["unlabelled_whole"] = total + odd
        return terms
'''


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_fault_ends_with_code_3_and_keeps_the_checkpoint(data, tmp_path, monkeypatch, capsys, what):
    (tmp_path / "odd_package").mkdir()
    (tmp_path / "odd_package" / "odd.py").write_text(SPOILED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("fewtags.training.run_folder.SAVE_SECONDS", 0)
    options = [*HEADS, "--method", "odd_package.odd", "--set", f"what={what}"]
    assert fewtags.cli.run(command(data, tmp_path / "run", *options)) == 3
    assert f"the {what} is not finite in epoch 0, step 0" in capsys.readouterr().err
    state = load_file(tmp_path / "run" / "checkpoint" / "state.safetensors")
    assert all(torch.isfinite(value).all() for value in state.values())
    assert not (tmp_path / "run" / "model").exists()


def test_a_loop_is_a_function_of_its_seed():
    one, again, other = tiny_loop(), tiny_loop(), tiny_loop(seed=2)
    for loop in (one, again, other):
        torch.manual_seed(torch.seed())  # whatever was drawn before
        loop.run()
    assert same(weights(one.network), weights(again.network))
    assert not same(weights(one.network), weights(other.network))
