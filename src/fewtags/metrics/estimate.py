"""The quality to expect of a model's tags, from labelled images that were left out in turn.

With few labels neither source is enough: cross-fitted counts of a tag with three examples say next to nothing, and
what the calibrated probabilities promise holds only as far as their curves fit. So the probabilities are a prior,
worth a few examples of each tag, and the counts are added to it (Beta distributions). How far the prior itself may be
off is one more unknown, common to all tags: it shifts their log odds, the further the fewer positives were labelled.
All figures and their intervals are read off draws from this.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewtags.data.catalogue import MIN_POSITIVES
from fewtags.metrics.calibration import SEEN, calibration_error, logit, sigmoid
from fewtags.metrics.decisions import NameThresholds, Prefer, calibrated_thresholds, some_rows
from fewtags.metrics.multilabel import average_precision, decision_counts, ratio
from fewtags.thresholds import decide

Floats = NDArray[np.float64]
DRAWS = 1000
# results/voc/honest/README.md says how these were chosen
WORTH, AP_WORTH = 4.0, 3.0  # examples of a tag that the prior counts as much as
MISFIT = 5.0  # standard deviation of the prior's common shift in log odds, times the root of the number of positives
OWN_MISFIT = 0.8  # standard deviation of each tag's own shift
SAMPLE = 2.5  # as MISFIT, of a common shift of the figures themselves: errors of an image come together
COUNT_WORTH = 0.8  # of an image that was left out: the thresholds it was decided by are not quite the final ones
LEAST = 0.5  # of either parameter of a Beta distribution, as Jeffreys has it: nothing is certain
FIGURES = ("precision", "recall", "f1", "ap")


class Expected(NamedTuple):
    """What calibrated probabilities promise of the images to be tagged, per tag [K]."""

    given: Floats  # share of images that get the tag
    true: Floats  # share that shows it
    precision: Floats
    recall: Floats
    ap: Floats


def expected_quality(probabilities: NDArray[Any], thresholds: NDArray[Any]) -> Expected:
    """Probabilities [M, K], thresholds [K]."""
    p = probabilities.astype(np.float64)
    given = p >= thresholds
    hits, total, count = (p * given).sum(0), p.sum(0), given.sum(0)
    falling = -np.sort(-p, axis=0)
    precision_at = np.cumsum(falling, 0) / np.arange(1, len(p) + 1)[:, None]
    ap = (falling * precision_at).sum(0) / np.maximum(total, 1e-12)
    return Expected(
        count / len(p),
        total / len(p),
        np.nan_to_num(ratio(hits, count)),
        hits / np.maximum(total, 1e-12),
        ap,
    )


def out_of_fold_decisions(
    scores: NDArray[Any],
    labels: NDArray[Any],
    fold: NDArray[np.int64],
    pool: NDArray[Any],
    prefer: Prefer,
    names: NameThresholds | None = None,
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Decisions and probabilities [n, K] by curves and thresholds that were chosen on the other folds; fold [n]."""
    decisions, probabilities = np.zeros(scores.shape, np.int8), np.zeros(scores.shape, np.float32)
    for number in np.unique(fold):
        out = fold == number
        rest = (scores[~out], labels[~out])
        calibration, thresholds = calibrated_thresholds(rest, pool, givable_tags(rest[1], names), prefer)
        probabilities[out] = calibration(scores[out])
        decisions[out] = decide(probabilities[out], thresholds)
    return decisions, probabilities


def givable_tags(labels: NDArray[Any], names: NameThresholds | None) -> NDArray[np.bool_]:
    """Tags [K] that may be given: those that a label shows, and those of whose name something is clearly seen."""
    shown: NDArray[np.bool_] = (labels == 1).any(0)
    return shown if names is None else shown | (names.named & np.isfinite(names.alone))


