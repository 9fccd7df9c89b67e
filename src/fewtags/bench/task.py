"""One cell of a grid in a process of its own: trained like any run, then read into the record that tables need."""

import contextlib
import os
import platform
import shlex
import subprocess
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fewtags.api import train
from fewtags.bench.grid import Cell, Grid
from fewtags.bench.records import keep_record
from fewtags.errors import Fault, Interrupted, UserError
from fewtags.training.options import TrainOptions
from fewtags.training.resolve import Job, resolve
from fewtags.utils.files import cache_folder, write_json
from fewtags.utils.progress import shown_messages
from fewtags.utils.stopping import StopRequest


class Task:
    """What a process, here or on another machine, needs to run a cell."""

    def __init__(self, folder: Path, grid: Grid) -> None:
        self.folder, self.data, self.options = folder.resolve(), grid.data, grid.options
        self.works_in, self.cache = Path.cwd(), cache_folder().resolve()
        self.commit = commit()

    def __call__(self, cell: Cell) -> str:
        """Train; return why it failed, or nothing. What training says goes to a file beside the run folder."""
        with contextlib.suppress(OSError):
            os.chdir(self.works_in)  # a process of a cluster starts elsewhere; relative paths must mean the same
        os.environ["FEWTAGS_CACHE"] = str(self.cache)
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak of memory is this cell's, not the one's before it
        run = self.folder / cell.folder
        run.parent.mkdir(parents=True, exist_ok=True)
        with (run.parent / f"{run.name}.log").open("a", encoding="utf-8") as log, contextlib.redirect_stderr(log):
            try:
                self._train(cell, run)
                keep_record(cell, run)
            except (UserError, Fault) as error:
                return str(error)
            except KeyboardInterrupt as error:
                raise Interrupted("its process was asked to stop at once") from error
            except Interrupted:
                raise
            except Exception as error:  # noqa: BLE001 - one broken cell must not end the grid
                traceback.print_exc(file=log)
                return f"{type(error).__name__}: {error}; {run}.log has the whole story"
        return ""

    def _train(self, cell: Cell, run: Path) -> None:
        torch.set_num_threads(1)  # cells run side by side, and one thread gives the same bytes everywhere
        with shown_messages(), StopRequest().listening() as stop:
            train(self.data, out=run, resume=True, stop=stop, **_how(cell), **self.options)
        if not (run / "made.json").exists():
            write_json(run / "made.json", self._made(cell))

    def _made(self, cell: Cell) -> dict[str, Any]:
        words = ["fewtags", "train", _without_path(self.data), "--method", cell.row.method, "--seed", str(cell.seed)]
        words += [] if cell.labelled is None else ["--labelled", f"{cell.labelled:.12g}"]
        for key, value in self.options.items():
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
        settings = _how(cell)["settings"]
        words += ["--set", *(f"{key}={value}" for key, value in settings.items())]
        versions = {name: version(name) for name in ("fewtags", "torch", "numpy")}
        return {
            "command": shlex.join(words),
            "commit": self.commit,
            "versions": {"python": platform.python_version(), **versions},
            "cores": os.cpu_count(),
            "threads": 1,
        }


def job_of(grid: Grid, cell: Cell) -> Job:
    """All that is decided before a cell is trained."""
    return resolve(TrainOptions.of({"data": grid.data, **_how(cell), **grid.options}))


def _how(cell: Cell) -> dict[str, Any]:
    return {
        "method": cell.row.method,
        "labelled": cell.labelled,
        "seed": cell.seed,
        # what a cell is worth the test images say: no estimate from the labelled ones unless it is asked for
        "settings": {"folds": "0", **dict(cell.row.settings)},
    }


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


def _without_path(data: str) -> str:
    kind, colon, _ = data.partition(":")
    return f"{kind}:PATH" if colon and kind != "scenes" else data
