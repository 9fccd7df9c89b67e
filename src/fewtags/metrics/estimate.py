"""Estimate the quality of tags from out-of-fold scores of the labelled images."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewtags.data.catalogue import MIN_POSITIVES
from fewtags.metrics.bootstrap import bootstrap, bootstrap_figures, percentile_interval
from fewtags.metrics.multilabel import average_precision, decision_counts, f1_scores, mean_average_precision, ratio
from fewtags.thresholds import decide, metric_adaptive

Prefer = Literal["precision", "balance", "recall"]
BETAS: dict[Prefer, float] = {"precision": 0.5, "balance": 1.0, "recall": 2.0}  # of the textbook F_beta
CLEAR = 0.08  # evidence; with no label 97 of 100 tags that VOC's test images get are right (results/voc/words.csv: op)
IMAGES_PER_CLEAR_ONE: dict[Prefer, float] = {"precision": 0.5, "balance": 1.0, "recall": 2.0}
POSITIVES_WORTH = 2  # labelled images of a tag that a threshold of one half counts as much as
RESAMPLES = 30  # bootstrap samples that thresholds are averaged over
MAX_RESAMPLED = 5_000  # images; with more, the thresholds are not averaged


def thresholds_for(scores: NDArray[Any], labels: NDArray[Any], prefer: Prefer) -> NDArray[Any]:
    """The F_beta-optimal threshold of every tag [K] on these images [N, K], averaged over bootstrap samples.

    With few images the optimal threshold has a high variance and is mostly too low: on VOC's train images the mean
    over samples gives OF1 81.0 instead of 79.3. With many images one sample gives the same.
    """
    best = partial(metric_adaptive, metric="f_beta", beta=BETAS[prefer], textbook_beta=True)
    found = best(scores, labels)
    if len(scores) > MAX_RESAMPLED:
        return found
    rng = np.random.default_rng(0)
    drawn = (rng.integers(0, len(scores), len(scores)) for _ in range(RESAMPLES))
    tables = np.stack([found, *(best(scores[rows], labels[rows]) for rows in drawn)])
    known = np.isfinite(tables)  # a sample without an image of a tag has no threshold for it
    mean = np.where(known, tables, 0).sum(0) / np.maximum(known.sum(0), 1)
    return np.where(np.isfinite(found), mean, found).astype(scores.dtype)


def tagging_thresholds(
    held_out: tuple[NDArray[Any], NDArray[Any]] | None, learned: tuple[NDArray[Any], NDArray[Any]], prefer: Prefer
) -> NDArray[Any]:
    """The thresholds [K] for tagging, from (scores, labels) of images that were not trained on.

    A tag without positives among them takes its threshold from the training images; a tag without positives there
    either was not learned and is never given.
    """
    scores, labels = learned
    nothing = np.full(labels.shape[1], np.inf, scores.dtype)
    from_learned = thresholds_for(scores, labels, prefer) if len(scores) else nothing
    if held_out is None:
        return from_learned
    found = thresholds_for(*held_out, prefer)
    return np.where(np.isfinite(found) & np.isfinite(from_learned), found, from_learned)


class NameThresholds(NamedTuple):
    """What tags' names say about thresholds; see `thresholds_by_name`."""

    alone: NDArray[Any]  # [K] for a tag that no labelled image shows; infinite: given to none
    named: NDArray[np.bool_]  # [K] whose names say something

    def beside(self, thresholds: NDArray[Any], positives: NDArray[Any]) -> NDArray[Any]:
        """Thresholds [K] that so many positives [K] chose, corrected by names.

        The threshold that a few positives choose is mostly too low. Scores of named tags are made so that one half is a
        fair threshold, so the logit of the chosen one is shrunk towards it, the more the fewer positives there are.
        """
        share = positives / (positives + POSITIVES_WORTH)
        finite = np.clip(np.where(np.isfinite(thresholds), thresholds, 0.5), 1e-6, 1 - 1e-6)
        shrunk = 1 / (1 + ((1 - finite) / finite) ** share)
        chosen = np.where(np.isfinite(thresholds), np.where(self.named, shrunk, thresholds), self.alone)
        return chosen.astype(thresholds.dtype)


def thresholds_by_name(scores: NDArray[Any], evidence: NDArray[Any], prefer: Prefer) -> NameThresholds:
    """Thresholds for tags that no label shows: as many images get a tag as show its classes clearly.

    scores [n, K] rank the images; evidence [n, K] is what a frozen classifier itself sees of a tag's classes. Its scale
    does not depend on the data, so a tag that no image shows is given to none; the ranking alone cannot tell.
    """
    wanted = np.ceil(IMAGES_PER_CLEAR_ONE[prefer] * (evidence >= CLEAR).sum(0)).astype(np.int64)
    ranked = -np.sort(-scores, axis=0)
    place = np.clip(wanted, 1, len(scores)) - 1
    reached = np.maximum(np.take_along_axis(ranked, place[None], 0)[0], 0.5)
    return NameThresholds(np.where(wanted > 0, reached, np.inf), evidence.std(0) > 1e-6)


def out_of_fold_decisions(
    scores: NDArray[Any],
    labels: NDArray[Any],
    fold: NDArray[np.int64],
    prefer: Prefer,
    names: NameThresholds | None = None,
) -> NDArray[Any]:
    """Decisions [N, K] with thresholds chosen on the other folds; fold [N]."""
    decisions = np.zeros(scores.shape, scores.dtype)
    for number in np.unique(fold):
        out = fold == number
        chosen = thresholds_for(scores[~out], labels[~out], prefer)
        chosen = names.beside(chosen, (labels[~out] == 1).sum(0)) if names else chosen
        decisions[out] = decide(scores[out], chosen)
    return decisions


def estimate(
    scores: NDArray[Any],
    labels: NDArray[Any],
    fold: NDArray[np.int64],
    thresholds: NDArray[Any],
    tags: Sequence[str],
    prefer: Prefer,
    how: str,
    names: NameThresholds | None = None,
) -> dict[str, Any]:
    """Figures over all tags and per tag, 0..1, with 95 % bootstrap intervals; ready for JSON.

    scores, labels [N, K]: out-of-fold scores of labelled images; thresholds [K]: those used for tagging.
    """
    decisions = out_of_fold_decisions(scores, labels, fold, prefer, names)
    samples = bootstrap(scores, labels, decisions)
    over_all = bootstrap_figures(samples)
    hits, given, true = decision_counts(decisions, labels)
    figures = {
        "precision": (ratio(hits, given), ratio(samples.hits, samples.given)),
        "recall": (ratio(hits, true), ratio(samples.hits, samples.true)),
        "f1": (ratio(2 * hits, given + true), ratio(2 * samples.hits, samples.given + samples.true)),
        "ap": (average_precision(scores, labels), samples.ap),
    }
    rows = [
        {
            "tag": tag,
            "support": int(true[place]),
            "threshold": _plain(thresholds[place]),
            **{name: _plain(value[place]) for name, (value, _) in figures.items()},
            "intervals": {name: percentile_interval(sampled[:, place]) for name, (_, sampled) in figures.items()},
            "enough": bool(true[place] >= MIN_POSITIVES),
        }
        for place, tag in enumerate(tags)
    ]
    f1 = f1_scores(decisions, labels)
    return {
        "how": how,
        "prefer": prefer,
        "images": len(scores),
        "map": _plain(mean_average_precision(scores, labels)),
        "cf1": f1["cf1"],
        "of1": f1["of1"],
        "intervals": {name: percentile_interval(values) for name, values in over_all.items()},
        "per_tag": rows,
    }


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
