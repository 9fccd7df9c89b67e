"""Runs the missing cells of a grid. Finished cells stay, started ones resume, failed ones wait for `--retry`."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from fewtags.bench.engines import default_jobs, run_here, run_on_ray
from fewtags.bench.grid import Cell, Grid, Row, load_grid, save_grid
from fewtags.bench.live import Live
from fewtags.bench.records import drop_records, finished, read_records, refresh_records
from fewtags.bench.task import Task, job_of
from fewtags.data import Role, hide, read
from fewtags.data.labels.names import parse_tags
from fewtags.errors import Interrupted, UserError
from fewtags.training.build import make_fabric
from fewtags.training.prepare import extract_features
from fewtags.training.resolve import Job
from fewtags.utils.files import locked, write_text
from fewtags.utils.progress import Progress
from fewtags.utils.stopping import StopRequest

STOPPED = "stopped; finished cells are kept, the same command resumes the others from their checkpoints"


def run_grid(
    folder: Path,
    grid: Grid,
    jobs: int | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    retry: bool = False,
) -> dict[Cell, str]:
    """Run the missing cells; returns the failed cells, each with the reason."""
    _check_folder(folder, grid)
    with StopRequest().listening() as stop:
        kinds = check_cells(grid)
        _make_folder(folder)
        with _only_run(folder):
            wanted = _merged(folder, grid)
            save_grid(folder, wanted)
            if retry:
                _clear_failures(folder, grid)
            failed = {cell: failure(folder, cell) for cell in grid.cells if _failure_file(folder, cell).exists()}
            # a record without a run folder is enough: only records need to be kept
            done = {one.cell for one in read_records(folder) if not (folder / one.cell.folder).exists()}
            done |= {cell for cell in grid.cells if finished(folder / cell.folder)}
            left = [cell for cell in grid.cells if cell not in failed and cell not in done]
            if left:
                drop_records(folder, left)
                compute_features(kinds, stop)
                task = Task(folder, grid)
                if engine == "ray":
                    events = run_on_ray(task, left, address, gpus=grid.options.get("tune") != "heads")
                else:
                    events = run_here(task, left, jobs or default_jobs())
                with contextlib.closing(events), Live(grid.cells, left, failed) as live:
                    for event in events:
                        if stop.requested:
                            raise Interrupted(STOPPED)
                        live.update(event)
                        if event.what == "failed" and event.cell is not None:
                            failed[event.cell] = event.reason
                            write_text(_failure_file(folder, event.cell), event.reason)
            refresh_records(folder, wanted.cells)
    return failed


def check_cells(grid: Grid) -> list[Job]:
    """Check all cells before anything is written; returns one job for every kind of features that is needed."""
    labels, split = grid.options.get("labels"), grid.options.get("split", "paper")
    tags = grid.options.get("tags")
    named = () if tags is None else parse_tags(tags)
    catalogue = read(grid.data, None if labels is None else Path(labels), tags=named)
    for share, seed in dict.fromkeys((cell.labelled, cell.seed) for cell in grid.cells):
        if share is not None:
            hide(catalogue, share, seed, split)
    first: dict[Row, Cell] = {}
    for cell in grid.cells:
        first.setdefault(cell.row, cell)
    kinds: dict[tuple[object, ...], Job] = {}
    with Progress("checking the grid", len(first)) as progress:
        for cell in first.values():
            job = job_of(grid, cell)
            if job.recipe.tune == "heads":
                kinds.setdefault(_features_key(job), job)
            progress.advance()
    return list(kinds.values())


def compute_features(jobs: list[Job], stop: StopRequest) -> None:
    """Compute the features of frozen backbones once, on all cores, before the cells use them."""
    for job in jobs:
        how = job.preparation(make_fabric(job.recipe), stop)
        # features for any split: every image counts as unlabelled, and has strong views if any image may need them
        everything = replace(how, uses_unlabelled=how.uses_unlabelled or job.recipe.labelled_view == "strong")
        roles = job.catalogue.roles.copy()
        roles[roles == Role.LABELLED] = Role.UNLABELLED
        extract_features(replace(job.catalogue, roles=roles), everything)


def _features_key(job: Job) -> tuple[object, ...]:
    """The settings that the stored features of a run depend on."""
    shape = ("size", "strong_draws", "features", "patch_source", "patch_size", "scaling", "labelled_view")
    method = job.method
    return (
        job.config.backbone,
        *(method.patches, method.uses_unlabelled, method.draws_views),
        *(getattr(job.recipe, name) for name in shape),
    )


def failure(folder: Path, cell: Cell) -> str:
    """The reason why a cell failed; empty if it did not."""
    file = _failure_file(folder, cell)
    return file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""


def _failure_file(folder: Path, cell: Cell) -> Path:
    run = folder / cell.folder
    return run.parent / f"{run.name}.failed"


def _clear_failures(folder: Path, grid: Grid) -> None:
    for cell in grid.cells:
        if failure(folder, cell):
            shutil.rmtree(folder / cell.folder, ignore_errors=True)
            _failure_file(folder, cell).unlink()


def _check_folder(folder: Path, grid: Grid) -> None:
    """Refuse a folder with other content, before anything is written into it."""
    if (folder / "grid.json").exists():
        _merged(folder, grid)
    elif folder.exists() and (not folder.is_dir() or any(not _is_leftover(path) for path in folder.iterdir())):
        raise UserError(f"{folder} exists and is no grid of runs; choose another --out")


def _is_leftover(path: Path) -> bool:
    """Whether a path was left by a run that was killed before its first cell."""
    return path.name == "lock" or path.name.startswith(".grid.json.")


def _merged(folder: Path, grid: Grid) -> Grid:
    """The grid, merged with the grid that the folder already holds."""
    if not (folder / "grid.json").exists():
        return grid
    before = load_grid(folder)
    if before.data != grid.data:
        raise UserError(f"{folder} holds a grid on {before.data}, not on {grid.data}; choose another --out")
    if before.options != grid.options:
        ours, theirs = (" ".join(f"--{key} {value}" for key, value in one.options.items()) for one in (before, grid))
        raise UserError(
            f"{folder} holds a grid with other options ({ours or 'none'}; now {theirs or 'none'}); choose another --out"
        )
    return before.with_cells_of(grid)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {folder} cannot be made ({error.strerror}); choose another folder") from error


@contextlib.contextmanager
def _only_run(folder: Path) -> Iterator[None]:
    """Allow one `bench run` per folder."""
    with (folder / "lock").open("a") as file:
        try:
            with locked(file, wait=False):
                yield
        except BlockingIOError as error:
            raise UserError(f"another `fewtags bench run` works on {folder}; wait, or choose another --out") from error
