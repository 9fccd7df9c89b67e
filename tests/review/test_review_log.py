"""review.jsonl: nothing that was said to be saved is lost, whoever writes beside, whatever cuts a line off."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fewtags.cli import run
from fewtags.errors import Fault, UserError
from fewtags.review.log import Decision, ReviewLog, current_answers, read_log

BOAT = Decision("a.png", "boat", "yes")


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_decision_is_a_line_with_image_tag_answer_and_time(tmp_path):
    log = ReviewLog(tmp_path / "review.jsonl")
    log.append([BOAT, Decision("b.png", "dog", "unsure")])
    first, second = lines(log.file)
    assert (first["image"], first["tag"], first["answer"]) == ("a.png", "boat", "yes")
    assert first["when"].endswith("+00:00")
    assert first["action"] == second["action"]
    assert log.answers == {("a.png", "boat"): "yes", ("b.png", "dog"): "unsure"}
    assert current_answers(read_log(log.file)) == log.answers


def test_it_is_on_the_disk_before_append_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    log = ReviewLog(tmp_path / "review.jsonl")
    log.append([BOAT])
    assert synced[0] == log.file.stat().st_size


def test_names_that_are_no_text_come_back_as_they_were(tmp_path):
    log = ReviewLog(tmp_path / "review.jsonl")
    log.append([Decision("caf\udce9 \n\u2028.png", "été", "no")])
    assert current_answers(read_log(log.file)) == {("caf\udce9 \n\u2028.png", "été"): "no"}


def test_undo_is_a_new_line_and_brings_back_what_held_before(tmp_path):
    log = ReviewLog(tmp_path / "review.jsonl")
    log.append([BOAT])
    action = log.append([Decision("a.png", "boat", "no"), Decision("a.png", "dog", "yes")])
    before = log.file.read_bytes()
    assert log.undo(action)
    assert log.file.read_bytes().startswith(before)
    assert lines(log.file)[-1]["undo"] == action
    assert log.answers == {("a.png", "boat"): "yes"}
    assert not log.undo(action)
    assert not log.undo("never made")
    assert len(lines(log.file)) == 4


def test_undoing_leaves_what_another_tab_decided_since(tmp_path):
    file = tmp_path / "review.jsonl"
    ours, theirs = ReviewLog(file), ReviewLog(file)
    action = ours.append([BOAT])
    theirs.append([Decision("a.png", "boat", "no")])
    assert ours.undo(action)
    assert ours.answers == {("a.png", "boat"): "no"}
    theirs.refresh()
    assert theirs.answers == ours.answers


def test_a_file_that_was_begun_anew_is_read_anew(tmp_path):
    log = ReviewLog(tmp_path / "review.jsonl")
    log.append([BOAT, Decision("b.png", "dog", "yes")])
    log.file.unlink()
    log.append([Decision("c.png", "dog", "no")])
    assert log.answers == {("c.png", "dog"): "no"}


@pytest.mark.parametrize(
    "torn", [b'{"image": "b.png", "ta', b'{"image": "b.png", "tag": "dog", "answer": "yes"', b"\xff" * 5000]
)
def test_a_line_cut_off_by_a_kill_is_dropped_and_mended_by_the_next(tmp_path, torn):
    log = ReviewLog(tmp_path / "review.jsonl")
    log.append([BOAT])
    with log.file.open("ab") as file:
        file.write(torn)
    assert current_answers(read_log(log.file)) == {("a.png", "boat"): "yes"}
    again = ReviewLog(log.file)
    again.append([Decision("c.png", "dog", "no")])
    assert current_answers(read_log(log.file)) == {("a.png", "boat"): "yes", ("c.png", "dog"): "no"}
    assert len(lines(log.file)) == 2


def test_a_file_that_is_only_a_torn_line_starts_anew(tmp_path):
    file = tmp_path / "review.jsonl"
    file.write_bytes(b'{"ima')
    log = ReviewLog(file)
    log.append([BOAT])
    assert current_answers(read_log(file)) == {("a.png", "boat"): "yes"}


def test_what_was_saved_survives_kill_9(tmp_path):
    code = f"""
import itertools
from pathlib import Path
from fewtags.review.log import Decision, ReviewLog
log = ReviewLog(Path({str(tmp_path / "review.jsonl")!r}))
for number in itertools.count():
    log.append([Decision(str(number), "boat", "yes")])
    print(number, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    told = -1
    while told < 20:
        told = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.communicate()[0].split()
    told = int(rest[-1]) if rest else told
    kept = {int(image) for image, _ in current_answers(read_log(tmp_path / "review.jsonl"))}
    assert kept >= set(range(told + 1))


def write_many(file: Path, who: int) -> None:
    log = ReviewLog(file)
    for number in range(50):
        log.append([Decision(f"{who}-{number}", tag, "yes") for tag in ("boat", "dog")])


def test_processes_that_write_together_lose_nothing_of_each_other(tmp_path):
    file = tmp_path / "review.jsonl"
    started = [multiprocessing.get_context("spawn").Process(target=write_many, args=(file, who)) for who in range(3)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    assert len(current_answers(read_log(file))) == 300
    assert len(lines(file)) == 300


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "not JSON"),
        ("[1]", "not a decision"),
        ('{"image": "a.png"}', "image, tag, answer"),
        ('{"image": "a.png", "tag": "boat", "answer": "maybe", "action": "x"}', "'maybe'"),
        ('{"image": 3, "tag": "boat", "answer": "yes", "action": "x"}', "image, tag, answer"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, line, words):
    log = ReviewLog(tmp_path / "review.jsonl")
    log.append([BOAT])
    with log.file.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match=r"review\.jsonl, line 2") as caught:
        read_log(log.file)
    assert words in str(caught.value)


def test_a_disk_that_takes_nothing_is_said_and_nothing_counts_as_decided(tmp_path):
    log = ReviewLog(tmp_path / "gone" / "review.jsonl")
    with pytest.raises(Fault, match="the decision is not kept"):
        log.append([BOAT])
    assert log.answers == {}


def test_replaying_gives_the_same_csv_whatever_was_undone_and_in_which_order(tmp_path):
    log = ReviewLog(tmp_path / "review.jsonl")
    wrong = log.append([Decision("b.png", "dog", "yes")])
    log.append([Decision("b.png", "boat", "no"), Decision("a.png", "dog", "unsure"), BOAT])
    log.undo(wrong)
    assert run(["convert", str(log.file), str(tmp_path / "one.csv")]) == 0
    assert (tmp_path / "one.csv").read_text() == "image,boat,dog\na.png,1,\nb.png,0,\n"
    other = ReviewLog(tmp_path / "other.jsonl")
    for (image, tag), answer in reversed(log.answers.items()):
        other.append([Decision(image, tag, answer)])
    assert run(["convert", str(other.file), str(tmp_path / "two.csv")]) == 0
    assert (tmp_path / "two.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
