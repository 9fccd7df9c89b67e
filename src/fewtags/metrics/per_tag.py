"""Readable results: one row per tag, and a summary over all tags."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fewtags.metrics.multilabel import average_precision, decision_counts, f1_scores, mean_average_precision, ratio
from fewtags.thresholds import as_numpy, decide


def per_tag(scores: ArrayLike, labels: ArrayLike, thresholds: ArrayLike, tags: Sequence[str]) -> list[dict[str, Any]]:
    """One row per tag: tag, support (known positives), known, ap, threshold, precision, recall, f1.

    scores, labels [N, K], thresholds [K], K tags; figures in 0..1. Undefined values (0/0, the threshold of a
    tag that is never given) are None, so that a row can be written as JSON.
    """
    values, truth, limits = as_numpy(scores), as_numpy(labels), as_numpy(thresholds)
    if len(tags) != values.shape[1] or limits.shape != (len(tags),):
        raise ValueError(f"{len(tags)} tags, scores {values.shape}, thresholds {limits.shape} do not fit")
    hits, predicted, true = decision_counts(decide(values, limits), truth)
    columns = {
        "ap": average_precision(values, truth),
        "threshold": limits,
        "precision": ratio(hits, predicted),
        "recall": ratio(hits, true),
        "f1": ratio(2 * hits, predicted + true),
    }
    known = (truth >= 0).sum(axis=0)
    return [
        {"tag": tag, "support": int(true[place]), "known": int(known[place])}
        | {name: _plain(column[place]) for name, column in columns.items()}
        for place, tag in enumerate(tags)
    ]


def summarise(scores: ArrayLike, labels: ArrayLike, thresholds: ArrayLike, tags: Sequence[str]) -> dict[str, Any]:
    """The figures over all tags, 0..1, ready for JSON (None where there is nothing to average).

    map leaves out tags without known positives (listed in tags_without_positives); map_paper counts them as 0.
    The rest come from f1_scores. scores, labels [N, K], thresholds [K], K tags.
    """
    values, truth = as_numpy(scores), as_numpy(labels)
    support = (truth > 0).sum(axis=0)
    return {
        "map": _plain(mean_average_precision(values, truth)),
        "map_paper": _plain(mean_average_precision(values, truth, empty="zero")),
        **f1_scores(decide(values, as_numpy(thresholds)), truth),
        "tags_without_positives": [tag for tag, count in zip(tags, support, strict=True) if not count],
    }


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
