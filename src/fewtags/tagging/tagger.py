"""Tags for images: one forward an image and view, in constant memory however many there are."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fewtags.data.catalogue import Catalogue, ImageSource
from fewtags.data.images import decode
from fewtags.errors import BadImage, UserError
from fewtags.features import EvidenceForward, FrozenForward, Wanted
from fewtags.features.evidence import make_readers
from fewtags.models.heads import mixed_scores
from fewtags.progress import Progress
from fewtags.tagging.model import load_model
from fewtags.tagging.results import given_tags

BATCH = 64  # images whose features go through the heads together


class Tagging(NamedTuple):
    """What a model says of an image."""

    image: str
    tags: list[str]  # whose score reaches their threshold, best margin first
    scores: dict[str, float]  # every tag, 0..1


class Files:
    """Image files anywhere on the disk, named by their paths."""

    def image(self, name: str) -> Image.Image:
        """The picture, upright and RGB."""
        return decode(self._read(name))

    def fingerprint(self, name: str) -> bytes:
        """Not needed for tagging: nothing is kept."""
        return b""

    def _read(self, name: str) -> bytes:
        try:
            return Path(name).read_bytes()
        except OSError as error:
            raise BadImage(error.strerror or "cannot be read") from error


class Tagger:
    """A trained model. `fewtags.load` makes one."""

    def __init__(self, folder: str | Path) -> None:
        self.info, backbones, top, self._components = load_model(Path(folder))
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._top = top.to(device)
        self._device = device
        self._backbones = backbones
        self._thresholds = np.array(self.info.threshold_values())

    @property
    def tags(self) -> list[str]:
        """All tags the model knows."""
        return list(self.info.tags)

    @property
    def thresholds(self) -> dict[str, float]:
        """The score each tag must reach; infinite for a tag it never saw an example of."""
        return dict(zip(self.info.tags, self._thresholds.tolist(), strict=True))

    def tag(self, images: str | Path | Iterable[str | Path]) -> list[Tagging]:
        """Tag image files, or a single one.

        >>> fewtags.load("run").tag(["a.jpg"])[0].tags    # doctest: +SKIP
        ['boat', 'water']
        """
        found = []
        paths = [images] if isinstance(images, (str, Path)) else images
        for name, result in self.stream(str(path) for path in paths):
            if isinstance(result, BadImage):
                raise UserError(f"{name} cannot be used: {result}")
            found.append(result)
        return found

    def stream(
        self, names: Iterable[str], images: ImageSource | None = None
    ) -> Iterator[tuple[str, Tagging | BadImage]]:
        """Name and tags of one image after the other, or why one cannot be used."""
        for name, scores in self.scores(names, images):
            yield name, scores if isinstance(scores, BadImage) else self.decide(name, scores)

    def scores(
        self, names: Iterable[str], images: ImageSource | None = None
    ) -> Iterator[tuple[str, NDArray[np.float32] | BadImage]]:
        """Name and scores [K] of one image after the other."""
        ours, theirs = tee(names)
        features = self._features(images or Files(), (Wanted(name, b"") for name in theirs))
        waiting: list[tuple[str, NDArray[np.float32] | BadImage]] = []
        for pair in zip(ours, features, strict=True):
            waiting.append(pair)
            if len(waiting) == BATCH:
                yield from self._through_heads(waiting)
                waiting = []
        yield from self._through_heads(waiting)

    def decide(self, name: str, scores: NDArray[np.float32]) -> Tagging:
        """Scores [K] -> tags, the surest (furthest above its threshold) first."""
        every = dict(zip(self.info.tags, scores.tolist(), strict=True))
        return Tagging(name, given_tags(scores, self._thresholds, self.info.tags), every)

    def score_table(
        self, catalogue: Catalogue, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], list[tuple[str, str]]]:
        """Scores [len(rows), K] of images of a catalogue, NaN where one cannot be used, and the reasons."""
        table = np.full((len(rows), len(self.info.tags)), np.nan, np.float32)
        bad = []
        names = (catalogue.names[int(row)] for row in rows)
        with Progress("scoring images", len(rows)) as progress:
            for place, (name, scores) in enumerate(self.scores(names, catalogue.images)):
                if isinstance(scores, BadImage):
                    bad.append((name, str(scores)))
                else:
                    table[place] = scores
                progress.advance()
        return table, bad

    def _features(self, images: ImageSource, wanted: Iterator[Wanted]) -> Iterator[NDArray[np.float32] | BadImage]:
        """What the backbones make of one image after the other [1 + n, width]."""
        info = self.info
        if info.features == "crops":
            forward = FrozenForward(self._backbones[0], info.view_spec(), self._device)
            for one in forward.features(images, wanted, "plain"):
                yield one if isinstance(one, BadImage) else one[0]
            return
        readers = make_readers(self._backbones, info.size, info.patches)
        columns = [reader.columns(info.blocks) for reader in readers]
        for found in EvidenceForward(tuple(readers), info.size, self._device).features(images, wanted):
            if isinstance(found, BadImage):
                yield found
                continue
            stretches = (one[:, start:end] for one, some in zip(found, columns, strict=True) for start, end in some)
            yield np.concatenate(list(stretches), axis=1)

    @torch.inference_mode()
    def _through_heads(
        self, found: Sequence[tuple[str, NDArray[np.float32] | BadImage]]
    ) -> Iterator[tuple[str, NDArray[np.float32] | BadImage]]:
        good = [features for _, features in found if not isinstance(features, BadImage)]
        if good:
            stacked: NDArray[np.floating[Any]] = np.stack(good)
            if self._components is not None:
                stacked = self._components.project(stacked.astype(np.float16))
            inputs = torch.from_numpy(stacked).to(self._device).float()
            if self.info.frozen:
                inputs = inputs.half().float()  # as the features were stored that it learned from
            patches = inputs[:, 1:] if inputs.shape[1] > 1 else None
            logits = self._top(inputs[:, 0], patches)
            rows = iter(mixed_scores(logits, self.info.merge, self.info.alpha).cpu().numpy())
        for name, features in found:
            yield name, features if isinstance(features, BadImage) else next(rows)
