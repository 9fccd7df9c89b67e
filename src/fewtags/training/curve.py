"""What more labels should bring: quality with a third, two thirds and most of the labels, and a curve through them."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fewtags.data.catalogue import MIN_POSITIVES
from fewtags.methods.base import QuickScores
from fewtags.metrics import average_precision
from fewtags.solvers.folds import FOLDS, MIN_CHOICE, balanced_folds, repeats
from fewtags.training.crossfit import HeldOut
from fewtags.utils.progress import Progress
from fewtags.utils.stopping import StopRequest

Floats = NDArray[np.float64]
POWER = 0.5  # what is left to learn shrinks with the labels to this power; between drawn scenes (less) and VOC (more)
OWN = 10.0  # positives of a tag from which its own curve counts as much as the mean of all
FEWER = "learning from fewer labels"  # as progress shows it
NEXT = (20, 50, 100)  # labels
CALLS = 3 + 6 + FOLDS  # fits of one repeat
KEPT = "stopped while quality was estimated; model and tags are written, --resume adds the estimate"


class LearningCurve(NamedTuple):
    """Average precision with n labels: top - fall * n ** -POWER."""

    labels: int  # images
    sizes: list[float]  # images learned from
    ap: Floats  # [sizes, K] cross-fitted; NaN for a tag that no labelled image shows
    fall: Floats  # [K]
    mean_fall: float  # of the tags' mean
    error: float  # its standard error

    def gain(self, labels: float, start: float | None = None) -> tuple[float, Floats]:
        """What so many more labels bring: in mAP, and in the average precision of every tag [K]."""
        start = self.labels if start is None else start
        step = start**-POWER - (start + labels) ** -POWER
        return self.mean_fall * step, np.minimum(self.fall * step, 1 - np.nan_to_num(self.ap[-1], nan=0.0))

    def shift(self, learned_share: float) -> tuple[float, float]:
        """By how much the log odds of a quality rise from this share of the labels to all, and how sure that is."""
        now = min(max(float(np.nanmean(self.ap[-1])), 0.02), 0.98)
        step = (learned_share * self.labels) ** -POWER - self.labels**-POWER
        slope = 1 / (now * (1 - now))
        return self.mean_fall * step * slope, self.error * step * slope

    def summary(self, tags: Sequence[str]) -> dict[str, Any]:
        """Ready for JSON."""
        gains = {labels: self.gain(labels) for labels in NEXT}
        return {
            "labels": [round(size) for size in self.sizes],
            "map": [float(np.nanmean(row)) for row in self.ap],
            "doubled": self.gain(self.labels)[0],
            "next": [
                {
                    "labels": labels,
                    "map": of_all,
                    "per_tag": {tag: float(one) for tag, one in zip(tags, of_tags, strict=True)},
                }
                for labels, (of_all, of_tags) in gains.items()
            ],
        }


class _Trained(Protocol):
    @property
    def quick_scores(self) -> QuickScores | None: ...


def learning_curve(held: HeldOut, outcome: _Trained, stop: StopRequest) -> LearningCurve | None:
    """The curve of a method that can be tried quickly, on enough labels; else None."""
    quick, known, groups = outcome.quick_scores, held.targets, held.groups
    if quick is None or len(known) < MIN_CHOICE or not (known == 1).any():
        return None
    targets, found = torch.from_numpy(known), []
    count = repeats(len(known))
    with Progress(FEWER, count * CALLS) as progress:

        def scored(learned: NDArray[Any]) -> NDArray[np.float32]:
            stop.check(KEPT)
            progress.advance()
            shown = quick(targets.masked_fill(torch.from_numpy(~learned)[:, None], -1))
            found: NDArray[np.float32] = shown[: len(known)].cpu().numpy()
            return found

        for repeat in range(count):
            third = balanced_folds(known, 3, seed=repeat, groups=groups)
            fifth = balanced_folds(known, FOLDS, seed=repeat, groups=groups)
            one = [np.zeros(known.shape, np.float32) for _ in range(2)]
            two, most = np.zeros(known.shape, np.float32), np.zeros(known.shape, np.float32)
            for place in range(3):
                out = np.equal(third, place)
                two[out] = scored(np.logical_not(out))[out]
                for turn, other in enumerate((place + 1, place + 2)):
                    one[turn][out] = scored(np.equal(third, other % 3))[out]
            for place in np.unique(fifth):
                out = fifth == place
                most[out] = scored(np.logical_not(out))[out]
            thirds = np.mean([average_precision(some, known) for some in one], axis=0)
            found.append([thirds, average_precision(two, known), average_precision(most, known)])
    n = len(known)
    return fit_curve(n, [n / 3, 2 * n / 3, n * (1 - 1 / FOLDS)], np.mean(found, axis=0), (known == 1).sum(0))


def fit_curve(labels: int, sizes: list[float], ap: Floats, positives: NDArray[np.int64]) -> LearningCurve:
    """Least squares for every tag; a tag with few positives follows the mean of all."""
    x = np.array(sizes) ** -POWER
    x = x - x.mean()
    slopes = -(x @ ap) / (x @ x)  # [K]; NaN for a tag without positives
    seen = ~np.isnan(slopes)
    mean = max(0.0, float(slopes[seen].mean()))
    error = float(slopes[seen].std(ddof=1) / seen.sum() ** 0.5) if seen.sum() > 1 else mean
    own = positives / (positives + OWN)
    fall = np.maximum(own * np.nan_to_num(slopes) + (1 - own) * mean, 0.0)
    return LearningCurve(labels, sizes, ap, fall, mean, error)


def not_given(
    tags: Sequence[str], labels: NDArray[np.int8], thresholds: NDArray[Any], probabilities: NDArray[Any]
) -> list[dict[str, Any]]:
    """Tags that no image gets, and about how many more labelled images would change that.

    A tag needs MIN_POSITIVES examples; one that has them needs twice as many.
    """
    found = []
    given: NDArray[np.bool_] = np.any(probabilities >= thresholds, axis=0)
    for place, tag in enumerate(tags):
        if given[place]:
            continue
        seen, known = int((labels[:, place] == 1).sum()), max(1, int((labels[:, place] >= 0).sum()))
        share = max((seen + 0.5) / (known + 1), float(probabilities[:, place].mean()))
        lacking = max(MIN_POSITIVES - seen, 1) if seen < MIN_POSITIVES else seen
        found.append({"tag": tag, "positives": seen, "more_labels": about(lacking / share)})
    return found


def about(number: float) -> int:
    """One digit that counts, rounded up: 12 -> 20, 130 -> 200; up to ten exactly."""
    if number <= 10:
        return int(np.ceil(number))
    scale = 10 ** int(np.floor(np.log10(number)))
    return int(np.ceil(number / scale) * scale)
