"""Exact thresholds against the released grid search, and our mAP against a loop over scikit-learn.

    pip install "fewtags[bench]"; python benchmarks/metrics.py

Both sides of a ratio get the same arrays and run in this process on one thread. The best of three rounds
counts; the long released loop runs once.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score

from fewtags.metrics import mean_average_precision
from fewtags.thresholds import metric_adaptive


def released_grid(scores: torch.Tensor, labels: torch.Tensor, beta: float = 0.5) -> torch.Tensor:
    """The released search, step for step: a hundred passes over the whole table [N, K]."""
    best, thresholds = torch.zeros(2, scores.shape[1])
    for step in np.arange(0, 1, 0.01):
        chosen = (scores >= step).float()
        hits = (labels * chosen).sum(0)
        precision = hits / (chosen == 1).sum(0)
        recall = hits / labels.sum(0)
        quality = ((1 + beta * beta) * precision * recall / (beta * precision + recall)).float()
        better = quality > best
        best[better], thresholds[better] = quality[better], float(step)
    return thresholds


def seconds(work: Callable[[], Any], rounds: int = 3) -> tuple[float, Any]:
    """The shortest of a few rounds, and what the work returned."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        result = work()
        taken.append(time.perf_counter() - start)
    return min(taken), result


def table(images: int, tags: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores in 0..1 that know something of the labels; the tags are present in 2 to 30 % of the images."""
    random = torch.Generator().manual_seed(0)
    labels = (torch.rand(images, tags, generator=random) < torch.linspace(0.02, 0.3, tags)).double()
    return torch.sigmoid(torch.randn(images, tags, generator=random) + 2 * labels.float() - 2), labels


def main() -> None:
    torch.set_num_threads(1)
    scores, labels = table(100_000, 80)
    exact, _ = seconds(lambda: metric_adaptive(scores, labels))
    steps, ours = seconds(lambda: metric_adaptive(scores, labels, grid=0.01))
    loop, reference = seconds(lambda: released_grid(scores, labels), rounds=1)
    assert torch.equal(ours, reference)
    print(f"thresholds, 100,000 x 80: released loop {loop:.2f} s, our grid {steps:.2f} s, exact {exact:.2f} s")
    print(f"  exact search {loop / exact:.1f} times faster than the released loop (wanted: 20)")

    scores, labels = (part.numpy() for part in table(40_000, 80))
    vectorised, ours = seconds(lambda: mean_average_precision(scores, labels))
    loop, each = seconds(lambda: [average_precision_score(labels[:, k], scores[:, k]) for k in range(80)])
    assert abs(ours - np.mean(each)) < 1e-12
    print(f"mAP, 40,000 x 80: loop over scikit-learn {loop:.2f} s, ours {vectorised:.2f} s")
    print(f"  ours {loop / vectorised:.1f} times faster (wanted: 5)")


if __name__ == "__main__":
    main()
