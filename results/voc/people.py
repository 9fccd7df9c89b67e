"""What a person gets on VOC 2012: is the estimated quality honest, and what do a hundred reviewed images gain?

    python results/voc/people.py estimate PATH RUNS     default runs, estimated against true figures: estimate.csv
    python results/voc/people.py review PATH RUNS       100 images in the order of `review`, or drawn: review.csv

PATH holds VOCdevkit with the full-size images, RUNS is a folder for the runs; finished ones are not run again. The
default runs also go into default.csv (results/record.py). A reviewed image is answered for all tags with the truth.
"""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np

from fewtags import api
from fewtags.review.session import open_session
from fewtags.training.run_folder import RunFolder

HERE = Path(__file__).parent
CASES = [(0.05, seed) for seed in (1, 2, 3)] + [(0.10, seed) for seed in (1, 2, 3)]
REVIEWED = 100
FIGURES = ("map", "cf1", "of1")


def default_run(path: str, runs: Path, share: float, seed: int) -> api.Run:
    """`fewtags train voc:PATH --labelled SHARE --seed SEED`."""
    return api.train(f"voc:{path}", out=runs / f"default-{share:g}-{seed}", labelled=share, seed=seed, resume=True)


def estimate(path: str, runs: Path) -> None:
    """Estimated and true figures of default runs."""
    rows = []
    for share, seed in CASES:
        result = default_run(path, runs, share, seed).result
        row: dict[str, object] = {"labelled": share, "seed": seed}
        for name in FIGURES:
            low, high = result["estimate"]["intervals"][name]
            row |= {f"{name}_estimated": _percent(result["estimate"][name]), f"{name}_true": _percent(result[name])}
            row |= {f"{name}_low": _percent(low), f"{name}_high": _percent(high)}
        rows.append(row | {"commit": _commit()})
        print(row, flush=True)
    write(HERE / "estimate.csv", rows)
    for name in FIGURES:
        errors = [float(row[f"{name}_estimated"]) - float(row[f"{name}_true"]) for row in rows]  # type: ignore[arg-type]
        inside = sum(row[f"{name}_low"] <= row[f"{name}_true"] <= row[f"{name}_high"] for row in rows)  # type: ignore[operator]
        print(f"{name}: mean error {np.mean(errors):+.2f}, mean size of it {np.mean(np.abs(errors)):.2f}, "
              f"true within the interval in {inside} of {len(rows)}")  # fmt: skip


def review(path: str, runs: Path) -> None:
    """Reviewed images chosen by the order against as many drawn ones."""
    rows = []
    for seed in (1, 2, 3):
        before = default_run(path, runs, 0.05, seed)
        for chosen_by in ("order", "drawn"):
            folder = runs / f"review-{chosen_by}-{seed}"
            decided = decide(before, folder / "reviewed", chosen_by, seed)
            after = api.train(folder / "reviewed", with_review=True, out=folder / "again", resume=True).result
            row: dict[str, object] = {"labelled": 0.05, "seed": seed, "chosen_by": chosen_by, **decided}
            for name in ("map", "cf1", "of1"):
                gain = round(_percent(after[name]) - _percent(before.result[name]), 2)
                row |= {f"{name}_before": _percent(before.result[name]), f"{name}_after": _percent(after[name])}
                row |= {f"{name}_gain": gain}
            rows.append(row | {"commit": _commit()})
            print(row, flush=True)
    write(HERE / "review.csv", rows)


def decide(run: api.Run, copy: Path, chosen_by: str, seed: int) -> dict[str, int]:
    """Answer all tags of REVIEWED unlabelled images with the truth, in a copy of the run."""
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-r", run.path, copy], check=True)
    folder = RunFolder(copy)
    catalogue = api.data_of(folder)
    session = open_session(folder, catalogue)
    place = {name: row for row, name in enumerate(catalogue.names)}
    unlabelled = set(folder.split()["unlabelled"])
    queue = [number for number in session.queue("teach") if session.data.names[number] in unlabelled]
    if chosen_by == "drawn":
        queue = [int(number) for number in np.random.default_rng(seed).permutation(sorted(queue))]
    if not session.progress()["decisions"]:
        for number in queue[:REVIEWED]:
            truth = catalogue.targets[place[session.data.names[number]]]
            session.decide([(number, tag, "yes" if yes == 1 else "no") for tag, yes in enumerate(truth)])
    answers = session.log.answers
    return {"images": session.progress()["touched"], "yes": sum(answer == "yes" for answer in answers.values())}


def write(file: Path, rows: list[dict[str, object]]) -> None:
    """All rows as CSV."""
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _percent(value: float) -> float:
    return round(100 * value, 2)


def _commit() -> str:
    words = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("estimate", "review"):
        sys.exit(__doc__)
    {"estimate": estimate, "review": review}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
