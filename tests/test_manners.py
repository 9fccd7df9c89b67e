"""How the library behaves in somebody else's program: logging, progress, signals, names of arguments."""

import inspect
import logging
import signal

import numpy as np
import pytest

import fewtags
from fewtags.errors import UserError
from fewtags.training.loop import Loop
from fewtags.training.options import option_names
from fewtags.utils.progress import Progress, ProgressEvent, reporting

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 4)).astype(np.float32), RNG.integers(0, 2, (40, 2))
Y[15:] = -1
QUICK = {"epochs": 1, "hidden": 4, "folds": 0}


def test_messages_go_to_the_log_and_nothing_to_the_terminal(tmp_path, capfd, caplog):
    with caplog.at_level(logging.INFO, logger="fewtags"):
        fewtags.train(vectors=X, labels=Y, out=tmp_path / "run", settings=QUICK)
    assert "15 labelled, 25 unlabelled" in caplog.text
    written = capfd.readouterr()
    assert (written.out, written.err) == ("", "")


def test_progress_is_told_to_a_function_or_kept_silent(monkeypatch):
    monkeypatch.setattr("fewtags.utils.progress.QUIET_SECONDS", 0.0)
    told: list[ProgressEvent] = []
    with reporting(told.append), Progress("counting", 3) as progress:
        for _ in range(3):
            progress.advance()
    assert [(event.what, event.done, event.total) for event in told] == [("counting", n, 3) for n in (1, 2, 3)]
    assert told[0].seconds_left is None
    assert told[1].seconds_left >= 0


def test_silence_is_kept_even_in_the_log(monkeypatch, caplog):
    monkeypatch.setattr("fewtags.utils.progress.QUIET_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, logger="fewtags"), reporting(False), Progress("counting", 3) as progress:
        progress.advance(3)
    assert caplog.text == ""


def test_a_keyboard_interrupt_stays_one_and_handlers_stay_as_they_were(tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    def interrupted(self):
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
        raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fewtags.train(vectors=X, labels=Y, out=tmp_path / "run", settings=QUICK)


def test_the_signature_names_every_option():
    names = list(inspect.signature(fewtags.train).parameters)
    assert set(option_names()) <= set(names)
    assert "options" not in names


def test_a_misspelled_option_is_refused_with_the_nearest_name():
    with pytest.raises(TypeError, match="unexpected keyword argument 'methd'; did you mean 'method'"):
        fewtags.train("photos", methd="d2l")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "name the data"),
        ({"data": "photos", "vectors": X}, "not both"),
        ({"vectors": X}, "vectors need labels"),
        ({"vectors": X, "labels": Y, "tags": "ab"}, "tags must be a list of names"),
        ({"vectors": [[1.0], [1.0, 2.0]], "labels": Y}, "rows of different lengths"),
        ({"vectors": X, "labels": Y, "with_review": True}, "without vectors"),
        ({"data": "photos", "ids": ["a"]}, "data brings its own"),
        ({"data": "photos", "tags": []}, "no tag is named"),
        ({"data": "photos", "seed": 1.5}, "--seed 1.5: input should be a valid integer"),
        ({"data": "photos", "prefer": "speed"}, "--prefer speed: there is only precision and balance and recall"),
        ({"data": "photos", "seed": -1}, "--seed -1: must be between 0 and"),
        ({"data": "photos", "epochs": -1}, "--epochs -1"),
    ],
)
def test_what_cannot_be_is_told_as_a_user_error(given, message):
    with pytest.raises(UserError, match=message):
        fewtags.train(**given)
