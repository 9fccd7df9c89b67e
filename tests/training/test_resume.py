"""A run that is stopped, killed or struck by a fault goes on to the very model of a run that never was."""

import json
import multiprocessing
import os
import shlex
import shutil
import signal
import time

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import fewtags.cli
import fewtags.training.run_folder
from fewtags.errors import Fault, UserError
from fewtags.methods.base import Method, Pseudo, Update
from fewtags.methods.d2l import D2L
from fewtags.training.checkpoint import load_checkpoint, save_checkpoint
from fewtags.training.evaluator import EpochEvaluator
from fewtags.training.loop import Observer
from fewtags.training.run_folder import RunFolder, Watch
from small_runs import (
    ALL,
    AUTO,
    HEADS,
    TAGS,
    Stopped,
    command,
    model,
    read_rows,
    records,
    run_and_die,
    same,
    tiny_folder,
    tiny_loop,
    train,
    weights,
    write_rows,
)

pytestmark = pytest.mark.slow

OPTIONS = {"heads": HEADS, "auto": AUTO, "all": ALL}
COSTS = ("seconds", "cpu_seconds", "peak_memory_mb")


class Turns(Method):
    """Two optimisers, and a state that moves with every step."""

    updates = {"body": Update(("body.",)), "heads": Update(("heads.",), learning_rate=0.01)}  # noqa: RUF012

    def begin_main(self, teacher):
        self.state["mean"] = teacher.unlabelled_scores.mean(0)

    def pseudo_labels(self, batch):
        self.state["mean"] = 0.9 * self.state["mean"] + 0.1 * batch.scores.mean(0)
        return Pseudo((batch.scores > self.state["mean"]).float())


class StopAt(Observer):
    """Keeps the records; writes a checkpoint at the n-th opportunity and stops there."""

    def __init__(self, file, number):
        self.file, self.number, self.records = file, number, []

    def epoch(self, record):
        self.records.append(record)

    def save(self, loop):
        self.number -= 1
        if self.number == 0:
            save_checkpoint(loop, self.file, "this run")
            raise Stopped


def finished(loop):
    chosen = loop.run()
    return [weights(chosen), weights(loop.network), weights(loop.average.network), dict(loop.method.state)]


def evaluated(loop):
    return loop.evaluator.best, loop.evaluator.last_gain, loop.evaluator.top


@pytest.mark.parametrize(
    ("method", "recipe"),
    [
        (D2L, {}),
        (D2L, {"tune": "heads"}),  # a body that rests in the warm-up
        (D2L, {"protocol": "paper", "ema_decay": 0.9}),
        (Turns, {}),
    ],
    ids=["ours", "resting body", "paper", "two optimisers"],
)
def test_a_loop_stopped_between_any_two_steps_goes_on_to_the_last_bit(tmp_path, method, recipe):
    never = StopAt(tmp_path, 0)
    uninterrupted = tiny_loop(method(), never, **recipe)
    expected = finished(uninterrupted)
    steps = -never.number
    assert steps == 2 * 2 + 2 * 2
    for number in range(1, steps + 1):
        file = tmp_path / f"{number}.safetensors"
        before, after = StopAt(file, number), StopAt(file, 0)
        with pytest.raises(Stopped):
            tiny_loop(method(), before, **recipe).run()
        loop = tiny_loop(method(), after, **recipe)
        load_checkpoint(loop, file, "this run")
        found = finished(loop)
        assert evaluated(loop) == evaluated(uninterrupted), number
        assert all(same(ours, theirs) for ours, theirs in zip(found, expected, strict=True)), number
        assert before.records + after.records == never.records, number


def test_an_epoch_too_many_is_not_run_after_the_released_early_stop(tmp_path, monkeypatch):
    monkeypatch.setattr(
        EpochEvaluator, "stalled", lambda self, record: (record["stage"], record["epoch"]) == ("main", 0)
    )
    never, file = StopAt(tmp_path, 0), tmp_path / "state"
    expected = finished(tiny_loop(observer=never))
    assert [record["stage"] for record in never.records] == ["warmup", "warmup", "main"]
    before, after = StopAt(file, 6), StopAt(file, 0)  # at the end of the epoch that was the last
    with pytest.raises(Stopped):
        tiny_loop(observer=before).run()
    loop = tiny_loop(observer=after)
    load_checkpoint(loop, file, "this run")
    assert all(same(ours, theirs) for ours, theirs in zip(finished(loop), expected, strict=True))
    assert after.records == []


