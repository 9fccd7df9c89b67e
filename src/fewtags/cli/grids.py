"""What `fewtags bench` does once its arguments are read."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from fewtags.cli.derive import derived
from fewtags.cli.options import Data
from fewtags.cli.settings import parse_settings
from fewtags.errors import UserError
from fewtags.training.options import option_names
from fewtags.utils.progress import say

DEFAULT_METHODS = ("asl", "cap", "d2l")


class Engine(str, Enum):
    """Where cells run."""

    local = "local"
    ray = "ray"


class PaperData(str, Enum):
    """The data sets of the paper."""

    voc = "voc"
    coco = "coco"
    nus = "nus"


Methods = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME …", help="Methods, variants such as mat+cdd, or the words paper, ablation, all."),
]
Shares = Annotated[list[float] | None, typer.Option(metavar="SHARE …", help="Shares of labels that are kept.")]
Seeds = Annotated[list[int] | None, typer.Option(metavar="N …", help="Seeds.")]
Jobs = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Cells at a time; by default one per core, or one on a GPU.")
]
EngineOption = Annotated[Engine, typer.Option(help="local, or ray: the same cells as Ray tasks, also on several GPUs.")]
Address = Annotated[str | None, typer.Option(help="Of a running Ray cluster; else one is started here.")]
Retry = Annotated[bool, typer.Option("--retry", help="Run cells that failed once more, from the start.")]


@derived(option_names(unmarked=("axis", "running")), words="off")
def run(
    data: Data,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the grid; more cells may be added later.")],
    given: dict[str, Any],
    methods: Methods = None,
    labelled: Shares = None,
    seeds: Seeds = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=A,B,…", help="Settings; several values make several rows."),
    ] = None,
    jobs: Jobs = None,
    engine: EngineOption = Engine.local,
    address: Address = None,
    retry: Retry = False,
) -> None:
    """Run a grid: methods × labelled shares × seeds. Killed at any moment, it goes on where it was."""
    from fewtags.bench.grid import make_grid, rows_of

    lists = {key: [word.strip() for word in value.split(",")] for key, value in parse_settings(settings or []).items()}
    rows = rows_of(methods or DEFAULT_METHODS, lists)
    grid = make_grid(data, rows, labelled or [None], seeds or [1], given)
    _run(out, grid, jobs, engine.value, address, retry)


@derived(["backbone", "weights", "size", "epochs", "warmup"], backbone="resnet50", size=224, epochs=28, warmup=12)
def paper(
    name: Annotated[PaperData, typer.Argument(metavar="voc|coco|nus", help="Which of the paper's data sets.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Where it lies.")],
    given: dict[str, Any],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder of the grid; else paper-NAME.")] = None,
    methods: Methods = None,
    labelled: Shares = None,
    seeds: Seeds = None,
    jobs: Jobs = None,
    engine: EngineOption = Engine.local,
    address: Address = None,
    retry: Retry = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan with its hours, run nothing.")] = False,
) -> None:
    """The paper's grid under the paper's protocol; for machines with GPUs. Prints the plan first."""
    from fewtags.bench.budget import plan, print_plan
    from fewtags.bench.grid import make_grid, rows_of
    from fewtags.bench.published import SHARES

    options = {**given, "tune": "all", "protocol": "paper"}
    rows = rows_of(methods or ["paper", "mat", "mat+cdd"], {})
    grid = make_grid(f"{name.value}:{path}", rows, labelled or SHARES, seeds or range(1, 6), options)
    print_plan(plan(grid), jobs)
    if not dry_run:
        _run(out or Path(f"paper-{name.value}"), grid, jobs, engine.value, address, retry)


def run_table(folder: Path, kind: str | None, out: Path | None, rule: str, paper: bool, strict: bool) -> None:
    """Print or write the tables of a grid; missing cells are named."""
    from fewtags.bench.formats import as_csv, as_latex, as_markdown, as_text, for_terminal
    from fewtags.bench.published import published
    from fewtags.bench.tables import has_paper, missing_cells, tables
    from fewtags.utils.files import write_text

    grid, records = _records(folder)
    missing = missing_cells(records, grid.cells)
    if not records:
        raise UserError(f"{folder}: no cell is finished yet; `fewtags bench run` goes on with it")
    beside = None
    if paper:
        beside = published(grid.data, _protocol(records, grid.options))
        if beside is None:
            raise UserError(f"--paper: nothing was published on {grid.data}; there is voc, coco and nus")
    found = tables(records, grid.cells, rule, beside)
    if grid.options["words"] != "off":
        said = "with words: a method that can reads tags' names beside the labels"
        found = [replace(one, title=f"{one.title}, with words", notes=[*one.notes, said]) for one in found]
    if beside is not None and not any(map(has_paper, found)):
        say("--paper: nothing was published of these methods at these shares")
    if kind is None:
        kind = "terminal" if out is None else _by_suffix(out)
    write = {"terminal": as_text, "markdown": as_markdown, "csv": as_csv, "latex": as_latex}[kind]
    if out is not None:
        write_text(out, write(found))
        print(out)
    elif kind == "terminal" and sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        for one in found:
            console.print(for_terminal(one, console.width))
            console.print()
    else:
        print(write(found), end="")
    if missing:
        say(f"missing: {len(missing)} of {len(grid.cells)} cells, such as {missing[0].words}")
        if strict:
            raise UserError("--strict: a table with missing cells; `fewtags bench run` goes on with them")


def run_figures(folder: Path, out: Path | None) -> None:
    """Draw everything that the grid has something to show for."""
    from fewtags.bench.figures import save_figures

    _, records = _records(folder)
    if not records:
        raise UserError(f"{folder}: no cell is finished yet; `fewtags bench run` goes on with it")
    out = out or folder / "figures"
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; figures need a folder: name another with --out, or remove it")
    for file in save_figures(records, out):
        print(file)


def _run(out: Path, grid: Any, jobs: int | None, engine: str, address: str | None, retry: bool) -> None:
    from fewtags.bench.runner import run_grid

    if address and engine != "ray":
        raise UserError(f"--address {address}: only --engine ray knows clusters")
    failed = run_grid(out, grid, jobs, engine, address, retry)  # type: ignore[arg-type]
    print(f"{len(grid.cells) - len(failed)} of {len(grid.cells)} cells are done: {out}")
    if failed:
        for cell, reason in failed.items():
            print(f"  failed: {cell.words}: {reason}")
        print("run these again with the same command and --retry")
        sys.exit(3)
    print(f"tables: fewtags bench table {out}\nfigures: fewtags bench figures {out}")


def _records(folder: Path) -> tuple[Any, list[Any]]:
    from fewtags.bench.grid import load_grid
    from fewtags.bench.records import refresh_records

    grid = load_grid(folder)
    return grid, refresh_records(folder, grid.cells)


def _by_suffix(out: Path) -> str:
    kinds = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".txt": "terminal"}
    if out.suffix.lower() not in kinds:
        raise UserError(f"--out {out}: its name says no format; end it in {', '.join(kinds)}, or give --format")
    return kinds[out.suffix.lower()]


def _protocol(records: Sequence[Any], options: Mapping[str, Any]) -> str:
    """How the runs of a grid were made, in words."""
    one = records[0]
    epochs = f" ({options['warmup']} + {options['epochs']} epochs)" if {"warmup", "epochs"} <= options.keys() else ""
    if epochs and any({"warmup", "epochs"} & record.settings.keys() for record in records):
        epochs = epochs.replace(")", " where a row names none)")
    learns = "every weight learns" if one.tune == "all" else f"frozen, {one.features} features, only heads learn"
    chooses = "the test split chooses the epoch" if one.protocol == "paper" else "the test split chooses nothing"
    return f"{one.backbone} at {one.size} px, {learns}{epochs}; {chooses}"
