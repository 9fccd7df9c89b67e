"""`fewtags report`: one HTML file about a run."""

from pathlib import Path


def run_report(run: Path, out: Path | None) -> None:
    """Write the page and say where it is."""
    from fewtags.api import write_report

    print(f"report: {write_report(run, out)}")
