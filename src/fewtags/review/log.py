"""review.jsonl: one line per decision, append-only, on the disk before it is reported as saved."""

import json
import os
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from fewtags.errors import Fault, UserError
from fewtags.utils.files import locked, sync_folder

ANSWERS = ("yes", "no", "unsure")
Cell = tuple[str, str]  # image, tag


class Decision(NamedTuple):
    """A person's answer about one tag of one image."""

    image: str
    tag: str
    answer: str  # yes, no or unsure


class Line(NamedTuple):
    """One line of the log: a decision of an action, or the undo of a whole action."""

    action: str
    decision: Decision | None  # None: the action is undone


def read_log(file: Path) -> list[Line]:
    """The lines of a log; an incomplete last line is left out. Raises UserError that names the faulty line."""
    try:
        return parse_lines(file.read_bytes(), file)
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); name a review.jsonl") from error


def parse_lines(content: bytes, file: Path, first: int = 1) -> list[Line]:
    """The complete lines of these bytes of `file`; `first` is the number of the first line."""
    whole = content[: content.rfind(b"\n") + 1]
    return [_parsed(text, file, first + number) for number, text in enumerate(whole.split(b"\n")[:-1])]


def current_answers(lines: Iterable[Line]) -> dict[Cell, str]:
    """The answers after all lines: per image and tag, the last one not undone."""
    lines = list(lines)
    undone = {line.action for line in lines if line.decision is None}
    found: dict[Cell, str] = {}
    for line in lines:
        if line.decision is not None and line.action not in undone:
            found[line.decision.image, line.decision.tag] = line.decision.answer
    return found


class ReviewLog:
    """A log in use. Other tabs and processes may append to the same file; no lines are lost."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.answers: dict[Cell, str] = {}  # the current ones
        self._lines: list[Line] = []
        self._read = 0  # bytes of the file that `_lines` holds
        self.refresh()

    def refresh(self) -> None:
        """Read the lines that others have appended."""
        if not self.file.exists():
            return
        with self.file.open("rb") as file:
            self._read_new_lines(file)

    def append(self, decisions: Sequence[Decision]) -> str:
        """Write the decisions of one action to the disk; returns the name of the action."""
        action = secrets.token_hex(8)
        when = _now()
        self._write([{**decision._asdict(), "when": when, "action": action} for decision in decisions])
        return action

    def undo(self, action: str) -> bool:
        """Append an undo of an action; False if there is no such action or it was undone before."""
        self.refresh()
        known = [line.decision is not None for line in self._lines if line.action == action]
        if not known or not all(known):
            return False
        self._write([{"undo": action, "when": _now()}])
        return True

    def _write(self, entries: list[dict[str, Any]]) -> None:
        text = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
        new = not self.file.exists()
        try:
            with self.file.open("a+b") as file, locked(file):
                _drop_partial_line(file)
                end = file.seek(0, os.SEEK_END)
                try:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(end)  # an action is saved completely or not at all
                    raise
                self._read_new_lines(file)
            if new:
                sync_folder(self.file.parent)
        except OSError as error:
            raise Fault(f"{self.file} could not be written ({error.strerror}); the decision is not kept") from error

    def _read_new_lines(self, file: BinaryIO) -> None:
        if file.seek(0, os.SEEK_END) < self._read:  # the file was replaced
            self._lines, self._read, self.answers = [], 0, {}
        file.seek(self._read)
        content = file.read()
        new = parse_lines(content, self.file, len(self._lines) + 1)
        self._read += content.rfind(b"\n") + 1
        self._lines += new
        if any(line.decision is None for line in new):
            self.answers = current_answers(self._lines)
        else:
            self.answers |= current_answers(new)


def _parsed(text: bytes, file: Path, number: int) -> Line:
    where = f"{file}, line {number}"
    try:
        entry = json.loads(text)
    except ValueError as error:
        raise UserError(f"{where}: not JSON; remove the line") from error
    if not isinstance(entry, dict):
        raise UserError(f"{where}: not a decision; remove the line")
    if isinstance(entry.get("undo"), str):
        return Line(entry["undo"], None)
    parts = [entry.get(key) for key in ("image", "tag", "answer", "action")]
    if not all(isinstance(part, str) for part in parts):
        raise UserError(f"{where}: a decision has image, tag, answer, when and action; remove the line")
    image, tag, answer, action = map(str, parts)
    if answer not in ANSWERS:
        raise UserError(f"{where}: answer {answer!r}; it must be yes, no or unsure")
    return Line(action, Decision(image, tag, answer))


def _drop_partial_line(file: BinaryIO) -> None:
    """Remove an incomplete last line, left by a killed writer: it was never reported as saved."""
    end = file.seek(0, os.SEEK_END)
    keep = end
    while keep:
        start = max(0, keep - 4096)
        file.seek(start)
        newline = file.read(keep - start).rfind(b"\n")
        if newline >= 0:
            keep = start + newline + 1
            break
        keep = start
    if keep < end:
        file.truncate(keep)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
