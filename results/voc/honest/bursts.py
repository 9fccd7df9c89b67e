"""Does the estimate hold where a fifth of the labelled photos are near-copies of others? With folds that keep them
together, and without.

python results/voc/honest/bursts.py VOCdevkit        # bursts.csv; rows that are there are not run again

285 labelled images of VOC 2012, 57 of them once more: cropped by up to 6 % a side, relit by up to 15 %. The copies are
labelled as their originals. PATH holds VOC2012 with the full-size images.
"""

import csv
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

from fewtags.data import Role, hide, read
from fewtags.data.catalogue import Catalogue, ImageSource, Names
from fewtags.training import crossfit
from fewtags.training.options import TrainOptions
from fewtags.training.train import train
from fewtags.utils.progress import reporting
from fewtags.utils.stopping import StopRequest

FILE = Path(__file__).with_name("bursts.csv")
LABELLED, SHARE, TRAIN = 285, 0.2, 5717
EPOCHS = 10  # instead of 40
COPY = "copy of "
COLUMNS = ["words", "seed", "folds", "map", "map_estimated", "of1", "of1_estimated", "found", "commit"]


class WithCopies:
    """An image source that also knows changed copies."""

    def __init__(self, images: ImageSource) -> None:
        self._images = images

    def image(self, name: str) -> Image.Image:
        """The picture, or a changed copy of it."""
        image = self._images.image(name.removeprefix(COPY))
        if not name.startswith(COPY):
            return image
        rng = np.random.default_rng(list(name.encode()))
        (left, top, right, bottom), (width, height) = rng.uniform(0, 0.06, 4), image.size
        image = image.crop((int(left * width), int(top * height), int((1 - right) * width), int((1 - bottom) * height)))
        for change in (ImageEnhance.Brightness, ImageEnhance.Color):
            image = change(image).enhance(rng.uniform(0.85, 1.15))
        return image

    def fingerprint(self, name: str) -> bytes:
        """Of the content, and of the copy's name."""
        found = self._images.fingerprint(name.removeprefix(COPY))
        return blake2b(found + name.encode(), digest_size=16).digest() if name.startswith(COPY) else found


def with_copies(catalogue: Catalogue) -> Catalogue:
    """The first fifth of the labelled images once more."""
    rows = catalogue.rows(Role.LABELLED)[: round(SHARE * LABELLED)]
    return replace(
        catalogue,
        names=Names([*catalogue.names, *(COPY + catalogue.names[int(row)] for row in rows)]),
        targets=np.concatenate([catalogue.targets, catalogue.targets[rows]]),
        roles=np.concatenate([catalogue.roles, catalogue.roles[rows]]),
        images=WithCopies(catalogue.images),
    )


@contextmanager
def folds(together: bool) -> Iterator[list[int]]:
    """How images are grouped within this block; yields how many were put beside another."""
    original, found = crossfit.find_bursts, []

    def group(vectors, times=()):
        groups = original(vectors, times) if together else np.arange(len(vectors))
        found.append(len(groups) - len(np.unique(groups)))
        return groups

    crossfit.find_bursts = group
    try:
        yield found
    finally:
        crossfit.find_bursts = original


def main(place: str) -> None:
    """Run what is missing."""
    commit = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(commit, capture_output=True, text=True, check=True).stdout.strip()
    done = []
    if FILE.exists():
        with FILE.open(encoding="utf-8", newline="") as file:
            done = [(row["words"], int(row["seed"]), row["folds"]) for row in csv.DictReader(file)]
    catalogue = read(f"voc:{place}")
    for words in ("off", "on"):
        for seed in (1, 2):
            data = with_copies(hide(catalogue, (LABELLED + 0.5) / TRAIN, seed, "paper"))
            for kind in ("together", "apart"):
                if (words, seed, kind) in done:
                    continue
                with tempfile.TemporaryDirectory() as out, folds(kind == "together") as found, reporting(False):
                    given = {
                        "data": f"voc:{place}",
                        "seed": seed,
                        "words": words,
                        "epochs": EPOCHS,
                        "out": Path(out) / "run",
                    }
                    result = train(TrainOptions.of(given), StopRequest(), catalogue=data).result()
                figures = {name: round(100 * result[name], 2) for name in ("map", "of1")}
                figures |= {f"{name}_estimated": round(100 * result["estimate"][name], 2) for name in ("map", "of1")}
                row = {"words": words, "seed": seed, "folds": kind, **figures, "found": found[0], "commit": commit}
                fresh = not FILE.exists()
                with FILE.open("a", encoding="utf-8", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    if fresh:
                        writer.writeheader()
                    writer.writerow(row)
                print(row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
