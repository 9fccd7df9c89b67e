"""Atomic writes, and the cache folder."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from fewtags.errors import Fault


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`, which replaces it once all of it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise Fault(
            f"{path} could not be written ({error.strerror or error}); what was there before is unchanged"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(file: IO[Any], wait: bool = True) -> Iterator[None]:
    """Lock an open file against other processes, if the system and its file system have locks.

    Without waiting, BlockingIOError says that another process holds the lock.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        yield
        return
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically."""
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "surrogateescape"))


def write_json(path: Path, content: Any) -> None:
    """Write JSON with one line per key, so that it can be read and compared."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def csv_line(cells: Iterable[str]) -> str:
    """A line of a CSV file, cells quoted where they must be."""
    return ",".join(_csv_cell(cell) for cell in cells) + "\n"


def _csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text


def cache_folder() -> Path:
    """The folder of cached features and engines: $FEWTAGS_CACHE, else in the user's cache folder."""
    given = os.environ.get("FEWTAGS_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fewtags"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sync_folder(folder: Path) -> None:
    """Flush a folder to the disk, so that a renamed file survives a power cut; not supported everywhere."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
