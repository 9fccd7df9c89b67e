"""Choose settings without looking at the test split: VOC's train images alone, some of them held out as the test.

    python results/voc/develop.py PATH learning_rate=3e-4 learning_rate=1e-3,epochs=20 …

Every argument is one variant: settings with commas between them, and `method=`, `backbone=`, `labelled=` (images, 285
unless told). For seeds 1001 to 1003, 4,285 images to learn from and 1,432 held out. Prints mAP on the held-out images,
mean and each seed.
"""

import sys
from dataclasses import replace

import numpy as np

from fewtags.backbones.base import build_backbone
from fewtags.data import Catalogue, Role, read
from fewtags.encoders.base import make_encoder
from fewtags.metrics import mean_average_precision
from fewtags.training.build import build_network, make_fabric
from fewtags.training.config import resolve_settings
from fewtags.training.loop import Loop, Observer
from fewtags.training.prepare import Preparation, prepare
from fewtags.utils.stopping import StopRequest

SEEDS, TRAINING = (1001, 1002, 1003), 4285


def development_split(voc: Catalogue, seed: int, labelled: int) -> Catalogue:
    """Train images only, in new roles."""
    rows = voc.rows(Role.LABELLED)
    drawn = voc.take(rows[np.random.RandomState(seed).permutation(len(rows))])
    roles = np.full(len(drawn), Role.TEST, np.int8)
    roles[:labelled] = Role.LABELLED
    roles[labelled:TRAINING] = Role.UNLABELLED
    return replace(drawn, roles=roles)


def measure(catalogue: Catalogue, seed: int, variant: str) -> dict[str, float]:
    """The last epoch of one variant."""
    settings = dict(word.split("=") for word in variant.split(",") if word)
    settings.pop("labelled", None)
    name = settings.pop("method", "d2l")
    given: dict[str, object] = {"seed": seed}
    names = ["efficientnet_lite0"]
    if settings.get("features") == "evidence":
        names, given = [*names, "efficientnet_lite2"], {**given, "size": 448}
    names = settings.pop("backbone", "+".join(names)).split("+")
    counts = {role: len(catalogue.rows(role)) for role in Role}
    labelled, unlabelled = counts[Role.LABELLED], counts[Role.UNLABELLED]
    share = labelled / (labelled + unlabelled)
    method, recipe = resolve_settings(name, "heads", "ours", share, True, given, settings, labelled, unlabelled)
    fabric = make_fabric(recipe)
    backbones = [build_backbone(one) for one in names]
    encoder = make_encoder(recipe.features, backbones, recipe.encoder_settings(method.patches))
    how = Preparation(encoder, recipe, method.uses_unlabelled, method.draws_views, 0, fabric, StopRequest())
    ready = prepare(catalogue, how)
    network = build_network(encoder, ready.source, method, recipe, len(catalogue.tags), fabric)
    last = Last()
    loop = Loop(network, ready.source, method, recipe, ready.targets, fabric, last)
    chosen = loop.run()
    assert ready.targets.test is not None  # noqa: S101 - for the type checker
    final = mean_average_precision(loop.scores("test", "plain", chosen).numpy(), ready.targets.test.numpy())
    return {**last.record, "map": final}


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
        labelled = int(dict(word.split("=") for word in variant.split(",") if word).get("labelled", 285))
        found = [measure(development_split(voc, seed, labelled), seed, variant) for seed in SEEDS]
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
