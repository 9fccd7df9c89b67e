"""How far a difference may be chance: every run is measured on the same draws of the test images.

The difference of two runs, draw by draw (fewtags.evaluation.draws), is a paired test; over several seeds the seeds are
drawn too.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def difference(ours: Mapping[int, Floats], theirs: Mapping[int, Floats]) -> tuple[float, float] | None:
    """The middle 95 % of (ours - theirs) over draws of images and of the seeds that both have; None without any."""
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    table = np.stack([np.asarray(ours[seed]) - np.asarray(theirs[seed]) for seed in seeds])  # [seeds, draws]
    chosen = np.random.default_rng(0).integers(0, len(seeds), (len(seeds), table.shape[1]))
    low, high = np.percentile(np.take_along_axis(table, chosen, 0).mean(0), [2.5, 97.5])
    return float(low), float(high)


def is_noise(ours: Mapping[int, Floats], theirs: Mapping[int, Floats]) -> bool:
    """Whether the difference may be chance; without a common seed nothing is shown, so it may be."""
    found = difference(ours, theirs)
    return found is None or found[0] <= 0 <= found[1]
