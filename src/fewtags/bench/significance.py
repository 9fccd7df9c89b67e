"""How far a difference may be chance: every run is measured on the same draws of the test images.

The difference of two runs, draw by draw (fewtags.metrics.bootstrap), is a paired test; over several seeds the seeds are
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
    low, high = np.percentile(_choices(len(seeds)) @ table, [2.5, 97.5])
    return round(float(low), 9), round(float(high), 9)  # a zero that was added up in another order is a zero


def _choices(seeds: int) -> Floats:
    """How much each seed weighs in every draw of as many seeds [draws, seeds]: all of up to five, else some."""
    if seeds <= 5:
        chosen = np.indices((seeds,) * seeds).reshape(seeds, -1).T
    else:
        chosen = np.random.default_rng(0).integers(0, seeds, (5**5, seeds))
    weights: Floats = (chosen[:, :, None] == np.arange(seeds)).mean(1)
    return weights


def is_noise(ours: Mapping[int, Floats], theirs: Mapping[int, Floats]) -> bool:
    """Whether the difference may be chance; without a common seed nothing is shown, so it may be."""
    found = difference(ours, theirs)
    return found is None or found[0] <= 0 <= found[1]
