"""FewTagsClassifier on the features that the default stores for VOC, against the default's own figures.

    python results/vectors/voc.py voc:PATH --seeds 1 2 3

The features must have been extracted before (any `fewtags train voc:PATH` does it). Vectors are those columns of both
backbones that the labelled images prefer, 10,560 numbers per image where both kinds are used; the classifier reduces
them to components by itself. `map_default` is what `fewtags train` reaches with the same split
(results/voc/default.csv).
"""

import argparse
import csv
import subprocess
import time
from pathlib import Path

import numpy as np
import torch

from fewtags import FewTagsClassifier
from fewtags.data import Role
from fewtags.encoders.extract import fingerprints
from fewtags.metrics import mean_average_precision
from fewtags.training.options import TrainOptions
from fewtags.training.resolve import resolve

HERE = Path(__file__).parent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--labelled", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    given = parser.parse_args()
    words = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    with (HERE.parent / "voc" / "default.csv").open(newline="") as lines:
        default = {(row["labelled"], row["seed"]): row["map"] for row in csv.DictReader(lines)}
    file = HERE / "voc.csv"
    if not file.exists():
        file.write_text("data,labelled,seed,map,map_default,seconds,commit\n")
    for seed in given.seeds:
        job = resolve(TrainOptions.of({"data": given.data, "labelled": given.labelled, "seed": seed, "tune": "heads"}))
        catalogue, encoder = job.catalogue, job.encoder
        keys = fingerprints(catalogue, {})
        labelled = catalogue.rows(Role.LABELLED)
        choice = encoder.choose([keys[row] for row in labelled], torch.from_numpy(catalogue.targets[labelled]))

        def vectors(rows, blocks=choice.blocks, keys=keys, encoder=encoder):
            parts = [[keys[row] for row in rows[start : start + 512]] for start in range(0, len(rows), 512)]
            return np.concatenate([encoder.read(some, blocks)[:, 0].astype(np.float32) for some in parts])

        train = np.concatenate([labelled, catalogue.rows(Role.UNLABELLED)])
        known = catalogue.targets[train].copy()
        known[len(labelled) :] = -1
        began = time.monotonic()
        model = FewTagsClassifier(random_state=seed, folds=0, verbose=True).fit(vectors(train), known)
        test = catalogue.rows(Role.TEST)
        scores = np.concatenate(
            [model.predict_proba(vectors(test[start : start + 512])) for start in range(0, len(test), 512)]
        )
        found = mean_average_precision(scores, catalogue.targets[test])
        row = [f"voc, {choice.blocks}", f"{given.labelled:g}", seed, f"{100 * found:.2f}"]
        row += [default.get((f"{given.labelled:g}", str(seed)), ""), f"{time.monotonic() - began:.0f}", commit]
        with file.open("a", newline="") as out:
            csv.writer(out, lineterminator="\n").writerow(row)
        print(*row, flush=True)


if __name__ == "__main__":
    main()
