"""Paired bootstrap test of two rows of a table: both are evaluated on the same samples of the test images.

With several seeds, the seeds are resampled too. See fewtags.metrics.bootstrap.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def difference_interval(ours: Mapping[int, Floats], theirs: Mapping[int, Floats]) -> tuple[float, float] | None:
    """The 95 % bootstrap interval of ours - theirs, over images and common seeds; None without a common seed."""
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    table = np.stack([np.asarray(ours[seed]) - np.asarray(theirs[seed]) for seed in seeds])  # [seeds, samples]
    low, high = np.percentile(_seed_weights(len(seeds)) @ table, [2.5, 97.5])
    return round(float(low), 9), round(float(high), 9)  # removes rounding errors around zero


def _seed_weights(seeds: int) -> Floats:
    """The weight of each seed in every resample [resamples, seeds]: all resamples of up to five seeds, else some."""
    if seeds <= 5:
        chosen = np.indices((seeds,) * seeds).reshape(seeds, -1).T
    else:
        chosen = np.random.default_rng(0).integers(0, seeds, (5**5, seeds))
    weights: Floats = (chosen[:, :, None] == np.arange(seeds)).mean(1)
    return weights


def is_significant(ours: Mapping[int, Floats], theirs: Mapping[int, Floats]) -> bool:
    """Whether the interval of the difference excludes zero; False without a common seed."""
    interval = difference_interval(ours, theirs)
    return interval is not None and not interval[0] <= 0 <= interval[1]
