"""Engines that run cells: processes on this machine, or Ray tasks on a cluster; both yield events."""

import contextlib
import logging
import multiprocessing
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for_connection
from typing import Any, NamedTuple

import torch

from fewtags.bench.grid import Cell
from fewtags.errors import Interrupted, UserError
from fewtags.utils.extras import install_command

POLL_SECONDS = 0.5
MAX_CRASHES = 2  # of one cell on this machine
MAX_RETRIES = 20  # of one cell on a cluster, where nodes come and go
SHUTDOWN_SECONDS = 20  # for cells on a cluster to write a checkpoint when the run is stopped
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
Run = Callable[[Cell], str]  # trains a cell; returns why it failed, or an empty string


class Event(NamedTuple):
    """A change of a cell's state, or a tick of the clock."""

    what: str = ""  # waiting, running, done, failed; "": a tick
    cell: Cell | None = None
    reason: str = ""


def default_jobs() -> int:
    """One cell per core; a single one if there is a GPU, which one run keeps busy."""
    return 1 if torch.cuda.is_available() else os.cpu_count() or 1


def run_here(run: Run, cells: list[Cell], jobs: int) -> Generator[Event, None, None]:
    """Run cells in `jobs` processes, one after the other; a killed process is replaced and its cell resumed."""
    waiting = deque(cells)
    crashes: Counter[Cell] = Counter()
    running: dict[Future[str], tuple[Cell, ProcessPoolExecutor]] = {}
    with _single_threaded():
        idle = [_process() for _ in range(min(jobs, len(cells)))]
        pools = set(idle)
        try:
            while waiting or running:
                while waiting and idle:
                    cell, process = waiting.popleft(), idle.pop()
                    running[process.submit(run, cell)] = cell, process
                    yield Event("running", cell)
                for future in wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED).done:
                    cell, process = running.pop(future)
                    try:
                        event = _ended(cell, future.result())
                    except (BrokenProcessPool, Interrupted) as crash:
                        if isinstance(crash, BrokenProcessPool):
                            pools.remove(process)
                            process.shutdown(wait=False)
                            process = _process()
                            pools.add(process)
                        crashes[cell] += 1
                        if crashes[cell] < MAX_CRASHES:
                            waiting.appendleft(cell)
                            event = Event("waiting", cell)
                        else:
                            reason = "its process was killed twice; if memory is short, use fewer --jobs"
                            event = Event("failed", cell, reason)
                    idle.append(process)
                    yield event
                yield Event()
        finally:
            _terminate(pools)


def run_on_ray(run: Run, cells: list[Cell], address: str | None, gpus: bool) -> Generator[Event, None, None]:
    """Run cells as Ray tasks with one core each (and one GPU, if the cluster has any and the cells need one).

    Cells of a lost node run again elsewhere. All nodes must see the grid's folder and the data.
    """
    ray, started = _connect(address)
    try:
        gpu = 1 if gpus and ray.cluster_resources().get("GPU", 0) >= 1 else 0
        remote = ray.remote(num_cpus=1, num_gpus=gpu, max_retries=MAX_RETRIES, retry_exceptions=[Interrupted])(_call)
        left = {remote.remote(run, cell): cell for cell in cells}
        begun = 0
        try:
            while left:
                # Ray starts tasks in the order of submission, as many as there are free resources for
                room = int(ray.cluster_resources().get("GPU" if gpu else "CPU", 1))
                now = len(cells) - len(left) + room
                for cell in cells[begun:now]:
                    yield Event("running", cell)
                begun = max(begun, now)
                for reference in ray.wait(list(left), num_returns=1, timeout=POLL_SECONDS)[0]:
                    cell = left.pop(reference)
                    try:
                        yield _ended(cell, ray.get(reference))
                    except ray.exceptions.RayError as error:
                        yield Event("failed", cell, f"{type(error).__name__}: {str(error).splitlines()[0]}")
                yield Event()
        finally:
            for reference in left:
                ray.cancel(reference)  # sends a signal; training then writes a checkpoint
            if left:
                ray.wait(list(left), num_returns=len(left), timeout=SHUTDOWN_SECONDS)
    finally:
        if started:
            ray.shutdown()


def _connect(address: str | None) -> tuple[Any, bool]:
    """Ray, and whether this call started it."""
    try:
        import ray
    except ImportError as error:
        raise UserError(f"--engine ray needs Ray; run: {install_command('cluster')}") from error
    if ray.is_initialized():
        return ray, False
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            include_dashboard=None if address else False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(f"--address {address}: no Ray cluster answers there ({str(error).splitlines()[0]})") from error
    return ray, True


def _call(run: Run, cell: Cell) -> str:
    return run(cell)


def _ended(cell: Cell, reason: str) -> Event:
    return Event("failed", cell, reason) if reason else Event("done", cell)


def _process() -> ProcessPoolExecutor:
    """A pool of one process, so that a crash affects a single cell."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_init_process)


def _init_process() -> None:
    """Leave Ctrl-C to the parent, which stops all processes, but do not outlive it.

    An orphan must not go on training a cell that the next `bench run` trains.
    """
    with contextlib.suppress(AttributeError, OSError):
        os.setpgid(0, 0)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait_for_connection([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _terminate(pools: set[ProcessPoolExecutor]) -> None:
    """Ask all processes to stop (training then writes a checkpoint) and wait for them."""
    for pool in pools:
        for process in list((pool._processes or {}).values()):
            process.terminate()
    for pool in pools:
        pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """Limit numeric libraries to one thread in processes started within this context."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
