"""Grids that really run: finished cells stay, broken ones are said, and no kill changes a byte of any model."""

import json
import os
import signal
import time
from types import SimpleNamespace

import pytest

import fewtags.cli
from fewtags.bench.engines import Event
from fewtags.bench.grid import load_grid
from fewtags.bench.live import Live
from fewtags.bench.records import read_records
from fewtags.bench.runner import run_grid
from fewtags.errors import UserError
from fewtags.utils.progress import shown_messages
from small_grids import QUICK, alive, bench, cell, children, odd_methods, pictures, small_grid  # noqa: F401
from small_runs import model

pytestmark = pytest.mark.slow

PATIENCE = 120  # seconds; nothing waits that long unless something is wrong


def wait_until(true, what, process=None):
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end or (process is not None and process.poll() is not None):
            output = process.communicate() if process is not None and process.poll() is not None else ""
            pytest.fail(f"{what} did not happen {output}")
        time.sleep(0.02)


def models(folder):
    """The bytes of every model of a grid."""
    return {one.folder: model(folder / one.folder) for one in load_grid(folder).cells}


def told(cells, *events):
    live = Live(cells, cells, {})
    for event in events:
        live.update(event)
    return live


def test_a_grid_runs_in_processes_and_a_second_time_has_nothing_to_do(pictures, tmp_path, capsys):  # noqa: F811
    words = ["bench", "run", str(pictures), "--methods", "asl", "d2l", "--seeds", "1", "2", *QUICK, "--jobs", "2"]
    words += ["--out", str(tmp_path / "b")]
    assert fewtags.cli.run(words) == 0
    printed = capsys.readouterr()
    assert "4 of 4 cells are done" in printed.out
    assert "cells: 4 of 4 done" in printed.err
    cells = load_grid(tmp_path / "b").cells
    assert [one.cell for one in read_records(tmp_path / "b")] == list(cells)
    record = read_records(tmp_path / "b")[1]
    told = record.made["command"]
    assert told.startswith(f"fewtags train {pictures} --method d2l --seed 1 ")
    assert all(f" {words} " in told for words in ("--tune heads", "--size 64", "--warmup 1", "--epochs 2"))
    assert {"commit", "versions", "cores"} <= record.made.keys()
    assert {"map", "cf1", "of1"} <= record.draws.keys()
    assert record.cpu_seconds > 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "b" / "cells").rglob("*") if path.is_file()}
    assert fewtags.cli.run(words) == 0
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "b" / "cells").rglob("*") if path.is_file()}
    # a cell is an ordinary run folder, equal to the one that `train` makes
    alone = ["train", str(pictures), "--method", "d2l", "--seed", "2", *QUICK, "--out", str(tmp_path / "alone")]
    assert fewtags.cli.run(alone) == 0
    assert model(tmp_path / "alone") == model(tmp_path / "b" / cell("d2l", None, 2).folder)


def test_a_grid_grows_and_only_new_cells_run(pictures, tmp_path):  # noqa: F811
    out = tmp_path / "b"
    assert run_grid(out, small_grid(pictures), jobs=1) == {}
    first = model(out / cell("asl", None).folder), (out / cell("asl", None).folder / "result.json").stat().st_mtime_ns
    assert run_grid(out, small_grid(pictures, ["d2l"], lists={"beta": ["0.5", "1"]}), jobs=1) == {}
    assert [one.words for one in load_grid(out).cells] == ["asl, seed 1", "d2l beta=0.5, seed 1", "d2l beta=1, seed 1"]
    assert len(read_records(out)) == 3
    again = out / cell("asl", None).folder
    assert first == (model(again), (again / "result.json").stat().st_mtime_ns)


def test_a_cell_whose_folder_was_removed_runs_again_and_its_record_is_new(pictures, tmp_path):  # noqa: F811
    out, where = tmp_path / "b", tmp_path / "b" / cell("asl", None).folder
    run_grid(out, small_grid(pictures), jobs=1)
    record = json.loads((out / "records.jsonl").read_text()) | {"cpu_seconds": -1.0}
    (out / "records.jsonl").write_text(json.dumps(record) + "\n")
    (where / "record.json").unlink()
    run_grid(out, small_grid(pictures), jobs=1)
    assert read_records(out)[0].cpu_seconds > 0


def test_a_broken_cell_is_said_the_others_go_on_and_only_retry_runs_it_again(pictures, odd_methods, tmp_path, capsys):  # noqa: F811
    words = ["bench", "run", str(pictures), "--methods", "odd.mended", "d2l", *QUICK, "--out", str(tmp_path / "b")]
    words += ["--jobs", "1"]
    assert fewtags.cli.run(words) == 3
    printed = capsys.readouterr()
    assert "1 of 2 cells are done" in printed.out
    assert "failed: odd.mended, seed 1: ArithmeticError: not mended yet" in printed.out
    assert "--retry" in printed.out
    log = tmp_path / "b" / "cells" / "odd.mended" / "labelled-as-given" / "seed-1.log"
    assert "Traceback" in log.read_text()
    (odd_methods / "mended").touch()
    assert fewtags.cli.run(words) == 3  # kept as failed
    assert fewtags.cli.run([*words, "--retry"]) == 0
    assert fewtags.cli.run(words) == 0
    assert len(read_records(tmp_path / "b")) == 2


def test_a_killed_process_costs_its_cell_nothing_and_others_nothing(pictures, odd_methods, tmp_path):  # noqa: F811
    failed = run_grid(tmp_path / "b", small_grid(pictures, ["odd.dies_once", "odd.dies", "d2l"]), jobs=2)
    assert [(one.row.method, reason.split(";")[0]) for one, reason in failed.items()] == [
        ("odd.dies", "its process was killed twice")
    ]
    assert (
        run_grid(tmp_path / "c", small_grid(pictures, ["odd.dies_once"]), jobs=1) == {}
    )  # its mark is set: undisturbed
    where = cell("odd.dies_once", None).folder
    assert model(tmp_path / "b" / where) == model(tmp_path / "c" / where)


