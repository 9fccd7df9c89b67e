"""What the verbs do once their arguments are read."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fewtags.cli.results import print_result

if TYPE_CHECKING:
    from fewtags.data.check import Report

THUMBNAILS_CLOSE = 0.15  # thumbnails of different photos are more alike than their features
AUTO = """The default. On stored features (--tune heads) `neighbours` on evidence, with the kind of features, the
strength of the regression and the share of the graph that the labelled images choose; with --tune all `d2l`;
without unlabelled images `asl`. `fewtags methods neighbours` lists the settings."""


def run_check(data: str, labels: Path | None, tags: str | None) -> None:
    """Print the report of a data set and what tags' names lead to; exit code 2 if something is wrong."""
    from fewtags.data.check import check
    from fewtags.data.labels.names import parse_tags
    from fewtags.utils.progress import Progress
    from fewtags.words import tag_weights

    named = parse_tags(tags) if tags is not None else ()

    with Progress("looking at the images", 1) as progress:

        def advance(done: int, total: int) -> None:
            progress.total = total
            progress.advance(done - progress.done)

        report = check(data, labels, advance=advance, tags=named)
    report.alike = _alike(report)
    print("\n".join(report.lines()))
    if report.tags and not data.startswith("vectors:"):
        print("what tags' names lead to (fewtags words NAME shows more):")
        print("\n".join(f"  {one.line()}" for one in tag_weights([count.tag for count in report.tags])))
    if report.problems:
        sys.exit(2)


def _alike(report: "Report") -> list[list[str]]:
    """The names of labelled images that look like one moment, a list per group."""
    if len(report.thumbnails) < 2:
        return []
    import numpy as np
    import torch

    from fewtags.solvers.bursts import find_bursts

    names = list(report.thumbnails)
    vectors = torch.from_numpy(np.stack(list(report.thumbnails.values())))
    group = find_bursts(vectors, list(report.taken.values()), THUMBNAILS_CLOSE)
    found = [[names[row] for row in np.flatnonzero(group == number)] for number in np.unique(group)]
    return [some for some in found if len(some) > 1]


def run_evaluate(run: Path, data: str | None, labels: Path | None, as_json: bool, method: str | None) -> None:
    """Print the figures of a run's model."""
    from fewtags.api import evaluate

    result = evaluate(run, data, labels=labels, methods=[method] if method else [])
    if as_json:
        print(json.dumps(result, indent=1, ensure_ascii=False))
    else:
        print_result(result)


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
