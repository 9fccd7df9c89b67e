"""Quality of scores and decisions: metrics over all tags, and a table with one row per tag."""

from fewtags.metrics.calibration import calibration_error
from fewtags.metrics.decision_rules import f1_under_rules
from fewtags.metrics.multilabel import (
    average_precision,
    coverage_error,
    f1_scores,
    label_ranking_average_precision,
    mean_average_precision,
    ranking_loss,
)
from fewtags.metrics.per_tag import per_tag, summarise

__all__ = [
    "average_precision",
    "calibration_error",
    "coverage_error",
    "f1_scores",
    "f1_under_rules",
    "label_ranking_average_precision",
    "mean_average_precision",
    "per_tag",
    "ranking_loss",
    "summarise",
]
