"""What all tests share: a cache of their own, so that nothing outside of the tests is read or written."""

import os
from pathlib import Path

import pytest
import torch

os.environ.setdefault("OMP_NUM_THREADS", "1")  # also for the processes that tests start
torch.set_num_threads(1)  # tiny problems: threads would only wait for each other


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory) -> Path:
    """One cache for the whole session: features and engines are then computed once."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["FEWTAGS_CACHE"] = str(folder)
    return folder
