"""Runs the cells of a grid: on the cores of this machine, or as Ray tasks on a cluster. Finished cells stay."""

import contextlib
import multiprocessing
import os
import platform
import shutil
import subprocess
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from importlib.metadata import version
from multiprocessing.connection import wait as wait_for_connection
from pathlib import Path
from typing import Any, Literal

from fewtags.bench.grid import Cell, Grid, load_grid, save_grid
from fewtags.bench.live import Live
from fewtags.bench.records import refresh_records
from fewtags.data import Role
from fewtags.errors import Fault, Interrupted, UserError
from fewtags.files import write_json, write_text
from fewtags.training.run import RunFolder, StopRequest

POLL_SECONDS = 0.5
KEPT = "stopped; finished cells stay, begun ones go on from their checkpoints with the same command"


def run_grid(
    folder: Path,
    grid: Grid,
    jobs: int | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    retry: bool = False,
) -> dict[Cell, str]:
    """Run what is missing and return the cells that failed, each with the reason."""
    if (folder / "grid.json").exists():
        before = load_grid(folder)
        if (before.data, before.options) != (grid.data, grid.options):
            raise UserError(f"{folder} holds a grid of other data or options; choose another --out")
        wanted = before.with_cells_of(grid)
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is no grid of runs; choose another --out")
    else:
        wanted = grid
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {folder} cannot be made ({error.strerror}); choose another folder") from error
    with _alone(folder), StopRequest().listening() as stop:
        save_grid(folder, wanted)
        if retry:
            for cell in grid.cells:
                if _failure_file(folder, cell).exists():
                    shutil.rmtree(folder / cell.folder, ignore_errors=True)
                    _failure_file(folder, cell).unlink()
        failed = {cell: _failure_file(folder, cell).read_text(encoding="utf-8")
                  for cell in grid.cells if _failure_file(folder, cell).exists()}  # fmt: skip
        left = [cell for cell in grid.cells if cell not in failed and not _finished(folder, cell)]
        if left:
            compute_features(grid, left, stop)
            task = _Task(folder, grid, commit())
            ends = run_on_ray(task, left, address) if engine == "ray" else run_here(task, left, jobs)
            with Live(grid.cells, left, failed) as live:
                for event, changed, reason in ends:
                    if stop.requested:
                        ends.close()
                        raise Interrupted(KEPT)
                    live.tell(event, changed, reason)
                    if event == "failed" and changed is not None:
                        failed[changed] = reason
        refresh_records(folder, wanted.cells)
    return failed


Ends = Generator[
    tuple[str, Cell | None, str], None, None
]  # ("begun" | "done" | "failed" | "", the cell, the reason); "" is a pulse


class _Task:
    """What a process needs to run a cell."""

    def __init__(self, folder: Path, grid: Grid, commit: str | None) -> None:
        self.folder, self.data, self.options, self.commit = folder.resolve(), grid.data, grid.options, commit

    def __call__(self, cell: Cell) -> str:
        """Train; return why it failed, or nothing. What training says goes to a file beside the run folder."""
        import torch

        from fewtags.api import train

        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak of memory is this cell's, not the one's before it
        torch.set_num_threads(1)  # cells run side by side, and one thread gives the same bytes everywhere
        run = self.folder / cell.folder
        run.parent.mkdir(parents=True, exist_ok=True)
        settings = dict(cell.row.settings)
        options: dict[str, Any] = {
            "method": cell.row.method,
            "labelled": cell.labelled,
            "seed": cell.seed,
            "settings": settings,
        }
        with (run.parent / f"{run.name}.log").open("a", encoding="utf-8") as log, contextlib.redirect_stderr(log):
            try:
                train(self.data, out=run, resume=True, **options, **self.options)
            except Interrupted:
                raise
            except (UserError, Fault) as error:
                return str(error)
            except Exception as error:  # noqa: BLE001 - one broken cell must not end the grid
                traceback.print_exc(file=log)
                return f"{type(error).__name__}: {error}; {run}.log has the whole story"
        write_json(run / "made.json", self._made(cell))
        return ""

    def _made(self, cell: Cell) -> dict[str, Any]:
        words = ["fewtags", "train", _without_path(self.data), "--method", cell.row.method, "--seed", str(cell.seed)]
        words += [] if cell.labelled is None else ["--labelled", f"{cell.labelled:g}"]
        words += [word for key, value in self.options.items() for word in (f"--{key}", str(value))]
        words += [word for key, value in cell.row.settings for word in ("--set", f"{key}={value}")]
        versions = {name: version(name) for name in ("fewtags", "torch", "numpy")}
        return {
            "command": " ".join(words),
            "commit": self.commit,
            "versions": {"python": platform.python_version(), **versions},
            "cores": os.cpu_count(),
            "threads": 1,
        }


