"""The progress of a grid: a live table on a terminal, plain lines elsewhere."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from fewtags.bench.engines import Event
from fewtags.bench.grid import Cell, Row
from fewtags.utils.progress import duration, say

LINE_SECONDS = 15.0
SIGNS = {"done": "●", "running": "◐", "failed": "✗", "waiting": "·"}


class Live:
    """Shows the state of every cell; call `update` with every event."""

    def __init__(self, cells: Sequence[Cell], left: Sequence[Cell], failed: dict[Cell, str]) -> None:
        self._state = dict.fromkeys(cells, "done") | dict.fromkeys(left, "waiting") | dict.fromkeys(failed, "failed")
        self._wanted = len(left)
        self._start = self._last = self._last_end = time.monotonic()
        self._screen: Any = None

    def __enter__(self) -> "Live":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live as RichLive

            self._screen = RichLive(self.table(), console=Console(stderr=True), refresh_per_second=2)
            self._screen.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._screen is not None:
            self._screen.update(self.table())
            self._screen.stop()
        elif kind is not None:
            say(self.summary())

    def update(self, event: Event) -> None:
        """Show a change; without a terminal, print a line when a cell ends, else every LINE_SECONDS."""
        now = time.monotonic()
        if event.cell is not None:
            self._state[event.cell] = event.what
        if event.what in ("done", "failed"):
            self._last_end = now
        if self._screen is not None:
            self._screen.update(self.table())
            return
        if event.what == "failed" and event.cell is not None:
            say(f"failed: {event.cell.words}: {event.reason}")
        if event.what in ("done", "failed") or now - self._last > LINE_SECONDS:
            self._last = now
            say(self.summary())

    def summary(self) -> str:
        """`cells: 12 of 40 done, 2 running, 1 failed, 9 min left`."""
        count = Counter(self._state.values())
        words = [f"cells: {count['done']} of {len(self._state)} done"]
        words += [f"{count[name]} {name}" for name in ("running", "failed") if count[name]]
        ended = self._wanted - count["waiting"] - count["running"]
        if 0 < ended < self._wanted:
            pace = (self._last_end - self._start) / ended
            gone = time.monotonic() - self._last_end  # progress of the running cells, not of the waiting ones
            seconds = max(pace * (self._wanted - ended) - gone, pace * count["waiting"])
            words.append(f"{duration(seconds)} left")
        return ", ".join(words)

    def table(self) -> Any:
        """One line per row, one column per labelled share: the state of each seed."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        shares = list(dict.fromkeys(cell.labelled for cell in self._state))
        marks: dict[Row, dict[float | None, str]] = {}
        for cell, state in self._state.items():
            mine = marks.setdefault(cell.row, dict.fromkeys(shares, ""))
            mine[cell.labelled] += SIGNS[state]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("")
        for share in shares:
            table.add_column("as given" if share is None else f"{100 * share:g} %")
        for row, mine in marks.items():
            table.add_row(Text(row.name), *mine.values())
        # the summary comes first: a terminal too short for the table cuts off its end
        return Group(Text(self.summary(), style="italic"), table)
