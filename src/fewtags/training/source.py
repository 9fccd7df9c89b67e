"""Where batches come from: pixels, or stored features. Nothing else in the loop knows the difference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewtags.data.catalogue import Catalogue
from fewtags.encoders.store import Stored
from fewtags.encoders.views import ViewSpec, generator, make_views
from fewtags.training.plan import StepRows

Part = Literal["labelled", "unlabelled", "test", "held_out"]
Kind = Literal["plain", "weak", "strong"]
KIND_CODES = {"plain": 0, "weak": 1, "strong": 2}
PART_CODES = {"labelled": 0, "unlabelled": 1, "test": 2, "held_out": 3}


class Views(NamedTuple):
    """One view of each of B images: pixels or features."""

    whole: Tensor  # [B, *x]
    patches: Tensor | None = None  # [B, n, *x]

    def to(self, device: torch.device) -> "Views":
        """The same on another device."""
        return Views(
            self.whole.to(device, non_blocking=True),
            None if self.patches is None else self.patches.to(device, non_blocking=True),
        )

    def followed_by(self, other: "Views") -> "Views":
        """The images of both, one after the other."""
        patches = None
        if self.patches is not None and other.patches is not None:
            patches = torch.cat([self.patches, other.patches])
        return Views(torch.cat([self.whole, other.whole]), patches)


class Batch(NamedTuple):
    """What one step reads. The unlabelled parts are missing in the warm-up."""

    labelled: Views
    weak: Views | None  # unlabelled images, for the teacher
    strong: Views | None  # the same images, for the student


@dataclass(frozen=True)
class Epoch:
    """What the views of an epoch depend on."""

    seed: int
    stage: int
    number: int
    labelled_view: Kind
    cutout: bool
    unlabelled: bool = True  # whether steps have unlabelled images; a process's share of them may still be empty


class Source(Protocol):
    """Gives views of the images of a split, addressed by their position within a part."""

    def steps(self, plan: Sequence[StepRows], epoch: Epoch) -> Iterator[Batch]:
        """The batches of these steps, in order."""
        ...

    def sweep(self, part: Part, rows: NDArray[np.int64], kind: Kind, epoch: Epoch) -> Iterator[Views]:
        """Views of these rows of a part, in order, in batches of any size; for no rows one empty batch."""
        ...


class FeatureSource:
    """Features of a frozen backbone that were computed once.

    The plain view stands for the weak one: a flip changes frozen features little, and one pass over the images
    is saved. Where no strong draws are kept it stands for them too.
    """

    def __init__(self, plain: dict[Part, Stored], strong: dict[Part, Stored] | None = None) -> None:
        self._stored = {"plain": plain, "weak": plain, "strong": strong or plain}

    def count(self, part: Part) -> int:
        """How many images a part has."""
        return len(self._stored["plain"][part].rows)

    def last(self, part: Part, count: int) -> NDArray[np.float32]:
        """The last numbers [n, count] of the plain whole view of every image of a part."""
        features, rows = self._stored["plain"][part]
        return np.asarray(features[rows, 0, 0, -count:], np.float32)

    def without(self, out: NDArray[np.bool_]) -> "FeatureSource":
        """The same, but these of the labelled images [N] are no longer among them: they are the test images."""
        made: list[dict[Part, Stored]] = []
        for stored in (self._stored["plain"], self._stored["strong"]):
            parts = dict(stored)
            if "labelled" in stored:
                features, rows = stored["labelled"]
                parts["labelled"], parts["test"] = Stored(features, rows[~out]), Stored(features, rows[out])
            made.append(parts)
        return FeatureSource(*made)

    def statistics(self, batch: int = 1024) -> tuple[Tensor, Tensor]:
        """The mean [width] of the training images' whole views, and their mean square distance to it [width]."""
        total, squares, count = np.zeros(1), np.zeros(1), 0
        for part in ("labelled", "unlabelled"):
            features, rows = self._stored["plain"][part]
            for start in range(0, len(rows), batch):
                some = features[rows[start : start + batch], 0, 0].astype(np.float64)
                total, squares, count = total + some.sum(0), squares + (some**2).sum(0), count + len(some)
        centre = total / max(1, count)
        spread = np.maximum(squares / max(1, count) - centre**2, 0.0)
        return torch.from_numpy(centre).float(), torch.from_numpy(spread)

    def steps(self, plan: Sequence[StepRows], epoch: Epoch) -> Iterator[Batch]:
        """See Source."""
        for step in plan:
            labelled = self._views("labelled", step.labelled, epoch.labelled_view, epoch)
            if not epoch.unlabelled:
                yield Batch(labelled, None, None)
                continue
            yield Batch(
                labelled,
                self._views("unlabelled", step.unlabelled, "weak", epoch),
                self._views("unlabelled", step.unlabelled, "strong", epoch),
            )

    def sweep(
        self, part: Part, rows: NDArray[np.int64], kind: Kind, epoch: Epoch, batch: int = 1024
    ) -> Iterator[Views]:
        """See Source."""
        for start in range(0, max(1, len(rows)), batch):
            yield self._views(part, rows[start : start + batch], kind, epoch)

    def _views(self, part: Part, rows: NDArray[np.int64], kind: Kind, epoch: Epoch) -> Views:
        stored, where = self._stored[kind][part]
        _, draws, parts, _ = stored.shape
        if draws == 1:
            chosen = stored[where[rows], 0]
        else:  # every view of every image takes one of its draws, anew in each epoch
            rng = np.random.default_rng([epoch.seed, epoch.stage, epoch.number, PART_CODES[part]])
            draw = rng.integers(draws, size=(len(where), parts), dtype=np.int8)[rows]
            chosen = stored[where[rows][:, None], draw, np.arange(parts)]
        features = torch.from_numpy(np.ascontiguousarray(chosen)).float()
        return Views(features[:, 0], features[:, 1:] if parts > 1 else None)


