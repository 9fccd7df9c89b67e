"""Which thresholds for tagging: the single best of the labelled images, or the mean over draws of them.

    python results/voc/thresholds.py PATH [LABELLED:SEED …]     by default 285:1001 285:1002 571:1001

On images held out of VOC's train split (develop.py): the student of the default on both kinds of features, its labelled
images in five folds. Prints CF1 and OF1 on the held-out images, and what the labelled ones estimate.
"""

import sys
from types import SimpleNamespace

import torch
from develop import development_split
from recipe import BOTH, Features, Row

from fewtags.data import Role, read
from fewtags.encoders.extract import fingerprints
from fewtags.methods import make_method
from fewtags.metrics import f1_scores
from fewtags.metrics.estimate import out_of_fold_decisions, thresholds_for
from fewtags.thresholds import decide, metric_adaptive
from fewtags.training import crossfit
from fewtags.training.build import build_network, make_fabric
from fewtags.training.config import resolve_settings
from fewtags.training.loop import Loop, Observer
from fewtags.training.prepare import targets_of


def main(path: str, cases: list[str]) -> None:
    """One line a rule and case."""
    torch.set_num_threads(1)
    voc = read(f"voc:{path}")
    voc = voc.take(voc.rows(Role.LABELLED))
    keys = fingerprints(voc, {})
    features = Features(voc, keys, Row(BOTH, 448, "both", "student", "neighbours"), 1)
    key_of = dict(zip(voc.names, keys, strict=True))
    for case in cases:
        labelled, seed = map(int, case.split(":"))
        catalogue = development_split(voc, seed, labelled)
        others = len(catalogue.rows(Role.UNLABELLED))
        given = {"seed": seed, "size": 448, "features": "evidence"}
        share = labelled / (labelled + others)
        method, recipe = resolve_settings("neighbours", "heads", "ours", share, True, given, {}, labelled, others)
        fabric, targets = make_fabric(recipe), targets_of(catalogue)
        source = features.source(catalogue, recipe, fabric)
        network = build_network(features.encoder, source, method, recipe, len(catalogue.tags), fabric)
        loop = Loop(network, source, method, recipe, targets, fabric)
        scores, truth = loop.scores("test", "plain", loop.run()).numpy(), targets.test.numpy()
        settings = method.model_dump()
        config = SimpleNamespace(build_method=lambda chosen, own=settings: make_method("neighbours", {**own, **chosen}))
        job = SimpleNamespace(recipe=recipe, config=config)
        known = targets.labelled.numpy()
        fold = crossfit._fold_of([key_of[catalogue.names[r]] for r in catalogue.rows(Role.LABELLED)], known, 5)
        prepared = SimpleNamespace(source=source, encoder=features.encoder, targets=targets)
        held = crossfit.cross_fitted(job, prepared, loop, fold, Observer())
        rules = {"single best": metric_adaptive(held, known, "f1")}
        rules["mean over draws"] = thresholds_for(held, known, "balance")
        for name, thresholds in rules.items():
            found = f1_scores(decide(scores, thresholds), truth)
            print(f"{case} {name}: CF1 {100 * found['cf1']:.1f} OF1 {100 * found['of1']:.1f}", flush=True)
        found = f1_scores(out_of_fold_decisions(held, known, fold, "balance"), known)
        print(f"{case} estimated: CF1 {100 * found['cf1']:.1f} OF1 {100 * found['of1']:.1f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:] or ["285:1001", "285:1002", "571:1001"])
