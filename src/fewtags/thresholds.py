"""Rules that turn scores and labels into one threshold a tag; usable alone, on any model's scores."""

from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

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
    """MAT (D2L, ECCV 2024, Eq. 7): for each tag the threshold with the best metric on labelled images.

    scores [N, K] and labels [N, K] (1, 0, negative for unknown), numpy or torch; returns [K] of the same
    kind, float type and device (the search itself runs on the CPU). Positive is score >= threshold.
    metric: f_beta = (1 + beta²)PR / (beta P + R) as the paper prints it, or beta² P with textbook_beta; f1,
    precision, recall. Of equally good thresholds the lowest is taken: just above the highest score that it
    rejects. (At the lowest score it accepts it would be far too high for new images when labels are memorised.)
    grid=None tries every labelled score; grid=0.01 tries 0.00, 0.01, … 0.99 exactly as the released code.
    A tag without labelled positives gets infinity and is never positive; missing_class="reference" gives it 0
    as the released code, so it always is.

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
    # One tag at a time: sorting values is several times faster than finding the order of a whole table, and
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


def as_numpy(values: Any) -> NDArray[Any]:
    """A numpy array of what is given: an array, a list, or a torch tensor on any device."""
    if not _is_tensor(values):
        return np.asarray(values)
    values = values.detach().cpu()
    return np.asarray(values.float() if str(values.dtype) == "torch.bfloat16" else values)


def _is_tensor(values: Any) -> bool:
    """Whether this is a torch tensor, found out without importing torch."""
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
    """Sorted, without what is not a number: numpy puts that last, and no threshold lets it pass."""
    ordered = np.sort(values)
    return ordered[: np.searchsorted(ordered, np.inf, side="right")]


def _reaching(ascending: NDArray[Any], candidates: NDArray[Any]) -> NDArray[np.int64]:
    """How many of the sorted values are at or above each candidate."""
    return len(ascending) - np.searchsorted(ascending, candidates, side="left")


def _exact(
    present: NDArray[Any], scored: NDArray[Any], total: int, metric: str, beta: float, textbook_beta: bool
) -> Any:
    """The lowest of the best thresholds of one tag; present are the scores of its positives, both ascending.

    From one positive's score down to the next only false positives are added, so precision and F_beta are
    best at a positive's score. Recall never falls on the way down: its lowest best threshold is the lowest
    score. PR / (wP + R) equals hits / (predicted + w total): a single division, so that equal fractions are
    equal numbers and the lowest of them is found.
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
    """The first best of 0, grid, 2 grid, … below 1 with the roundings of the released code.

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
