"""One bar and one time left for work of several phases, by a clock of our own."""

import logging
import math
from types import SimpleNamespace
from typing import ClassVar

import pytest

from fewtags.utils import progress as module
from fewtags.utils.progress import Overall, Progress, overall, reporting


class Clock:
    """Seconds that pass when told to."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def work(clock, what, steps, seconds, upto=None):
    """So many steps, each of so many seconds; the seconds left after each."""
    told = []
    with reporting(told.append), Progress(what, steps) as progress:
        for _ in range(steps if upto is None else upto):
            clock.now += seconds
            progress.advance()
    return [event.seconds_left for event in told]


# --- the time left -----------------------------------------------------------------------------------------------


def test_the_time_left_is_that_of_this_phase_and_of_all_that_follow(clock):
    with overall({"reading": 10.0, "learning": 60.0, "testing": 30.0}):
        assert work(clock, "reading", 5, 2.0) == [100, 96, 94, 92, 90]  # the first alone says nothing of the speed
        assert work(clock, "learning", 3, 10.0) == [90, 40, 30]
        assert work(clock, "testing", 3, 1.0) == [30, 1, 0]


def test_without_phases_the_time_left_is_that_of_the_task(clock):
    assert work(clock, "learning", 3, 10.0) == [None, 10, 0]


def test_what_a_phase_measures_takes_the_place_of_what_was_expected(clock):
    with overall({"reading": 1.0, "learning": 5.0}):
        assert work(clock, "reading", 4, 100.0)[1:] == [205, 105, 5]


def test_a_better_guess_is_taken_for_phases_to_come_and_for_no_others(clock):
    with overall({"reading": 10.0, "learning": 60.0}) as phases:
        phases.expect("learning", 200.0)
        phases.expect("dreaming", 900.0)
        assert work(clock, "reading", 2, 1.0)[-1] == 200
        phases.expect("reading", 50.0)  # has been
        assert work(clock, "learning", 2, 1.0)[0] == 200


def test_a_phase_that_never_came_is_dropped(clock):
    with overall({"reading": 10.0, "extracting": 500.0, "learning": 60.0, "testing": 30.0}):
        work(clock, "reading", 2, 1.0)
        assert work(clock, "learning", 2, 10.0) == [90, 30]
        assert work(clock, "testing", 2, 1.0) == [30, 0]


def test_a_phase_that_nobody_named_counts_beside_those_that_were(clock):
    with overall({"reading": 10.0, "learning": 60.0}):
        work(clock, "reading", 2, 1.0)
        assert work(clock, "thinking", 3, 2.0) == [60, 62, 60]
        assert work(clock, "learning", 2, 5.0) == [60, 0]


def test_a_phase_of_unknown_length_leaves_the_whole_unknown_until_it_is_under_way(clock):
    with overall({"reading": 10.0, "extracting": math.nan, "learning": 60.0}):
        assert work(clock, "reading", 3, 1.0) == [None, None, None]
        assert work(clock, "extracting", 3, 10.0) == [None, 70, 60]
        assert work(clock, "learning", 2, 1.0) == [60, 0]


def test_a_phase_that_failed_has_not_ended(clock):
    phases = {"reading": 10.0, "learning": 60.0}
    with overall(phases) as found:
        with pytest.raises(ZeroDivisionError), Progress("reading", 3):
            raise ZeroDivisionError
        assert found.left("reading", None) == 70
    assert phases == {"reading": 10.0, "learning": 60.0}  # what was given stays as it was


def test_behind_the_block_there_are_no_phases_any_more(clock):
    with overall({"reading": 10.0, "learning": 60.0}):
        pass
    assert work(clock, "reading", 2, 1.0) == [None, 0]


@pytest.mark.parametrize("where", ["block", "task"])
def test_what_is_not_shown_takes_no_part(clock, where):
    with overall({"reading": 10.0, "learning": 60.0}, show=where != "block") as phases:
        with Progress("reading", 2, show=where != "task") as progress:
            clock.now += 5
            progress.advance()
        assert phases.left("reading", None) == 70


# --- the share that is done --------------------------------------------------------------------------------------


def test_the_bar_is_at_the_share_of_seconds_that_are_behind():
    phases = Overall({"reading": 10.0, "learning": 60.0, "testing": 30.0})
    assert phases.share("reading", 0.0, None) == 0
    assert phases.share("reading", 5.0, 5.0) == 5 / 100
    phases.end("reading", 10.0)
    assert phases.share("learning", 30.0, 30.0) == 40 / 100
    phases.end("learning", 120.0)  # took longer
    assert phases.share("testing", 0.0, None) == 130 / 160
    assert phases.share("testing", 30.0, 0.0) == 1


def test_the_share_of_an_unknown_whole_is_nothing_yet():
    assert Overall({"reading": 10.0, "extracting": math.nan}).share("reading", 5.0, 5.0) == 0


def test_a_whole_that_takes_no_time_has_a_share():
    assert Overall({"reading": 0.0}).share("reading", 0.0, 0.0) == 0


# --- what is shown -----------------------------------------------------------------------------------------------


def test_lines_in_a_log_tell_the_time_left_in_all(clock, caplog):
    with caplog.at_level(logging.INFO, logger="fewtags"), overall({"reading": 10.0, "learning": 200.0}):
        with Progress("reading", 4) as progress:
            for _ in range(3):
                clock.now += 20.0
                progress.advance()
        with Progress("learning", 1) as progress:
            clock.now += 0.5
            progress.advance()
    assert caplog.messages == [
        "reading: 1 of 4; 3 min 30 s left in all",
        "reading: 2 of 4; 4 min 0 s left in all",
        "reading: 3 of 4; 3 min 40 s left in all",
        "reading: 3 of 4 in 1 min 0 s",
    ]


class DrawnBar:
    """In the place of a bar on a terminal."""

    made: ClassVar[list["DrawnBar"]] = []

    def __init__(self):
        self.seen, self.closed = [], 0
        DrawnBar.made.append(self)

    def draw(self, what, share, text):
        self.seen.append((what, round(share, 3), text))

    def close(self):
        self.closed += 1


@pytest.fixture
def drawn(monkeypatch):
    monkeypatch.setattr(DrawnBar, "made", [])
    monkeypatch.setattr(module, "_Bar", DrawnBar)
    # the capture of pytest changes sys.stderr between fixtures and tests
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(module, "say", lambda text: None)
    return DrawnBar.made


def test_all_phases_move_one_bar_that_is_taken_away_at_the_end(clock, drawn):
    with overall({"reading": 10.0, "learning": 30.0}):
        for what, seconds in (("reading", 5.0), ("learning", 15.0)):
            with Progress(what, 2) as progress:
                for _ in range(2):
                    clock.now += seconds
                    progress.advance()
        first, *others = drawn
        assert not first.closed
    assert first.closed == 1
    assert [(what, share) for what, share, _ in first.seen] == [
        ("reading", round(5 / 45, 3)),  # after one of two the rest is still as it was expected
        ("reading", 0.25),
        ("learning", round(25 / 55, 3)),
        ("learning", 1.0),
    ]
    assert first.seen[1][2] == "2 of 2; 30 s left in all"
    assert not any(one.seen for one in others)


def test_a_task_by_itself_has_a_bar_of_its_own_after_two_seconds(clock, drawn):
    with Progress("reading", 4) as progress:
        for _ in range(3):
            clock.now += 1.0
            progress.advance()
    (bar,) = drawn
    assert bar.seen == [("reading", 0.5, "2 of 4, 2 s left"), ("reading", 0.75, "3 of 4, 1 s left")]
    assert bar.closed == 1


def test_a_bar_on_a_terminal_is_drawn_and_taken_away(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("TERM", "xterm")
    bar = module._Bar()
    bar.close()  # nothing was drawn
    bar.draw("reading", 0.25, "1 of 4")
    bar.draw("learning", 0.5, "2 of 4")
    bar.close()
    bar.close()
    written = capsys.readouterr().err
    assert "learning" in written
    assert "2 of 4" in written
