"""From a catalogue to a source of batches: features computed once and kept, or images checked and read as pixels."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from fewtags.backbones.base import Backbone
from fewtags.data.catalogue import Catalogue, ImageSource, Role
from fewtags.encoders.components import Components
from fewtags.encoders.evidence import KINDS, Choice, EvidenceTable
from fewtags.encoders.forward import FrozenForward, Wanted, store_folder
from fewtags.encoders.store import FeatureStore
from fewtags.encoders.windows import make_readers
from fewtags.errors import BadImage, Fault
from fewtags.solvers.folds import MIN_LABELLED
from fewtags.training.loop import Targets
from fewtags.training.recipe import Recipe
from fewtags.training.source import FeatureSource, Part, PixelSource, Source, Stored
from fewtags.utils.files import cache_folder
from fewtags.utils.progress import Progress
from fewtags.utils.stopping import StopRequest

KEEP_EVERY = 64  # images whose features are written at once; what a kill can cost
ROLES: dict[Part, Role] = {
    "labelled": Role.LABELLED,
    "unlabelled": Role.UNLABELLED,
    "test": Role.TEST,
    "held_out": Role.HELD_OUT,
}
KEPT = "stopped; the features computed so far are kept, the same command goes on from there"


class Supply(NamedTuple):
    """What the network will read."""

    source: Source
    width: int  # numbers of a frozen view
    choice: Choice | None = None  # of evidence features: which kind, and why
    components: Components | None = None  # and what they were shrunk by

    def digest(self) -> str:
        """Of what the features were made into: a resumed run must read the same."""
        if self.components is None:
            return ""
        return hashlib.sha256(self.components.axes.numpy().tobytes()).hexdigest()[:16]


@dataclass(frozen=True)
class Prepared:
    """All that the loop reads."""

    catalogue: Catalogue  # without the images that cannot be used
    supply: Supply
    targets: Targets
    bad: list[tuple[str, str]]  # (image, reason)
    keys: list[bytes]  # of the content of every image

    @property
    def content(self) -> str:
        """A digest of the bytes of all images."""
        return hashlib.sha256(b"".join(self.keys)).hexdigest()


@dataclass(frozen=True)
class Preparation:
    """What preparing needs to know beside the catalogue."""

    backbones: Sequence[Backbone]
    recipe: Recipe
    patches: int
    uses_unlabelled: bool
    draws_views: bool
    workers: int
    fabric: Fabric
    stop: StopRequest


def prepare(catalogue: Catalogue, how: Preparation) -> Prepared:
    """Read every image, leave out the bad ones, and build the source that the recipe asks for."""
    way, keys, bad = look_at(catalogue, how)
    good = np.array([row for row in range(len(catalogue)) if row not in bad], dtype=np.int64)
    reasons = [(catalogue.names[row], reason) for row, reason in sorted(bad.items())]
    catalogue, keys = catalogue.take(good), [keys[row] for row in good]
    return Prepared(catalogue, way.supply(catalogue, keys), targets_of(catalogue), reasons, keys)


def look_at(catalogue: Catalogue, how: Preparation) -> "tuple[_Way, list[bytes], dict[int, str]]":
    """Read every image once and keep what frozen backbones say of it; the way, the images' keys, the bad ones."""
    bad: dict[int, str] = {}
    keys = fingerprints(catalogue, bad)
    way = _Pixels(how) if how.recipe.tune == "all" else WAYS[how.recipe.features](how)
    way.look(catalogue, keys, bad)
    return way, keys, bad


class _Way(Protocol):
    """How images become what a network reads: `look` at all of them once, then `supply` the good ones."""

    def look(self, catalogue: Catalogue, keys: list[bytes], bad: dict[int, str]) -> None: ...
    def supply(self, catalogue: Catalogue, keys: list[bytes]) -> Supply: ...


class _Pixels:
    def __init__(self, how: Preparation) -> None:
        self._how = how

    def look(self, catalogue: Catalogue, keys: list[bytes], bad: dict[int, str]) -> None:
        find_undecodable(catalogue, bad, self._how)

    def supply(self, catalogue: Catalogue, keys: list[bytes]) -> Supply:
        how = self._how
        rows = {part: catalogue.rows(role) for part, role in ROLES.items()}
        source = PixelSource(catalogue, rows, how.recipe.view_spec(how.patches), how.workers)
        return Supply(source, how.backbones[0].width)


