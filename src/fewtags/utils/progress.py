"""Messages and progress: standard logging under "fewtags", and time left on everything that takes over two seconds.

A library call logs its messages at level INFO. Progress is a bar on a terminal and lines in the log elsewhere, goes to
a function of the caller's, or is silent; the command line shows both on standard error. What consists of several
phases, such as training, has one bar and one time left for all of them (`Overall`).
"""

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple, TextIO

QUIET_SECONDS = 2.0  # shorter tasks show no progress
LINE_SECONDS = 15.0  # between two plain lines
log = logging.getLogger("fewtags")
log.addHandler(logging.NullHandler())


class ProgressEvent(NamedTuple):
    """How far some work has come."""

    what: str
    done: int
    total: int
    seconds_left: float | None  # of this phase and all that follow it; None: not known yet


Report = bool | Callable[[ProgressEvent], None]  # show progress, be silent, or tell this function
_report: ContextVar[Report] = ContextVar("report", default=True)
_overall: ContextVar["Overall | None"] = ContextVar("overall", default=None)


@contextmanager
def reporting(report: Report) -> Iterator[None]:
    """Where progress goes within this block."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def say(text: str) -> None:
    """A line for the person who waits."""
    log.info(text)


@contextmanager
def shown_messages() -> Iterator[None]:
    """For the command line: within this block messages go to standard error as they are."""
    handler, before = _StandardError(), (log.level, log.propagate)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to whatever standard error is at the moment."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def duration(seconds: float) -> str:
    """`42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole < 600 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Overall:
    """Several phases under one bar.

    Expected seconds may be rough: what a phase measures takes their place. NaN: nobody can know before it begins.
    """

    def __init__(self, expected: Mapping[str, float]) -> None:
        self._expected = dict(expected)  # of the phases that have not ended, in order
        self._spent = 0.0
        self.bar = _Bar()

    def expect(self, phase: str, seconds: float) -> None:
        """A better guess for a phase to come."""
        if phase in self._expected:
            self._expected[phase] = seconds

    def left(self, phase: str, own: float | None) -> float:
        """Seconds left of this phase (None: as expected) and of those after it."""
        phases = list(self._expected)
        later = phases[phases.index(phase) + 1 :] if phase in phases else phases
        own = self._expected.get(phase, 0.0) if own is None else own
        return own + sum(self._expected[one] for one in later)

    def share(self, phase: str, spent: float, own: float | None) -> float:
        """How much of everything is done, 0..1."""
        done, left = self._spent + spent, self.left(phase, own)
        return 0.0 if math.isnan(left) else done / max(done + left, 1e-9)

    def end(self, phase: str, spent: float) -> None:
        """A phase has ended, and with it those before it that did not come."""
        while phase in self._expected:
            del self._expected[next(iter(self._expected))]
        self._spent += spent


@contextmanager
def overall(expected: Mapping[str, float], show: bool = True) -> Iterator[Overall]:
    """Within this block the phases that are named here share one bar and one time left."""
    found = Overall(expected)
    token = _overall.set(found if show else None)
    try:
        yield found
    finally:
        _overall.reset(token)
        found.bar.close()


class _Bar:
    """A bar on a terminal, drawn once there is something to draw."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def draw(self, what: str, share: float, text: str) -> None:
        """Show it, or move it."""
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as RichProgress

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
            self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(what, total=1.0, left="")
            self._bar.start()
        self._bar.update(self._task, description=what, completed=share, left=text)

    def close(self) -> None:
        """Take it off the screen."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class Progress:
    """Counts towards a total. Use as a context manager and call `advance`.

    `done` items were finished before: they count in the bar, not in the speed.
    """

    def __init__(self, what: str, total: int, done: int = 0, show: bool = True) -> None:
        self.what, self.total, self.done = what, total, done
        self._first = done
        self._began: float | None = None
        self._report: Report = show and _report.get()
        self._note = ""
        self._start = self._last = time.monotonic()
        self._bar = _Bar()
        self._spoken = False
        self._overall = _overall.get() if show else None

    def __enter__(self) -> "Progress":
        return self

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count `count` more items as done; `note` describes the last one."""
        self.done += count
        self._note = note or self._note
        now = time.monotonic()
        if self._began is None:  # the time before the first item is preparation and does not count
            self._began, self._first = now, self.done
        if callable(self._report):
            self._report(ProgressEvent(self.what, self.done, self.total, self._seconds_left(now)))
            return
        if not self._report or (now - self._start < QUIET_SECONDS and self._overall is None):
            return
        if sys.stderr.isatty():
            self._draw(now)
        elif now - self._last >= (LINE_SECONDS if self._spoken else QUIET_SECONDS) and self.done < self.total:
            self._last, self._spoken = now, True
            say(f"{self.what}: {self._state(now)}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        seconds = time.monotonic() - self._start
        if self._overall is not None and kind is None:
            self._overall.end(self.what, seconds)
        if kind is None and self._report is True and seconds >= QUIET_SECONDS:
            how_far = "done" if self.done >= self.total else f"{self.done:,} of {self.total:,}"
            say(f"{self.what}: {how_far} in {duration(seconds)}{self._tail()}")

    def _state(self, now: float) -> str:
        """`12 of 40, 9 s left`; of several phases, `12 of 40; 3 min 5 s left in all`."""
        seconds = self._seconds_left(now)
        if self._overall is not None:
            left = "" if seconds is None else f"; {duration(seconds)} left in all"
        else:
            left = "" if seconds is None else f", {duration(seconds)} left"
        return f"{self.done:,} of {self.total:,}{left}{self._tail()}"

    def _seconds_left(self, now: float) -> float | None:
        own = self._own_seconds_left(now)
        if self._overall is None:
            return own
        left = self._overall.left(self.what, own)
        return None if math.isnan(left) else left

    def _own_seconds_left(self, now: float) -> float | None:
        """After the first one alone nothing is known of the speed."""
        new = self.done - self._first
        return (now - self._began) / new * (self.total - self.done) if new > 0 and self._began is not None else None

    def _tail(self) -> str:
        return f" ({self._note})" if self._note else ""

    def _draw(self, now: float) -> None:
        if self._overall is None:
            self._bar.draw(self.what, self.done / max(1, self.total), self._state(now))
        else:
            share = self._overall.share(self.what, now - self._start, self._own_seconds_left(now))
            self._overall.bar.draw(self.what, share, self._state(now))