def estimate(
    scores: NDArray[Any],
    labels: NDArray[Any],
    held_out: tuple[NDArray[Any], NDArray[np.float32]],
    thresholds: NDArray[Any],
    probabilities: NDArray[Any],
    tags: Sequence[str],
    prefer: Prefer,
    how: str,
    names: NameThresholds | None = None,
    shift: tuple[float, float] = (0.0, 0.0),
) -> dict[str, Any]:
    """Figures over all tags and per tag, 0..1, with 95 % intervals; ready for JSON.

    scores, labels [n, K]: out-of-fold scores of labelled images; held_out: what `out_of_fold_decisions` makes of them;
    thresholds [K]: those used for tagging; probabilities [M, K] of the images to be tagged. shift: by how much the log
    odds of all figures rise, mean and standard deviation, because the final model learned from more labels.
    """
    probabilities = some_rows(probabilities)
    decisions, out_of_fold = held_out
    expected = expected_quality(probabilities, thresholds)
    hits, given, true = (one.astype(np.float64) for one in decision_counts(decisions, labels))
    named = np.zeros(len(tags), bool) if names is None else names.named
    informed = (true >= SEEN) | named
    drawn = _drawn(expected, hits, given, true, np.nan_to_num(average_precision(scores, labels)), informed, shift)
    drawn = {name: np.where(np.isfinite(thresholds) | (name == "ap"), one, 0.0) for name, one in drawn.items()}
    over_all = _over_all(drawn, expected)
    rows = [
        {
            "tag": tag,
            "support": int(true[place]),
            "threshold": _plain(thresholds[place]),
            **{name: _mean(drawn[name][:, place]) for name in FIGURES},
            "intervals": {name: interval(drawn[name][:, place]) for name in FIGURES},
            "enough": bool(true[place] >= MIN_POSITIVES),
        }
        for place, tag in enumerate(tags)
    ]
    wrong, missing = _errors_per_image(probabilities, thresholds)
    return {
        "how": how,
        "prefer": prefer,
        "images": len(scores),
        **{name: _mean(values) for name, values in over_all.items()},
        "intervals": {name: interval(values) for name, values in over_all.items()},
        "calibration_error": calibration_error(out_of_fold, labels),
        "wrong_per_image": wrong,
        "missing_per_image": missing,
        "per_tag": rows,
    }


def _drawn(
    expected: Expected,
    hits: Floats,
    given: Floats,
    true: Floats,
    ap: Floats,
    informed: NDArray[np.bool_],
    shift: tuple[float, float],
) -> dict[str, Floats]:
    """Draws [S, K] of every figure; the counts of a tag that is not informed [K] are left out."""
    rng = np.random.default_rng(0)
    root = max(float(true.sum()), 1.0) ** 0.5

    def figure(prior: Floats, right: Floats, count: Floats, worth: float) -> Floats:
        moved = rng.normal(0, MISFIT / root, size=(DRAWS, 1)) + rng.normal(0, OWN_MISFIT, size=(DRAWS, len(prior)))
        centre = sigmoid(logit(prior, 1e-3) + moved)
        right, count = COUNT_WORTH * right * informed, COUNT_WORTH * count * informed
        found = rng.beta(
            np.maximum(right + worth * centre, LEAST), np.maximum(count - right + worth * (1 - centre), LEAST)
        )
        return sigmoid(logit(found, 1e-6) + rng.normal(shift[0], np.hypot(SAMPLE / root, shift[1]), size=(DRAWS, 1)))

    precision = figure(expected.precision, hits, given, WORTH)
    recall = figure(expected.recall, hits, true, WORTH)
    both = np.maximum(precision + recall, 1e-12)
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / both,
        "ap": figure(expected.ap, ap * true, true, AP_WORTH),
    }


def _over_all(drawn: dict[str, Floats], expected: Expected) -> dict[str, Floats]:
    """mAP, CF1 and OF1 [S], as `f1_scores` computes them, of every draw."""
    precision, recall = drawn["precision"], drawn["recall"]
    op = precision @ expected.given / max(float(expected.given.sum()), 1e-12)
    overall = recall @ expected.true / max(float(expected.true.sum()), 1e-12)
    pairs = {"cf1": (precision.mean(1), recall.mean(1)), "of1": (op, overall)}
    f1 = {name: 2 * p * r / np.maximum(p + r, 1e-12) for name, (p, r) in pairs.items()}
    return {"map": drawn["ap"].mean(1), **f1}


def _errors_per_image(probabilities: NDArray[Any], thresholds: NDArray[Any]) -> tuple[float, float]:
    """Wrong tags that an image is expected to be given, and tags that it is expected to lack."""
    given = probabilities >= thresholds
    wrong = ((1 - probabilities) * given).sum(1).mean()
    return round(float(wrong), 4), round(float((probabilities * ~given).sum(1).mean()), 4)


def interval(values: Floats) -> list[float]:
    """The middle 95 % of draws."""
    low, high = np.percentile(values, [2.5, 97.5])
    return [float(low), float(high)]


def _mean(values: Floats) -> float:
    return float(values.mean())


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
