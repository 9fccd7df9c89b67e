"""What `fewtags bench` does once its arguments are read."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fewtags.cli.verbs import parse_settings
from fewtags.errors import UserError
from fewtags.utils.progress import say

DEFAULT_METHODS = ("asl", "cap", "d2l")


def run_bench(
    data: str,
    out: Path,
    methods: Sequence[str] | None,
    labelled: Sequence[float] | None,
    seeds: Sequence[int] | None,
    settings: list[str],
    options: dict[str, Any],
    jobs: int | None,
    engine: str,
    address: str | None,
    retry: bool,
) -> None:
    """Run the grid and say what failed; exit code 3 if something did."""
    from fewtags.bench.grid import make_grid, rows_of

    lists = {key: [word.strip() for word in value.split(",")] for key, value in parse_settings(settings).items()}
    rows = rows_of(methods or DEFAULT_METHODS, lists)
    grid = make_grid(data, rows, labelled or [None], seeds or [1], options)
    _run(out, grid, jobs, engine, address, retry)


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


def run_paper(
    name: str,
    path: str,
    out: Path | None,
    methods: Sequence[str] | None,
    labelled: Sequence[float] | None,
    seeds: Sequence[int] | None,
    options: dict[str, Any],
    jobs: int | None,
    engine: str,
    address: str | None,
    retry: bool,
    dry_run: bool,
) -> None:
    """Print the plan of the paper's grid, then run it."""
    from fewtags.bench.budget import plan, print_plan
    from fewtags.bench.grid import make_grid, rows_of
    from fewtags.bench.published import SHARES

    rows = rows_of(methods or ["paper", "mat", "mat+cdd"], {})
    grid = make_grid(f"{name}:{path}", rows, labelled or SHARES, seeds or range(1, 6), options)
    print_plan(plan(grid), jobs)
    if not dry_run:
        _run(out or Path(f"paper-{name}"), grid, jobs, engine, address, retry)


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
