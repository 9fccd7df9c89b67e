"""The figures of a run as tables for a terminal."""

from typing import Any

SHOWN = 8  # tags in one line


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
    if result.get("calibration_error") is not None:
        console.print(
            f"calibration error {_percent(result['calibration_error'])} (how far probabilities of 20 % and more are "
            "from what they say, on average)",
            highlight=False,
        )
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
    console.print(f"\nestimated quality (95 % intervals): {figures}", highlight=False)
    wrong, missing = estimate.get("wrong_per_image"), estimate.get("missing_per_image")
    if wrong is not None and missing is not None:
        console.print(f"expected: {wrong:.1f} wrong and {missing:.1f} missing tags per image", highlight=False)
    console.print(f"from {estimate['how']}", highlight=False)


def outlook(result: dict[str, Any]) -> list[str]:
    """What is not given and why, what corrections have brought, what more labels should bring: a line each."""
    lines = [compared["text"]] if (compared := result.get("compared")) else []
    held_back = result.get("not_given") or []
    if held_back:
        named = [f"{row['tag']} (about {row['more_labels']:,} more labels would help)" for row in held_back[:SHOWN]]
        rest = [f"and {len(held_back) - SHOWN} more"] if len(held_back) > SHOWN else []
        lines.append(f"not given to any image, too few examples to be sure: {', '.join(named + rest)}")
    curve = result.get("learning_curve")
    if curve:
        steps = curve["next"]
        gains = ", ".join(f"{step['labels']} more: {100 * step['map']:+.1f}" for step in steps)
        best = sorted(steps[-1]["per_tag"].items(), key=lambda pair: -pair[1])[:3]
        most = ", ".join(f"{tag} {100 * gain:+.0f}" for tag, gain in best if gain >= 0.01)
        after = f" (most after {steps[-1]['labels']}: {most})" if most else ""
        lines.append(f"what more labels should bring, in mAP: {gains}{after}")
    return lines


def _between(row: dict[str, Any], name: str) -> str:
    """`81.2 (75–86)`."""
    interval = row["intervals"][name]
    return _percent(row[name]) + (f" ({100 * interval[0]:.0f}–{100 * interval[1]:.0f})" if interval else "")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
