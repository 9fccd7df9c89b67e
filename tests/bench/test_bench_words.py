"""A grid compares methods by labels: tags' names are read only where it is told to."""

import json

import pytest

from fewtags.bench.grid import Cell, load_grid, make_grid, row_of, rows_of, save_grid
from fewtags.bench.task import job_of
from fewtags.cli import run
from fewtags.errors import UserError
from fewtags.training.run_folder import RunFolder
from small_grids import kept, made_up
from small_runs import read_rows, tiny_folder, write_rows

SMALL = {"tune": "heads", "size": 64, "epochs": 2, "backbone": "efficientnet_lite0"}


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """Pictures whose tags have names that say something."""
    folder = tiny_folder(tmp_path_factory.mktemp("named") / "pictures")
    _, *rows = read_rows(folder / "labels.csv")
    write_rows(folder / "labels.csv", [["image", "dog", "boat", "car", "split"], *rows])
    return folder


def grid_of(data, **options):
    return make_grid(str(data), rows_of(["neighbours", "asl"], {}), [None, 0.5], [1], {**SMALL, **options})


def test_a_grid_reads_no_names_unless_told(tmp_path):
    silent = grid_of("photos")
    assert silent.options["words"] == "off"
    assert grid_of("photos", words=None).options["words"] == "off"
    assert grid_of("photos", words="on").options["words"] == "on"
    save_grid(tmp_path, silent)
    assert json.loads((tmp_path / "grid.json").read_text(encoding="utf-8"))["options"]["words"] == "off"
    assert load_grid(tmp_path) == silent


def test_grids_of_before_read_none(tmp_path):
    kept(tmp_path, [made_up("d2l")])
    assert "words" not in json.loads((tmp_path / "grid.json").read_text(encoding="utf-8"))["options"]
    assert load_grid(tmp_path).options == {"words": "off"}


@pytest.mark.parametrize("features", ["evidence", None])
def test_the_cells_of_a_grid_read_names_as_it_says(named, features):
    cell = Cell(row_of("neighbours", {}), None, 1)
    options = {} if features is None else {"features": features}
    for words, read in ((None, "off"), ("off", "off"), ("on", "on"), ("dog=hound", "dog=hound")):
        if features is None and words == "dog=hound":
            continue  # crops: refused, see below
        job = job_of(grid_of(named, words=words, **options), cell)
        expected = read if features else "off"
        assert job.config.words == expected
        assert job.encoder.words == (3 if expected != "off" else 0)
        assert bool(job.names) == (expected != "off")


def test_cells_of_other_methods_read_none_whatever_the_grid_says(named):
    job = job_of(grid_of(named, words="on", features="evidence"), Cell(row_of("asl", {}), None, 1))
    assert (job.config.words, job.encoder.words, job.names) == ("off", 0, ())


def test_the_papers_protocol_reads_none_and_refuses_words_of_a_persons_own(named):
    cell = Cell(row_of("d2l", {}), None, 1)
    assert job_of(grid_of(named, words="on", protocol="paper"), cell).config.words == "off"
    with pytest.raises(UserError, match="the papers use none, so --protocol paper reads none"):
        job_of(grid_of(named, words="dog=hound", protocol="paper"), cell)


def test_words_that_no_cell_could_read_are_refused_before_anything_is_written(named, tmp_path, capsys):
    out = tmp_path / "grid"
    how = ["--methods", "d2l", "--tune", "heads", "--size", "64"]
    assert run(["bench", "run", str(named), "--out", str(out), *how, "--words", "dog=hound"]) == 2
    assert "--words: only the default" in capsys.readouterr().err
    assert (
        run(["bench", "run", str(named), "--out", str(out), *how, "--protocol", "paper", "--words", "dog=hound"]) == 2
    )
    assert "the papers use none" in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_without_labels_is_refused_for_want_of_labels_and_not_of_tags(named, tmp_path, capsys):
    (tmp_path / "bare" / "photos").mkdir(parents=True)
    for file in named.glob("0*.png"):
        (tmp_path / "bare" / "photos" / file.name).write_bytes(file.read_bytes())
    words = ["--methods", "neighbours", "--features", "evidence", "--tune", "heads", "--size", "64", "--tags", "dog"]
    words += ["--labelled", "0.5"]
    assert run(["bench", "run", str(tmp_path / "bare" / "photos"), "--out", str(tmp_path / "grid"), *words]) == 2
    said = capsys.readouterr().err
    assert "no labelled training image" in said
    assert "--tags" not in said


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--words", "on")], ids=["untold", "told"])
def test_a_finished_cell_shows_it(named, tmp_path, words):
    out = tmp_path / "grid"
    how = ["--methods", "neighbours", "--features", "evidence", "--tune", "heads", "--size", "64", "--epochs", "2"]
    how += ["--backbone", "efficientnet_lite0", "--set", "hidden=16", "components=8", "--jobs", "1"]
    assert run(["bench", "run", str(named), "--out", str(out), *how, *words]) == 0
    expected = "on" if words else "off"
    assert json.loads((out / "grid.json").read_text(encoding="utf-8"))["options"]["words"] == expected
    (cell,) = [folder.parent for folder in out.glob("cells/**/config.yaml")]
    assert RunFolder(cell).config().words == expected
