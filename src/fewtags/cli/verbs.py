"""What the verbs do once their arguments are read."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from fewtags.errors import UserError

AUTO = """The default. On stored features (--tune heads) `neighbours` on evidence, with the kind of features, the
strength of the regression and the share of the graph that the labelled images choose; with --tune all `d2l`;
without unlabelled images `asl`. `fewtags methods neighbours` lists the settings."""


def parse_settings(words: list[str]) -> dict[str, str]:
    """`key=value` words as a dict."""
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UserError(f"--set {word}: write it as key=value")
        settings[key.strip()] = value.strip()
    return settings


def run_check(data: str, labels: Path | None) -> None:
    """Print the report of a data set; exit code 2 if something is wrong."""
    from fewtags.data.check import check
    from fewtags.utils.progress import Progress

    with Progress("looking at the images", 1) as progress:

        def advance(done: int, total: int) -> None:
            progress.total = total
            progress.advance(done - progress.done)

        report = check(data, labels, advance=advance)
    print("\n".join(report.lines()))
    if report.problems:
        sys.exit(2)


def run_train(data: str, **options: Any) -> None:
    """Train and say what came out."""
    from fewtags.api import train
    from fewtags.training.build import processes

    run = train(data, **options)
    if processes()[0]:
        return
    result = run.result
    if result.get("map") is not None:
        print_result(result)
        print()
    if "estimate" in result:
        print_estimate(result["estimate"], with_tags=result.get("map") is None)
        print()
    folder, unlabelled = run.path, result["images"]["unlabelled"]
    if unlabelled:
        print(f"{unlabelled:,} image{'' if unlabelled == 1 else 's'} tagged: {folder / 'tags.csv'}")
        print(f"a glance at some of them: {folder / 'tags.png'}")
    name = shlex.quote(str(folder))
    print(f"how good they are, and what to look at: fewtags report {name}")
    print(f"correct them, then learn again: fewtags review {name}")
    print(f"tag other images: fewtags tag {name} IMAGES --out more.csv")


def run_evaluate(run: Path, data: str | None, labels: Path | None, as_json: bool) -> None:
    """Print the figures of a run's model."""
    from fewtags.api import evaluate

    result = evaluate(run, data, labels=labels)
    if as_json:
        print(json.dumps(result, indent=1, ensure_ascii=False))
    else:
        print_result(result)


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
    console.print(f"\nestimated quality (and where it lies in 95 of 100 draws): {figures}", highlight=False)
    console.print(f"from {estimate['how']}", highlight=False)


def run_methods(name: str | None) -> None:
    """List the methods, or one with its settings."""
    from fewtags.methods import find_method, method_names

    if name is None:
        _print_methods({each: find_method(each) for each in method_names()})
        return
    from fewtags.training.recipe import Recipe
    from fewtags.training.resolve import OPTIONS_ONLY

    if name == "auto":
        print(AUTO)
        return
    method = find_method(name)
    print((sys.modules[method.__module__].__doc__ or "").strip())
    for title, model in (("settings of the method", method), ("settings of the training", Recipe)):
        print(f"\n{title} (--set key=value)")
        for key, field in model.model_fields.items():
            if key not in OPTIONS_ONLY:
                print(f"  {key} = {field.default}\n      {(field.description or '').strip()}")


def _print_methods(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from fewtags.methods import Method

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("name", "paper", "year", "learns from", "views", "heads", ""):
        table.add_column(column, no_wrap=column == "name")
    for name, method in found.items():
        plain = method()
        table.add_row(
            name,
            method.paper,
            str(method.year or ""),
            "all images" if method.uses_unlabelled else "labelled",
            f"whole, {plain.patches**2} patches" if plain.patches > 1 else "whole",
            str(len(plain.head_names)) if method.build_heads is Method.build_heads else "its own",
            (method.__doc__ or "").split("\n")[0],
        )
    # on paper or in a pipe a method keeps its line
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _between(row: dict[str, Any], name: str) -> str:
    """`81.2 (75–86)`."""
    interval = row["intervals"][name]
    return _percent(row[name]) + (f" ({100 * interval[0]:.0f}–{100 * interval[1]:.0f})" if interval else "")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
