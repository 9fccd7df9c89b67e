"""Progress with time left: a bar on a terminal, plain lines elsewhere, nothing for tasks under two seconds."""

import sys
import time
from types import TracebackType
from typing import Any

QUIET_SECONDS = 2.0  # shorter tasks show no progress
LINE_SECONDS = 15.0  # between two plain lines


def say(text: str) -> None:
    """Print a message to standard error; results go to standard output."""
    print(text, file=sys.stderr, flush=True)


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
        self._show = show
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
        if not self._show or now - self._start < QUIET_SECONDS:
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
        if kind is None and self._show and seconds >= QUIET_SECONDS:
            how_far = "done" if self.done >= self.total else f"{self.done:,} of {self.total:,}"
            say(f"{self.what}: {how_far} in {duration(seconds)}{self._tail()}")

    def _state(self, now: float) -> str:
        """`12 of 40, 9 s left`; no time left after the first item, when the speed is unknown."""
        new = self.done - self._first
        left = ""
        if new > 0 and self._began is not None:
            left = f", {duration((now - self._began) / new * (self.total - self.done))} left"
        return f"{self.done:,} of {self.total:,}{left}{self._tail()}"

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
