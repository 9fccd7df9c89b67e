"""Rules that turn scores and labels into thresholds and pseudo-labels; they work with the scores of any model."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fewtags.errors import UserError, nearest

if TYPE_CHECKING:
    import torch

Array = TypeVar("Array", NDArray[Any], "torch.Tensor")
_METRICS = ("f_beta", "f1", "precision", "recall")


def metric_adaptive(
    scores: Array,
    labels: "NDArray[Any] | torch.Tensor",
    metric: str = "f_beta",
    beta: float = 0.5,
    *,
    grid: float | None = None,
    textbook_beta: bool = False,
    missing_class: Literal["never", "reference"] = "never",
) -> Array:
    """MAT (D2L, ECCV 2024, Eq. 7): per tag, the threshold that maximises a metric on the labelled images.

    scores [N, K] and labels [N, K] (1, 0, negative for unknown), numpy or torch; returns [K] of the same
    kind, float type and device (the search itself runs on the CPU). Positive is score >= threshold.
    metric: f_beta = (1 + beta²)PR / (beta P + R) as the paper prints it, or beta² P with textbook_beta; f1,
    precision, recall. Among equally good thresholds the lowest wins: just above the highest score that it
    rejects. (The lowest accepted score would be far too high for new images once labels are memorised.)
    grid=None tries every labelled score; grid=0.01 tries 0.00, 0.01, … 0.99 exactly as in the released code.
    A tag without labelled positives gets infinity and is never positive; missing_class="reference" gives it 0
    as in the released code, so it is always positive.

    >>> metric_adaptive(np.array([[0.9], [0.7], [0.2]]), np.array([[1], [1], [0]]))
    array([0.2])
    >>> decide(np.array([[0.9], [0.7], [0.2]]), np.array([np.nextafter(0.2, 1)])).T
    array([[1., 1., 0.]])
    """
    _check_settings(metric, beta, grid, missing_class)
    values, truth = as_numpy(scores), as_numpy(labels)
    if values.ndim != 2 or values.shape != truth.shape:
        raise ValueError(f"scores {values.shape} and labels {truth.shape} must have one shape [N, K]")
    if not np.issubdtype(values.dtype, np.floating):
        values = values.astype(np.float32)
    columns, positive, known = (np.ascontiguousarray(part.T) for part in (values, truth > 0, truth >= 0))
    thresholds = np.full(len(columns), np.inf if missing_class == "never" else 0.0, dtype=values.dtype)
    # One tag at a time: sorting values is several times faster than argsort over the whole table, and
    # the unknown cells, different for each tag, are simply left out.
    for tag, column in enumerate(columns):
        present, scored = _ascending(column[positive[tag]]), _ascending(column[known[tag]])
        total = int(positive[tag].sum())
        if not len(present):
            continue
        if grid is None:
            thresholds[tag] = _exact(present, scored, total, metric, beta, textbook_beta)
        else:
            thresholds[tag] = _released(present, scored, total, metric, beta, textbook_beta, grid)
    return cast(Array, _same_kind(thresholds, scores))


def decide(scores: Array, thresholds: Array) -> Array:
    """1 where score >= threshold, else 0. scores [N, K], thresholds [K] -> [N, K] of the scores' type."""
    reached: Any = scores >= thresholds
    return cast(Array, reached.to(scores.dtype) if _is_tensor(scores) else reached.astype(scores.dtype))


class Proportions(NamedTuple):
    """The result of class_proportion: [K] each."""

    thresholds: Any  # scores at or above it are positive
    sure_positive: Any  # positives at or above it count
    sure_negative: Any  # negatives at or below it count


def class_proportion(
    scores: Array,
    shares: "NDArray[Any] | torch.Tensor",
    *,
    positives: float = 1.0,
    negatives: float = 0.998,
    missing_class: Literal["never", "reference"] = "never",
) -> Proportions:
    """CAP (NeurIPS 2023): per tag, the threshold that keeps its labelled share of positives among unlabelled images.

    scores [M, K] of unlabelled images, shares [K] of labelled images with the tag. Only the highest-scoring share
    `positives` of the positives and the lowest-scoring share `negatives` of the negatives count; the rest is masked.
    A tag without labelled positives gets infinity and counts nowhere; missing_class="reference" gives it the lowest
    score, as in the released code.

    >>> class_proportion(np.array([[0.9], [0.8], [0.7], [0.6]]), np.array([0.5])).thresholds
    array([0.8])
    """
    values, share = as_numpy(scores), as_numpy(shares)
    count, tags = values.shape
    ascending = np.sort(values, axis=0)
    columns = np.arange(tags)

    def highest(part: NDArray[Any]) -> NDArray[Any]:
        """The score that `part` images reach; an index of -1 means the lowest of all, as in the released code."""
        place = part.astype(np.int64) - 1
        if missing_class == "never":
            place = np.where(share > 0, np.maximum(place, 0), place)
        return ascending[::-1][place, columns]

    lowest = (negatives * (1 - share) * count).astype(np.int64)
    found = [highest(share * count), highest(positives * share * count), ascending[lowest - 1, columns]]
    if missing_class == "never":
        usable = (share > 0, share > 0, (share > 0) & (lowest > 0))
        found = [
            np.where(where, each, limit).astype(values.dtype)
            for where, each, limit in zip(usable, found, (np.inf, np.inf, -np.inf), strict=True)
        ]
    return Proportions(*(_same_kind(each, scores) for each in found))


