"""The catalogue: names, targets and roles of all images, in compact arrays."""

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Generic, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image

T = TypeVar("T")
MIN_POSITIVES = 5  # labelled images with a tag; with fewer it is hardly learned, and its figures say little
UNKNOWN = -1  # a target that nobody has decided: neither present (1) nor absent (0)


class Role(IntEnum):
    """The role of an image."""

    LABELLED = 0
    UNLABELLED = 1
    TEST = 2
    HELD_OUT = 3  # labelled, but not trained on: for thresholds and the quality estimate


class Names(Sequence[str]):
    """Image names in one byte array with offsets: 8 bytes of overhead per name."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        text, ends = bytearray(), array("q", [0])
        for name in names:
            text += name.encode("utf-8", "surrogateescape")
            ends.append(len(text))
        self._bytes: NDArray[np.uint8] = np.frombuffer(bytes(text), dtype=np.uint8)
        self._offsets: NDArray[np.int64] = np.array(ends, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Memory of the names, in bytes."""
        return self._bytes.nbytes + self._offsets.nbytes

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> "Names": ...
    def __getitem__(self, row: int | slice) -> "str | Names":
        if isinstance(row, slice):
            return self.take(np.arange(len(self))[row])
        row = range(len(self))[row]  # negative and out-of-range indices behave as in a list
        start, end = self._offsets[row], self._offsets[row + 1]
        return self._bytes[start:end].tobytes().decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def take(self, rows: NDArray[np.int64]) -> "Names":
        """The names of these rows, in this order."""
        return Names(self[int(row)] for row in rows)


@dataclass(frozen=True)
class ImageResult(Generic[T]):
    """What was found for one image, or why the image cannot be used."""

    name: str
    value: T | None
    problem: str = ""


class ImageSource(Protocol):
    """Loads images by name. It can be pickled, as the sources of all readers can, so that other processes load too."""

    def image(self, name: str) -> Image.Image:
        """The picture, upright and RGB. Raises BadImage with a reason if it cannot be used."""
        ...

    def fingerprint(self, name: str) -> bytes:
        """16 bytes that change with the content. Raises BadImage if the file cannot be read."""
        ...


@dataclass(frozen=True)
class Catalogue:
    """N images and K tags; see Role and UNKNOWN for the codes."""

    tags: tuple[str, ...]
    names: Names
    targets: NDArray[np.int8]  # [N, K] 1, 0 or UNKNOWN; of benchmarks also the hidden truth
    roles: NDArray[np.int8]  # [N]
    images: ImageSource
    notes: tuple[str, ...] = ()  # messages of the reader to the user, one sentence each

    def __post_init__(self) -> None:
        if self.targets.shape != (len(self.names), len(self.tags)) or self.roles.shape != (len(self.names),):
            raise ValueError(f"{len(self.names)} names, {len(self.tags)} tags: targets {self.targets.shape}")

    def __len__(self) -> int:
        return len(self.names)

    def rows(self, role: Role) -> NDArray[np.int64]:
        """The rows with a role, in the order of the table."""
        return np.flatnonzero(self.roles == role)

    def take(self, rows: NDArray[np.int64]) -> "Catalogue":
        """A catalogue of these rows, in this order."""
        return replace(self, names=self.names.take(rows), targets=self.targets[rows], roles=self.roles[rows])

    def digest(self) -> str:
        """A hash of tags, names, roles and the targets visible to training; hidden truth is left out."""
        seen = np.where((self.roles == Role.UNLABELLED)[:, None], np.int8(UNKNOWN), self.targets)
        digest = hashlib.sha256("\0".join(self.tags).encode())
        for part in (self.names._bytes, self.names._offsets, self.roles, seen):
            digest.update(np.ascontiguousarray(part).reshape(-1).data)
        return digest.hexdigest()
