"""One self-contained HTML file about a run: how good it is, tag by tag, and images to look at."""

from fewtags.report.page import write_report

__all__ = ["write_report"]