def selection_share(
    scores: Array, predicted: "NDArray[Any] | torch.Tensor", previous: Array, majority: int, confident: float = 0.95
) -> Array:
    """ADSH (ICML 2022): every tag keeps the share of predictions that the majority tag keeps at `confident`.

    scores [M, K] of unlabelled images, predicted [M, K] (bool: the tag is predicted), previous [K] thresholds,
    kept for tags that are never predicted. No threshold exceeds `confident`.
    """
    values, chosen, thresholds = as_numpy(scores), as_numpy(predicted), as_numpy(previous).copy()
    mine = [_ascending(values[chosen[:, tag], tag])[::-1] for tag in range(values.shape[1])]
    if not len(mine[majority]):
        return cast(Array, _same_kind(thresholds, previous))
    kept = float((mine[majority] >= confident).mean())
    for tag, best_first in enumerate(mine):
        if tag == majority:
            thresholds[tag] = confident
        elif len(best_first):
            place = max(0, int(np.round(len(best_first) * kept - 1)))
            thresholds[tag] = min(confident, best_first[place])
    return cast(Array, _same_kind(thresholds, previous))


def top_k(scores: "torch.Tensor", k: int) -> "torch.Tensor":
    """1 for the k highest-scoring tags of every image, else 0; ties go to the earlier tag. [B, K] -> [B, K]."""
    import torch

    best = torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :k]
    return torch.zeros_like(scores).scatter_(1, best, 1.0)


def largest(losses: "torch.Tensor", candidates: "torch.Tensor", count: int) -> "tuple[torch.Tensor, torch.Tensor]":
    """The cells with the `count` largest losses among candidates: (at or above the last of them, strictly above).

    losses, candidates [B, K] -> two masks of bool [B, K].
    """
    import torch

    open_losses = losses * candidates
    limit = torch.topk(open_losses.flatten(), count).values[-1]
    return (open_losses >= limit) & candidates, (open_losses > limit) & candidates


def lowest(values: "torch.Tensor", candidates: "torch.Tensor", count: int) -> "torch.Tensor":
    """DRML: indices of the `count` lowest finite values among candidates; ties go to the earlier.

    values, candidates [M] -> at most `count` indices.
    """
    import torch

    open_values = values.masked_fill(~candidates, torch.inf)
    best = torch.argsort(open_values, stable=True)[:count]
    return best[torch.isfinite(open_values[best])]


def confident(scores: "torch.Tensor", threshold: float) -> "tuple[torch.Tensor, torch.Tensor]":
    """PLC: present at or above the threshold; only those and scores below 1 - threshold count.

    scores [B, K] -> targets and mask, both 0/1 [B, K].
    """
    present = scores >= threshold
    return present.to(scores.dtype), (present | (scores < 1 - threshold)).to(scores.dtype)


def mid_ranges(scores: "torch.Tensor", labels: "torch.Tensor") -> "tuple[torch.Tensor, torch.Tensor]":
    """DiCaP: per tag, the midpoint between the lowest and highest score of its positive, and of its negative, images.

    scores, labels [N, K] (1, 0, negative for unknown) -> upper and lower threshold [K]. A tag without positives gets
    infinity and minus infinity, so that nothing counts; one without negatives gets minus infinity as the lower. The
    lower never exceeds the upper.
    """
    import torch

    def midpoint(chosen: "torch.Tensor", empty: float) -> "torch.Tensor":
        highest = torch.where(chosen, scores, scores.new_tensor(-torch.inf)).amax(0)
        lowest = torch.where(chosen, scores, scores.new_tensor(torch.inf)).amin(0)
        return torch.where(chosen.any(0), (highest + lowest) / 2, scores.new_tensor(empty))

    upper, lower = midpoint(labels == 1, torch.inf), midpoint(labels == 0, -torch.inf)
    return upper, torch.where(torch.isinf(upper), -torch.inf, torch.minimum(lower, upper))


