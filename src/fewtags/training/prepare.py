"""From a catalogue to a source of batches: features extracted once and kept, or images checked and read as pixels."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from lightning_fabric import Fabric

from fewtags.data.catalogue import Catalogue, Role
from fewtags.encoders.base import Encoder, Images
from fewtags.encoders.executors import Executor, in_threads
from fewtags.encoders.extract import extract, find_undecodable, fingerprints
from fewtags.encoders.store import Stored
from fewtags.training.loop import Targets
from fewtags.training.recipe import Recipe
from fewtags.training.source import FeatureSource, Part, PixelSource, Source
from fewtags.utils.progress import Progress
from fewtags.utils.stopping import StopRequest

ROLES: dict[Part, Role] = {
    "labelled": Role.LABELLED,
    "unlabelled": Role.UNLABELLED,
    "test": Role.TEST,
    "held_out": Role.HELD_OUT,
}


@dataclass(frozen=True)
class Prepared:
    """All that the loop reads."""

    catalogue: Catalogue  # without the images that cannot be used
    encoder: Encoder  # as fitted on the training images
    source: Source
    targets: Targets
    bad: list[tuple[str, str]]  # (image, reason)
    keys: list[bytes]  # of the content of every image

    @property
    def identity(self) -> str:
        """A digest of the bytes of all images, and of what the encoder learned from them."""
        return f"{hashlib.sha256(b''.join(self.keys)).hexdigest()} {self.encoder.identity()}"


@dataclass(frozen=True)
class Preparation:
    """What preparing needs to know beside the catalogue."""

    encoder: Encoder
    recipe: Recipe
    uses_unlabelled: bool
    draws_views: bool
    workers: int
    fabric: Fabric
    stop: StopRequest
    executor: Executor = in_threads  # computes features that are not kept yet


def prepare(catalogue: Catalogue, how: Preparation) -> Prepared:
    """Read every image, leave out the bad ones, and build the source that the recipe asks for."""
    keys, bad = extract_features(catalogue, how)
    good = np.array([row for row in range(len(catalogue)) if row not in bad], dtype=np.int64)
    reasons = [(catalogue.names[row], reason) for row, reason in sorted(bad.items())]
    catalogue, keys = catalogue.take(good), [keys[row] for row in good]
    targets = targets_of(catalogue)
    source = _source(catalogue, keys, targets, how)
    return Prepared(catalogue, how.encoder, source, targets, reasons, keys)


def extract_features(catalogue: Catalogue, how: Preparation) -> tuple[list[bytes], dict[int, str]]:
    """Read every image once and keep what frozen backbones make of it; the images' keys, and the bad images."""
    bad: dict[int, str] = {}
    keys = fingerprints(catalogue, bad)
    if how.recipe.tune == "all":
        find_undecodable(catalogue, bad, how.fabric, how.stop)
        return keys, bad
    views = _views_needed(how)
    for view, parts in views.items():
        rows = np.concatenate([catalogue.rows(ROLES[part]) for part in parts])
        extract(how.encoder, view, catalogue, keys, rows, bad, how.fabric, how.stop, how.executor)
    return keys, bad


def images_of(part: Part, catalogue: Catalogue, keys: list[bytes]) -> Images:
    """The images of a part."""
    rows = catalogue.rows(ROLES[part])
    return Images(catalogue.images, [catalogue.names[int(row)] for row in rows], [keys[row] for row in rows])


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


def _source(catalogue: Catalogue, keys: list[bytes], targets: Targets, how: Preparation) -> Source:
    if how.recipe.tune == "all":
        rows = {part: catalogue.rows(role) for part, role in ROLES.items()}
        return PixelSource(catalogue, rows, how.encoder.settings.view_spec(), how.workers)
    images: dict[Part, Images] = {part: images_of(part, catalogue, keys) for part in ROLES}
    views = _views_needed(how)
    with Progress(
        "preparing the features", 1 + sum(map(len, views.values())), show=how.fabric.is_global_zero
    ) as progress:
        how.encoder.fit(images["labelled"], images["unlabelled"], targets.labelled, how.fabric)
        progress.advance()
        stored: dict[str, dict[Part, Stored]] = {}
        for view, parts in views.items():
            stored[view] = {}
            for part in parts:
                stored[view][part] = how.encoder.stored(view, images[part])
                progress.advance()
    return FeatureSource(stored["plain"], stored.get("strong"))


def _views_needed(how: Preparation) -> dict[str, list[Part]]:
    """Which views are read of which parts of the data."""
    everything: dict[str, list[Part]] = {"plain": [*ROLES]}
    if not (how.draws_views and how.encoder.draws_views):
        return everything
    strong: list[Part] = ["unlabelled"] if how.uses_unlabelled else []
    if how.recipe.labelled_view == "strong":
        strong.append("labelled")
    return everything | ({"strong": strong} if strong else {})
