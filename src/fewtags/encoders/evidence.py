"""Evidence: what frozen backbones see in the windows of one larger picture; see fewtags.encoders.windows.

Several backbones stand side by side. The labelled images choose between pooled vectors, evidence of windows or both,
and what is chosen is reduced to the principal components of the training images.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import interpolate

from fewtags.backbones.base import Backbone
from fewtags.backbones.weights import digest
from fewtags.encoders.base import Box, Encoder, EncoderSettings, Extraction, Images, as_stored
from fewtags.encoders.components import Components, kept_components, restore_components
from fewtags.encoders.inputs import Input, image_input
from fewtags.encoders.runtime import make_engine
from fewtags.encoders.saved import backbone_problem, backbone_state, misfit, restore_backbones
from fewtags.encoders.store import FeatureStore, Stored, store_folder
from fewtags.encoders.windows import GRID, WindowReader, make_readers, regions, square
from fewtags.solvers.bursts import find_bursts
from fewtags.solvers.folds import MAX_LABELLED, MIN_CHOICE, choose_paired, cross_validated
from fewtags.solvers.regression import principal_basis
from fewtags.utils.files import cache_folder
from fewtags.utils.progress import Progress

Blocks = Literal["pooled", "evidence", "both"]
KINDS: tuple[Blocks, ...] = ("both", "evidence", "pooled")
KIND_WORDS = {"both": "both kinds", "evidence": "evidence of windows", "pooled": "pooled vectors"}
READILY = 0.5  # standard errors by which one kind must lead both: on scenery a more cautious choice misses more
STRENGTH = 0.01  # of the regression that tries them; 0.001 to 0.1 make no difference to which is best
ROWS = 512  # images read from the stores at a time
FINE = 8 * GRID  # cells a side on which the maps of several backbones meet
CLASSES = 1000  # of ImageNet
WORD_WEIGHTS = "words.weights"
FAINT = 1e-3  # evidence this small is no different from none


class Choice(NamedTuple):
    """Which features, and the cross-fitted mAP of each kind on the labelled images (nothing: not tried)."""

    blocks: Blocks
    tried: dict[str, float]


class Evidence(Encoder):
    """Window features of one or more backbones, reduced to principal components once `fit` has seen the images."""

    kind: ClassVar[str] = "evidence"
    word_weights: Tensor

    def __init__(self, backbones: Sequence[Backbone], settings: EncoderSettings) -> None:
        super().__init__(settings)
        self.backbones = list(backbones)
        self.name = "+".join(one.name for one in backbones)
        self.readers = nn.ModuleList(make_readers(self.backbones, settings.size, settings.patches))
        self.parts = len(regions(GRID, settings.patches))
        asked = settings.blocks == "choose"
        self.choice = Choice("both" if asked else settings.blocks, {})  # type: ignore[arg-type]
        self.components: Components | None = None
        self.register_buffer("word_weights", None)
        self.width = sum(end - start for reader in self._readers for start, end in reader.columns(self.choice.blocks))

    @property
    def _readers(self) -> list[WindowReader]:
        return list(self.readers)  # type: ignore[arg-type]

    def pictures(self, image: Image.Image) -> tuple[NDArray[np.uint8], ...]:
        """One square [size, size, 3] for all backbones."""
        return (square(image, self.settings.size),)

    def raw(self, *pictures: Tensor) -> Tensor:
        """Pictures [N, size, size, 3] -> the chosen columns of all backbones, then word scores [N, parts, D]."""
        (picture,) = pictures
        return self._joined([reader(picture.permute(0, 3, 1, 2)) for reader in self._readers])

    def finish(self, raw: Tensor) -> Tensor:
        """Rounded as stored, then reduced to components; word scores stay as they are."""
        plain = raw.shape[-1] - self.words
        features = super().finish(raw[..., :plain])
        features = features if self.components is None else self.components(features)
        return torch.cat([features, raw[..., plain:]], dim=-1) if self.words else features

    def joined(self, rows: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        """See Encoder; the rows are those of whole images, then those of patches, one per backbone."""
        count = len(self.readers)
        found = [np.concatenate([row[0] for row in rows[place::count]]) for place in range(count)]
        return self._joined([torch.from_numpy(one) for one in found]).numpy()

    def _joined(self, found: list[Tensor]) -> Tensor:
        """The features [.., width] of every backbone -> chosen columns, then word scores [.., D]."""
        columns = self._columns(found, self.choice.blocks)
        return torch.cat([*columns, self._word_scores(found)] if self.words else columns, dim=-1)

    def read_words(self, weights: Tensor) -> bool:
        """See Encoder; an image-text backbone has scores of its own, others the classes they were trained on."""
        if not any(_can_name(reader) for reader in self._readers):
            return False
        self.word_weights = weights
        self.width += weights.shape[1] - self.words
        self.words = weights.shape[1]
        return True

    def _word_scores(self, found: list[Tensor]) -> Tensor:
        """[.., K]: the mean over backbones and window sizes of the log of the evidence for a tag's classes."""
        weights, scores = self.word_weights, []
        for one, reader in zip(found, self._readers, strict=True):
            kept = as_stored(one) if self.settings.frozen else one
            scores += [kept[..., start:end] for start, end in reader.columns("words")]
            if not reader.tag_count and _can_name(reader):
                evidence = [kept[..., start:end] for start, end in reader.columns("evidence")]
                scores += [torch.log(seen.square() @ weights + FAINT) for seen in evidence]
        return torch.stack(scores).mean(0)

    def name_evidence(self, words: NDArray[np.float32]) -> NDArray[np.float32]:
        """See Encoder: of a thousand classes that look alike, each gets a thousandth."""
        chance = self.word_weights.numpy().mean(0)
        found: NDArray[np.float32] = (np.exp(words) - FAINT - chance) / (1 - chance)
        return found

    def extraction(self, view: str, device: torch.device) -> Extraction:
        """A picture is decoded and resized once for all backbones."""
        engines = [make_engine(reader, device) for reader in self._readers]

        def prepare(image: Image.Image, key: bytes) -> NDArray[np.uint8]:
            return square(image, self.settings.size)

        def compute(pictures: list[NDArray[np.uint8]]) -> list[list[NDArray[np.float32]]]:
            stacked = np.stack(pictures)
            by_image = zip(*(engine(stacked) for engine in engines), strict=True)  # [1 + n, width] per backbone
            return [self._rows(found) for found in by_image]

        return Extraction(prepare, compute, in_threads=all(engine.in_threads for engine in engines))

    def feature_stores(self, view: str) -> Sequence[FeatureStore]:
        """See Encoder; there are no strong views."""
        return self.stores

    def _rows(self, found: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """What goes into each store: the whole image, and the patches apart from it."""
        patches = [one[None, 1:] for one in found] if self.parts > 1 else []
        return [one[None, :1] for one in found] + patches

    def made_from(self, reader: WindowReader, part: str) -> dict[str, object]:
        """All that the features of an image by one backbone depend on beside its bytes."""
        return {
            "backbone": reader.name,
            "weights": digest(reader.backbone),
            "scaling": reader.backbone.scaling,
            "size": self.settings.size,
            "reading": reader.extra_repr() if part == "windows" else reader.of_whole().extra_repr(),
            "kind": part,
        }

    @cached_property
    def stores(self) -> list[FeatureStore]:
        """Of whole images, one per backbone, then of patches: whole images serve every number of patches."""
        kept = {"evidence": 1, **({"windows": self.parts - 1} if self.parts > 1 else {})}
        return [self._store(reader, part, count) for part, count in kept.items() for reader in self._readers]

    def _store(self, reader: WindowReader, part: str, count: int) -> FeatureStore:
        made_from = self.made_from(reader, part)
        return FeatureStore(store_folder(cache_folder(), made_from), (1, count, reader.width), made_from)

    def read(self, keys: Sequence[bytes], blocks: Blocks, whole: bool = False) -> NDArray[np.float16]:
        """Stored columns of these blocks [n, parts, D], or of whole images only [n, 1, D]."""
        return np.concatenate(self._columns(self._read(keys, whole), blocks), axis=-1)

    def _read(self, keys: Sequence[bytes], whole: bool = False) -> list[NDArray[np.float16]]:
        """All that is stored [n, parts, width], by backbone."""
        stores = self.stores[: len(self.readers)] if whole else self.stores
        kept = (stores[place :: len(self.readers)] for place in range(len(self.readers)))
        return [np.concatenate([one.array()[one.rows_of_all(keys)][:, 0] for one in some], axis=1) for some in kept]

    def _columns(self, found: Sequence[Any], blocks: str) -> list[Any]:
        """Some columns [.., width] of every backbone's features, tensors or arrays."""
        wanted = [reader.columns(blocks) for reader in self._readers]
        return [one[..., start:end] for one, some in zip(found, wanted, strict=True) for start, end in some]

    def fit(self, labelled: Images, unlabelled: Images, targets: Tensor, fabric: Fabric) -> None:
        """Choose the kind of features by the labelled images, then the components of all training images."""
        if self.settings.blocks == "choose" and len(labelled.keys) >= MIN_CHOICE and fabric.is_global_zero:
            with Progress("trying features on the labelled images", len(KINDS)) as progress:
                self.choice = self.choose(labelled.keys, targets, progress.advance)
        if fabric.world_size > 1:  # rounding may differ between machines: one of them decides
            self.choice = fabric.broadcast(self.choice)
        if not fabric.is_global_zero:
            fabric.barrier()  # the first process fits and keeps them
        self.components = self._fit_components([*labelled.keys, *unlabelled.keys])
        if fabric.is_global_zero and fabric.world_size > 1:
            fabric.barrier()
        self.width = self.components.count + self.words

    def choose(self, keys: Sequence[bytes], targets: Tensor, tick: Callable[[], None] = lambda: None) -> Choice:
        """By the labelled images: each kind is tried in five folds, several times where labels are few.

        keys and targets [N, K] of the labelled images; tick: called after each kind. Both kinds are taken unless
        another leads by more than chance.
        """
        if not any(reader.mapped for reader in self._readers):
            return Choice("pooled", {})
        first = np.unique(np.array(keys, dtype=object), return_index=True)[1]  # copies would meet in another fold
        few = np.random.default_rng(0).permutation(np.sort(first))[:MAX_LABELLED]
        known = targets[torch.from_numpy(few)].cpu()
        tried: dict[Blocks, NDArray[np.float64]] = {}
        groups: NDArray[np.int64] | None = None
        for kind in KINDS:
            wholes = torch.from_numpy(self.read([keys[row] for row in few], kind, whole=True)[:, 0]).double()
            groups = find_bursts(wholes) if groups is None else groups
            tried[kind] = cross_validated(principal_basis(coordinates(wholes)), known, STRENGTH, groups)
            tick()
        if not bool((known == 1).any()):
            return Choice("both", {})
        means: dict[str, float] = {name: float(np.nanmean(one)) for name, one in tried.items()}
        return Choice(choose_paired(tried, "both", READILY), means)

    def _fit_components(self, keys: Sequence[bytes]) -> Components:
        blocks = self.choice.blocks
        made_from = [self.made_from(reader, "evidence") for reader in self._readers]

        def read(some: Sequence[bytes]) -> NDArray[np.float16]:
            parts = [self.read(some[start : start + ROWS], blocks, whole=True) for start in range(0, len(some), ROWS)]
            return np.concatenate(parts)[:, 0]

        return kept_components(keys, read, self.settings.components, blocks, [made_from, blocks])

    def stored(self, view: str, images: Images) -> Stored:
        """Reduced to components, in memory."""
        if self.components is None:
            raise RuntimeError("fit comes first")
        keys = images.keys
        found = np.empty((len(keys), 1, self.parts, self.width), np.float32)
        plain = self.components.count
        for start in range(0, len(keys), ROWS):
            rows = self._read(keys[start : start + ROWS])
            chosen = np.concatenate(self._columns(rows, self.choice.blocks), axis=-1)
            found[start : start + ROWS, 0, :, :plain] = self.components.project(chosen)
            if self.words:
                scores = self._word_scores([torch.from_numpy(one).float() for one in rows])
                found[start : start + ROWS, 0, :, plain:] = scores.numpy()
        return Stored(found, np.arange(len(keys)))

    def learned(self) -> dict[str, Any] | None:
        """The kind of features, and what was tried."""
        return self.choice._asdict()

    def notes(self) -> list[str]:
        """How the kind of features was chosen."""
        blocks, tried = self.choice
        if self.settings.blocks != "choose":
            return []
        if not tried and blocks == "pooled":
            return ["features: pooled vectors, because the backbone gives no map to read windows of"]
        if not tried:
            return ["too few labelled images to choose features by: pooled vectors and evidence of windows are used"]
        figures = ", ".join(f"{KIND_WORDS[kind]} {100 * value:.1f}" for kind, value in tried.items())
        return [f"features: {KIND_WORDS[blocks]}, by five-fold mAP on the labelled images ({figures})"]

    def identity(self) -> str:
        """Of the components."""
        return "" if self.components is None else self.components.identity()

    def state(self) -> dict[str, Any]:
        """See Encoder."""
        count = None if self.components is None else self.components.count
        fitted = {"blocks": self.choice.blocks, "components": count, "words": self.words or None}
        return backbone_state(self.backbones, self.settings) | fitted

    def tensors(self) -> dict[str, Tensor]:
        """Backbones, components, and which classes a tag's name leads to."""
        fitted = {} if self.components is None else self.components.tensors()
        return super().tensors() | fitted | ({WORD_WEIGHTS: self.word_weights} if self.words else {})

    @classmethod
    def state_problem(cls, state: Mapping[str, Any]) -> str:
        """See Encoder."""
        return backbone_problem(state)

    @classmethod
    def restore(cls, state: Mapping[str, Any], tensors: Mapping[str, Tensor], file: Path) -> "Evidence":
        """See Encoder."""
        encoder = cls(*restore_backbones(state, tensors, file))
        if state["components"]:
            encoder.components = restore_components(tensors, encoder.width, state["components"], file)
            encoder.width = encoder.components.count
        if state["words"]:
            weights = tensors.get(WORD_WEIGHTS)
            if weights is None or weights.shape != (CLASSES, state["words"]) or not encoder.read_words(weights):
                raise misfit(file, "the classes of its tags' names are missing or of another shape")
        return encoder

    def with_backbones(self, backbones: Sequence[Backbone]) -> "Evidence":
        """See Encoder."""
        other = Evidence(backbones, self.settings)
        other.choice, other.components, other.width = self.choice, self.components, self.width
        other.word_weights, other.words = self.word_weights, self.words
        return other

    def inputs(self) -> dict[str, Input]:
        """One picture."""
        return {"bicubic": image_input("bicubic", self.settings.view_spec())}

    def boxes(self) -> list[Box]:
        """Patches are squares of whole cells of the map."""
        return [
            (left / GRID, top / GRID, (left + extent) / GRID, (top + extent) / GRID)
            for top, left, extent in regions(GRID, self.settings.patches)
        ]

    def is_made_of_maps(self, pictures: Sequence[Tensor]) -> bool:
        """Where every backbone gives one."""
        return all(reader.mapped for reader in self._readers)

    def heat(self, contributions: list[Tensor], part: int) -> NDArray[np.float32]:
        """One map for all parts, several backbones: what each adds, on one fine grid."""
        fine = [
            interpolate((one * one[0].numel())[:, None], size=(FINE, FINE), mode="bilinear")[0, 0]
            for one in contributions
        ]
        total: NDArray[np.float32] = torch.stack(fine).sum(0).numpy()
        left, top, right, bottom = (round(share * FINE) for share in self.boxes()[part])
        return total[top:bottom, left:right]


def _can_name(reader: WindowReader) -> bool:
    """Whether a backbone knows tags by their names: by its text tower, or as ImageNet's classes."""
    backbone = reader.backbone
    if getattr(backbone, "reads_text", False):
        return bool(reader.tag_count)
    return reader.mapped and backbone.classifier is not None and backbone.classifier.out_features == CLASSES


def coordinates(x: Tensor) -> Tensor:
    """Vectors [n, r] with the distances of x [n, D] and r at most n; of mean square length one and mean zero."""
    x = x - x.mean(0)
    if x.shape[1] > len(x):
        values, vectors = torch.linalg.eigh(x @ x.T)
        x = vectors * values.clamp(min=0).sqrt()
    return x / x.square().sum(1).mean().sqrt().clamp(min=1e-12)