def run_here(task: _Task, cells: list[Cell], jobs: int | None) -> Ends:
    """On the cores of this machine, one cell a core."""
    jobs = jobs or os.cpu_count() or 1
    waiting = list(cells)
    deaths: Counter[Cell] = Counter()
    pool = _pool(jobs)
    running: dict[Future[str], Cell] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                running[pool.submit(task, cell)] = cell
                yield "begun", cell, ""
            done, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            died = []
            for future in done:
                cell = running.pop(future)
                try:
                    yield _end(task, cell, future.result())
                except BrokenProcessPool:
                    died.append(cell)
                except Interrupted:  # a signal that reached the process alone
                    yield _end(task, cell, "its process was asked to stop")
            if died:  # one process was killed and the others of the pool ended with it: all go on, the guilty once only
                died += running.values()
                running = {}
                deaths.update(died)
                pool.shutdown(wait=False)
                pool = _pool(jobs)
                for cell in [cell for cell in died if deaths[cell] > 1]:
                    died.remove(cell)
                    yield _end(task, cell, "its process was killed twice; is there memory enough for so many --jobs?")
                waiting = died + waiting
            yield "", None, ""
    finally:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def run_on_ray(task: _Task, cells: list[Cell], address: str | None) -> Ends:
    """As Ray tasks, one core each; a lost node's cells run again. All nodes must see the grid's folder and the data."""
    try:
        import ray
    except ImportError as error:
        raise UserError("--engine ray needs Ray; install it with: pip install 'fewtags[cluster]'") from error
    started = not ray.is_initialized()
    if started:
        try:
            ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
        except (ConnectionError, ValueError) as error:
            raise UserError(f"--address {address}: no Ray cluster answers there ({error})") from error
    try:
        remote = ray.remote(num_cpus=1, max_retries=-1)(_call)
        running = {remote.remote(task, cell): cell for cell in cells}
        for cell in cells:
            yield "begun", cell, ""
        while running:
            done, _ = ray.wait(list(running), num_returns=1, timeout=POLL_SECONDS)
            for reference in done:
                cell = running.pop(reference)
                try:
                    reason = ray.get(reference)
                except ray.exceptions.RayError as error:
                    reason = f"{type(error).__name__}: {error}"
                yield _end(task, cell, reason)
            yield "", None, ""
    finally:
        if started:
            ray.shutdown()


def compute_features(grid: Grid, cells: list[Cell], stop: StopRequest) -> None:
    """Everything that frozen backbones say of the images, once, on all cores, before the cells share it."""
    from fewtags.training.build import make_fabric
    from fewtags.training.job import settle
    from fewtags.training.prepare import look_at

    seen = set()
    for row in dict.fromkeys(cell.row for cell in cells):
        first = next(cell for cell in cells if cell.row == row)
        job = settle(grid.data, method=row.method, labelled=first.labelled, seed=first.seed,
                     settings=dict(row.settings), **grid.options)  # fmt: skip
        if job.recipe.tune == "all":
            continue
        fabric = make_fabric(job.recipe)
        how = job.preparation(fabric, stop)
        kind = (how.patches, how.uses_unlabelled, how.draws_views, job.recipe.size, job.recipe.strong_draws,
                job.recipe.features, job.config.backbone, job.recipe.patch_source, job.recipe.patch_size)  # fmt: skip
        if kind not in seen:
            seen.add(kind)
            roles = job.catalogue.roles.copy()
            roles[roles == Role.LABELLED] = Role.UNLABELLED  # whatever a seed hides, its features are there
            look_at(replace(job.catalogue, roles=roles), how)


def commit() -> str | None:
    """The commit of the source tree that this program runs from, if it is one."""
    root = Path(__file__).parents[3]
    if not (root / "src" / "fewtags").is_dir():
        return None
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _call(task: Callable[[Cell], str], cell: Cell) -> str:
    return task(cell)


def _end(task: _Task, cell: Cell, reason: str) -> tuple[str, Cell, str]:
    if not reason:
        return "done", cell, ""
    write_text(_failure_file(task.folder, cell), reason)
    return "failed", cell, reason


def _failure_file(folder: Path, cell: Cell) -> Path:
    run = folder / cell.folder
    return run.parent / f"{run.name}.failed"


def _finished(folder: Path, cell: Cell) -> bool:
    run = RunFolder(folder / cell.folder)
    return run.finished and (run.path / "made.json").exists()


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """A process whose parent was killed must not go on training what the next `bench run` trains."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait_for_connection([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One `bench run` at a time works on a folder, where the system has file locks."""
    with (folder / "lock").open("a") as file:
        try:
            import fcntl
        except ImportError:
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"another `fewtags bench run` works on {folder}; wait, or choose another --out") from error
        yield


def _without_path(data: str) -> str:
    kind, colon, _ = data.partition(":")
    return f"{kind}:PATH" if colon and kind in ("voc", "coco", "nus", "npy") else data
