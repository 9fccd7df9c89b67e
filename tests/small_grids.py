"""What the tests of `bench` share: made-up records, methods that misbehave, grids of a few seconds."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fewtags.bench.grid import Cell, Grid, make_grid, row_of, rows_of, save_grid
from fewtags.bench.records import FILE, Record, _line
from small_runs import tiny_folder

# two rows of the tiny folder, a share that leaves a few labelled images, heads on features of 64 px
QUICK = ("--tune", "heads", "--size", "64", "--warmup", "1", "--epochs", "2")
QUICK_OPTIONS = {"tune": "heads", "size": 64, "warmup": 1, "epochs": 2}

METHODS = {
    # kills its process in the first attempt: a run that has begun once is left alone
    "dies_once": """
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    """,
    "dies": "os.kill(os.getpid(), signal.SIGKILL)",
    "breaks": "raise ArithmeticError('the numbers are wrong')",
    # waits in the middle until it is told to go on, or asked to stop
    "waits": """
        mark.touch()
        go, asked = Path(os.environ["ODD_METHODS"], "go"), signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *signals: (go.touch(), asked(*signals)))
        while not go.exists():
            time.sleep(0.02)
    """,
    # fails until it is mended
    "mended": """
        if not Path(os.environ["ODD_METHODS"], "mended").exists():
            raise ArithmeticError("not mended yet")
    """,
}


@pytest.fixture
def odd_methods(tmp_path, monkeypatch) -> Path:
    """A package `odd` of methods that do something in the second epoch; a checkpoint is kept after every step."""
    package = tmp_path / "methods" / "odd"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import fewtags.training.run_folder\nfewtags.training.run_folder.SAVE_SECONDS = 0\n"
    )
    for name, body in METHODS.items():
        indented = "\n".join(f"            {line.strip()}" if not line.startswith("    ") else f"    {line}"
                             for line in body.splitlines())  # fmt: skip
        (package / f"{name}.py").write_text(
            "import os, signal, time\nfrom pathlib import Path\nfrom fewtags.methods.d2l import D2L\n\n\n"
            f"class {name.title().replace('_', '')}(D2L):\n    def begin_epoch(self, teacher):\n"
            f"        mark = Path(os.environ['ODD_METHODS'], '{name}')\n"
            f"        if teacher.epoch == 1:\n{indented}\n        super().begin_epoch(teacher)\n"
        )
    monkeypatch.setenv("ODD_METHODS", str(package.parent))
    source = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(package.parent), source])))
    monkeypatch.syspath_prepend(str(package.parent))
    return package.parent


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("grid") / "pictures", images=26)


def bench(*words: str, **options) -> subprocess.Popen:
    """`fewtags bench …` in a process of its own, in a session of its own."""
    command = [sys.executable, "-m", "fewtags", "bench", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, start_new_session=True, **pipes, **options)


def small_grid(data, methods=("asl",), labelled=(None,), seeds=(1,), **options) -> Grid:
    lists = options.pop("lists", {})
    return make_grid(str(data), rows_of(methods, lists), labelled, seeds, {**QUICK_OPTIONS, **options})


def made_up(name: str, share: float | None = 0.05, seed: int = 1, value: float = 70.0, **changes) -> Record:
    """A record of a row (a name of a method or variant) whose draws spread around `value`."""
    row = rows_of([name], {})[0]
    rng = np.random.default_rng(7)
    draws = (value + rng.normal(0, 0.5, 50)).round(2).tolist()
    content = {
        "method": row.method,
        "settings": dict(row.settings),
        "labelled": share,
        "seed": seed,
        "figures": {"map": value, "cf1": value - 5, "of1": value - 3},
        "rules": {rule: {"cf1": value - 5, "of1": value - 3} for rule in ("mat", "half", "top_k")},
        "pseudo": [{"cf1": value - 30 + epoch, "positives": 10} for epoch in range(4)],
        "epochs": [],
        "draws": {"map": draws, "cf1": draws, "of1": draws},
        "cpu_seconds": 10.0 + len(name),
        "peak_memory_mb": 500,
        "backbone": "efficientnet_lite0",
        "size": 224,
        "tune": "heads",
        "protocol": "ours",
        "features": "crops",
        "images": {"labelled": 5, "unlabelled": 10, "test": 8},
    }
    return Record(**{**content, **changes})


def kept(folder: Path, records: list[Record], cells: list[Cell] | None = None, data: str = "voc:PATH") -> Path:
    """A folder as it is committed: grid.json and records.jsonl, no run folders."""
    folder.mkdir(parents=True, exist_ok=True)
    save_grid(folder, Grid(data, {}, tuple(cells or [one.cell for one in records])))
    (folder / FILE).write_text("".join(map(_line, records)), encoding="utf-8")
    return folder


def cell(name: str, share: float | None = 0.05, seed: int = 1, **settings: str) -> Cell:
    row = rows_of([name], {})[0]
    return Cell(row_of(row.method, {**dict(row.settings), **settings}), share, seed)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be noticed does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """The processes that it has started, and theirs."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except (OSError, ValueError, IndexError):
            continue
    return found + [grandchild for child in found for grandchild in children(child)]
