"""Out-of-fold scores of the labelled images: the basis of probabilities, thresholds and the estimated quality.

On stored features the labelled images are put into folds, balanced by tag; photos of one moment share theirs. For every
fold the same method learns once more, without the images of the fold; its main stage is shorter, which costs little
quality. Where a method offers variants of what it learned, the same folds choose between them. Where every weight
learns that would take too long: a part of the labelled images is kept from training instead, if asked to
(`--validate`).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fewtags.data.catalogue import ImageSource
from fewtags.errors import Interrupted
from fewtags.methods import Method
from fewtags.metrics import average_precision
from fewtags.model.network import Network
from fewtags.solvers.bursts import find_bursts
from fewtags.solvers.folds import FOLDS, balanced_folds, choose_paired
from fewtags.training.build import build_network
from fewtags.training.evaluator import Record
from fewtags.training.loop import Loop, Observer, Targets
from fewtags.training.prepare import Prepared, images_of
from fewtags.training.resolve import Job
from fewtags.training.source import Epoch, FeatureSource
from fewtags.utils.progress import Progress
from fewtags.utils.stopping import StopRequest

SHORTER = 3  # a fold's main stage has this part of the epochs
CHOOSING = "choosing thresholds"  # as progress shows it
KEPT = "stopped while thresholds were chosen; what was learned is kept"
Scores = NDArray[np.float32]


class HeldOut(NamedTuple):
    """Labelled images as scored by models that were not trained on them."""

    scores: Scores  # [n, K]
    targets: NDArray[np.int8]  # [n, K]
    fold: NDArray[np.int64]  # [n] the fold of each image
    groups: NDArray[np.int64]  # [n] images of one moment have the same number
    how: str  # how they were obtained, in words
    learned_share: float  # of the labels that the final model learns from
    variant: str = ""  # of the method's, the one that these images prefer
    tried: Mapping[str, float] = {}  # mAP of every variant

    @property
    def known(self) -> tuple[Scores, NDArray[np.int8]]:
        """Scores and labels."""
        return self.scores, self.targets


def held_out_scores(
    job: Job, prepared: Prepared, loop: Loop, variants: Sequence[str], scores: Mapping[str, Scores], stop: StopRequest
) -> HeldOut | None:
    """By folds, or of the part that was kept from training; None where neither can be had."""
    targets, source, folds = prepared.targets, prepared.source, job.recipe.folds
    if targets.held_out is not None:
        known = targets.held_out.numpy()
        how = f"{len(known):,} labelled images that were kept from training"
        fold = balanced_folds(known, FOLDS)
        return HeldOut(scores["held_out"], known, fold, np.arange(len(known)), how, 1.0)
    labelled = targets.labelled.numpy()
    if not isinstance(source, FeatureSource) or folds < 2 or len(labelled) < folds:
        return None
    groups = moments(prepared, loop)
    fold = balanced_folds(labelled, folds, groups=groups)
    if len(np.unique(fold)) < 2:  # all of them copies of one image
        return None
    with Progress(CHOOSING, fold_steps(loop, folds), show=loop.fabric.is_global_zero) as progress:
        tried = cross_fitted(job, prepared, loop, fold, variants, _FoldObserver(progress, stop))
    precisions = {name: average_precision(found, labelled)[None] for name, found in tried.items()}
    shown = bool((labelled == 1).any())
    variant = choose_paired(precisions, variants[0]) if shown else variants[0]
    how = f"{len(labelled):,} labelled images in {folds} parts, each tagged by a model that learned without it"
    together = len(labelled) - len(np.unique(groups))
    if together:
        how += f" ({together:,} of them so like another that both are in the same part)"
    if job.config.review:
        how += "; those that were chosen for review are harder than the rest, so this is on the low side"
    share = 1 - 1 / folds
    means = {name: float(np.nanmean(one)) for name, one in precisions.items()} if shown else {}
    return HeldOut(tried[variant], labelled, fold, groups, how, share, variant, means)


def cross_fitted(
    job: Job, prepared: Prepared, loop: Loop, fold: NDArray[np.int64], variants: Sequence[str], observer: Observer
) -> dict[str, Scores]:
    """The scores [N, K] of the labelled images by each variant, of models that learned without their fold [N]."""
    source, targets = prepared.source, prepared.targets
    assert isinstance(source, FeatureSource)  # noqa: S101 - for the type checker
    recipe = job.recipe.model_copy(update={"epochs": -(-job.recipe.epochs // SHORTER)})
    chosen = loop.method.chosen_settings()
    found = {name: np.full(targets.labelled.shape, np.nan, np.float32) for name in variants}
    for number in np.unique(fold):
        out = fold == number
        method, rest = job.config.build_method(chosen), source.without(out)
        method.borrow(loop.method, torch.from_numpy(~out).to(loop.fabric.device))
        network = build_network(prepared.encoder, rest, method, recipe, targets.labelled.shape[1], loop.fabric)
        known = Targets(targets.labelled[torch.from_numpy(~out)], targets.unlabelled)
        again = Loop(network, rest, method, recipe, known, loop.fabric, observer)
        again.run()
        for name, kept in again.variants(variants).items():
            found[name][out] = _scores(kept, method, rest, loop.fabric.device)
    return found


def moments(prepared: Prepared, loop: Loop) -> NDArray[np.int64]:
    """The group [N] of every labelled image: copies, near-duplicates and photos of one moment share one."""
    images = images_of("labelled", prepared.catalogue, prepared.keys)
    first: dict[bytes, int] = {}
    same = np.array([first.setdefault(key, place) for place, key in enumerate(images.keys)])
    singles = np.unique(same)
    words = loop.method.words
    vectors = loop.features("labelled")[singles]
    vectors = vectors[:, : vectors.shape[1] - words]
    group = find_bursts(vectors, times_of(images.source, [images.names[place] for place in singles]))
    return singles[group][np.searchsorted(singles, same)]


def times_of(source: ImageSource, names: Sequence[str]) -> list[float | None]:
    """When each photo was taken, in seconds, as far as its file says."""
    taken = getattr(source, "taken", None)
    return [None if taken is None else taken(name) for name in names]


def fold_steps(loop: Loop, folds: int) -> int:
    """All folds together, about."""
    epochs = {"warmup": 1, "main": SHORTER}
    return folds * sum(-(-stage.epochs // epochs[stage.name]) * len(loop.plan(stage, 0)) for stage in loop.stages)


def _scores(network: Network, method: Method, source: FeatureSource, device: torch.device) -> Scores:
    """Of the images that were left out."""
    every = source.sweep("test", np.arange(source.count("test")), "plain", Epoch(0, 0, 0, "weak", False))
    with torch.no_grad():
        found = [method.predict(network(*views.to(device))).float().cpu() for views in every]
    return torch.cat(found).numpy()


class _FoldObserver(Observer):
    """Counts steps, and stops between two of them when asked to; nothing is kept of a fold, for it takes seconds."""

    def __init__(self, progress: Progress, stop: StopRequest) -> None:
        self._progress, self._stop = progress, stop

    def step(self, report: Record) -> None:
        self._progress.advance()

    def save(self, loop: Loop) -> None:
        if loop.any_process(self._stop.requested):
            raise Interrupted(KEPT)
