"""Corrections by a person: decisions in a log, the order to ask in, the local page, what learning makes of them."""

from fewtags.review.log import Decision, ReviewLog, read_log, standing

__all__ = ["Decision", "ReviewLog", "read_log", "standing"]
