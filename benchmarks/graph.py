"""How far the exact search of neighbours is from the bare matrix product. Prints ratios measured side by side.

python benchmarks/graph.py [--images 100000]
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from fewtags.solvers import graph

WIDTH, NEIGHBOURS, CLUSTERS = 256, 30, 200


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def peak() -> float:
    """The most memory this process has held so far, MiB."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def clustered(images: int) -> torch.Tensor:
    """Vectors [n, 256] of length one around 200 centres, as features of photographs lie."""
    random = torch.Generator().manual_seed(0)
    centres = torch.randn(CLUSTERS, WIDTH, generator=random)
    vectors = torch.randn(images, WIDTH, generator=random)
    vectors += centres[torch.randint(CLUSTERS, (images,), generator=random)]
    return torch.nn.functional.normalize(vectors, dim=1)


def bare_product(queries: torch.Tensor, bank: torch.Tensor, block: int) -> float:
    """Every similarity, a block of queries at a time, and nothing done with it but a glance."""
    return sum(float((queries[start : start + block] @ bank.T)[0, 0]) for start in range(0, len(queries), block))


def main(images: int) -> None:
    vectors = clustered(images)
    graph.EXACT_UP_TO = max(graph.EXACT_UP_TO, images)  # the exact search, whatever the number
    block = max(1, graph.BLOCK_CELLS // images)
    bare_product(vectors[: 2 * block], vectors, block)  # memory and threads are there before anything is measured
    half = images // 2
    # one half before the search and one after it, so that both meet the same noise
    bare, _ = seconds(lambda: bare_product(vectors[:half], vectors, block))
    before = peak()
    search, found = seconds(lambda: graph.find_neighbours(vectors, NEIGHBOURS))
    after = peak()
    bare += seconds(lambda: bare_product(vectors[half:], vectors, block))[0]
    assert found.rows.shape == (images, min(NEIGHBOURS, images - 1))
    print(
        f"{NEIGHBOURS} neighbours among {images:,} x {WIDTH}, {torch.get_num_threads()} threads: {search:.1f} s, "
        f"{images / search:,.0f} images/s; bare product {bare:.1f} s"
    )
    print(f"peak memory {after:,.0f} MiB, {before:,.0f} MiB before the search")
    print(f"ratio search / bare product: {search / bare:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100_000)
    main(parser.parse_args().images)
