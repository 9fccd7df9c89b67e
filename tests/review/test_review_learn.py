"""Learning again with a review: what the decisions do to the labels, and a run that repeats another with them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

import fewtags.cli
from fewtags.api import data_of
from fewtags.data import Catalogue, Names, Role, hide, read
from fewtags.review.corrections import Corrections
from fewtags.review.log import Decision, ReviewLog
from fewtags.review.session import open_session
from fewtags.training.run_folder import RunFolder
from small_runs import ALL, AUTO, HEADS, TAGS, Stopped, model, read_rows, tiny_folder, train, write_rows

pytestmark = pytest.mark.slow

U = -1


def catalogue() -> Catalogue:
    targets = np.array([[1, 0], [U, U], [1, 1], [0, 1]], np.int8)
    roles = np.array([Role.LABELLED, Role.UNLABELLED, Role.UNLABELLED, Role.TEST], np.int8)
    return Catalogue(("boat", "dog"), Names(["known", "new", "hidden", "test"]), targets, roles, images=None)


def corrected(tmp_path, *decisions: tuple[str, str, str]) -> Catalogue:
    log = ReviewLog(tmp_path / "review.jsonl")
    for one in decisions:
        log.append([Decision(*one)])
    return Corrections(str(log.file), log.file.read_bytes()).apply(catalogue())


def test_yes_no_and_unsure_become_one_nought_and_unknown(tmp_path):
    found = corrected(tmp_path, ("known", "boat", "no"), ("known", "dog", "unsure"))
    assert found.targets[0].tolist() == [0, U]
    assert found.roles.tolist() == catalogue().roles.tolist()


def test_an_unlabelled_image_with_a_decision_becomes_labelled_and_the_rest_of_it_stays_unknown(tmp_path):
    found = corrected(tmp_path, ("new", "dog", "no"))
    assert found.targets[1].tolist() == [U, 0]
    assert found.roles[1] == Role.LABELLED
    assert "1 image newly labelled" in found.notes[0]


def test_the_hidden_truth_of_a_benchmark_is_not_told_by_a_decision(tmp_path):
    found = corrected(tmp_path, ("hidden", "boat", "unsure"), ("hidden", "dog", "yes"))
    assert found.targets[2].tolist() == [U, 1]
    assert found.roles[2] == Role.LABELLED


def test_an_image_of_which_nothing_is_sure_is_unlabelled(tmp_path):
    found = corrected(tmp_path, ("new", "dog", "unsure"), ("known", "boat", "unsure"), ("known", "dog", "unsure"))
    assert found.roles[:2].tolist() == [Role.UNLABELLED, Role.UNLABELLED]


def test_test_images_stay_as_they_are(tmp_path):
    found = corrected(tmp_path, ("test", "boat", "yes"))
    assert found.targets[3].tolist() == [0, 1]
    assert found.roles[3] == Role.TEST
    assert "test images are never learned from" in found.notes[-1]


def test_decisions_about_what_is_gone_are_said(tmp_path):
    found = corrected(tmp_path, ("gone", "boat", "yes"), ("known", "cat", "yes"))
    assert found.targets.tolist() == catalogue().targets.tolist()
    assert "2 decisions left out: the data has no such image or tag" in found.notes[-1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run on a folder; images 8 to 17 are unlabelled."""
    home = tmp_path_factory.mktemp("review")
    return train(tiny_folder(home / "photos"), home / "run", *HEADS)


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy of it, with a review of four decisions."""
    copy = Path(shutil.copytree(trained, tmp_path / "run"))
    log = ReviewLog(copy / "review.jsonl")
    log.append([Decision("10.png", "red", "yes"), Decision("10.png", "green", "no")])
    log.append([Decision("11.png", "striped", "yes")])
    log.append([Decision("00.png", "red", "unsure")])
    return copy


def again(run: Path, out: Path, *options: str) -> int:
    return fewtags.cli.run(["train", str(run), "--with-review", "--out", str(out), *options])


def settings(run: Path) -> dict:
    return yaml.safe_load((run / "config.yaml").read_text())


def test_learning_again_repeats_the_run_with_the_decisions(run, tmp_path):
    out = tmp_path / "run2"
    assert again(run, out) == 0
    roles = dict(read_rows(out / "split.csv")[1:])
    assert [roles[name] for name in ("10.png", "11.png", "12.png", "00.png")] == [
        "labelled",
        "labelled",
        "unlabelled",
        "labelled",
    ]
    before, after = settings(run), settings(out)
    changed = {"data_digest", "review", "review_digest"}
    assert {key for key in after if before[key] != after[key]} == changed
    assert after["review"] == str(run / "review.jsonl")
    found = data_of(RunFolder(out))
    rows = {name: found.targets[row].tolist() for row, name in enumerate(found.names)}
    assert rows["10.png"] == [1, 0, -1]
    assert rows["11.png"] == [-1, -1, 1]
    assert rows["00.png"][0] == -1
    names = [row[0] for row in read_rows(out / "tags.csv")[1:]]
    assert "10.png" not in names
    assert "12.png" in names


def test_what_the_corrections_brought_is_kept_and_among_the_last_lines(run, tmp_path, capsys):
    out = tmp_path / "run2"
    assert again(run, out) == 0
    compared = RunFolder(out).result()["compared"]
    assert compared["images"] == 10
    truth = RunFolder(out).scores()["held_out_targets"]
    assert (truth >= 0).any(1).sum() == 10
    start = "what the corrections brought, on the same 10 labelled images: OF1 "
    assert compared["text"].startswith(start)
    assert compared["text"] in capsys.readouterr().out


def test_a_run_that_broke_off_before_the_comparison_makes_it_when_it_goes_on(run, tmp_path, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert again(run, whole) == 0

    def stop(*given):
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr("fewtags.api.compare", stop)
        with pytest.raises(Stopped):
            again(run, broken)
    assert "compared" not in RunFolder(broken).result()
    assert again(run, broken, "--resume") == 0
    assert RunFolder(broken).result()["compared"] == RunFolder(whole).result()["compared"]
    before = (broken / "result.json").read_bytes()
    assert again(run, broken, "--resume") == 0
    assert (broken / "result.json").read_bytes() == before


@pytest.mark.parametrize("options", [AUTO, ("--method", "asl", *HEADS[2:])], ids=["auto", "asl"])
def test_other_methods_learn_from_images_known_in_part(tmp_path, options):
    first = train(tiny_folder(tmp_path / "photos"), tmp_path / "run", *options)
    log = ReviewLog(first / "review.jsonl")
    log.append([Decision(f"{number}.png", "red", "yes" if number % 2 else "no") for number in range(10, 16)])
    assert again(first, tmp_path / "run2") == 0
    assert np.isfinite(RunFolder(tmp_path / "run2").scores()["labelled"]).all()


def test_a_review_of_the_next_run_adds_to_the_first(run, tmp_path):
    second, third = tmp_path / "run2", tmp_path / "run3"
    assert again(run, second) == 0
    ReviewLog(second / "review.jsonl").append([Decision("12.png", "red", "yes"), Decision("10.png", "red", "no")])
    assert again(second, third) == 0
    found = data_of(RunFolder(third))
    rows = {name: found.targets[row].tolist() for row, name in enumerate(found.names)}
    assert rows["10.png"] == [0, 0, -1]
    assert rows["11.png"] == [-1, -1, 1]
    assert rows["12.png"] == [1, -1, -1]


def test_a_stopped_run_goes_on_with_the_decisions_it_began_with(run, tmp_path, monkeypatch):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert again(run, whole) == 0

    def stop(*given):
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr("fewtags.training.loop.Loop.run", stop)
        with pytest.raises(Stopped):
            again(run, stopped)
    ReviewLog(run / "review.jsonl").append([Decision("12.png", "red", "yes")])
    assert again(run, stopped, "--resume") == 0
    assert model(stopped) == model(whole)
    assert settings(stopped) == settings(whole)


def test_a_run_is_evaluated_and_reviewed_with_what_it_learned_even_when_the_first_is_gone(run, tmp_path):
    out = tmp_path / "run2"
    assert again(run, out) == 0
    shutil.rmtree(run)
    assert fewtags.cli.run(["evaluate", str(out)]) == 0
    session = open_session(RunFolder(out), data_of(RunFolder(out)))
    number = list(session.data.names).index("10.png")
    assert session.image(number)["labels"] == [1, 0, None]


def test_a_part_that_was_kept_back_to_judge_by_is_kept_back_again(tmp_path, monkeypatch):
    monkeypatch.setattr("fewtags.training.resolve.MIN_LABELLED", 5)
    photos = tiny_folder(tmp_path / "photos", images=40)
    rows = read_rows(photos / "labels.csv")
    write_rows(
        photos / "labels.csv", [*rows, *([f"{number:02d}.png", number % 2, 1, 0, "train"] for number in range(8, 14))]
    )
    first = train(photos, tmp_path / "run", *ALL, "--validate")
    folder = RunFolder(first)
    kept_back = folder.split()["held_out"]
    assert kept_back
    session = open_session(folder, data_of(folder))
    numbers = [list(session.data.names).index(name) for name in kept_back]
    np.testing.assert_array_equal(session.data.scores[numbers], folder.scores()["held_out"])
    assert (session.data.labels[numbers] >= 0).all()
    ReviewLog(first / "review.jsonl").append([Decision("20.png", "red", "yes")])
    assert again(first, tmp_path / "run2") == 0
    assert RunFolder(tmp_path / "run2").split()["held_out"]


def test_when_no_unlabelled_image_is_left_the_labels_alone_are_learned(run, tmp_path, capsys):
    ReviewLog(run / "review.jsonl").append([Decision(f"{number:02d}.png", "red", "yes") for number in range(8, 18)])
    assert again(run, tmp_path / "run2") == 0
    assert settings(tmp_path / "run2")["method"] == "asl"
    assert "no unlabelled image is left for d2l" in capsys.readouterr().err


def test_scenes_and_hidden_labels_are_reviewed_too(tmp_path):
    first = train("scenes:40", tmp_path / "run", *HEADS, "--labelled", "0.2")
    folder = RunFolder(first)
    session = open_session(folder, data_of(folder))
    assert session.jpeg(0, 64)[:2] == b"\xff\xd8"
    split = read_rows(first / "split.csv")[1:]
    assert list(session.data.names) == [name for name, role in split if role != "test"]
    hidden = [number for number, (name, role) in enumerate(split) if role == "unlabelled"]
    assert (session.data.labels[hidden] == -1).all()
    scores = folder.scores()
    np.testing.assert_array_equal(session.data.scores[hidden], scores["unlabelled"])
    number = hidden[0]
    session.decide([(number, 0, "yes")])
    assert again(first, tmp_path / "run2") == 0
    roles = dict(read_rows(tmp_path / "run2" / "split.csv")[1:])
    assert roles[session.data.names[number]] == "labelled"
    whole = hide(read("scenes:40"), 0.2, 1)
    assert sum(role == "test" for role in roles.values()) == len(whole.rows(Role.TEST))


def test_labelled_images_are_shown_with_scores_of_models_that_never_saw_their_labels(tmp_path):
    first = train(tiny_folder(tmp_path / "photos"), tmp_path / "run", *HEADS, "folds=2")
    folder = RunFolder(first)
    scores = folder.scores()
    assert "held_out" in scores
    session = open_session(folder, data_of(folder))
    np.testing.assert_array_equal(session.data.scores[:8], scores["held_out"])


def refused(capsys, *words: object) -> str:
    capsys.readouterr()
    assert fewtags.cli.run([str(word) for word in words]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("fewtags: ") == 1
    assert "Traceback" not in printed.err
    return printed.err


def test_a_run_as_data_without_a_word_of_its_review_is_refused(run, tmp_path, capsys):
    assert "--with-review" in refused(capsys, "train", run, "--out", tmp_path / "run2")
    assert not (tmp_path / "run2").exists()


def test_a_folder_of_images_may_hold_a_config_of_something_else(tmp_path):
    photos = tiny_folder(tmp_path / "photos")
    (photos / "config.yaml").write_text("colour: blue\n")
    train(photos, tmp_path / "run", *HEADS)


@pytest.mark.parametrize("data", ["photos", "scenes", "nowhere"])
def test_what_is_no_run_has_no_review(tmp_path, monkeypatch, capsys, data):
    monkeypatch.chdir(tmp_path)
    tiny_folder(tmp_path / "photos")
    assert f"{data} is not a run folder" in refused(capsys, "train", data, "--with-review", "--out", "run2")


def test_a_run_without_a_review_is_refused(trained, tmp_path, capsys):
    assert "fewtags review" in refused(capsys, "train", trained, "--with-review", "--out", tmp_path / "run2")


def test_a_review_of_which_all_was_undone_is_refused(trained, tmp_path, capsys):
    copy = Path(shutil.copytree(trained, tmp_path / "run"))
    log = ReviewLog(copy / "review.jsonl")
    log.undo(log.append([Decision("10.png", "red", "yes")]))
    assert "holds no decision" in refused(capsys, "train", copy, "--with-review", "--out", tmp_path / "run2")


def test_a_damaged_review_is_refused_with_its_line(run, tmp_path, capsys):
    with (run / "review.jsonl").open("a") as file:
        file.write("nonsense\n")
    assert "review.jsonl, line 5" in refused(capsys, "train", run, "--with-review", "--out", tmp_path / "run2")
    assert "review.jsonl, line 5" in refused(capsys, "review", run, "--no-browser")


@pytest.mark.parametrize(
    "option", [("--method", "asl"), ("--seed", "2"), ("--set", "adapter=8"), ("--labelled", "0.5"), ("--epochs", "0")]
)
def test_other_settings_are_refused_with_a_review(run, tmp_path, capsys, option):
    assert option[0] in refused(capsys, "train", run, "--with-review", "--out", tmp_path / "run2", *option)


def test_a_run_that_has_not_ended_cannot_be_reviewed(run, capsys):
    (run / "tags.csv").unlink()
    assert "has not ended" in refused(capsys, "review", run, "--no-browser")


@pytest.mark.parametrize("name", ["split.csv", "scores.safetensors", "model/model.json"])
def test_a_damaged_run_cannot_be_reviewed(run, capsys, name):
    (run / name).write_text("image,role\nx,nobody\n")
    assert name in refused(capsys, "review", run, "--no-browser")


def test_data_with_other_tags_cannot_be_reviewed(tmp_path, capsys):
    photos = tiny_folder(tmp_path / "photos")
    first = train(photos, tmp_path / "run", *HEADS)
    rows = read_rows(photos / "labels.csv")
    write_rows(photos / "labels.csv", [["image", "blue", *TAGS[1:], "split"], *rows[1:]])
    assert "other tags" in refused(capsys, "review", first, "--no-browser")
    shutil.rmtree(photos)
    assert "there is no such folder" in refused(capsys, "review", first, "--no-browser")


def test_images_that_went_or_came_since_are_left_out(tmp_path, caplog):
    photos = tiny_folder(tmp_path / "photos")
    folder = RunFolder(train(photos, tmp_path / "run", *HEADS))
    shutil.move(photos / "10.png", photos / "new.png")
    caplog.set_level("INFO", "fewtags")
    names = list(open_session(folder, data_of(folder)).data.names)
    assert "10.png" not in names
    assert "new.png" not in names
    assert "11.png" in names
    assert "1 image of" in caplog.text


def test_what_review_says_at_the_end_can_be_typed(run, tmp_path, monkeypatch, capsys):
    from fewtags.review import server

    monkeypatch.setattr(server, "make_server", lambda app: type("Ended", (), {"run": lambda self, sockets: None})())
    capsys.readouterr()
    assert fewtags.cli.run(["review", str(run), "--no-browser"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("review: http://127.0.0.1:")
    assert said[1] == f"4 decisions in {run / 'review.jsonl'}"
    words = said[2].split("fewtags ")[1].split()
    assert fewtags.cli.run(words) == 0
    assert json.loads((Path(f"{run}-2") / "result.json").read_text())["images"]["labelled"] == 10
