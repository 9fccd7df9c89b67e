"""Rows of features kept on disk under the content that made them; shared by all runs."""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewtags.errors import Fault
from fewtags.utils.files import locked, write_json

KEY_BYTES = 16


class Stored(NamedTuple):
    """The features of some images: row `rows[i]` of a larger array, which may be memory-mapped."""

    features: NDArray[np.float16] | NDArray[np.float32]  # [any, draws, parts, width]
    rows: NDArray[np.int64]


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

    def rows_of_all(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """The row of every key. Raises Fault where one is missing: another process should have computed it."""
        rows = self.rows(keys)
        if (rows < 0).any():
            raise Fault(
                f"features that another process computed are not in {self.folder}; set FEWTAGS_CACHE to a folder that "
                "all machines share, and start again: nothing is lost"
            )
        return rows

    def array(self) -> NDArray[np.float16]:
        """All rows [n, *shape], memory-mapped."""
        count = len(self._index)
        if count == 0:
            return np.zeros((0, *self.shape), np.float16)
        return np.memmap(self.folder / "features.f16", np.float16, "r", shape=(count, *self.shape))

    def append(self, keys: Sequence[bytes], features: NDArray[np.float16]) -> None:
        """Add rows; keys that are there already are passed over."""
        with (self.folder / "lock").open("a") as lock, locked(lock):
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


def _write_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(offset)  # what a killed writer left behind a whole row
        file.seek(offset)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def store_folder(root: Path, made_from: dict[str, object]) -> Path:
    """Where features made in this way are kept."""
    content = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", str(made_from["backbone"]))
    return root / "features" / f"{name}-{made_from['kind']}-{content}"
