"""What the verbs print and return."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import fewtags
from fewtags.cli import run, spread_lists
from fewtags.cli.results import print_result
from fewtags.errors import Fault
from fewtags.methods import find_method, method_names
from fewtags.scenes.draw import draw
from fewtags.training.recipe import Recipe
from fewtags.training.resolve import OPTIONS_ONLY
from fewtags.utils.progress import Progress, duration, reporting, shown_messages

QUICK = ["--method", "d2l", "--size", "64", "--warmup", "2", "--epochs", "2"]
TRAIN = ["train", "scenes:40", "--labelled", "0.3", *QUICK]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with photos/ (some labelled, none for testing) and a run on scenes that `evaluate` can use."""
    home = tmp_path_factory.mktemp("home")
    (home / "photos" / "sub").mkdir(parents=True)
    rows = ["image,tags"]
    for index in range(12):
        picture, tags = draw(2, index)
        name = f"sub/{index}.png" if index % 3 == 0 else f"{index}.png"
        picture.resize((96, 96)).save(home / "photos" / name)
        if index < 8:
            rows.append(f"{name},{'|'.join(tags)}")
    (home / "photos" / "labels.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return home


@pytest.fixture(scope="module")
def scenes_run(home) -> Path:
    return fewtags.train("scenes:40", labelled=0.3, method="d2l", size=64, warmup=2, epochs=2, out=home / "scenes").path


@pytest.fixture(scope="module")
def photos_run(home) -> Path:
    return fewtags.train(home / "photos", method="d2l", size=64, warmup=2, epochs=2, out=home / "own run").path


@pytest.mark.slow
def test_train_prints_the_table_where_the_tags_are_and_what_to_type_next(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    assert run([*TRAIN, "--out", "my run"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].split() == ["tag", "images", "AP", "precision", "recall", "F1", "threshold"]
    assert [line.split()[0] for line in lines[1:13]] == list(fewtags.load("my run").tags)
    assert re.search(r"^mAP \d+\.\d   CF1 \d+\.\d   OF1 \d+\.\d$", printed.out, re.MULTILINE)
    assert "21 images tagged: my run/tags.csv" in lines
    assert "fewtags tag 'my run' IMAGES --out" in lines[-1]
    assert "9 labelled, 21 unlabelled, 10 test images; 12 tags; method d2l" in printed.err


@pytest.mark.slow
def test_train_without_test_images_and_folds_prints_no_table(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    assert run(["train", "photos", "--out", "plain", *QUICK, "--set", "folds=0"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "4 images tagged: plain/tags.csv"
    assert "mAP" not in printed


@pytest.mark.slow
def test_train_without_test_images_prints_what_it_estimates_and_what_it_holds_back(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    assert run(["train", "photos", "--out", "estimated", *QUICK]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0].split() == ["tag", "labelled", "precision", "recall", "F1", "threshold"]
    result = json.loads(Path("estimated/result.json").read_text(encoding="utf-8"))
    estimate, tags = result["estimate"], fewtags.load("estimated").tags
    assert [line.split()[:2] for line in lines[1 : 1 + len(tags)]] == [
        [row["tag"], str(row["support"])] for row in estimate["per_tag"]
    ]
    low, high = (100 * end for end in estimate["intervals"]["map"])
    assert f"estimated quality (95 % intervals): mAP {100 * estimate['map']:.1f} ({low:.0f}–{high:.0f})" in printed
    wrong, missing = estimate["wrong_per_image"], estimate["missing_per_image"]
    assert f"expected: {wrong:.1f} wrong and {missing:.1f} missing tags per image" in lines
    assert f"from {estimate['how']}" in " ".join(printed.split())
    named = [line for line in lines if line.startswith("not given to any image, too few examples to be sure: ")]
    assert len(named) == bool(result["not_given"])
    assert all(row["tag"] in named[0] for row in result["not_given"][:8])
    assert lines.index("4 images tagged: estimated/tags.csv") > lines.index(named[0] if named else "")


def test_how_far_probabilities_are_from_what_they_say_is_printed_where_it_is_known(capsys):
    row = {"tag": "sea", "support": 3, "ap": 0.5, "precision": 0.5, "recall": 0.5, "f1": 0.5, "threshold": None}
    result = {"per_tag": [row], "map": 0.5, "cf1": 0.5, "of1": 0.5, "tags_without_positives": []}
    for error, told in ((0.0421, ["calibration error 4.2"]), (0.0, ["calibration error 0.0"]), (None, [])):
        print_result(result | {"calibration_error": error})
        lines = capsys.readouterr().out.splitlines()
        assert [line.partition(" (")[0] for line in lines if line.startswith("calibration")] == told
    assert "never given" in lines[1]


@pytest.mark.slow
def test_without_out_a_run_goes_below_runs_and_the_next_takes_a_free_name(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    asl = [*TRAIN, "--method", "asl"]
    assert run(asl) == 0
    assert run(asl) == 0
    assert {path.name for path in Path("runs").iterdir()} == {"scenes-asl-seed1", "scenes-asl-seed1-2"}
    capsys.readouterr()
    assert run([*asl, "--resume"]) == 0
    printed = capsys.readouterr()
    assert "runs/scenes-asl-seed1-2 is finished already" in printed.err
    assert "runs/scenes-asl-seed1-2/tags.csv" in printed.out


@pytest.mark.slow
def test_a_run_stopped_before_its_last_file_is_finished_by_resume(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    again = [*TRAIN, "--out", "late"]
    assert run(again) == 0
    model = Path("late/model/model.safetensors").read_bytes()
    Path("late/result.json").unlink()
    assert run([*again, "--resume"]) == 0
    assert Path("late/result.json").exists()
    assert Path("late/model/model.safetensors").read_bytes() == model


@pytest.mark.slow
def test_settings_may_follow_one_set_or_several(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    assert run([*TRAIN, "--set", "beta=0.7", "metric=f1", "--out", "set", "--set", "adapter=64"]) == 0
    config = Path("set/config.yaml").read_text(encoding="utf-8")
    assert "beta: 0.7" in config
    assert "metric: f1" in config
    assert "adapter: 64" in config


def test_only_words_after_set_become_settings():
    words = ["train", "a=b", "--set", "x=1", "y=2", "--out", "z=3", "--set", "w=4"]
    assert spread_lists(words) == ["train", "a=b", "--set", "x=1", "--set", "y=2", "--out", "z=3", "--set", "w=4"]


@pytest.mark.slow
def test_evaluate_prints_the_table_and_its_json_is_what_the_library_returns(scenes_run, capsys):
    assert run(["evaluate", str(scenes_run)]) == 0
    table = capsys.readouterr().out
    assert run(["evaluate", str(scenes_run), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert printed == fewtags.evaluate(scenes_run)
    assert printed["images"] == 10
    assert f"mAP {100 * printed['map']:.1f}" in table
    for row in printed["per_tag"]:
        cells = next(line.split() for line in table.splitlines() if line.split()[:1] == [row["tag"]])
        assert cells[1] == str(row["support"])
        assert cells[2] == ("–" if row["ap"] is None else f"{100 * row['ap']:.1f}")


def test_evaluate_gives_the_figures_that_training_ended_with(scenes_run):
    result = json.loads((scenes_run / "result.json").read_text(encoding="utf-8"))
    again = fewtags.evaluate(scenes_run)
    assert again["map"] == result["map"]
    assert again["per_tag"] == result["per_tag"]


def test_evaluate_without_test_images_asks_for_data(photos_run, capsys):
    assert run(["evaluate", str(photos_run)]) == 2
    error = capsys.readouterr().err
    assert "no test images" in error
    assert f"fewtags evaluate {photos_run} DATA" in error


def test_evaluate_compares_with_the_labels_of_another_folder_and_leaves_out_bad_files(
    home, scenes_run, photos_run, tmp_path, capsys
):
    assert run(["evaluate", str(scenes_run), str(home / "photos"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 8
    labels = tmp_path / "other.csv"
    labels.write_text("image,sun,boat,moose\n1.png,1,0,1\n2.png,0,,0\nbad.png,1,1,1\n", encoding="utf-8")
    bad = home / "photos" / "bad.png"
    bad.touch()
    assert run(["evaluate", str(scenes_run), str(home / "photos"), "--labels", str(labels), "--json"]) == 0
    bad.unlink()
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    known = {row["tag"]: row["known"] for row in result["per_tag"]}
    assert result["images"] == 2
    assert known["sun"] == 2
    assert known["boat"] == 1
    assert known["tree"] == 0
    assert "moose" not in known
    assert "1 image cannot be used and is left out:\n  bad.png: the file is empty" in printed.err


def test_methods_lists_every_method_in_a_line(capsys):
    assert run(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *method_names()]
    assert all(5 < len(line.split()) < 40 for line in lines)
    (d2l,) = (line for line in lines if line.startswith("d2l"))
    assert "Xiao et al., ECCV" in d2l
    assert "2024" in d2l
    assert "4 patches" in d2l


def test_a_method_is_shown_with_every_setting_its_default_and_its_reason(capsys):
    assert run(["methods", "d2l"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("D2L + MAT (Xiao et al., ECCV 2024)")
    for name, field in {**find_method("d2l").model_fields, **Recipe.model_fields}.items():
        shown = f"  {name} = {field.default}"
        if name in OPTIONS_ONLY:
            assert shown not in lines
        else:
            assert len(lines[lines.index(shown) + 1].split()) >= 3, name


def test_check_counts_and_finds_nothing_wrong(home, capsys):
    assert run(["check", str(home / "photos")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{home / 'photos'}: 8 labelled, 4 unlabelled, 0 test")
    assert re.search(r"^tag +present +absent +unknown +test$", printed, re.MULTILINE)
    assert re.search(r"^sun +\d+ +\d+ +0 +0\b", printed, re.MULTILINE)


def test_check_names_every_problem_with_its_line_and_leaves_with_2(home, tmp_path, capsys):
    labels = tmp_path / "labels.csv"
    labels.write_text("image,tags\nnone.png,sun\n1.png,sun\n1.png,boat\n../x.png,sun\n", encoding="utf-8")
    assert run(["check", str(home / "photos"), "--labels", str(labels)]) == 2
    printed = capsys.readouterr().out
    assert "3 problems:" in printed
    for line in (2, 4, 5):
        assert f"labels.csv, line {line}: " in printed


def test_check_of_a_missing_folder_leaves_with_2(capsys):
    assert run(["check", "no-such-folder"]) == 2
    assert "no-such-folder: there is no such folder" in capsys.readouterr().out


def test_version_and_help(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"fewtags {fewtags.__version__}\n"
    assert run(["-h"]) == 0
    short = capsys.readouterr().out
    assert run(["--help"]) == 0
    assert capsys.readouterr().out == short
    assert "..." not in short.split("Commands:")[1]  # no line is cut off
    assert run(["train", "-h"]) == 0
    assert "--labelled" in capsys.readouterr().out


def test_no_verb_shows_the_help(capsys):
    run([])
    printed = capsys.readouterr()
    assert "Commands:" in printed.out + printed.err


def test_a_fault_leaves_with_3_and_a_full_disk_too(monkeypatch, capsys):
    def fail_with(error: Exception) -> int:
        def methods(name: str | None) -> None:
            raise error

        monkeypatch.setattr("fewtags.cli.verbs.run_methods", methods)
        return run(["methods"])

    assert fail_with(Fault("the loss is not finite")) == 3
    assert capsys.readouterr().err == "fewtags: the loss is not finite\n"
    assert fail_with(OSError(28, "No space left on device", "run/tags.csv")) == 3
    assert capsys.readouterr().err == "fewtags: run/tags.csv: No space left on device\n"


@pytest.mark.slow
def test_ctrl_c_in_training_leaves_with_130_and_says_how_to_go_on(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    whole = [*TRAIN, "--out", "stopped"]
    from fewtags.training.loop import Loop

    step = Loop._step

    def interrupted(loop, *args):
        if loop.position.stage == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return step(loop, *args)

    monkeypatch.setattr(Loop, "_step", interrupted)
    assert run(whole) == 130
    error = capsys.readouterr().err
    assert "everything so far is kept in stopped" in error
    assert f"go on with: fewtags {' '.join(whole)} --resume" in error
    monkeypatch.setattr(Loop, "_step", step)
    assert run([*whole, "--resume"]) == 0


def test_ctrl_c_elsewhere_leaves_with_130(monkeypatch, capsys):
    def methods(name: str | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fewtags.cli.verbs.run_methods", methods)
    assert run(["methods"]) == 130
    assert capsys.readouterr().err == "\nfewtags: stopped\n"


def test_progress_says_how_far_and_how_long_in_plain_lines(monkeypatch, capsys):
    slow(monkeypatch)
    with shown_messages():  # as the command line does
        advance_by_three()
    assert capsys.readouterr().err.splitlines() == LINES


def test_progress_of_a_library_call_is_logged_and_standard_error_left_alone(monkeypatch, capsys, caplog):
    slow(monkeypatch)
    caplog.set_level("INFO", "fewtags")
    advance_by_three()
    assert [record.getMessage() for record in caplog.records if record.name == "fewtags"] == LINES
    assert capsys.readouterr().err == ""


def test_progress_goes_to_a_function_or_nowhere(monkeypatch, capsys, caplog):
    slow(monkeypatch)
    caplog.set_level("INFO", "fewtags")
    told = []
    with reporting(told.append):
        advance_by_three()
    assert [(one.what, one.done, one.total) for one in told] == [("tagging", done, 3) for done in (1, 2, 3)]
    assert [one.seconds_left for one in told] == [None, 20, 0]
    with reporting(False):
        advance_by_three()
    assert caplog.records == []
    assert capsys.readouterr().err == ""


LINES = [
    "tagging: 1 of 3",  # nothing is known of the speed yet
    "tagging: 2 of 3, 20 s left",
    "tagging: done in 1 min 20 s",
]


def slow(monkeypatch) -> None:
    """Twenty seconds pass between two looks at the clock."""
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr("fewtags.utils.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))


def advance_by_three() -> None:
    with Progress("tagging", 3) as progress:
        for _ in range(3):
            progress.advance()


def test_what_ends_at_once_shows_no_progress(capsys):
    with Progress("tagging", 3) as progress:
        progress.advance(3)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "words"), [(42.4, "42 s"), (185, "3 min 5 s"), (3599, "59 min"), (7800, "2 h 10 min")]
)
def test_durations_are_written_as_people_say_them(seconds, words):
    assert duration(seconds) == words


def test_a_reader_that_has_seen_enough_is_no_fault():
    """`fewtags --help | head -n 0`: the pipe is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "fewtags", "--help"], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert done.returncode == 0
    assert done.stderr == b""
