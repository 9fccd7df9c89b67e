"""Graceful stop on Ctrl-C and SIGTERM, between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fewtags.errors import Interrupted


class StopRequest:
    """Turns Ctrl-C and SIGTERM into a request to stop between two steps; a second signal stops at once."""

    def __init__(self) -> None:
        self.requested = False

    def check(self, kept: str) -> None:
        """Raise Interrupted if a stop was requested."""
        if self.requested:
            raise Interrupted(kept)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    @contextmanager
    def listening(self) -> Iterator["StopRequest"]:
        """Handle both signals within this context; only in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
