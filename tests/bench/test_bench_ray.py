"""The same cells as Ray tasks: a cluster that loses a node ends with the bytes of the local engine."""

import builtins
import threading
import time

import pytest

import fewtags.cli
from fewtags.bench.grid import load_grid
from fewtags.bench.runner import run_grid
from small_grids import QUICK, odd_methods, pictures, small_grid  # noqa: F401
from small_runs import model

pytestmark = pytest.mark.slow

PATIENCE = 240


@pytest.fixture
def cluster(odd_methods, monkeypatch):  # noqa: F811
    """Two nodes of one core each: the head, and one that may go."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'fewtags[cluster]'")
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    monkeypatch.setenv("RAY_health_check_failure_threshold", "3")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_a_cluster_that_loses_a_node_ends_with_the_bytes_of_the_local_engine(
    cluster, pictures, odd_methods, tmp_path  # noqa: F811
):  # fmt: skip
    """Two cells wait in their middle, one on each node, when the second node dies; then the first node does all."""
    grid = small_grid(pictures, ["odd.waits"], seeds=(1, 2))
    lost = []

    def lose_a_node():
        end = time.monotonic() + PATIENCE
        begun = [tmp_path / "b" / one.folder / "checkpoint" / "state.safetensors" for one in grid.cells]
        while not all(file.exists() for file in begun) and time.monotonic() < end:
            time.sleep(0.05)
        lost.append(all(file.exists() for file in begun))
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        (odd_methods / "go").touch()

    watcher = threading.Thread(target=lose_a_node, daemon=True)
    watcher.start()
    assert run_grid(tmp_path / "b", grid, engine="ray", address=cluster.address) == {}
    watcher.join()
    assert lost == [True]  # both had begun
    assert run_grid(tmp_path / "c", grid, jobs=1) == {}
    for one in load_grid(tmp_path / "b").cells:
        assert model(tmp_path / "b" / one.folder) == model(tmp_path / "c" / one.folder)


def test_without_ray_the_extra_is_named(pictures, tmp_path, monkeypatch, capsys):  # noqa: F811
    real = builtins.__import__

    def without_ray(name, *rest, **more):
        if name == "ray":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_ray)
    words = ["bench", "run", str(pictures), "--methods", "asl", *QUICK, "--engine", "ray", "--out", str(tmp_path / "b")]
    assert fewtags.cli.run(words) == 2
    assert "pip install 'ray>=" in capsys.readouterr().err


def test_an_address_where_no_cluster_answers_is_named(pictures, tmp_path, capsys):  # noqa: F811
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'fewtags[cluster]'")
    words = ["bench", "run", str(pictures), "--methods", "asl", *QUICK, "--engine", "ray", "--out", str(tmp_path / "b")]
    assert fewtags.cli.run([*words, "--address", "auto"]) == 2
    assert "--address auto: no Ray cluster answers there" in capsys.readouterr().err
