"""Learning rate and momentum of a step: one cycle, as a pure function so that resuming needs no state."""

import math


def one_cycle(step: int, total: int, peak: float, rise: float = 0.2) -> tuple[float, float]:
    """(learning rate, beta1) of optimiser step `step` (0 for the first) in a cycle planned for `total` steps.

    The rate climbs from peak/25 to peak during the first `rise` of the cycle and falls to peak/250000;
    beta1 goes the other way, 0.95 to 0.85 and back. Both follow a cosine.
    """
    top = rise * total - 1
    if step <= top:
        share = step / top if top > 0 else 1.0
        return _cosine(peak / 25, peak, share), _cosine(0.95, 0.85, share)
    share = min(1.0, (step - top) / (total - 1 - top)) if total - 1 > top else 1.0
    return _cosine(peak, peak / 25e4, share), _cosine(0.85, 0.95, share)


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
