"""`fewtags bench`: grids of runs, their tables and figures, and the paper's own grid."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from fewtags.cli.lazy import lazy

bench = typer.Typer(help="Grids of runs, and the tables and figures made of them.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The --out of `fewtags bench run`.")]


class Format(str, Enum):
    """How a table is written."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"
    latex = "latex"


class Rule(str, Enum):
    """Who decides which score is high enough."""

    mat = "mat"
    own = "own"
    half = "half"
    top_k = "top_k"


@bench.command("run", cls=lazy("fewtags.cli.grids", "run"))
def run() -> None:
    """Run a grid: methods × labelled shares × seeds. Killed at any moment, it goes on where it was."""


@bench.command("table")
def table(
    folder: Folder,
    kind: Annotated[
        Format | None, typer.Option("--format", help="How it is written; else as the name of --out ends.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="A file instead of the screen.")] = None,
    rule: Annotated[Rule, typer.Option(help="Decides for CF1 and OF1 over the shares.")] = Rule.mat,
    paper: Annotated[bool, typer.Option("--paper", help="Put the published figures beside.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 2 if cells are missing.")] = False,
) -> None:
    """The tables of a grid: quality, rules of decision, ablation, cost."""
    from fewtags.cli.grids import run_table

    run_table(folder, kind.value if kind else None, out, rule.value, paper, strict)


@bench.command("figures")
def figures(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where they go; else DIR/figures.")] = None,
) -> None:
    """The figures of a grid, each as PNG, SVG and PDF."""
    from fewtags.cli.grids import run_figures

    run_figures(folder, out)


@bench.command("paper", cls=lazy("fewtags.cli.grids", "paper"))
def paper() -> None:
    """The paper's grid under the paper's protocol; for machines with GPUs. Prints the plan first."""
