"""A self-contained HTML report of a run: its quality, per tag, and a gallery of images."""

from fewtags.report.page import write_report

__all__ = ["write_report"]
