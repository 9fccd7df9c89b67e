"""The documented name of `fewtags.metrics`: `from fewtags.evaluation import mean_average_precision`."""

from fewtags.metrics import (
    average_precision,
    coverage_error,
    f1_scores,
    f1_under_rules,
    label_ranking_average_precision,
    mean_average_precision,
    per_tag,
    ranking_loss,
    summarise,
)

__all__ = [
    "average_precision",
    "coverage_error",
    "f1_scores",
    "f1_under_rules",
    "label_ranking_average_precision",
    "mean_average_precision",
    "per_tag",
    "ranking_loss",
    "summarise",
]
