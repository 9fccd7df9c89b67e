"""From a catalogue to a source of batches: features computed once and kept, or images checked and read as pixels."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from fewtags.data.catalogue import Catalogue, Role
from fewtags.errors import BadImage, Fault
from fewtags.features import FeatureStore, FrozenForward, Wanted
from fewtags.features.forward import store_folder
from fewtags.files import cache_folder
from fewtags.models.backbone import Backbone
from fewtags.progress import Progress
from fewtags.training.loop import Targets
from fewtags.training.recipe import Recipe
from fewtags.training.run import StopRequest
from fewtags.training.source import FeatureSource, Part, PixelSource, Source, Stored

KEEP_EVERY = 64  # images whose features are written at once; what a kill can cost
ROLES: dict[Part, Role] = {"labelled": Role.LABELLED, "unlabelled": Role.UNLABELLED, "test": Role.TEST}
KEPT = "stopped; the features computed so far are kept, the same command goes on from there"


@dataclass(frozen=True)
class Prepared:
    """All that the loop reads."""

    catalogue: Catalogue  # without the images that cannot be used
    source: Source
    targets: Targets
    bad: list[tuple[str, str]]  # (image, reason)
    content: str  # a digest of the bytes of all images


@dataclass(frozen=True)
class Preparation:
    """What preparing needs to know beside the catalogue."""

    backbone: Backbone
    recipe: Recipe
    patches: int
    uses_unlabelled: bool
    workers: int
    fabric: Fabric
    stop: StopRequest


def prepare(catalogue: Catalogue, how: Preparation) -> Prepared:
    """Read every image, leave out the bad ones, and build the source that the recipe asks for."""
    bad: dict[int, str] = {}
    keys = fingerprints(catalogue, bad)
    stores: dict[str, FeatureStore] = {}
    if how.recipe.tune == "heads":
        forward = FrozenForward(how.backbone, how.recipe.view_spec(how.patches), how.fabric.device)
        for kind, parts in _views_needed(how).items():
            rows = np.concatenate([catalogue.rows(ROLES[part]) for part in parts])
            draws = how.recipe.strong_draws if kind == "strong" else 1
            stores[kind] = store_for(forward, kind, draws)
            wanted = Features(stores[kind], forward, kind, draws)
            fill(wanted, catalogue, keys, rows, bad, how)
    else:
        find_undecodable(catalogue, bad, how)
    good = np.array([row for row in range(len(catalogue)) if row not in bad], dtype=np.int64)
    reasons = [(catalogue.names[row], reason) for row, reason in sorted(bad.items())]
    catalogue, keys = catalogue.take(good), [keys[row] for row in good]
    rows_of = {part: catalogue.rows(role) for part, role in ROLES.items()}
    source: Source
    if stores:
        stored = {
            kind: {part: _stored(stores[kind], [keys[row] for row in rows_of[part]]) for part in parts}
            for kind, parts in _views_needed(how).items()
        }
        source = FeatureSource(stored["plain"], stored.get("strong", {}))
    else:
        source = PixelSource(catalogue, rows_of, how.recipe.view_spec(how.patches), how.workers)
    content = hashlib.sha256(b"".join(keys)).hexdigest()
    return Prepared(catalogue, source, targets_of(catalogue), reasons, content)


@dataclass(frozen=True)
class Features:
    """One kind of features and where they are kept."""

    store: FeatureStore
    forward: FrozenForward
    kind: str
    draws: int


def targets_of(catalogue: Catalogue) -> Targets:
    """Labels for training, and what is known of the other images for measuring."""
    known = {part: torch.from_numpy(catalogue.targets[catalogue.rows(role)]) for part, role in ROLES.items()}
    truth, test = known["unlabelled"], known["test"]
    return Targets(
        labelled=known["labelled"],
        unlabelled=len(truth),
        truth=truth if bool((truth >= 0).any()) else None,
        test=test if bool((test == 1).any()) else None,
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
    store = features.store
    usable = [int(row) for row in rows if int(row) not in bad]
    there = store.rows([keys[row] for row in usable])
    missing = list({keys[row]: row for row, place in zip(usable, there, strict=True) if place < 0}.values())
    # shared out by content: a process that is late finds some rows of the others kept already
    rank, processes = how.fabric.global_rank, how.fabric.world_size
    mine = [row for row in missing if int.from_bytes(keys[row][:4], "big") % processes == rank]
    wanted = (Wanted(catalogue.names[row], keys[row]) for row in mine)
    found = features.forward.features(catalogue.images, wanted, features.kind, features.draws)
    waiting: dict[bytes, NDArray[np.float32]] = {}
    unusable: dict[bytes, str] = {}
    with Progress(f"{features.kind} views to features", len(mine), show=how.fabric.is_global_zero) as progress:
        for row, one in zip(mine, found, strict=True):
            if isinstance(one, BadImage):
                unusable[keys[row]] = str(one)
            else:
                waiting[keys[row]] = one
            if len(waiting) >= KEEP_EVERY:
                _keep(store, waiting)
                how.stop.check(KEPT)
            progress.advance()
    _keep(store, waiting)
    bad |= {row: unusable[keys[row]] for row in usable if keys[row] in unusable}  # all files with that content
    if how.fabric.world_size > 1:
        how.fabric.barrier()
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


def store_for(forward: FrozenForward, kind: str, draws: int) -> FeatureStore:
    """Where features made in this way are kept, for all runs of this user."""
    made_from = forward.made_from(kind, draws)
    shape = (draws, forward.parts, forward.backbone.width)
    return FeatureStore(store_folder(cache_folder(), made_from), shape, made_from)


def _stored(store: FeatureStore, keys: list[bytes]) -> Stored:
    rows = store.rows(keys)
    if (rows < 0).any():
        raise Fault(
            f"features that another process computed are not in {store.folder}; set FEWTAGS_CACHE to a folder that "
            "all machines share, and start again: nothing is lost"
        )
    return Stored(store.array(), rows)


def _views_needed(how: Preparation) -> dict[str, list[Part]]:
    strong: list[Part] = ["unlabelled"] if how.uses_unlabelled else []
    if how.recipe.labelled_view == "strong":
        strong.append("labelled")
    everything: dict[str, list[Part]] = {"plain": ["labelled", "unlabelled", "test"]}
    return everything | ({"strong": strong} if strong else {})


def _keep(store: FeatureStore, waiting: dict[bytes, NDArray[np.float32]]) -> None:
    if waiting:
        store.append(list(waiting), np.stack(list(waiting.values())).astype(np.float16))
        waiting.clear()