def test_what_a_run_has_cost_counts_the_time_before_it_stopped(tmp_path):
    loop = tiny_loop()
    loop.spent.earlier = (7200.0, 3600.0)
    save_checkpoint(loop, tmp_path / "state", "this run")
    again = tiny_loop()
    load_checkpoint(again, tmp_path / "state", "this run")
    seconds, of_cpu = again.spent.read()
    assert 7200 <= seconds < 10800
    assert 3600 <= of_cpu < 7200


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("data") / "pictures")


@pytest.fixture(scope="module", autouse=True)
def small_sheet():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fewtags.training.results.SHEET_IMAGES", 1)
        yield


@pytest.fixture(scope="module")
def never_stopped(data, tmp_path_factory):
    """Both ways of training, without an interruption."""
    folder = tmp_path_factory.mktemp("never-stopped")
    return {tune: train(data, folder / tune, *options) for tune, options in OPTIONS.items()}


def without_seconds(run):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records(run)]


def assert_same_run(run, expected):
    assert model(run) == model(expected)
    assert without_seconds(run) == without_seconds(expected)
    for name in ("model/model.json", "tags.csv", "scores.safetensors", "split.csv", "config.yaml"):
        assert (run / name).read_bytes() == (expected / name).read_bytes(), name


def stop_when(monkeypatch, name, reached):
    """Let a call of the watch end the process, as far as a test within the process can."""
    original = getattr(Watch, name)

    def watched(self, what, *rest):
        original(self, what, *rest)
        if reached(what):
            raise Stopped

    monkeypatch.setattr(Watch, name, watched)


def at(*place):
    return lambda loop: tuple(vars(loop.position).values()) == place


def nth(number):
    left = [number]

    def reached(_):
        left[0] -= 1
        return left[0] == 0

    return reached


MOMENTS = [
    ("heads", "save", at(0, 0, 2), 0),  # inside the warm-up
    ("heads", "save", at(0, 2, 0), 0),  # between the stages
    ("heads", "stage", lambda stage: stage.name == "main", 0),  # the second has just begun
    ("heads", "step", nth(9), 0),  # inside an epoch of the main stage, a step done and not yet saved
    ("heads", "save", at(1, 2, 0), 0),  # all is learned, nothing written
    ("heads", "step", nth(9), 1e9),  # nothing was ever saved
    ("all", "step", nth(4), 0),
]


@pytest.mark.parametrize(("tune", "call", "reached", "seconds"), MOMENTS)
def test_a_run_that_broke_off_goes_on_to_the_same_model(
    data, never_stopped, tmp_path, monkeypatch, tune, call, reached, seconds
):
    monkeypatch.setattr(fewtags.training.run_folder, "SAVE_SECONDS", seconds)
    with monkeypatch.context() as patch:
        stop_when(patch, call, reached)
        with pytest.raises(Stopped):
            fewtags.cli.run(command(data, tmp_path / "run", *OPTIONS[tune]))
    assert (tmp_path / "run" / "checkpoint").exists() == (seconds == 0)
    assert_same_run(train(data, tmp_path / "run", *OPTIONS[tune], "--resume"), never_stopped[tune])


