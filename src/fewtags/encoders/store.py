"""Rows of features kept on disk under the content that made them; shared by all runs."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewtags.errors import Fault
from fewtags.utils.files import write_json

KEY_BYTES = 16


class FeatureStore:
    """One folder for one way of making features; row i of `features.f16` belongs to key i of `keys.bin`.

    Both files only grow, features first: a row counts when its key is there, so a killed writer leaves at most
    bytes that the next one overwrites.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], made_from: dict[str, object]) -> None:
        self.folder, self.shape = folder, shape
        self._row_bytes = 2 * int(np.prod(shape))
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "made-from.json").exists():
            write_json(folder / "made-from.json", {**made_from, "shape": list(shape)})
        self._index: dict[bytes, int] = {}
        self.refresh()

    def rows(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """The row of every key, -1 where it is not there."""
        return np.array([self._index.get(key, -1) for key in keys], dtype=np.int64)

    def array(self) -> NDArray[np.float16]:
        """All rows [n, *shape], memory-mapped."""
        count = len(self._index)
        if count == 0:
            return np.zeros((0, *self.shape), np.float16)
        return np.memmap(self.folder / "features.f16", np.float16, "r", shape=(count, *self.shape))

    def append(self, keys: Sequence[bytes], features: NDArray[np.float16]) -> None:
        """Add rows; keys that are there already are passed over."""
        with self._alone():
            self.refresh()
            new = {key: row for row, key in enumerate(keys) if key not in self._index}
            if not new:
                return
            rows = np.ascontiguousarray(features[list(new.values())], dtype=np.float16)
            try:
                _write_at(self.folder / "features.f16", len(self._index) * self._row_bytes, rows.tobytes())
                _write_at(self.folder / "keys.bin", len(self._index) * KEY_BYTES, b"".join(new))
            except OSError as error:
                raise Fault(
                    f"features could not be kept in {self.folder} ({error.strerror}); "
                    "make room, or set FEWTAGS_CACHE to a folder on another disk, and start again: nothing is lost"
                ) from error
            self.refresh()

    def refresh(self) -> None:
        """See what other processes have added."""
        file, data = self.folder / "keys.bin", self.folder / "features.f16"
        keys = file.read_bytes() if file.exists() else b""
        whole_rows = data.stat().st_size // self._row_bytes if data.exists() else 0
        for row in range(len(self._index), min(len(keys) // KEY_BYTES, whole_rows)):
            self._index[keys[row * KEY_BYTES : (row + 1) * KEY_BYTES]] = row

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other writers out, where the system has file locks."""
        with (self.folder / "lock").open("a") as file:
            try:
                import fcntl
            except ImportError:
                yield
                return
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _write_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(offset)  # what a killed writer left behind a whole row
        file.seek(offset)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
