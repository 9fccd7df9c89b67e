"""Corrections by a person: the log of decisions, the order of questions, the local page, and retraining with them."""

from fewtags.review.log import Decision, ReviewLog, current_answers, read_log

__all__ = ["Decision", "ReviewLog", "current_answers", "read_log"]
