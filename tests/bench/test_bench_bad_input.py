"""Every mistake in what `bench` is given ends with exit code 2 and one message that says what to do."""

import json

import pytest

from fewtags.cli import run
from small_grids import QUICK, cell, kept, made_up, pictures  # noqa: F401


@pytest.fixture
def refused(capsys):
    def refused(*words):
        assert run(["bench", *map(str, words)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "Traceback" not in printed.err
        return " ".join(printed.err.split())

    return refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "asll"], "--methods asll: unknown; did you mean 'asl'"),
        (["--methods", "asl", "--labelled", "2"], "--labelled 2: must be between 0 and 1"),
        (["--methods", "asl", "--labelled", "half"], "Invalid value for '--labelled'"),
        (["--methods", "asl", "--labelled", "0.001"], "less than one image"),
        (["--methods", "asl", "--seeds", "one"], "Invalid value for '--seeds'"),
        (["--methods", "asl", "--seeds", "4294967296"], "--seeds 4294967296: must be between 0"),
        (["--methods", "asl", "--set", "betta=1"], "--set betta: none of these methods has it"),
        (["--methods", "asl", "--set", "beta"], "--set beta"),
        (["--methods", "asl", "--set", "adapter=wide"], "adapter='wide'"),
        (["--methods", "asl", "--set", "seed=1,2"], "--set seed=1: this has an option of its own, --seed"),
        (["--methods", "asl", "--size", "3"], "--size"),
        (["--methods", "asl", "--jobs", "0"], "--jobs"),
        (["--methods", "asl", "--engine", "spark"], "--engine"),
        (["--methods", "asl", "--address", "here:1"], "--address here:1: only --engine ray knows clusters"),
        (["--methods", "asl", "--backbone", "resnet19"], "resnet19"),
        (["--methods", "asl", "--weights", "nowhere.safetensors"], "nowhere.safetensors"),
        (["--methods", "asl", "--labels", "nowhere.csv"], "nowhere.csv"),
        (["--methods", "asl", "--tune", "all", "--features", "evidence"], "--features evidence"),
    ],
)
def test_what_a_grid_cannot_be_made_of(refused, pictures, tmp_path, monkeypatch, words, message):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    assert message in refused("run", pictures, "--out", "b", *words)
    assert not (tmp_path / "b").exists()


def test_data_that_is_not_there(refused, tmp_path):
    assert "nowhere" in refused("run", tmp_path / "nowhere", "--methods", "asl", "--out", tmp_path / "b")
    assert "there is no folder" in refused("paper", "coco", tmp_path / "nowhere", "--dry-run")
    assert "voc|coco|nus" in refused("paper", "imagenet", tmp_path)


def test_a_folder_that_belongs_to_something_else(refused, pictures, tmp_path):  # noqa: F811
    before = sorted(pictures.iterdir())
    assert "exists and is no grid of runs" in refused("run", pictures, "--methods", "asl", "--out", pictures)
    assert sorted(pictures.iterdir()) == before
    file = tmp_path / "file"
    file.touch()
    assert "exists and is no grid of runs" in refused("run", pictures, "--methods", "asl", "--out", file)
    assert "cannot be made" in refused("run", pictures, "--methods", "asl", *QUICK, "--out", file / "b")


def test_a_grid_of_other_data_or_options(refused, pictures, tmp_path):  # noqa: F811
    folder = kept(tmp_path / "b", [made_up("asl")], data=str(pictures))
    before = (folder / "grid.json").read_text()
    assert "holds a grid on" in refused("run", "scenes:40", "--methods", "asl", "--out", folder)
    assert "other options (--words off; now --words off --size 64)" in refused(
        "run", pictures, "--methods", "asl", "--size", "64", "--out", folder
    )
    assert (folder / "grid.json").read_text() == before


def test_a_folder_that_is_no_grid_or_has_nothing_to_show(refused, tmp_path):
    for verb in ("table", "figures"):
        assert "is no grid of runs (it has no grid.json)" in refused(verb, tmp_path / "nowhere")
        folder = kept(tmp_path / verb, [], [cell("asl")])
        assert "no cell is finished yet" in refused(verb, folder)


def test_figures_where_a_file_lies(refused, tmp_path):
    folder = kept(tmp_path / "b", [made_up("asl")])
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    assert "notes.txt is a file; figures need a folder" in refused("figures", folder, "--out", file)
    assert file.read_text() == "mine"


def test_damaged_files(refused, tmp_path):
    folder = kept(tmp_path / "b", [made_up("asl")])
    (folder / "records.jsonl").write_text("{}\n")
    assert "records.jsonl, line 1: not a record" in refused("table", folder)
    (folder / "records.jsonl").unlink()
    broken = folder / cell("asl").folder / "record.json"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"\xff{")
    assert "record.json: not a record" in refused("figures", folder)
    (folder / "grid.json").write_text(json.dumps([]))
    assert "grid.json is damaged" in refused("table", folder)
    assert "grid.json is damaged" in refused("run", "scenes:40", "--methods", "asl", "--out", folder)


def test_tables_that_cannot_be_made(refused, tmp_path):
    folder = kept(tmp_path / "b", [made_up("asl")], data="scenes:40")
    assert "--paper: nothing was published on scenes:40" in refused("table", folder, "--paper")
    assert "says no format; end it in .md, .csv, .tex" in refused("table", folder, "--out", tmp_path / "table.doc")
    assert not (tmp_path / "table.doc").exists()
    assert "--rule" in refused("table", folder, "--rule", "third")
    assert "--format" in refused("table", folder, "--format", "excel")
