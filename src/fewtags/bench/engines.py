"""Where cells run: in processes of this machine, or as Ray tasks on a cluster; both tell what happens."""

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
MOST_DEATHS = 2  # of the process of one cell, here; what killed it twice will kill it again
MOST_LOSSES = 20  # of a cell's node or process, on a cluster whose machines come and go
GOODBYE_SECONDS = 20  # for cells on a cluster to write a checkpoint when all is stopped
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
Run = Callable[[Cell], str]  # trains a cell; returns why it failed, or nothing


class Event(NamedTuple):
    """Something happened to a cell, or nothing but time has passed."""

    what: str = ""  # waiting, running, done, failed; "": time has passed
    cell: Cell | None = None
    reason: str = ""


def default_jobs() -> int:
    """One cell a core; one at all where there is a GPU, which one run fills."""
    return 1 if torch.cuda.is_available() else os.cpu_count() or 1


def run_here(run: Run, cells: list[Cell], jobs: int) -> Generator[Event, None, None]:
    """In `jobs` processes that take one cell after the other; one that is killed is replaced, its cell goes on."""
    waiting = deque(cells)
    deaths: Counter[Cell] = Counter()
    running: dict[Future[str], tuple[Cell, ProcessPoolExecutor]] = {}
    with _one_thread_each():
        idle = [_process() for _ in range(min(jobs, len(cells)))]
        everyone = set(idle)
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
                    except (BrokenProcessPool, Interrupted) as death:
                        if isinstance(death, BrokenProcessPool):
                            everyone.remove(process)
                            process.shutdown(wait=False)
                            process = _process()
                            everyone.add(process)
                        deaths[cell] += 1
                        if deaths[cell] < MOST_DEATHS:
                            waiting.appendleft(cell)
                            event = Event("waiting", cell)
                        else:
                            reason = "its process was killed twice; is there memory enough for so many --jobs?"
                            event = Event("failed", cell, reason)
                    idle.append(process)
                    yield event
                yield Event()
        finally:
            _end(everyone)


def run_on_ray(run: Run, cells: list[Cell], address: str | None, gpus: bool) -> Generator[Event, None, None]:
    """As Ray tasks, a core each (and a GPU where the cluster has some and the cells want one).

    A lost node's cells run again elsewhere. All nodes must see the grid's folder and the data.
    """
    ray, started = _connected(address)
    try:
        gpu = 1 if gpus and ray.cluster_resources().get("GPU", 0) >= 1 else 0
        remote = ray.remote(num_cpus=1, num_gpus=gpu, max_retries=MOST_LOSSES, retry_exceptions=[Interrupted])(_call)
        left = {remote.remote(run, cell): cell for cell in cells}
        begun = 0
        try:
            while left:
                # Ray takes tasks in the order in which they came, as many as it has room for
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
                ray.cancel(reference)  # a signal, on which training writes a checkpoint
            if left:
                ray.wait(list(left), num_returns=len(left), timeout=GOODBYE_SECONDS)
    finally:
        if started:
            ray.shutdown()


def _connected(address: str | None) -> tuple[Any, bool]:
    """Ray, and whether it was not there before."""
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
    """A pool of one: the death of a process is then the death of one cell."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_begin_process)


def _begin_process() -> None:
    """Leave Ctrl-C to the parent, which asks all to stop and waits; but do not outlive it.

    A process whose parent was killed must not go on training what the next `bench run` trains.
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


def _end(everyone: set[ProcessPoolExecutor]) -> None:
    """Ask all processes to stop, on which training writes a checkpoint, and wait for them."""
    for pool in everyone:
        for process in list((pool._processes or {}).values()):
            process.terminate()
    for pool in everyone:
        pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """What processes started meanwhile find in their environment, before they load a library that counts cores."""
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
