"""Messages and progress: standard logging under "fewtags", and time left on everything that takes over two seconds.

A library call logs its messages at level INFO. Progress is a bar on a terminal and lines in the log elsewhere, goes to
a function of the caller's, or is silent; the command line shows both on standard error.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator
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
    seconds_left: float | None  # None: not known yet


Report = bool | Callable[[ProgressEvent], None]  # show progress, be silent, or tell this function
_report: ContextVar[Report] = ContextVar("report", default=True)


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
        self._bar: Any = None
        self._task: Any = None
        self._spoken = False

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
        if not self._report or now - self._start < QUIET_SECONDS:
            return
        if sys.stderr.isatty():
            self._draw()
        elif now - self._last >= (LINE_SECONDS if self._spoken else QUIET_SECONDS) and self.done < self.total:
            self._last, self._spoken = now, True
            say(f"{self.what}: {self._state(now)}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        seconds = time.monotonic() - self._start
        if kind is None and self._report is True and seconds >= QUIET_SECONDS:
            how_far = "done" if self.done >= self.total else f"{self.done:,} of {self.total:,}"
            say(f"{self.what}: {how_far} in {duration(seconds)}{self._tail()}")

    def _state(self, now: float) -> str:
        """`12 of 40, 9 s left`."""
        seconds = self._seconds_left(now)
        left = "" if seconds is None else f", {duration(seconds)} left"
        return f"{self.done:,} of {self.total:,}{left}{self._tail()}"

    def _seconds_left(self, now: float) -> float | None:
        """After the first one alone nothing is known of the speed."""
        new = self.done - self._first
        return (now - self._began) / new * (self.total - self.done) if new > 0 and self._began is not None else None

    def _tail(self) -> str:
        return f" ({self._note})" if self._note else ""

    def _draw(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as RichProgress

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
            self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self.what, total=self.total, left="")
            self._bar.start()
        self._bar.update(self._task, completed=self.done, left=self._state(time.monotonic()))