class PixelSource:
    """Images decoded and cut anew for every batch, by `workers` processes beside the training one."""

    def __init__(
        self, catalogue: Catalogue, rows: dict[Part, NDArray[np.int64]], spec: ViewSpec, workers: int = 0
    ) -> None:
        self._catalogue = catalogue
        self._rows = rows
        self._spec = spec
        self._workers = workers

    def steps(self, plan: Sequence[StepRows], epoch: Epoch) -> Iterator[Batch]:
        """See Source."""
        wanted: list[list[tuple[Part, NDArray[np.int64], Kind]]] = []
        for step in plan:
            wanted.append([("labelled", step.labelled, epoch.labelled_view)])
            if epoch.unlabelled:
                wanted[-1] += [
                    ("unlabelled", step.unlabelled, "weak"),
                    ("unlabelled", step.unlabelled, "strong"),
                ]
        for views in self._load(wanted, epoch):
            yield Batch(*views) if len(views) == 3 else Batch(views[0], None, None)

    def sweep(self, part: Part, rows: NDArray[np.int64], kind: Kind, epoch: Epoch, batch: int = 32) -> Iterator[Views]:
        """See Source."""
        wanted = [[(part, rows[start : start + batch], kind)] for start in range(0, max(1, len(rows)), batch)]
        for views in self._load(wanted, epoch):
            yield views[0]

    def _load(self, wanted: "list[list[tuple[Part, NDArray[np.int64], Kind]]]", epoch: Epoch) -> Iterator[list[Views]]:
        loader = torch.utils.data.DataLoader(
            _Pixels(self._catalogue, self._rows, self._spec, wanted, epoch),
            batch_size=None,
            num_workers=min(self._workers, len(wanted)),
            # iter() of a loader draws from the global generator unless it has one of its own
            generator=torch.Generator().manual_seed(0),
        )
        for batch in loader:
            yield [Views(whole, patches) for whole, patches in batch]


class _Pixels(torch.utils.data.Dataset[list[tuple[Tensor, Tensor | None]]]):
    """Batch i of a list of wanted views; randomness depends on (seed, stage, epoch, image, view) alone."""

    def __init__(
        self,
        catalogue: Catalogue,
        rows: dict[Part, NDArray[np.int64]],
        spec: ViewSpec,
        wanted: "list[list[tuple[Part, NDArray[np.int64], Kind]]]",
        epoch: Epoch,
    ) -> None:
        self.catalogue, self.rows, self.wanted, self.epoch = catalogue, rows, wanted, epoch
        self.spec = spec if epoch.cutout == spec.cutout else _with_cutout(spec, epoch.cutout)

    def __len__(self) -> int:
        return len(self.wanted)

    def __getitem__(self, item: int) -> list[tuple[Tensor, Tensor | None]]:
        return [self._views(*one) for one in self.wanted[item]]

    def _views(self, part: Part, positions: NDArray[np.int64], kind: Kind) -> tuple[Tensor, Tensor | None]:
        made = []
        for row in self.rows[part][positions]:
            image = self.catalogue.images.image(self.catalogue.names[int(row)])
            e = self.epoch
            rng = generator(e.seed, e.stage, e.number, int(row), KIND_CODES[kind])
            made.append(make_views(image, kind, self.spec, rng))
        size, side = self.spec.size, self.spec.patch_side
        whole = np.stack([one for one, _ in made]) if made else np.empty((0, size, size, 3), np.uint8)
        wholes = torch.from_numpy(whole).permute(0, 3, 1, 2)  # stays channels-last in memory
        if self.spec.patches == 1:
            return wholes, None
        if not made:
            return wholes, torch.empty((0, self.spec.patches**2, 3, side, side), dtype=torch.uint8)
        patches = torch.from_numpy(np.stack([many for _, many in made])).permute(0, 1, 4, 2, 3)
        return wholes, patches


def _with_cutout(spec: ViewSpec, cutout: bool) -> ViewSpec:
    from dataclasses import replace

    return replace(spec, cutout=cutout)