@pytest.fixture(scope="module")
def processes(cache):
    """Starts processes from one that has torch loaded already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["small_runs", "fewtags.api", "fewtags.cli.train"])
    return context


@pytest.mark.parametrize(
    ("tune", "moment"),
    [
        ("heads", "1 0 1"),
        ("auto", "0 1 1"),
        ("all", "1 1 1"),
        ("heads", "checkpoint"),
        ("heads", "features"),
        ("auto", "features"),
    ],
)
def test_a_killed_run_goes_on_to_the_same_model(
    processes, cache, data, never_stopped, tmp_path, monkeypatch, tune, moment
):
    words = command(data, tmp_path / "run", *OPTIONS[tune])
    if moment == "features":  # a cache that has the engine, but no features yet
        own = tmp_path / "cache"
        own.mkdir()
        (own / "engines").symlink_to(cache / "engines")
        cache = own
        monkeypatch.setenv("FEWTAGS_CACHE", str(cache))
    killed = processes.Process(target=run_and_die, args=(words, moment, cache))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    run = tmp_path / "run"
    assert not (run / "tags.csv").exists()
    assert (run / "checkpoint" / "state.safetensors").exists() == (moment != "features")
    assert fewtags.cli.run([*words, "--resume"]) == 0
    assert_same_run(run, never_stopped[tune])
    assert all(file.name == "state.safetensors" for file in (run / "checkpoint").glob("*"))
    assert not list((run / "checkpoint").glob(".*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(data, never_stopped, tmp_path, monkeypatch, capsys, number):
    run = tmp_path / "a run"
    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        stop_when(patch, "step", lambda report: report["stage"] == "main" and os.kill(os.getpid(), number))
        assert fewtags.cli.run(command(data, run, *HEADS)) == 130
    assert signal.getsignal(number) == before
    said = capsys.readouterr().err
    assert f"everything so far is kept in {run}" in said
    (again,) = [line.removeprefix("go on with: ") for line in said.splitlines() if line.startswith("go on with: ")]
    assert shlex.split(again) == ["fewtags", *command(data, run, *HEADS), "--resume"]
    with safe_open(run / "checkpoint" / "state.safetensors", "pt") as file:
        assert json.loads(file.metadata()["about"])["position"] == {"stage": 1, "epoch": 0, "step": 1}
    assert fewtags.cli.run(shlex.split(again)[1:]) == 0
    assert_same_run(run, never_stopped["heads"])


def test_a_signal_while_features_are_computed_keeps_them(cache, data, never_stopped, tmp_path, monkeypatch, capsys):
    from fewtags.encoders.store import FeatureStore

    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "engines").symlink_to(cache / "engines")
    monkeypatch.setenv("FEWTAGS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("fewtags.encoders.extract.KEEP_EVERY", 4)
    append, kept = FeatureStore.append, []

    def append_and_ask(self, keys, features):
        append(self, keys, features)
        kept.extend(keys)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(FeatureStore, "append", append_and_ask)
        assert fewtags.cli.run(command(data, tmp_path / "run", *HEADS)) == 130
    assert len(kept) == 4
    assert "features computed so far are kept" in capsys.readouterr().err
    run = train(data, tmp_path / "run", *HEADS, "--resume")
    assert_same_run(run, never_stopped["heads"])


def test_a_second_signal_ends_at_once(data, tmp_path, monkeypatch, capsys):
    def ask_twice(report):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)

    with monkeypatch.context() as patch:
        stop_when(patch, "step", ask_twice)
        assert fewtags.cli.run(command(data, tmp_path / "run", *HEADS)) == 130
    assert not (tmp_path / "run" / "checkpoint").exists()


@pytest.fixture(scope="module")
def interrupted_once(data, tmp_path_factory):
    run = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fewtags.training.run_folder, "SAVE_SECONDS", 0)
        stop_when(patch, "save", at(1, 0, 1))
        with pytest.raises(Stopped):
            fewtags.cli.run(command(data, run, *HEADS))
    return run


@pytest.fixture
def interrupted(interrupted_once, tmp_path):
    """A run that stopped in the middle of its main stage."""
    return RunFolder(shutil.copytree(interrupted_once, tmp_path / "run"))


def refused(capsys, data, run, *options):
    """What is said when a run cannot be resumed; nothing in it is touched."""
    before = {file: file.read_bytes() for file in sorted(run.path.rglob("*")) if file.is_file()}
    capsys.readouterr()
    assert fewtags.cli.run(command(data, run.path, *options, "--resume")) == 2
    assert {file: file.read_bytes() for file in sorted(run.path.rglob("*")) if file.is_file()} == before
    return capsys.readouterr().err


@pytest.mark.parametrize("size", [0, 4, 1000, -1])
def test_a_truncated_checkpoint_is_refused(interrupted, data, capsys, size):
    file = interrupted.checkpoint_file
    file.write_bytes(file.read_bytes()[:size])
    assert f"{file} is not a checkpoint of fewtags" in refused(capsys, data, interrupted, *HEADS)


def test_without_its_checkpoint_a_run_starts_from_the_beginning(interrupted, data, never_stopped):
    """The remedy that is named for a broken one."""
    interrupted.checkpoint_file.unlink()
    assert_same_run(train(data, interrupted.path, *HEADS, "--resume"), never_stopped["heads"])


@pytest.mark.parametrize("metadata", [None, {"about": "no JSON"}, {"about": "[]"}, {"about": "{}"}])
def test_a_file_that_is_no_checkpoint_is_refused(interrupted, data, capsys, metadata):
    save_file({"weight": torch.zeros(1)}, interrupted.checkpoint_file, metadata)
    assert str(interrupted.checkpoint_file) in refused(capsys, data, interrupted, *HEADS)


def test_the_checkpoint_of_another_run_is_refused(interrupted, data, tmp_path, monkeypatch, capsys):
    other = [*HEADS, "--seed", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(fewtags.training.run_folder, "SAVE_SECONDS", 0)
        train(data, tmp_path / "other", *other)
    foreign = RunFolder(tmp_path / "other").checkpoint_file
    interrupted.checkpoint_file.write_bytes(foreign.read_bytes())
    assert "belongs to other data or settings" in refused(capsys, data, interrupted, *HEADS)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--seed", "2"], "recipe.seed: 1, now 2"),
        (["--set", "beta=0.7"], "method_settings.beta: 0.5, now 0.7"),
        (["--method", "asl"], 'method: "d2l", now "asl"'),
        (["--epochs", "3"], "recipe.epochs: 2, now 3"),
    ],
)
def test_other_settings_are_refused_by_name(interrupted, data, capsys, options, named):
    said = refused(capsys, data, interrupted, *HEADS, *options)
    assert named in said
    assert "recipe.size" not in said  # what is the same goes without saying


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda rows: rows[1].__setitem__(1, "0" if rows[1][1] == "1" else "1"), "images, roles or labels"),
        (lambda rows: rows.pop(), "images, roles or labels"),
        (lambda rows: rows[0].__setitem__(1, "crimson"), '"crimson"'),
    ],
    ids=["label", "role", "tag"],
)
def test_other_data_are_refused_by_name(interrupted, data, capsys, change, named):
    rows = read_rows(data / "labels.csv")
    assert rows[0][1:4] == list(TAGS)
    before = (data / "labels.csv").read_bytes()
    change(rows)
    write_rows(data / "labels.csv", rows)
    try:
        assert named in refused(capsys, data, interrupted, *HEADS)
    finally:
        (data / "labels.csv").write_bytes(before)


def test_a_finished_run_is_left_as_it_is(data, never_stopped, capsys):
    run = never_stopped["heads"]
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    assert train(data, run, *HEADS, "--resume")
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before
    assert "finished already" in capsys.readouterr().err


def test_a_run_is_never_begun_over_another(data, never_stopped, capsys):
    assert fewtags.cli.run(command(data, never_stopped["heads"], *HEADS)) == 2
    assert "holds a run already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("moment", "there"),
    [
        ("results.write_text", {"scores.safetensors"}),  # tags.csv was about to be written
        ("train.figures", {"scores.safetensors", "tags.csv"}),
        ("train.write_json", {"scores.safetensors", "tags.csv"}),  # all is known, nothing of it is kept
    ],
)
def test_a_run_that_broke_off_before_its_last_files_were_written_goes_on(
    data, never_stopped, tmp_path, monkeypatch, moment, there
):
    """tags.csv comes first, then result.json: only both together say that a run has ended."""
    with monkeypatch.context() as patch:
        patch.setattr(f"fewtags.training.{moment}", stop)
        with pytest.raises(Stopped):
            fewtags.cli.run(command(data, tmp_path / "run", *HEADS))
    last = ("scores.safetensors", "tags.csv", "result.json")
    assert {name for name in last if (tmp_path / "run" / name).exists()} == there
    assert not RunFolder(tmp_path / "run").finished
    run = train(data, tmp_path / "run", *HEADS, "--resume")
    assert RunFolder(run).finished
    assert_same_run(run, never_stopped["heads"])
    assert "map" in json.loads((run / "result.json").read_text())


def test_a_run_killed_while_quality_is_estimated_has_its_tags_and_learns_nothing_again(
    processes, cache, data, never_stopped, tmp_path, monkeypatch
):
    words = command(data, tmp_path / "run", *OPTIONS["heads"])
    killed = processes.Process(target=run_and_die, args=(words, "estimate", cache))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    run = RunFolder(tmp_path / "run")
    assert run.tags_file.read_bytes() == (never_stopped["heads"] / "tags.csv").read_bytes()
    assert not run.result_file.exists()
    assert not run.finished
    with monkeypatch.context() as patch:
        patch.setattr(Watch, "step", lambda self, report: pytest.fail("learned again"))
        assert_same_run(train(data, run.path, *HEADS, "--resume"), never_stopped["heads"])
    assert run.finished
    ours, theirs = run.result(), RunFolder(never_stopped["heads"]).result()
    assert {key: ours[key] for key in ours if key not in COSTS} == {
        key: theirs[key] for key in theirs if key not in COSTS
    }


@pytest.mark.parametrize("lost", ["result.json", "tags.csv"])
def test_a_run_that_lost_one_of_its_last_files_is_finished_anew(data, never_stopped, tmp_path, lost):
    run = shutil.copytree(never_stopped["heads"], tmp_path / "run")
    (run / lost).unlink()
    assert not RunFolder(run).finished
    if lost == "result.json":
        with pytest.raises(UserError, match="is not finished"):
            RunFolder(run).result()
    assert_same_run(train(data, run, *HEADS, "--resume"), never_stopped["heads"])
    assert RunFolder(run).result().keys() == RunFolder(never_stopped["heads"]).result().keys()


def stop(*_):
    raise Stopped


def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(data, never_stopped, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fewtags.training.run_folder, "SAVE_SECONDS", 0)
    run = RunFolder(tmp_path / "run")
    kept = []

    def full_disk(loop, file, belongs_to):
        if len(kept) == 3:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("os.fsync", no_space)
                save_checkpoint(loop, file, belongs_to)
        save_checkpoint(loop, file, belongs_to)
        kept.append(file.read_bytes())

    with monkeypatch.context() as patch:
        patch.setattr(fewtags.training.run_folder, "save_checkpoint", full_disk)
        assert fewtags.cli.run(command(data, run.path, *HEADS)) == 3
    assert "No space left on device" in capsys.readouterr().err
    assert len(kept) == 3
    assert run.checkpoint_file.read_bytes() == kept[-1]
    assert list(run.checkpoint_file.parent.iterdir()) == [run.checkpoint_file]
    assert_same_run(train(data, run.path, *HEADS, "--resume"), never_stopped["heads"])


def no_space(handle):
    raise OSError(28, "No space left on device")


def test_a_loop_is_told_of_a_checkpoint_that_failed(tmp_path, monkeypatch):
    loop = tiny_loop()
    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(Fault, match="No space left on device"):
        save_checkpoint(loop, tmp_path / "state", "this run")
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    save_checkpoint(tiny_loop(), tmp_path / "state", "this run")
    with pytest.raises(UserError, match="belongs to other data or settings"):
        load_checkpoint(tiny_loop(), tmp_path / "state", "that run")


def test_a_line_of_the_log_that_a_kill_cut_off_is_written_again(interrupted, data, never_stopped):
    with interrupted.metrics_file.open("a") as file:
        file.write('{"stage": "main", "epo')
    assert len(interrupted.records()) == 2  # those of the warm-up
    assert_same_run(train(data, interrupted.path, *HEADS, "--resume"), never_stopped["heads"])