class _Crops:
    """The paper's views: the whole image and its patches, each with a forward of its own."""

    def __init__(self, how: Preparation) -> None:
        self._how = how
        forward = FrozenForward(how.backbones[0], how.recipe.view_spec(how.patches), how.fabric.device)
        self._crops = {
            kind: crops_of(forward, kind, how.recipe.strong_draws if kind == "strong" else 1)
            for kind in _views_needed(how)
        }

    def look(self, catalogue: Catalogue, keys: list[bytes], bad: dict[int, str]) -> None:
        for kind, parts in _views_needed(self._how).items():
            rows = np.concatenate([catalogue.rows(ROLES[part]) for part in parts])
            fill(self._crops[kind], catalogue, keys, rows, bad, self._how)

    def supply(self, catalogue: Catalogue, keys: list[bytes]) -> Supply:
        stored = {
            kind: {part: _stored(self._crops[kind].stores[0], keys_of(part, catalogue, keys)) for part in parts}
            for kind, parts in _views_needed(self._how).items()
        }
        return Supply(FeatureSource(stored["plain"], stored.get("strong")), self._how.backbones[0].width)


class _Evidence:
    """Windows of one larger map; see fewtags.encoders.windows."""

    def __init__(self, how: Preparation) -> None:
        self._how = how
        size = how.recipe.size
        self._table = EvidenceTable(make_readers(how.backbones, size, how.patches), size, how.fabric.device)

    def look(self, catalogue: Catalogue, keys: list[bytes], bad: dict[int, str]) -> None:
        wanted = Features(self._table.stores, "windows to features", self._table.compute)
        fill(wanted, catalogue, keys, np.arange(len(catalogue)), bad, self._how)

    def supply(self, catalogue: Catalogue, keys: list[bytes]) -> Supply:
        recipe, table = self._how.recipe, self._table
        mine: dict[Part, list[bytes]] = {part: keys_of(part, catalogue, keys) for part in ROLES}
        for store in table.stores:
            _stored(store, keys)
        fabric = self._how.fabric
        choice = Choice(recipe.blocks, {}) if recipe.blocks != "choose" else Choice("both", {})
        if recipe.blocks == "choose" and len(mine["labelled"]) >= MIN_LABELLED and fabric.is_global_zero:
            with Progress("trying features on the labelled images", len(KINDS)) as progress:
                choice = table.choose(mine["labelled"], targets_of(catalogue).labelled, progress.advance)
        if fabric.world_size > 1:  # rounding may differ between machines: one of them decides
            choice = fabric.broadcast(choice)
        with Progress("components of the features", 1 + len(ROLES), show=fabric.is_global_zero) as progress:
            if not fabric.is_global_zero:
                fabric.barrier()  # the first process fits and keeps them
            components = table.components(mine["labelled"] + mine["unlabelled"], choice.blocks, recipe.components)
            if fabric.is_global_zero and fabric.world_size > 1:
                fabric.barrier()
            progress.advance()
            stored: dict[Part, Stored] = {}
            for part, some in mine.items():
                stored[part] = Stored(table.project(some, choice.blocks, components), np.arange(len(some)))
                progress.advance()
        return Supply(FeatureSource(stored), components.axes.shape[1], choice, components)


WAYS: dict[str, Callable[[Preparation], _Way]] = {"crops": _Crops, "evidence": _Evidence}


def keys_of(part: Part, catalogue: Catalogue, keys: list[bytes]) -> list[bytes]:
    """The contents of the images of a part."""
    return [keys[row] for row in catalogue.rows(ROLES[part])]


@dataclass(frozen=True)
class Features:
    """What one pass over the images gives, and where it is kept."""

    stores: Sequence[FeatureStore]
    what: str  # said while it is computed
    compute: Callable[[ImageSource, Iterable[Wanted]], Iterator[list[NDArray[np.float32]] | BadImage]]


def crops_of(forward: FrozenForward, kind: str, draws: int) -> Features:
    """Pooled vectors of the whole image and its patches, one kind of view."""

    def compute(images: ImageSource, wanted: Iterable[Wanted]) -> Iterator[list[NDArray[np.float32]] | BadImage]:
        for one in forward.features(images, wanted, kind, draws):
            yield one if isinstance(one, BadImage) else [one]

    made_from = forward.made_from(kind, draws)
    shape = (draws, forward.parts, forward.backbone.width)
    store = FeatureStore(store_folder(cache_folder(), made_from), shape, made_from)
    return Features([store], f"{kind} views to features", compute)


def targets_of(catalogue: Catalogue) -> Targets:
    """Labels for training, and what is known of the other images for measuring."""
    known = {part: torch.from_numpy(catalogue.targets[catalogue.rows(role)]) for part, role in ROLES.items()}
    truth, test = known["unlabelled"], known["test"]
    return Targets(
        labelled=known["labelled"],
        unlabelled=len(truth),
        truth=truth if bool((truth >= 0).any()) else None,
        test=test if bool((test == 1).any()) else None,
        held_out=known["held_out"] if len(known["held_out"]) else None,
    )