def correctness(scores: "torch.Tensor", labels: "torch.Tensor", bins: int) -> "torch.Tensor":
    """The share of positive images in each bin of scores: scores, labels [N, K] -> [bins, K].

    Empty bins are interpolated linearly; beyond the outermost filled bins the curve is constant. A tag
    without known images gets the centre of each bin, as if scores were calibrated.
    """
    import torch

    centres = (np.arange(bins) + 0.5) / bins
    values, truth = as_numpy(scores), as_numpy(labels)
    places = np.clip((values * bins).astype(np.int64), 0, bins - 1)
    curve = np.empty((bins, values.shape[1]), np.float32)
    for tag in range(values.shape[1]):
        known = truth[:, tag] >= 0
        total = np.bincount(places[known, tag], minlength=bins)
        right = np.bincount(places[known & (truth[:, tag] == 1), tag], minlength=bins)
        filled = total > 0
        curve[:, tag] = np.interp(centres, centres[filled], right[filled] / total[filled]) if filled.any() else centres
    return torch.from_numpy(curve).to(scores)


def as_numpy(values: Any) -> NDArray[Any]:
    """A numpy array from an array, a list, or a torch tensor on any device."""
    if not _is_tensor(values):
        return np.asarray(values)
    values = values.detach().cpu()
    return np.asarray(values.float() if str(values.dtype) == "torch.bfloat16" else values)


def _is_tensor(values: Any) -> bool:
    """Whether this is a torch tensor, checked without importing torch."""
    return hasattr(values, "detach")


def _same_kind(thresholds: NDArray[Any], scores: Any) -> Any:
    if not _is_tensor(scores):
        return thresholds
    import torch

    tensor = torch.from_numpy(thresholds).to(scores.device)
    if not scores.is_floating_point():
        return tensor
    rounded = tensor.to(scores.dtype)  # upwards: a rejected score must stay below its threshold
    return torch.where(
        rounded.to(tensor.dtype) < tensor, rounded.nextafter(torch.full_like(rounded, torch.inf)), rounded
    )


def _ascending(values: NDArray[Any]) -> NDArray[Any]:
    """Sorted, without NaN: numpy sorts it last, and no threshold accepts it."""
    ordered = np.sort(values)
    return ordered[: np.searchsorted(ordered, np.inf, side="right")]


def _reaching(ascending: NDArray[Any], candidates: NDArray[Any]) -> NDArray[np.int64]:
    """How many of the sorted values are at or above each candidate."""
    return len(ascending) - np.searchsorted(ascending, candidates, side="left")


def _exact(
    present: NDArray[Any], scored: NDArray[Any], total: int, metric: str, beta: float, textbook_beta: bool
) -> Any:
    """The lowest of the best thresholds of one tag; `present`: the scores of its positives; both ascending.

    Between two positives' scores only false positives are added, so precision and F_beta are
    best at a positive's score. Recall never falls with the threshold: its lowest best threshold is the lowest
    score. PR / (wP + R) equals hits / (predicted + w total): a single division, so that equal fractions give
    equal floats and the lowest of them is found.
    """
    if metric == "recall":
        return scored[0]
    weight = {"precision": 0.0, "f1": 1.0}.get(metric, beta * beta if textbook_beta else beta)
    quality = _reaching(present, present) / (_reaching(scored, present) + weight * total)
    rejected = scored[: np.searchsorted(scored, present[np.argmax(quality)], side="left")]
    return np.nextafter(rejected[-1], np.inf, dtype=scored.dtype) if len(rejected) else scored[0]


def _released(
    present: NDArray[Any],
    scored: NDArray[Any],
    total: int,
    metric: str,
    beta: float,
    textbook_beta: bool,
    grid: float,
) -> Any:
    """The first best of 0, grid, 2 grid, … below 1 with the rounding of the released code.

    Thresholds are float32; the metric is computed in float64, then rounded to float32; 0/0 never wins.
    """
    candidates = np.arange(0, 1, grid).astype(np.float32).astype(scored.dtype)
    hits = _reaching(present, candidates)
    beta = 1.0 if metric == "f1" else beta
    weight = beta * beta if textbook_beta else beta
    with np.errstate(invalid="ignore"):
        precision, recall = hits / _reaching(scored, candidates), hits / total
        f_beta = (1 + beta * beta) * precision * recall / (weight * precision + recall)
    quality = {"precision": precision, "recall": recall}.get(metric, f_beta).astype(np.float32)
    return candidates[np.argmax(np.nan_to_num(quality))]


def _check_settings(metric: str, beta: float, grid: float | None, missing_class: str) -> None:
    if metric not in _METRICS:
        known = ", ".join(_METRICS)
        raise UserError(f"unknown metric {metric!r}: use one of {known}{nearest(metric, _METRICS)}")
    if missing_class not in ("never", "reference"):
        raise UserError(f"unknown missing_class {missing_class!r}: use 'never' or 'reference'")
    if not 0 <= beta < float("inf"):
        raise UserError(f"beta is {beta}: it must be 0 or more")
    if grid is not None and not 0 < grid < 1:
        raise UserError(f"grid is {grid}: it must lie between 0 and 1, or be None for the exact search")
