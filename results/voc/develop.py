"""Choose settings without looking at the test split: VOC's train images alone, some of them held out as the test.

    python results/voc/develop.py PATH learning_rate=3e-4 learning_rate=1e-3,epochs=20 …

Every argument is one variant (settings with commas between them). For seeds 1001 to 1003: 5 % labelled, about 70 %
unlabelled, a quarter held out. Prints mAP on the held-out images, mean and each seed.
"""

import sys
from dataclasses import replace

import numpy as np

from fewtags.data import Catalogue, Role, read
from fewtags.models import build_backbone
from fewtags.training.build import build_network, make_fabric
from fewtags.training.config import resolve
from fewtags.training.loop import Loop, Observer
from fewtags.training.prepare import Preparation, prepare
from fewtags.training.run import StopRequest

SEEDS, LABELLED, UNLABELLED = (1001, 1002, 1003), 285, 4000


def development_split(voc: Catalogue, seed: int) -> Catalogue:
    """Train images only, in new roles."""
    rows = voc.rows(Role.LABELLED)
    drawn = voc.take(rows[np.random.RandomState(seed).permutation(len(rows))])
    roles = np.full(len(drawn), Role.TEST, np.int8)
    roles[:LABELLED] = Role.LABELLED
    roles[LABELLED : LABELLED + UNLABELLED] = Role.UNLABELLED
    return replace(drawn, roles=roles)


def measure(catalogue: Catalogue, seed: int, variant: str) -> dict[str, float]:
    """The last epoch of one variant."""
    settings = dict(word.split("=") for word in variant.split(",") if word)
    name = settings.pop("method", "d2l")
    method, recipe = resolve(name, "heads", "ours", 0.05, True, {"seed": seed}, settings)
    fabric = make_fabric(recipe)
    backbone = build_backbone("efficientnet_lite0")
    how = Preparation(backbone, recipe, method.patches, method.uses_unlabelled, 0, fabric, StopRequest())
    ready = prepare(catalogue, how)
    network = build_network(backbone, method, recipe, len(catalogue.tags), fabric)
    last = Last()
    Loop(network, ready.source, method, recipe, ready.targets, fabric, last).run()
    return last.record


class Last(Observer):
    """Remembers the last epoch, and the end of the warm-up."""

    def __init__(self) -> None:
        self.record: dict[str, float] = {}

    def epoch(self, record: dict) -> None:
        """Keep what was measured."""
        if "map" in record:
            warmup = record["map"] if record["stage"] == "warmup" else self.record.get("warmup", 0.0)
            self.record = {**record, "warmup": warmup}


def main() -> None:
    """All variants on all seeds."""
    voc = read(f"voc:{sys.argv[1]}")
    for variant in sys.argv[2:] or [""]:
        found = [measure(development_split(voc, seed), seed, variant) for seed in SEEDS]
        maps = [100 * one["map"] for one in found]
        extra = "  ".join(
            f"{key} {100 * np.mean([one.get(key, np.nan) for one in found]):.2f}"
            for key in ("warmup", "cf1", "of1", "pseudo_cf1")
        )
        print(
            f"{variant or 'defaults':<50} mAP {np.mean(maps):.2f} ({', '.join(f'{m:.2f}' for m in maps)})  {extra}",
            flush=True,
        )


if __name__ == "__main__":
    main()
