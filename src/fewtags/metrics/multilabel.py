"""Multi-label metrics in numpy: unknown cells are left out, ties count as in scikit-learn."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewtags.thresholds import as_numpy

Floats = NDArray[np.float64]


def average_precision(scores: ArrayLike, labels: ArrayLike) -> Floats:
    """Step-wise average precision of each tag, not interpolated. scores, labels [N, K] -> [K] in 0..1.

    labels: 1, 0, negative for unknown. A tag without known positives gets nan.
    """
    values, positive, known = _table(scores, labels)
    columns, positive, known = (np.ascontiguousarray(part.T) for part in (values, positive, known))
    result = np.full(len(columns), np.nan)
    for tag, column in enumerate(columns):
        present = np.sort(column[positive[tag]])
        if len(present):
            ascending = np.sort(column[known[tag]])
            # The mean, over the positives, of the precision among all that score at least as high.
            hits = len(present) - np.searchsorted(present, present, side="left")
            result[tag] = np.mean(hits / (len(ascending) - np.searchsorted(ascending, present, side="left")))
    return result


def mean_average_precision(scores: ArrayLike, labels: ArrayLike, empty: Literal["skip", "zero"] = "skip") -> float:
    """Mean of the tags' average precisions, 0..1. scores, labels [N, K] (1, 0, negative for unknown).

    A tag without known positives is left out (empty="skip") or counts 0 as in the papers (empty="zero").
    nan when there is no tag to average.

    >>> mean_average_precision(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[1, 0], [0, 1]]))
    1.0
    """
    if empty not in ("skip", "zero"):
        raise ValueError(f"empty is {empty!r}: use 'skip' or 'zero'")
    precisions = average_precision(scores, labels)
    missing = np.isnan(precisions)
    return _mean(precisions[~missing] if empty == "skip" else np.where(missing, 0.0, precisions))


def f1_scores(decisions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Precision, recall and F1, 0..1. decisions [N, K] of 0/1, labels [N, K] of 1, 0, negative for unknown.

    cp, cr, cf1: averaged over all K tags, a tag with nothing predicted (or nothing true) counting 0, as in
    the papers. cp_nanmean, cr_nanmean, cf1_nanmean: such tags left out, as in the released code.
    op, or, of1: over all cells together. 0/0 is 0.

    >>> f1_scores(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [0, 1]]))["cf1"]
    0.8571428571428571
    """
    hits, predicted, true = decision_counts(decisions, labels)
    precision, recall = ratio(hits, predicted), ratio(hits, true)
    scores: dict[str, float] = {}
    for suffix in ("", "_nanmean"):
        cp, cr = (_tag_mean(each, skip=suffix == "_nanmean") for each in (precision, recall))
        scores |= {"cp" + suffix: cp, "cr" + suffix: cr, "cf1" + suffix: _harmonic(cp, cr)}
    op, overall_recall = (float(np.nan_to_num(ratio(hits.sum(), each.sum()))) for each in (predicted, true))
    scores |= {"op": op, "or": overall_recall, "of1": _harmonic(op, overall_recall)}
    return scores


def coverage_error(scores: ArrayLike, labels: ArrayLike) -> float:
    """The mean rank, per row, of the lowest-ranked tag that is present.

    A row without tags counts 0.
    """
    positive, _, reaching = _row_counts(scores, labels)
    return _mean(np.where(positive, reaching, 0).max(axis=1, initial=0))


def ranking_loss(scores: ArrayLike, labels: ArrayLike) -> float:
    """Share of a row's (present, absent) pairs in the wrong order, ties being wrong, on average, 0..1.

    A row without such a pair counts 0.
    """
    positive, hits, reaching = _row_counts(scores, labels)
    present = positive.sum(axis=1)
    absent = (as_numpy(labels) >= 0).sum(axis=1) - present
    wrong = np.where(positive, reaching - hits, 0).sum(axis=1)
    return _mean(np.nan_to_num(ratio(wrong, present * absent)))


def label_ranking_average_precision(scores: ArrayLike, labels: ArrayLike) -> float:
    """Average precision of each row's ranking, averaged over the rows, 0..1.

    A row whose known tags are all present or all absent counts 1.
    """
    positive, hits, reaching = _row_counts(scores, labels)
    precision = np.where(positive, hits / np.maximum(reaching, 1), 0.0).sum(axis=1)
    present = positive.sum(axis=1)
    trivial = (present == 0) | (present == (as_numpy(labels) >= 0).sum(axis=1))
    return _mean(np.where(trivial, 1.0, precision / np.maximum(present, 1)))


def decision_counts(
    decisions: ArrayLike, labels: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """True positives, predicted positives and actual positives among each tag's known cells, [K] each."""
    values, positive, known = _table(decisions, labels)
    decided = values == 1
    if not (decided | (values == 0)).all():
        raise ValueError("decisions must be 0 or 1; apply the thresholds first (fewtags.thresholds.decide)")
    return (decided & positive).sum(axis=0), (decided & known).sum(axis=0), positive.sum(axis=0)


def ratio(part: Any, whole: Any) -> Floats:
    """part / whole, nan where the whole is 0."""
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    result = np.full(whole.shape, np.nan)
    np.divide(part, whole, out=result, where=whole != 0)
    return result


def _table(values: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.bool_]]:
    """Values [N, K], and masks of the cells that are present and known."""
    table, truth = as_numpy(values), as_numpy(labels)
    if table.ndim != 2 or table.shape != truth.shape:
        raise ValueError(f"{table.shape} and labels {truth.shape} must have one shape [N, K]")
    known = truth >= 0
    if (known & (table != table)).any():
        raise ValueError("a score of a known cell is not a number")
    return table, truth > 0, known


def _row_counts(scores: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """Each row in descending order of score: is the tag present, and how many present and known tags score as high."""
    values, positive, known = _table(scores, labels)
    order = np.argsort(values, axis=1)[:, ::-1]
    values, positive, known = (np.take_along_axis(part, order, axis=1) for part in (values, positive, known))
    # Tied scores share the counts at the last of them.
    places = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    last = np.ones(values.shape, dtype=bool)
    last[:, :-1] = values[:, :-1] != values[:, 1:]
    ends = np.where(last, places, values.shape[1])
    ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    hits, reaching = (np.take_along_axis(part.cumsum(axis=1), ends, axis=1) for part in (positive, known))
    return positive, hits, reaching


def _mean(values: NDArray[Any]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _tag_mean(values: Floats, skip: bool) -> float:
    values = values[~np.isnan(values)] if skip else np.nan_to_num(values)
    return float(np.mean(values)) if len(values) else 0.0


def _harmonic(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
