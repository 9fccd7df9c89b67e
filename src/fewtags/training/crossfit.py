"""Out-of-fold scores of the labelled images: the basis of the estimated quality and of the thresholds.

On stored features the labelled images are put into folds, balanced by tag. For every fold the same method learns once
more, without the images of the fold; its main stage is shorter, which costs little quality. Where every weight learns
that would take too long: a part of the labelled images is kept from training instead, if asked to (`--validate`).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fewtags.errors import Interrupted
from fewtags.methods import Method
from fewtags.model.network import Network
from fewtags.solvers.folds import FOLDS, balanced_folds
from fewtags.training.build import build_network
from fewtags.training.evaluator import Record
from fewtags.training.loop import Loop, Observer, Targets
from fewtags.training.prepare import Prepared, images_of
from fewtags.training.resolve import Job
from fewtags.training.source import Epoch, FeatureSource
from fewtags.utils.progress import Progress
from fewtags.utils.stopping import StopRequest

SHORTER = 3  # a fold's main stage has this part of the epochs
KEPT = "stopped while quality was estimated; what was learned is kept"
Scores = NDArray[np.float32]


class HeldOut(NamedTuple):
    """Labelled images as scored by models that were not trained on them."""

    scores: Scores  # [n, K]
    targets: NDArray[np.int8]  # [n, K]
    fold: NDArray[np.int64]  # [n] the fold of each image
    how: str  # how they were obtained, in words


def held_out_scores(
    job: Job, prepared: Prepared, loop: Loop, scores: Mapping[str, Scores], stop: StopRequest
) -> HeldOut | None:
    """By folds, or of the part that was kept from training; None where neither can be had."""
    targets, source, folds = prepared.targets, prepared.source, job.recipe.folds
    if targets.held_out is not None:
        known = targets.held_out.numpy()
        how = f"{len(known):,} labelled images that were kept from training"
        return HeldOut(scores["held_out"], known, balanced_folds(known, FOLDS), how)
    labelled = targets.labelled.numpy()
    if not isinstance(source, FeatureSource) or folds < 2 or len(labelled) < 2 * folds:
        return None
    fold = _fold_of(images_of("labelled", prepared.catalogue, prepared.keys).keys, labelled, folds)
    if len(np.unique(fold)) < 2:  # all of them copies of one image
        return None
    with Progress("estimating quality", _steps(loop, folds), show=loop.fabric.is_global_zero) as progress:
        found = cross_fitted(job, prepared, loop, fold, _FoldObserver(progress, stop))
    how = f"{len(labelled):,} labelled images in {folds} parts, each tagged by a model that learned without it"
    if job.config.review:
        how += "; those that were chosen for review are harder than the rest, so this is on the low side"
    return HeldOut(found, labelled, fold, how)


def cross_fitted(job: Job, prepared: Prepared, loop: Loop, fold: NDArray[np.int64], observer: Observer) -> Scores:
    """The scores [N, K] of the labelled images, each by a model that learned without its fold [N]."""
    source, targets = prepared.source, prepared.targets
    assert isinstance(source, FeatureSource)  # noqa: S101 - for the type checker
    recipe = job.recipe.model_copy(update={"epochs": -(-job.recipe.epochs // SHORTER)})
    chosen = loop.method.chosen_settings()
    scores = np.full(targets.labelled.shape, np.nan, np.float32)
    for number in np.unique(fold):
        out = fold == number
        method, rest = job.config.build_method(chosen), source.without(out)
        network = build_network(prepared.encoder, rest, method, recipe, scores.shape[1], loop.fabric)
        known = Targets(targets.labelled[torch.from_numpy(~out)], targets.unlabelled)
        kept = Loop(network, rest, method, recipe, known, loop.fabric, observer).run()
        scores[out] = _scores(kept, method, rest, loop.fabric.device)
    return scores


def _fold_of(keys: Sequence[bytes], labelled: NDArray[np.int8], count: int) -> NDArray[np.int64]:
    """The fold [N] of every labelled image; copies of an image share theirs, or each would give the other away."""
    first: dict[bytes, int] = {}
    same = [first.setdefault(key, place) for place, key in enumerate(keys)]
    return balanced_folds(labelled, count)[same]


def _steps(loop: Loop, folds: int) -> int:
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
