"""The frozen forward: images in, features out, every core busy.

ONNX Runtime does the arithmetic when it is installed (two to three times faster than eager torch on a CPU):
then each thread decodes, cuts and runs its own images. Otherwise threads decode and cut, and torch does the
arithmetic for all of them, on a GPU if there is one.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fewtags.backbones.base import Backbone
from fewtags.backbones.weights import digest
from fewtags.data.catalogue import ImageSource
from fewtags.encoders.runtime import Engine, make_engine, scaling_of
from fewtags.encoders.views import ViewSpec, generator, make_views
from fewtags.encoders.windows import Evidence, square
from fewtags.errors import BadImage
from fewtags.utils.threads import batched, map_in_order

VIEWS_VERSION = 1  # raise when views of the same name come to look different: stored features are then made anew
GROUP = 4  # images a thread takes at a time


class Wanted(NamedTuple):
    """An image and the key of its content (which also seeds its draws)."""

    name: str
    key: bytes


@dataclass(frozen=True)
class FrozenForward:
    """A backbone that does not learn, and how images are cut for it."""

    backbone: Backbone
    spec: ViewSpec
    device: torch.device
    threads: int = 0  # 0: one a core

    @property
    def parts(self) -> int:
        """Views of one draw: the whole image and its patches."""
        return 1 + (self.spec.patches**2 if self.spec.patches > 1 else 0)

    def made_from(self, kind: str, draws: int) -> dict[str, object]:
        """All that the features of an image depend on beside its bytes."""
        spec = asdict(self.spec)
        if kind != "strong":
            spec.pop("cutout")
        return {
            "backbone": self.backbone.name,
            "weights": digest(self.backbone),
            "scaling": scaling_of(self.backbone),
            "views": spec,
            "views_version": VIEWS_VERSION,
            "kind": kind,
            "draws": draws,
        }

    def features(
        self, images: ImageSource, wanted: Iterable[Wanted], kind: str, draws: int = 1
    ) -> Iterator[NDArray[np.float32] | BadImage]:
        """For every image in turn its features [draws, 1 + n, width], or why it cannot be used."""
        engine = make_engine(self.backbone, self.device)

        def work(group: list[Wanted]) -> list[Any]:
            made = [self._views(images, one, kind, draws) for one in group]
            return _run(engine, made) if engine.in_threads else made

        for made in map_in_order(work, batched(wanted, GROUP), self.threads or os.cpu_count() or 1):
            yield from (made if engine.in_threads else _run(engine, made))

    def _views(self, images: ImageSource, one: Wanted, kind: str, draws: int) -> Any:
        try:
            image = images.image(one.name)
        except BadImage as error:
            return error
        made = []
        for draw in range(draws):
            rng = None if kind == "plain" else generator(one.key, draw)
            made.append(make_views(image, kind, self.spec, rng))  # type: ignore[arg-type]
        return made


@dataclass(frozen=True)
class EvidenceForward:
    """Frozen backbones side by side, each read by windows; a picture is decoded and resized once for all of them."""

    readers: tuple[Evidence, ...]
    size: int
    device: torch.device
    threads: int = 0  # 0: one a core

    def made_from(self, reader: Evidence, kind: str) -> dict[str, object]:
        """All that the features of an image by one backbone depend on beside its bytes."""
        return {
            "backbone": reader.name,
            "weights": digest(reader.backbone),
            "scaling": scaling_of(reader.backbone),
            "size": self.size,
            "reading": reader.extra_repr() if kind == "windows" else reader.of_whole().extra_repr(),
            "kind": kind,
        }

    def features(self, images: ImageSource, wanted: Iterable[Wanted]) -> Iterator[list[NDArray[np.float32]] | BadImage]:
        """For every image in turn its features [1 + n, width] by every backbone, or why it cannot be used."""
        engines = [make_engine(reader, self.device) for reader in self.readers]
        in_threads = all(engine.in_threads for engine in engines)

        def work(group: list[Wanted]) -> list[Any]:
            made = [self._picture(images, one) for one in group]
            return _read(engines, made) if in_threads else made

        for made in map_in_order(work, batched(wanted, GROUP), self.threads or os.cpu_count() or 1):
            yield from (made if in_threads else _read(engines, made))

    def _picture(self, images: ImageSource, one: Wanted) -> Any:
        try:
            return square(images.image(one.name), self.size)
        except BadImage as error:
            return error


def _read(engines: list[Engine], made: list[Any]) -> list[Any]:
    """Pictures of a few images -> their features by every engine."""
    good = [picture for picture in made if not isinstance(picture, BadImage)]
    if not good:
        return made
    rows = zip(*(engine(np.stack(good)) for engine in engines), strict=True)
    return [picture if isinstance(picture, BadImage) else list(next(rows)) for picture in made]


def _run(engine: Any, made: list[Any]) -> list[Any]:
    """Views of a few images -> their features; wholes and patches apart, for they may differ in size."""
    good = [views for views in made if not isinstance(views, BadImage)]
    if not good:
        return made
    draws = len(good[0])
    wholes = engine(np.stack([whole for views in good for whole, _ in views]))
    parts = wholes.reshape(len(good), draws, 1, -1)
    if len(good[0][0][1]):
        patches = engine(np.concatenate([many for views in good for _, many in views]))
        parts = np.concatenate([parts, patches.reshape(len(good), draws, -1, parts.shape[-1])], axis=2)
    rows = iter(parts)
    return [views if isinstance(views, BadImage) else next(rows) for views in made]


def store_folder(root: Path, made_from: dict[str, object]) -> Path:
    """Where features made in this way are kept."""
    content = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", str(made_from["backbone"]))
    return root / "features" / f"{name}-{made_from['kind']}-{content}"
