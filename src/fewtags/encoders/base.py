"""What an image becomes: the one contract between pixels and all that learns from them.

An encoder says what it needs of the pixels, how backbones turn them into features, what it learns from the training
images itself, where each part of its features lies in the image, and what is kept of it in a model. An encoder is a
file of this folder, found by its name, which is the word for it in `--features` and in model.json (see kinds.py).
"""

import importlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from fewtags.backbones.base import Backbone
from fewtags.data.catalogue import ImageResult, ImageSource
from fewtags.data.vectors import VectorSource
from fewtags.encoders.inputs import Input
from fewtags.encoders.store import FeatureStore, Stored
from fewtags.encoders.views import PatchSize, PatchSource, ViewSpec
from fewtags.errors import BadImage, UserError
from fewtags.utils.threads import batched, cores, map_in_order

Box = tuple[float, float, float, float]  # left, top, right, bottom of a part, in 0..1 of the image
Rows = list[NDArray[np.float32]]  # an image's row of each store
GROUP = 4  # images a thread takes at a time
BATCH = 64  # images whose features are finished together


@dataclass(frozen=True)
class EncoderSettings:
    """What an encoder may be told; each kind reads what concerns it."""

    size: int = 224  # px of the side of a square input
    patches: int = 1  # per side
    patch_source: PatchSource = "resized"
    patch_size: PatchSize = "full"
    cutout: bool = True  # in strong views
    strong_draws: int = 2  # strong views kept of every image
    blocks: str = "both"  # of window features: "pooled", "evidence", "both", or "choose" by the labelled images
    components: int = 1000  # numbers that long vectors are reduced to
    frozen: bool = True  # features are stored in sixteen bits, and a model reads what it learned from

    def view_spec(self) -> ViewSpec:
        """How views are cut."""
        return ViewSpec(self.size, self.patches, self.patch_source, self.patch_size, self.cutout)


class Images(NamedTuple):
    """Some images of a data set."""

    source: ImageSource
    names: Sequence[str]
    keys: Sequence[bytes]  # of their content, under which features are kept


class Extraction(NamedTuple):
    """What is computed of every image, by networks that are open in this process; see executors.py for others."""

    prepare: Callable[[Image.Image, bytes], Any]  # an image and the key of its content -> what the backbones are shown
    compute: Callable[[list[Any]], list[Rows]]  # several of these -> each image's row of each store
    in_threads: bool  # whether `compute` may run in several threads, one core each


