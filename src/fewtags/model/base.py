"""From scores to tags, whatever computes the scores: what every model in use has in common, without torch."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fewtags.data.catalogue import Catalogue, ImageResult, ImageSource
from fewtags.data.images import ImageFiles
from fewtags.data.vectors import VectorSource
from fewtags.encoders.views import ViewSpec
from fewtags.errors import UserError
from fewtags.utils.progress import Progress

Scores = NDArray[np.floating[Any]]
KEY = "fewtags"  # under which an ONNX file keeps what it says of itself


class Tagging(NamedTuple):
    """What a model says of an image."""

    image: str
    tags: list[str]  # whose score reaches their threshold, best margin first
    scores: dict[str, float]  # every tag, 0..1


_Number = Annotated[float, Field(allow_inf_nan=False)]
_Slope = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class About(BaseModel):
    """What every saved model says of itself, as a folder or as one file."""

    fewtags: str  # version that wrote it
    method: str
    tags: list[str] = Field(min_length=1)
    # a tag is given where its score reaches this; None: never
    thresholds: list[_Number | None]
    # [slope, offset] of each tag, by which scores were made probabilities; None: they are as the network gives them
    calibration: list[tuple[_Slope, _Number]] | None = None
    learned_from: int = Field(ge=0)  # images, labelled and unlabelled
    # how an image is cut; a model of vectors has none of these
    backbone: str | None = None  # several: one after the other with + between them
    size: int | None = Field(None, ge=1)  # px of the side of a square input
    patches: int = Field(1, ge=1)  # per side
    patch_source: Literal["resized", "original"] = "resized"
    patch_size: Literal["full", "native"] = "full"

    @model_validator(mode="after")
    def _one_threshold_per_tag(self) -> "About":
        if len(self.thresholds) != len(self.tags):
            raise ValueError(f"{len(self.tags)} tags but {len(self.thresholds)} thresholds")
        if self.calibration is not None and len(self.calibration) != len(self.tags):
            raise ValueError(f"{len(self.tags)} tags but {len(self.calibration)} curves in calibration")
        return self

    def view_spec(self) -> ViewSpec:
        """How an image is cut for this model."""
        return ViewSpec(
            size=self.size or 1, patches=self.patches, patch_source=self.patch_source, patch_size=self.patch_size
        )

    def threshold_values(self) -> list[float]:
        """The thresholds as numbers, infinite where a tag is never given."""
        return [float("inf") if value is None else value for value in self.thresholds]


class AboutFile(About):
    """What an ONNX file says of itself: all that a program needs beside the graph."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may say more

    inputs: dict[str, str]  # name -> how it is made of an image, in words


class BaseTagger(ABC):
    """A trained model in use; a subclass computes the scores."""

    def __init__(self, tags: list[str], thresholds: list[float], identity: str, calibrated: bool) -> None:
        self.calibrated = calibrated  # scores are probabilities
        self._tags = tags
        self._thresholds = np.array(thresholds)
        self.identity = identity  # a text that differs between models

    @property
    def tags(self) -> list[str]:
        """All tags the model knows."""
        return list(self._tags)

    @property
    def classes_(self) -> NDArray[np.str_]:
        """The tags as scikit-learn names them: the columns of `predict` and `predict_proba`."""
        return np.array(self._tags)

    @property
    def thresholds(self) -> dict[str, float]:
        """The score each tag must reach; infinite for a tag it never saw an example of."""
        return dict(zip(self._tags, self._thresholds.tolist(), strict=True))

    @abstractmethod
    def scores(
        self, names: Iterable[str], images: ImageSource | None = None
    ) -> Iterator[ImageResult[NDArray[np.float32]]]:
        """The scores [K] of one image after the other."""

    def tag(self, images: str | Path | Iterable[str | Path]) -> list[Tagging]:
        """Tag image files, or a single one.

        >>> fewtags.load("run").tag(["a.jpg"])[0].tags    # doctest: +SKIP
        ['boat', 'water']
        """
        paths = [images] if isinstance(images, (str, Path)) else images
        return [self.decide(one.name, usable(one)) for one in self.scores(str(path) for path in paths)]

    def predict_proba(self, X: str | Path | Iterable[str | Path] | NDArray[Any]) -> NDArray[np.float32]:
        """Scores [n, K] in 0..1 of image files, or of vectors [n, D] for a model that learned from vectors."""
        found = [usable(one) for one in self.scores(*rows_of(X))]
        return np.stack(found) if found else np.empty((0, len(self._tags)), np.float32)

    def predict(self, X: str | Path | Iterable[str | Path] | NDArray[Any]) -> NDArray[np.int8]:
        """1 where a tag's score reaches its threshold, else 0 [n, K]."""
        return (self.predict_proba(X) >= self._thresholds).astype(np.int8)

    def stream(self, names: Iterable[str], images: ImageSource | None = None) -> Iterator[ImageResult[Tagging]]:
        """The tags of one image after the other, or why one cannot be used."""
        for one in self.scores(names, images):
            tagged = None if one.value is None else self.decide(one.name, one.value)
            yield ImageResult(one.name, tagged, one.problem)

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
            for place, one in enumerate(self.scores(names, catalogue.images)):
                if one.value is None:
                    bad.append((one.name, one.problem))
                else:
                    table[place] = one.value
                progress.advance()
        return table, bad


def given_tags(scores: Scores, thresholds: Scores, tags: Sequence[str]) -> list[str]:
    """The tags whose score [K] reaches their threshold, the surest (furthest above it) first."""
    margin = scores - thresholds
    return [tags[place] for place in np.argsort(-margin, kind="stable") if margin[place] >= 0]


def rows_of(X: str | Path | Iterable[str | Path] | NDArray[Any]) -> tuple[list[str], ImageSource]:
    """Names, and where they are looked up."""
    if isinstance(X, np.ndarray) and X.ndim == 2:
        ids = [str(row) for row in range(len(X))]
        return ids, VectorSource(X, ids)
    return [str(path) for path in ([X] if isinstance(X, (str, Path)) else X)], ImageFiles()


def usable(one: ImageResult[NDArray[np.float32]]) -> NDArray[np.float32]:
    """What was found. Raises UserError for an image that cannot be used."""
    if one.value is None:
        raise UserError(f"{one.name} cannot be used: {one.problem}")
    return one.value
