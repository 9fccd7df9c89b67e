"""The features of all images of a data set, computed once by every core and every process, and kept."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from fewtags.data.catalogue import Catalogue
from fewtags.encoders.base import Encoder, Rows
from fewtags.encoders.executors import Executor, in_threads
from fewtags.encoders.store import FeatureStore
from fewtags.errors import BadImage
from fewtags.utils.progress import Progress
from fewtags.utils.stopping import StopRequest

KEEP_EVERY = 64  # images whose features are written at once; what a kill can cost
EXTRACTING = "extracting features"  # as progress shows it
KEPT = "stopped; the features computed so far are kept, the same command goes on from there"
Bad = dict[int, str]  # row of the catalogue -> why the image cannot be used


def fingerprints(catalogue: Catalogue, bad: Bad) -> list[bytes]:
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


def extract(
    encoder: Encoder,
    view: str,
    catalogue: Catalogue,
    keys: Sequence[bytes],
    rows: NDArray[np.int64],
    bad: Bad,
    fabric: Fabric,
    stop: StopRequest,
    executor: Executor = in_threads,
) -> None:
    """Compute the features of these rows that the stores do not hold yet; images that cannot be used go to `bad`."""
    stores = encoder.feature_stores(view)
    if not stores:
        return
    usable = [int(row) for row in rows if int(row) not in bad]
    there = np.stack([store.rows([keys[row] for row in usable]) for store in stores]).min(axis=0)
    missing = list({keys[row]: row for row, place in zip(usable, there, strict=True) if place < 0}.values())
    # shared out by content: a process that is late finds some rows of the others kept already
    mine = [row for row in missing if int.from_bytes(keys[row][:4], "big") % fabric.world_size == fabric.global_rank]
    wanted = ((catalogue.names[row], keys[row]) for row in mine)
    waiting: dict[bytes, Rows] = {}
    unusable: dict[bytes, str] = {}
    with (
        closing(executor(encoder, view, catalogue.images, wanted, fabric.device)) as found,
        Progress(_title(view), len(mine), show=fabric.is_global_zero) as progress,
    ):
        for row, one in zip(mine, found, strict=True) if mine else ():  # nothing to do: no worker is started
            if one.name != catalogue.names[row]:
                raise RuntimeError(f"an executor gave {one.name} in the place of {catalogue.names[row]}")
            if one.value is None:
                unusable[keys[row]] = one.problem
            else:
                waiting[keys[row]] = one.value
            if len(waiting) >= KEEP_EVERY:
                _keep(stores, waiting)
                stop.check(KEPT)
            progress.advance()
    _keep(stores, waiting)
    bad |= {row: unusable[keys[row]] for row in usable if keys[row] in unusable}  # all files with that content
    if fabric.world_size > 1:
        fabric.barrier()
        for store in stores:
            store.refresh()
        share_bad(bad, fabric)


def find_undecodable(catalogue: Catalogue, bad: Bad, fabric: Fabric, stop: StopRequest) -> None:
    """Decode every image once before training reads pixels, so that a bad one cannot stop it hours in."""
    mine = range(fabric.global_rank, len(catalogue), fabric.world_size)

    def reason(row: int) -> str:
        try:
            catalogue.images.image(catalogue.names[row])
        except BadImage as error:
            return str(error)
        return ""

    with (
        ThreadPoolExecutor() as pool,
        Progress("checking the images", len(mine), show=fabric.is_global_zero) as progress,
    ):
        for row, why in zip(mine, pool.map(reason, mine), strict=True):
            if why:
                bad[row] = why
            stop.check("stopped before training began; the same command starts again")
            progress.advance()
    share_bad(bad, fabric)


def share_bad(bad: Bad, fabric: Fabric) -> None:
    """Let every process know the bad images that the others met."""
    if fabric.world_size > 1:
        theirs: list[Bad] = [{} for _ in range(fabric.world_size)]
        torch.distributed.all_gather_object(theirs, dict(bad))
        for one in theirs:
            bad |= one


def _title(view: str) -> str:
    return EXTRACTING if view == "plain" else f"{EXTRACTING} of {view} views"


def _keep(stores: Sequence[FeatureStore], waiting: dict[bytes, Rows]) -> None:
    if waiting:
        for store, rows in zip(stores, zip(*waiting.values(), strict=True), strict=True):
            store.append(list(waiting), np.stack(rows).astype(np.float16))
        waiting.clear()
