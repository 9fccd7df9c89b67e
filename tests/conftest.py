"""What all tests share: a cache of their own, so that nothing outside of the tests is read or written."""

import os
import sys
from pathlib import Path

import pytest
import torch

os.environ.setdefault("OMP_NUM_THREADS", "1")  # also for the processes that tests start
torch.set_num_threads(1)  # tiny problems: threads would only wait for each other


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory) -> Path:
    """One cache for the whole session and all its processes: features and engines are then computed once."""
    base = tmp_path_factory.getbasetemp()
    side_by_side = "PYTEST_XDIST_WORKER" in os.environ  # then every process has a folder below the common one
    folder = (base.parent if side_by_side else base) / "cache"
    folder.mkdir(exist_ok=True)
    os.environ["FEWTAGS_CACHE"] = str(folder)
    return folder


@pytest.fixture(autouse=True)
def forget_packages_of_tests(tmp_path_factory):
    """What a test wrote and imported must not be found by the next one that gives a package the same name."""
    before = set(sys.modules)
    yield
    base = str(tmp_path_factory.getbasetemp())
    for name in sys.modules.keys() - before:
        module = sys.modules[name]
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
        if any(str(place).startswith(base) for place in places):
            del sys.modules[name]
