"""Vectors with ids in the place of image files: an ImageSource whose rows are numbers."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewtags.data.images import decode, read_file
from fewtags.errors import BadImage


class VectorSource:
    """Rows [n, D] by id; `pictures` says where the image of an id lies, if there is one."""

    def __init__(self, vectors: NDArray[Any], ids: Sequence[str], pictures: Mapping[str, Path] | None = None) -> None:
        self._vectors = vectors
        self._row = {name: row for row, name in enumerate(ids)}
        self._pictures = pictures or {}

    @property
    def width(self) -> int:
        """D."""
        return int(self._vectors.shape[1])

    @property
    def has_pictures(self) -> bool:
        """Whether there is anything to show."""
        return bool(self._pictures)

    def vectors(self, names: Sequence[str]) -> NDArray[np.float32]:
        """The vectors [len(names), D]."""
        rows = [self._row[name] for name in names]
        return np.ascontiguousarray(self._vectors[rows], dtype=np.float32)

    def image(self, name: str) -> Image.Image:
        """The picture of an id. Raises BadImage where there is none."""
        if name not in self._pictures:
            raise BadImage("a vector without a picture")
        return decode(read_file(self._pictures[name]))

    def fingerprint(self, name: str) -> bytes:
        """16 bytes that change when the vector does."""
        return blake2b(self.vectors([name]).tobytes(), digest_size=16).digest()
