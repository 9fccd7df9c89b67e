"""Wrong and missing tags on drawn scenes: a row per run, with the commit that made it.

python results/scenes/honest.py          # appends to honest.csv; with another version's source on PYTHONPATH, its
figures

`fewtags train scenes:1600 --labelled SHARE --seed S --words off`: 1,200 images for training, 400 for testing.
"""

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402 - after the number of threads

import fewtags  # noqa: E402
from fewtags.training.run_folder import RunFolder  # noqa: E402

FILE = Path(__file__).with_name("honest.csv")
COUNTS, SEEDS, TRAIN = (20, 57, 120), (1, 2), 1200
COLUMNS = ["labels", "seed", "map", "cf1", "of1", "op", "or", "wrong", "missing", "ece", "commit"]


def one(labels: int, seed: int) -> dict[str, object]:
    """Train once; figures in percent, tags per image as they are."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        share = (labels + 0.5) / TRAIN
        result = fewtags.train("scenes:1600", labelled=share, seed=seed, words="off", out=out, progress=False).result
        tables = RunFolder(out).scores()
    limits = np.array([np.inf if row["threshold"] is None else row["threshold"] for row in result["per_tag"]])
    given, truth = tables["test"] >= limits, tables["test_targets"]
    error = result.get("calibration_error")
    return {
        "labels": labels,
        "seed": seed,
        **{name: round(100 * result[name], 2) for name in ("map", "cf1", "of1", "op", "or")},
        "wrong": round(float((given & (truth == 0)).sum(1).mean()), 3),
        "missing": round(float((~given & (truth == 1)).sum(1).mean()), 3),
        "ece": "" if error is None else round(100 * error, 2),
    }


def main() -> None:
    """All runs of this version that are not there yet."""
    here = Path(fewtags.__file__).parent
    said = ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(said, capture_output=True, text=True, check=True).stdout.strip()
    done = set()
    if FILE.exists():
        with FILE.open(encoding="utf-8", newline="") as file:
            done = {(int(row["labels"]), int(row["seed"]), row["commit"]) for row in csv.DictReader(file)}
    for seed in SEEDS:
        for labels in COUNTS:
            if (labels, seed, commit) in done:
                continue
            row = one(labels, seed) | {"commit": commit}
            fresh = not FILE.exists()
            with FILE.open("a", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                if fresh:
                    writer.writeheader()
                writer.writerow(row)
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