class Encoder(nn.Module):
    """Images -> features [N, parts, width]: one vector for the whole image and one for every patch."""

    kind: ClassVar[str]
    draws_views: ClassVar[bool] = False  # whether it can keep strong views beside the plain one
    backbones: Sequence[Backbone]
    name: str  # of the backbones, with + between them
    width: int  # numbers of a part, as the network reads them
    words: int = 0  # how many of the last of them are word scores, one per tag
    parts: int  # the whole image and its patches

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        self.settings = settings

    # --- one image after the other -------------------------------------------------------------------------

    @abstractmethod
    def pictures(self, image: Image.Image) -> tuple[NDArray[np.uint8], ...]:
        """What `forward` reads of one RGB image."""

    @abstractmethod
    def raw(self, *pictures: Tensor) -> Tensor:
        """Pictures of N images -> features [N, parts, D] before anything that was learned is applied to them."""

    def read_words(self, weights: Tensor) -> bool:
        """Add one word score per tag to every part: how much the backbones see of the classes that its name leads to.

        weights [1000, K] of the ImageNet classes. False where the backbones cannot name what they see.
        """
        return False

    def name_evidence(self, words: NDArray[np.float32]) -> NDArray[np.float32]:
        """Word scores [n, K] -> how much is seen of a tag's classes beyond what chance gives them, at most 1."""
        raise TypeError(f"{type(self).__name__} reads no words")

    def finish(self, raw: Tensor) -> Tensor:
        """Features as stored [N, parts, D] -> as the network reads them [N, parts, width]."""
        return as_stored(raw) if self.settings.frozen else raw

    def forward(self, *pictures: Tensor) -> Tensor:
        """Pictures of N images -> features [N, parts, width], by torch."""
        return self.finish(self.raw(*pictures))

    @torch.inference_mode()
    def encode(
        self, images: ImageSource, names: Iterable[str], device: torch.device
    ) -> Iterator[list[ImageResult[NDArray[np.float32]]]]:
        """The features [parts, width] of many images by the fastest engine at hand, in small batches, in order."""
        if isinstance(images, VectorSource) and not images.has_pictures:
            raise UserError("this model reads images, not vectors; give it image files")
        extraction = self.extraction("plain", device)
        wanted = ((name, b"") for name in names)
        for batch in batched(run_extraction(extraction, images, wanted), BATCH):
            rows = [self.joined(one.value) for one in batch if one.value is not None]
            finished = iter(self.finish(torch.from_numpy(np.stack(rows))).float().numpy() if rows else ())
            yield [ImageResult(one.name, None if one.value is None else next(finished), one.problem) for one in batch]

    def joined(self, rows: Rows) -> NDArray[np.float32]:
        """An image's row of every store -> what `finish` reads [parts, D]."""
        whole: NDArray[np.float32] = rows[0][0]
        return whole

    # --- training images: computed once, kept, learned from ------------------------------------------------

    @abstractmethod
    def extraction(self, view: str, device: torch.device) -> Extraction:
        """How "plain" or "strong" views of images become rows; opens the networks."""

    @abstractmethod
    def feature_stores(self, view: str) -> Sequence[FeatureStore]:
        """Where these rows are kept; none: there is nothing to extract."""

    def fit(self, labelled: Images, unlabelled: Images, targets: Tensor, fabric: Fabric) -> None:
        """Learn from training images that were extracted before; targets [N, K] of the labelled ones."""

    @abstractmethod
    def stored(self, view: str, images: Images) -> Stored:
        """The features [n, draws, parts, width] of images that were extracted before."""

    def learned(self) -> dict[str, Any] | None:
        """What `fit` decided, for result.json."""
        return None

    def notes(self) -> list[str]:
        """What `fit` decided, in sentences."""
        return []

    def identity(self) -> str:
        """Changes with what `fit` learned: a resumed run must read the same features."""
        return ""

    # --- in a model ----------------------------------------------------------------------------------------

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What model.json says of it; `restore` reads it."""

    def tensors(self) -> dict[str, Tensor]:
        """What model.safetensors keeps of it."""
        return {
            f"backbone.{place}.{name}": value
            for place, backbone in enumerate(self.backbones)
            for name, value in backbone.state_dict().items()
        }

    @classmethod
    @abstractmethod
    def state_problem(cls, state: Mapping[str, Any]) -> str:
        """Why `restore` cannot use what model.json says; empty if it can."""

    @classmethod
    @abstractmethod
    def restore(cls, state: Mapping[str, Any], tensors: Mapping[str, Tensor], file: Path) -> "Encoder":
        """The encoder that `state` and `tensors` describe; `file` is named where they do not fit."""

    @abstractmethod
    def with_backbones(self, backbones: Sequence[Backbone]) -> "Encoder":
        """The same, on other backbones of the same shape."""

    @abstractmethod
    def inputs(self) -> dict[str, Input]:
        """What an exported model reads of one image, by name."""

    def from_inputs(self, *inputs: Tensor) -> Tensor:
        """These inputs -> features [N, parts, width], in steps that can be traced."""
        return self.forward(*inputs)

    # --- where in the image ----------------------------------------------------------------------------------

    @abstractmethod
    def boxes(self) -> list[Box]:
        """Where the whole image and each patch lie."""

    def is_made_of_maps(self, pictures: Sequence[Tensor]) -> bool:
        """Whether features come from spatial maps of the backbones, so that places in the image can be told apart."""
        return False

    def heat(self, contributions: list[Tensor], part: int) -> NDArray[np.float32]:
        """What the places of each map [B, h, w] add to a logit -> the same over the whole image or one patch."""
        raise TypeError(f"{type(self).__name__} reads no maps")


def run_extraction(
    extraction: Extraction, images: ImageSource, wanted: Iterable[tuple[str, bytes]]
) -> Iterator[ImageResult[Rows]]:
    """For every (name, key) in turn an image's row of each store, or why it cannot be used; by threads."""

    def work(group: list[tuple[str, bytes]]) -> list[ImageResult[Any]]:
        return (extract_group if extraction.in_threads else _prepared)(extraction, images, group)

    for made in map_in_order(work, batched(wanted, GROUP), cores()):
        yield from (made if extraction.in_threads else _computed(extraction, made))


def extract_group(
    extraction: Extraction, images: ImageSource, group: Iterable[tuple[str, bytes]]
) -> list[ImageResult[Rows]]:
    """The same for a few images at once, in the thread that asks: the unit of work of every executor."""
    return _computed(extraction, _prepared(extraction, images, group))


def _prepared(
    extraction: Extraction, images: ImageSource, group: Iterable[tuple[str, bytes]]
) -> list[ImageResult[Any]]:
    """What the backbones are shown of each image."""
    made: list[ImageResult[Any]] = []
    for name, key in group:
        try:
            made.append(ImageResult(name, extraction.prepare(images.image(name), key)))
        except BadImage as error:
            made.append(ImageResult(name, None, str(error)))
    return made


def _computed(extraction: Extraction, made: list[ImageResult[Any]]) -> list[ImageResult[Rows]]:
    good = [one.value for one in made if one.value is not None]
    rows = iter(extraction.compute(good) if good else ())
    return [ImageResult(one.name, None if one.value is None else next(rows), one.problem) for one in made]


def as_stored(features: Tensor) -> Tensor:
    """Rounded to the sixteen bits in which features are stored: a model reads what it learned from."""
    return features.half().float()


def find_encoder(kind: str) -> type[Encoder]:
    """The encoder of this name."""
    module = importlib.import_module(f"{__package__}.{kind}")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Encoder) and value.__module__ == module.__name__
    ]
    (encoder,) = found
    return encoder


def make_encoder(kind: str, backbones: Sequence[Backbone], settings: EncoderSettings) -> Encoder:
    """The encoder of this name on backbones."""
    return find_encoder(kind)(backbones, settings)  # type: ignore[call-arg,arg-type]