@pytest.fixture
def waiting(pictures, odd_methods, tmp_path):  # noqa: F811
    """A `bench run` with one cell done and one in the middle, which waits; and its words."""
    words = ["run", pictures, "--methods", "d2l", "odd.waits", *QUICK, "--out", tmp_path / "b", "--jobs", "1"]
    process = bench(*words)
    wait_until((odd_methods / "waits").exists, "the second cell", process)
    yield process, words
    for one in [process.pid, *children(process.pid)]:
        if alive(one):
            os.kill(one, signal.SIGKILL)
    process.wait()


def test_kill_in_the_middle_leaves_no_orphan_and_the_same_command_ends_with_the_same_bytes(
    waiting, pictures, odd_methods, tmp_path  # noqa: F811
):  # fmt: skip
    process, words = waiting
    workers = children(process.pid)
    assert workers
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, workers)), "the end of the workers")
    (odd_methods / "go").touch()
    assert fewtags.cli.run(["bench", *map(str, words)]) == 0
    undisturbed = [str(tmp_path / "c") if word == tmp_path / "b" else str(word) for word in words]
    assert fewtags.cli.run(["bench", *undisturbed]) == 0
    assert models(tmp_path / "b") == models(tmp_path / "c")


def test_ctrl_c_keeps_a_checkpoint_and_says_how_to_go_on(waiting, odd_methods, tmp_path):  # noqa: F811
    process, words = waiting
    where = tmp_path / "b" / cell("odd.waits", None).folder
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "go on with: fewtags bench run" in said
    assert "Traceback" not in said
    assert not list((tmp_path / "b").rglob("*.failed"))
    assert not (where / "record.json").exists()
    assert (where / "checkpoint" / "state.safetensors").exists()
    assert fewtags.cli.run(["bench", *map(str, words)]) == 0
    assert len(read_records(tmp_path / "b")) == 2


def test_two_runs_on_one_folder_are_refused(waiting, odd_methods, capsys):  # noqa: F811
    process, words = waiting
    assert fewtags.cli.run(["bench", *map(str, words)]) == 2
    assert "another `fewtags bench run` works on" in capsys.readouterr().err
    (odd_methods / "go").touch()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_a_kill_before_the_first_cell_does_not_lock_the_folder_out(pictures, tmp_path):  # noqa: F811
    out = tmp_path / "b"
    out.mkdir()
    (out / "lock").touch()
    (out / ".grid.json.x1").touch()
    assert run_grid(out, small_grid(pictures), jobs=1) == {}


def test_features_are_computed_once_before_the_cells(pictures, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("FEWTAGS_CACHE", str(tmp_path / "cache"))
    grid = small_grid(pictures, ["asl", "d2l"], [0.5], [1, 2], lists={"labelled_view": ["weak", "strong"]})
    assert run_grid(tmp_path / "b", grid, jobs=1) == {}
    logs = [path.read_text() for path in (tmp_path / "b").rglob("*.log")]
    assert len(logs) == 8
    # whatever the cells would have had to compute had changed the store after the first of them began
    first = min(path.stat().st_mtime_ns for path in (tmp_path / "b").rglob("config.yaml"))
    stores = list((tmp_path / "cache").rglob("features.f16"))
    assert len(stores) >= 3
    assert max(path.stat().st_mtime_ns for path in stores) < first


def test_the_live_table_counts(capsys):
    cells = [cell("asl", share, seed) for share in (0.05, None) for seed in (1, 2)]
    with shown_messages():  # as the command line does
        live = told(cells, Event("running", cells[0]), Event("done", cells[0]), Event("running", cells[1]), Event(),
                    Event("failed", cells[2], "no reason"))  # fmt: skip
    assert live.summary().startswith("cells: 1 of 4 done, 1 running, 1 failed, ")
    assert live.summary().endswith(" left")
    assert "failed: asl, seed 1: no reason" in capsys.readouterr().err
    summary, table = live.table().renderables
    assert str(summary) == live.summary()
    assert [column.header for column in table.columns] == ["", "5 %", "as given"]
    assert [next(iter(column.cells)) for column in table.columns[1:]] == ["●◐", "✗·"]


def test_the_time_left_falls_while_a_cell_runs(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("fewtags.bench.live.time", SimpleNamespace(monotonic=lambda: now[0]))
    cells = [cell("asl", 0.05, seed) for seed in (1, 2, 3)]
    live = told(cells, Event("running", cells[0]))
    now[0] = 100.0
    live.update(Event("done", cells[0]))
    live.update(Event("running", cells[1]))
    shown = []
    for now[0] in (130.0, 190.0, 400.0):  # at last it takes longer than thought: the third cell is still to come
        shown.append(live.summary().rpartition(", ")[2])
    assert shown == ["2 min 50 s left", "1 min 50 s left", "1 min 40 s left"]


def test_what_cannot_run_is_refused_before_anything_is_written(pictures, tmp_path):  # noqa: F811
    out = tmp_path / "b"
    for grid in (
        small_grid(pictures, labelled=[0.01]),  # less than one image
        small_grid(pictures, ["d2l"], lists={"adapter": ["none"]}),
        small_grid(pictures, ["d2l"], lists={"seed": ["3"]}),
        small_grid(pictures, backbone="resnet19"),
        small_grid(tmp_path / "nowhere"),
    ):
        with pytest.raises(UserError):
            run_grid(out, grid)
        assert not out.exists()