def fingerprints(catalogue: Catalogue, bad: dict[int, str]) -> list[bytes]:
    """The content key of every image; unreadable files go to `bad` and get an empty key."""
    keys = []
    with Progress("reading the images", len(catalogue)) as progress:
        for row, name in enumerate(catalogue.names):
            try:
                keys.append(catalogue.images.fingerprint(name))
            except BadImage as error:
                bad[row] = str(error)
                keys.append(b"")
            progress.advance()
    return keys


def fill(
    features: Features,
    catalogue: Catalogue,
    keys: list[bytes],
    rows: NDArray[np.int64],
    bad: dict[int, str],
    how: Preparation,
) -> None:
    """Compute the features of these rows that the store does not hold yet."""
    usable = [int(row) for row in rows if int(row) not in bad]
    there = np.stack([store.rows([keys[row] for row in usable]) for store in features.stores]).min(axis=0)
    missing = list({keys[row]: row for row, place in zip(usable, there, strict=True) if place < 0}.values())
    # shared out by content: a process that is late finds some rows of the others kept already
    rank, processes = how.fabric.global_rank, how.fabric.world_size
    mine = [row for row in missing if int.from_bytes(keys[row][:4], "big") % processes == rank]
    found = features.compute(catalogue.images, (Wanted(catalogue.names[row], keys[row]) for row in mine))
    waiting: dict[bytes, list[NDArray[np.float32]]] = {}
    unusable: dict[bytes, str] = {}
    with Progress(features.what, len(mine), show=how.fabric.is_global_zero) as progress:
        for row, one in zip(mine, found, strict=True):
            if isinstance(one, BadImage):
                unusable[keys[row]] = str(one)
            else:
                waiting[keys[row]] = one
            if len(waiting) >= KEEP_EVERY:
                _keep(features.stores, waiting)
                how.stop.check(KEPT)
            progress.advance()
    _keep(features.stores, waiting)
    bad |= {row: unusable[keys[row]] for row in usable if keys[row] in unusable}  # all files with that content
    if how.fabric.world_size > 1:
        how.fabric.barrier()
        for store in features.stores:
            store.refresh()
        share_bad(bad, how.fabric)


def find_undecodable(catalogue: Catalogue, bad: dict[int, str], how: Preparation) -> None:
    """Decode every image once before training reads pixels, so that a bad one cannot stop it hours in."""
    mine = range(how.fabric.global_rank, len(catalogue), how.fabric.world_size)

    def reason(row: int) -> str:
        try:
            catalogue.images.image(catalogue.names[row])
        except BadImage as error:
            return str(error)
        return ""

    with (
        ThreadPoolExecutor() as pool,
        Progress("checking the images", len(mine), show=how.fabric.is_global_zero) as progress,
    ):
        for row, why in zip(mine, pool.map(reason, mine), strict=True):
            if why:
                bad[row] = why
            how.stop.check("stopped before training began; the same command starts again")
            progress.advance()
    share_bad(bad, how.fabric)


def share_bad(bad: dict[int, str], fabric: Fabric) -> None:
    """Let every process know the bad images that the others met."""
    if fabric.world_size > 1:
        theirs: list[dict[int, str]] = [{} for _ in range(fabric.world_size)]
        torch.distributed.all_gather_object(theirs, dict(bad))
        for one in theirs:
            bad |= one


def _stored(store: FeatureStore, keys: list[bytes]) -> Stored:
    rows = store.rows(keys)
    if (rows < 0).any():
        raise Fault(
            f"features that another process computed are not in {store.folder}; set FEWTAGS_CACHE to a folder that "
            "all machines share, and start again: nothing is lost"
        )
    return Stored(store.array(), rows)


def _views_needed(how: Preparation) -> dict[str, list[Part]]:
    if not how.draws_views:
        return {"plain": [*ROLES]}
    strong: list[Part] = ["unlabelled"] if how.uses_unlabelled else []
    if how.recipe.labelled_view == "strong":
        strong.append("labelled")
    everything: dict[str, list[Part]] = {"plain": [*ROLES]}
    return everything | ({"strong": strong} if strong else {})


def _keep(stores: Sequence[FeatureStore], waiting: dict[bytes, list[NDArray[np.float32]]]) -> None:
    if waiting:
        for store, rows in zip(stores, zip(*waiting.values(), strict=True), strict=True):
            store.append(list(waiting), np.stack(rows).astype(np.float16))
        waiting.clear()
