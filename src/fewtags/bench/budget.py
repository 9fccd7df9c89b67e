"""The plan of a large grid: the runs, and the hours they take, from steps timed on this machine."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fewtags.bench.grid import Cell, Grid, Row
from fewtags.bench.tables import label, ordered
from fewtags.bench.task import job_of
from fewtags.data import Role
from fewtags.training.build import build_network, make_fabric
from fewtags.training.config import resolve_settings
from fewtags.training.evaluator import Record
from fewtags.training.loop import Loop, Observer
from fewtags.training.plan import plan_epoch
from fewtags.training.prepare import prepare
from fewtags.training.recipe import Recipe, Stage, small_batches
from fewtags.training.resolve import Job
from fewtags.utils.progress import Progress, duration
from fewtags.utils.stopping import StopRequest

TIMED_STEPS = 3  # the first is not counted


@dataclass(frozen=True)
class Speed:
    """Seconds per image on this machine, for one kind of method."""

    warmup_image: float  # a labelled image in the warm-up, with all its views
    main_image: float  # a labelled or unlabelled image in the main stage
    scored_image: float  # an image that is only scored


@dataclass(frozen=True)
class PlannedRow:
    """One line of the plan."""

    row: Row
    cells: list[Cell]
    hours: float  # of all its cells


def plan(grid: Grid) -> list[PlannedRow]:
    """Time a few steps of every kind of method on real images, and extrapolate."""
    rows = ordered(dict.fromkeys(cell.row for cell in grid.cells))
    first = {row: next(cell for cell in grid.cells if cell.row == row) for row in rows}
    speeds: dict[tuple[object, ...], Speed] = {}
    planned = []
    with Progress("timing steps", len(rows)) as progress:
        for row in rows:
            job = job_of(grid, first[row])
            kind = (job.method.patches, job.method.uses_unlabelled, len(job.method.updates), job.method.separates_heads)
            if kind not in speeds:
                speeds[kind] = time_steps(job)
            cells = [cell for cell in grid.cells if cell.row == row]
            hours = sum(seconds(grid, cell, job, speeds[kind]) for cell in cells) / 3600
            planned.append(PlannedRow(row, cells, hours))
            progress.advance()
    return planned


def seconds(grid: Grid, cell: Cell, job: Job, speed: Speed) -> float:
    """The time of one cell: its steps, and the images scored in every epoch."""
    count = {role: len(job.catalogue.rows(role)) for role in Role}
    train = count[Role.LABELLED] + count[Role.UNLABELLED]
    labelled = count[Role.LABELLED] if cell.labelled is None else int(cell.labelled * train)
    recipe = _recipe(grid, cell, labelled, train - labelled)
    total = 0.0
    for stage in recipe.stages(job.method.uses_unlabelled):
        steps = len(plan_epoch(labelled, train - labelled, stage.labelled_batch, stage.unlabelled_batch, None))
        images = steps * _images_per_step(stage, labelled, train - labelled)
        learning = images * (speed.main_image if stage.unlabelled_batch else speed.warmup_image)
        weights = 2 if recipe.protocol == "paper" else 1  # raw and averaged weights are evaluated
        scored = weights * count[Role.TEST] + labelled + (train - labelled if stage.unlabelled_batch else 0)
        total += stage.epochs * (learning + scored * speed.scored_image)
    return total


def time_steps(job: Job) -> Speed:
    """Time a few steps of both stages on a few images of the data."""
    recipe = job.recipe
    wanted = {
        Role.LABELLED: TIMED_STEPS * max(recipe.warmup_batch, recipe.labelled_batch),
        Role.UNLABELLED: TIMED_STEPS * recipe.unlabelled_batch,
        Role.TEST: recipe.unlabelled_batch,
    }
    rows: NDArray[np.int64] = np.concatenate([job.catalogue.rows(role)[:most] for role, most in wanted.items()])
    short = recipe.model_copy(update={"warmup": min(1, recipe.warmup), "epochs": min(1, recipe.epochs)})
    fabric = make_fabric(short)
    prepared = prepare(job.catalogue.take(rows), job.preparation(fabric, StopRequest()))
    network = build_network(prepared.encoder, prepared.source, job.method, short, len(job.catalogue.tags), fabric)
    timer = _StepTimer()
    loop = Loop(network, prepared.source, job.method, short, prepared.targets, fabric, timer)
    loop.run()
    part = loop.parts[-1]
    began = time.monotonic()
    scored = len(loop.scores(part, "plain"))
    scoring = (time.monotonic() - began) / max(1, scored)
    labelled, unlabelled = len(prepared.targets.labelled), prepared.targets.unlabelled
    per_image = {
        stage.name: timer.seconds_per_step(stage.name) / _images_per_step(stage, labelled, unlabelled)
        for stage in loop.stages
    }
    return Speed(per_image.get("warmup", 0.0), per_image.get("main", 0.0), scoring)


def _images_per_step(stage: Stage, labelled: int, unlabelled: int) -> int:
    return min(stage.labelled_batch, labelled) + min(stage.unlabelled_batch, unlabelled)


def print_plan(planned: Sequence[PlannedRow], jobs: int | None) -> None:
    """Print the runs and hours of each row."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", title="The plan", title_justify="left")
    for head in ("", "runs", "hours per run", "hours"):
        table.add_column(head, justify="left" if not head else "right")
    for one in planned:
        table.add_row(label(one.row), f"{len(one.cells)}", f"{one.hours / len(one.cells):.2f}", f"{one.hours:.1f}")
    total, runs = sum(one.hours for one in planned), sum(len(one.cells) for one in planned)
    table.add_row("all", f"{runs}", "", f"{total:.1f}")
    Console().print(table)
    side_by_side = f", {duration(3600 * total / jobs)} with {jobs} at a time" if jobs and jobs > 1 else ""
    print(f"estimated from a few steps timed here: {duration(3600 * total)}{side_by_side}")


class _StepTimer(Observer):
    """Records when stages begin and steps end."""

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = {}

    def stage(self, stage: Stage, steps: int, done: int) -> None:
        self._times[stage.name] = [time.monotonic()]

    def step(self, report: Record) -> None:
        self._times[report["stage"]].append(time.monotonic())

    def seconds_per_step(self, stage: str) -> float:
        """The mean over all steps but the first, which fills caches; a single step counts as it is."""
        times = self._times.get(stage, [])
        times = times[1:] if len(times) > 2 else times
        return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0


def _recipe(grid: Grid, cell: Cell, labelled: int, unlabelled: int) -> Recipe:
    options = grid.options
    given = {key: options.get(key) for key in ("epochs", "warmup", "size")} | {"seed": cell.seed}
    share = labelled / max(1, labelled + unlabelled)
    small = small_batches(grid.data)
    tune, protocol = options.get("tune", "heads"), options.get("protocol", "ours")
    settings = dict(cell.row.settings)
    _, recipe = resolve_settings(cell.row.method, tune, protocol, share, small, given, settings, labelled, unlabelled)
    return recipe
