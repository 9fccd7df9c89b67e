"""Evidence features of a run: several backbones side by side, the kind that suits the data, shrunk to components."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from fewtags.data.catalogue import ImageSource
from fewtags.encoders.components import FITTED_ON, Components, fit_components
from fewtags.encoders.forward import EvidenceForward, Wanted, store_folder
from fewtags.encoders.store import FeatureStore
from fewtags.encoders.windows import Evidence
from fewtags.errors import BadImage
from fewtags.solvers.folds import MAX_LABELLED, select_strength
from fewtags.utils.files import atomic_write, cache_folder

Blocks = Literal["pooled", "evidence", "both"]
KINDS: tuple[Blocks, ...] = ("both", "evidence", "pooled")
NEAR = 0.005  # mAP; closer than this to the best, both are taken
ROWS = 512  # images read from the stores at a time


class Choice(NamedTuple):
    """Which features, and what cross-fitting on the labelled images said of each kind (nothing: not asked)."""

    blocks: Blocks
    tried: dict[str, float]


class EvidenceTable:
    """The stored evidence of images: rows by content, columns by the kind of block."""

    def __init__(self, readers: Sequence[Evidence], size: int, device: torch.device) -> None:
        self.readers, self._size, self._device = tuple(readers), size, device
        self.patches = readers[0].patches
        forward = EvidenceForward(self.readers, size, device)
        self._made_from = [forward.made_from(reader, "evidence") for reader in readers]
        self._whole = [_store(forward, reader, "evidence", 1) for reader in readers]
        self._windows = (
            [_store(forward, reader, "windows", self.patches**2) for reader in readers] if self.patches > 1 else []
        )

    @property
    def stores(self) -> list[FeatureStore]:
        """All of them; `compute` gives its arrays in this order."""
        return [*self._whole, *self._windows]

    def compute(self, images: ImageSource, wanted: Iterable[Wanted]) -> Iterator[list[NDArray[np.float32]] | BadImage]:
        """For every image the rows of all stores, or why it cannot be used."""
        for found in EvidenceForward(self.readers, self._size, self._device).features(images, wanted):
            if isinstance(found, BadImage):
                yield found
            else:
                yield [one[None, :1] for one in found] + ([one[None, 1:] for one in found] if self._windows else [])

    def read(self, keys: Sequence[bytes], blocks: Blocks) -> NDArray[np.float16]:
        """Columns of these blocks for images in the stores [n, 1 + patches², D]."""
        columns = []
        for place, reader in enumerate(self.readers):
            kept = [self._whole[place], *([self._windows[place]] if self._windows else [])]
            parts = np.concatenate([store.array()[store.rows(keys)][:, 0] for store in kept], axis=1)
            columns += [parts[..., start:end] for start, end in reader.columns(blocks)]
        return np.concatenate(columns, axis=-1)

    def components(self, keys: Sequence[bytes], blocks: Blocks, count: int) -> Components:
        """The components of these images' whole views, fitted once and kept; the order of images plays no part."""
        chosen = sorted(set(keys))[:FITTED_ON]  # keys are digests: the first of them are a random choice
        about = json.dumps([self._made_from, blocks, count, FITTED_ON, "turned"], sort_keys=True).encode()
        content = hashlib.sha256(about + b"".join(chosen)).hexdigest()[:16]
        file = cache_folder() / "components" / f"{blocks}-{content}.safetensors"
        if file.exists():
            with safe_open(file, framework="pt") as stored:
                return Components(stored.get_tensor("mean"), stored.get_tensor("axes"))
        wholes = [self.read(chosen[start : start + ROWS], blocks)[:, 0] for start in range(0, len(chosen), ROWS)]
        found = fit_components(np.concatenate(wholes), count)
        with atomic_write(file) as out:
            out.write(save({"mean": found.mean, "axes": found.axes.contiguous()}))
        return found

    def project(self, keys: Sequence[bytes], blocks: Blocks, components: Components) -> NDArray[np.float32]:
        """The components of images in the stores [n, 1, 1 + patches², d]."""
        parts = 1 + (self.patches**2 if self.patches > 1 else 0)
        found = np.empty((len(keys), 1, parts, components.axes.shape[1]), np.float32)
        for start in range(0, len(keys), ROWS):
            found[start : start + ROWS, 0] = components.project(self.read(keys[start : start + ROWS], blocks))
        return found

    def choose(self, keys: Sequence[bytes], targets: Tensor, tick: Callable[[], None] = lambda: None) -> Choice:
        """By the labelled images: each kind is tried in five folds, near ties go to both.

        keys and targets [N, K] of the labelled images; tick: called after each kind.
        """
        if not any(reader.mapped for reader in self.readers):
            return Choice("pooled", {})
        first = np.unique(keys, return_index=True)[1]  # copies of an image would meet themselves in another fold
        few = np.random.default_rng(0).permutation(np.sort(first))[:MAX_LABELLED]
        known = targets[torch.from_numpy(few)]
        tried: dict[str, float] = {}
        for kind in KINDS:
            wholes = torch.from_numpy(self.read([keys[row] for row in few], kind)[:, 0]).double()
            tried[kind] = select_strength(coordinates(wholes), known, (0.003, 0.03)).map
            tick()
        best = max(tried.values())
        return Choice("both" if tried["both"] >= best - NEAR else max(KINDS, key=tried.__getitem__), tried)


def coordinates(x: Tensor) -> Tensor:
    """Vectors [n, r] with the distances of x [n, D] and r at most n; of mean square length one and mean zero."""
    x = x - x.mean(0)
    if x.shape[1] > len(x):
        values, vectors = torch.linalg.eigh(x @ x.T)
        x = vectors * values.clamp(min=0).sqrt()
    return x / x.square().sum(1).mean().sqrt().clamp(min=1e-12)


def _store(forward: EvidenceForward, reader: Evidence, kind: str, parts: int) -> FeatureStore:
    made_from = forward.made_from(reader, kind)
    return FeatureStore(store_folder(cache_folder(), made_from), (1, parts, reader.width), made_from)
