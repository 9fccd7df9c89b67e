"""The figures of a run as tables for a terminal."""

from typing import Any


def print_result(result: dict[str, Any]) -> None:
    """The per-tag table and the summary beneath it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("tag")
    for name in ("images", "AP", "precision", "recall", "F1", "threshold"):
        table.add_column(name, justify="right")
    for row in result["per_tag"]:
        cells = [_percent(row[key]) for key in ("ap", "precision", "recall", "f1")]
        threshold = "never given" if row["threshold"] is None else f"{row['threshold']:.3f}"
        table.add_row(Text(row["tag"]), f"{row['support']:,}", *cells, threshold)
    console = Console()
    console.print(table)
    summary = f"mAP {_percent(result['map'])}   CF1 {_percent(result['cf1'])}   OF1 {_percent(result['of1'])}"
    console.print(f"\n{summary}", highlight=False)
    if result["tags_without_positives"]:
        missing = ", ".join(result["tags_without_positives"])
        console.print(Text(f"no test image shows {missing}: left out of mAP"))
    best = result.get("chosen_on_the_test_split")
    if best:
        which = "averaged" if best["average"] else "raw"
        console.print(
            f"protocol paper: epoch {best['epoch'] + 1}, {which} weights, chosen on the test split: "
            f"mAP {_percent(best['map'])}   CF1 {_percent(best['cf1'])}   OF1 {_percent(best['of1'])}",
            highlight=False,
        )


def print_estimate(estimate: dict[str, Any], with_tags: bool) -> None:
    """What quality to expect of the tags, without a test set."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if with_tags:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("tag")
        for name in ("labelled", "precision", "recall", "F1", "threshold"):
            table.add_column(name, justify="right")
        for row in estimate["per_tag"]:
            cells = [_between(row, name) for name in ("precision", "recall", "f1")]
            if not row["enough"]:
                cells = ["too few to say", "", ""]
            threshold = "never given" if row["threshold"] is None else f"{row['threshold']:.3f}"
            table.add_row(Text(row["tag"]), f"{row['support']:,}", *cells, threshold)
        console.print(table)
    figures = "   ".join(f"{label} {_between(estimate, name)}" for name, label in
                         (("map", "mAP"), ("cf1", "CF1"), ("of1", "OF1")))  # fmt: skip
    console.print(f"\nestimated quality (95 % bootstrap intervals): {figures}", highlight=False)
    console.print(f"from {estimate['how']}", highlight=False)


def _between(row: dict[str, Any], name: str) -> str:
    """`81.2 (75–86)`."""
    interval = row["intervals"][name]
    return _percent(row[name]) + (f" ({100 * interval[0]:.0f}–{100 * interval[1]:.0f})" if interval else "")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
