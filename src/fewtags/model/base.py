"""From scores to tags, whatever computes the scores: what a model in use gives, without torch."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, Field, model_validator

from fewtags.data.catalogue import Catalogue, ImageSource
from fewtags.data.images import decode
from fewtags.encoders.views import ViewSpec
from fewtags.errors import BadImage, UserError
from fewtags.utils.progress import Progress

Scores = NDArray[np.floating[Any]]


class Tagging(NamedTuple):
    """What a model says of an image."""

    image: str
    tags: list[str]  # whose score reaches their threshold, best margin first
    scores: dict[str, float]  # every tag, 0..1


class About(BaseModel):
    """What every saved model says of itself, as a folder or as one file."""

    fewtags: str  # version that wrote it
    method: str
    tags: list[str] = Field(min_length=1)
    # a tag is given where its score reaches this; None: never
    thresholds: list[Annotated[float, Field(allow_inf_nan=False)] | None]
    backbone: str  # several: one after the other with + between them
    size: int = Field(ge=1)  # px of the side of a square input
    patches: int = Field(ge=1)  # per side
    patch_source: Literal["resized", "original"]
    patch_size: Literal["full", "native"]
    learned_from: int = Field(ge=0)  # images, labelled and unlabelled

    @model_validator(mode="after")
    def _a_threshold_a_tag(self) -> "About":
        if len(self.thresholds) != len(self.tags):
            raise ValueError(f"{len(self.tags)} tags but {len(self.thresholds)} thresholds")
        return self

    def view_spec(self) -> ViewSpec:
        """How an image is cut for this model."""
        return ViewSpec(
            size=self.size, patches=self.patches, patch_source=self.patch_source, patch_size=self.patch_size
        )

    def threshold_values(self) -> list[float]:
        """The thresholds as numbers, infinite where a tag is never given."""
        return [float("inf") if value is None else value for value in self.thresholds]


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


class AnyTagger(ABC):
    """A trained model in use; a subclass computes the scores."""

    def __init__(self, tags: list[str], thresholds: list[float], identity: str) -> None:
        self._tags = tags
        self._thresholds = np.array(thresholds)
        self.identity = identity  # a text that differs between models

    @property
    def tags(self) -> list[str]:
        """All tags the model knows."""
        return list(self._tags)

    @property
    def thresholds(self) -> dict[str, float]:
        """The score each tag must reach; infinite for a tag it never saw an example of."""
        return dict(zip(self._tags, self._thresholds.tolist(), strict=True))

    @abstractmethod
    def scores(
        self, names: Iterable[str], images: ImageSource | None = None
    ) -> Iterator[tuple[str, NDArray[np.float32] | BadImage]]:
        """Name and scores [K] of one image after the other."""

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

    def decide(self, name: str, scores: NDArray[np.float32]) -> Tagging:
        """Scores [K] -> tags, the surest (furthest above its threshold) first."""
        every = dict(zip(self._tags, scores.tolist(), strict=True))
        return Tagging(name, given_tags(scores, self._thresholds, self._tags), every)

    def score_table(
        self, catalogue: Catalogue, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], list[tuple[str, str]]]:
        """Scores [len(rows), K] of images of a catalogue, NaN where one cannot be used, and the reasons."""
        table = np.full((len(rows), len(self._tags)), np.nan, np.float32)
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


def given_tags(scores: Scores, thresholds: Scores, tags: tuple[str, ...] | list[str]) -> list[str]:
    """The tags whose score [K] reaches their threshold, the surest (furthest above it) first."""
    margin = scores - thresholds
    return [tags[place] for place in np.argsort(-margin, kind="stable") if margin[place] >= 0]
