"""What the default says of itself on VOC 2012 with few labels, and whether it is so: every run, and the tables.

python results/voc/honest/honest.py run voc:PATH --jobs 2      # goes on where it stopped: runs.csv
python results/voc/honest/honest.py table                      # the tables of README.md, from runs.csv

A run is `fewtags train voc:PATH --labelled SHARE --seed S`; its estimate is compared with the test split, which chooses
nothing. Runs are deleted once they are written down. PATH holds VOCdevkit with the full-size images.
"""

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean, median

HERE = Path(__file__).parent
TRAIN = 5717
DRAWS = {20: 20, 57: 20, 143: 20, 285: 20, 1143: 3}  # labels -> seeds 1, 2, …
FULL = 5  # seeds of the default as it is; the draws after them, for coverage alone, learn for EPOCHS instead of 40
EPOCHS = 10
OVERALL = ("map", "cf1", "of1")
COUNTED = 20  # test images given a tag, or showing it, from which its true precision or recall is known well enough
COLUMNS = [
    "labels", "seed", "map", "cf1", "of1", "op", "or", "wrong", "missing", "ece", "not_given",
    *(f"{name}_{part}" for name in OVERALL for part in ("estimated", "low", "high")),
    "wrong_expected", "missing_expected",
    "precision_covered", "precision_tags", "precision_width", "recall_covered", "recall_tags", "recall_width",
    "gain_to_285", "variant", "features", "seconds", "commit", "command",
]  # fmt: skip


def one(data: str, labels: int, seed: int, commit: str) -> dict[str, object]:
    """Train once; figures in percent, tags per image as they are."""
    import numpy as np
    import torch

    import fewtags
    from fewtags.training.run_folder import RunFolder

    torch.set_num_threads(1)
    share = (labels + 0.5) / TRAIN
    with tempfile.TemporaryDirectory(prefix="honest-") as place:
        out = Path(place) / "run"
        epochs = None if seed <= FULL else EPOCHS
        result = fewtags.train(data, labelled=share, seed=seed, epochs=epochs, out=out, progress=False).result
        tables = RunFolder(out).scores()
        shutil.rmtree(out)
    truth, estimate = tables["test_targets"], result["estimate"]
    limits = np.array([np.inf if row["threshold"] is None else row["threshold"] for row in result["per_tag"]])
    given = tables["test"] >= limits
    hits = (given & (truth == 1)).sum(0)
    counts = {"precision": given.sum(0), "recall": (truth == 1).sum(0)}
    row: dict[str, object] = {
        "labels": labels,
        "seed": seed,
        **{name: round(100 * result[name], 2) for name in ("map", "cf1", "of1", "op", "or")},
        "wrong": round(float((given & (truth == 0)).sum(1).mean()), 3),
        "missing": round(float((~given & (truth == 1)).sum(1).mean()), 3),
        "ece": round(100 * result["calibration_error"], 2),
        "not_given": len(result["not_given"]),
        "wrong_expected": round(estimate["wrong_per_image"], 3),
        "missing_expected": round(estimate["missing_per_image"], 3),
        "variant": result.get("variants", {}).get("chosen", ""),
        "features": result["features"]["blocks"],
        "seconds": result["seconds"],
        "commit": commit,
        "command": f"fewtags train voc:PATH --labelled {share:.6g} --seed {seed}"
        + f" --epochs {epochs}" * bool(epochs),
    }
    for name in OVERALL:
        low, high = estimate["intervals"][name]
        figures = (estimate[name], low, high)
        row |= {f"{name}_{part}": round(100 * value, 2) for part, value in zip(("estimated", "low", "high"), figures)}
    for name, count in counts.items():
        covered, widths = [], []
        for place, of_tag in enumerate(estimate["per_tag"]):
            if of_tag["enough"] and count[place] >= COUNTED:
                low, high = of_tag["intervals"][name]
                covered.append(low <= hits[place] / count[place] <= high)
                widths.append(high - low)
        row |= {
            f"{name}_covered": sum(covered),
            f"{name}_tags": len(covered),
            f"{name}_width": round(100 * median(widths), 1) if widths else "",
        }
    curve = result.get("learning_curve")
    row["gain_to_285"] = round(100 * curve["doubled"], 2) if curve and labels == 143 else ""
    return row


def run(data: str, jobs: int, counts: list[int]) -> None:
    """Every run that runs.csv does not hold yet."""
    os.environ["OMP_NUM_THREADS"] = "1"
    file = HERE / "runs.csv"
    here = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(here, capture_output=True, text=True, check=True).stdout.strip()
    done = {(int(row["labels"]), int(row["seed"])) for row in read(file)}
    cells = [(labels, seed) for labels in counts for seed in range(1, DRAWS[labels] + 1)]
    cells.sort(key=lambda cell: cell[1])  # a few seeds of every count first
    with ProcessPoolExecutor(jobs) as pool:
        running = [pool.submit(one, data, *cell, commit) for cell in cells if cell not in done]
        for finished in as_completed(running):
            row = finished.result()
            fresh = not file.exists()
            with file.open("a", encoding="utf-8", newline="") as out:
                writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
                if fresh:
                    writer.writeheader()
                writer.writerow(row)
            print({name: row[name] for name in ("labels", "seed", "map", "of1", "of1_estimated", "ece")}, flush=True)


def read(file: Path) -> list[dict[str, str]]:
    """Rows of a CSV file, none if there is none."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def table() -> str:
    """Figures beside those of before, then coverage and width of the intervals."""
    rows, before = read(HERE / "runs.csv"), read(HERE.parent / "words.csv")
    before = [row for row in before if row["words"] == "on"]
    lines = ["| labels | seeds | | mAP | CF1 | OF1 | OP | OR | wrong | missing | ECE |", "|" + "---|" * 11]
    for labels in DRAWS:
        for name, some in (("before", before), ("after", rows)):
            found = [row for row in some if int(row["labels"]) == labels and int(row["seed"]) <= FULL]
            if found:
                figures = ("map", "cf1", "of1", "op", "or")
                cells = [f"{mean(float(row[figure]) for row in found):.1f}" for figure in figures]
                for figure, digits in (("wrong", 2), ("missing", 2), ("ece", 1)):
                    known = [float(row[figure]) for row in found if row.get(figure)]
                    cells.append(f"{mean(known):.{digits}f}" if known else "–")
                lines.append(f"| {labels} | {len(found)} | {name} | " + " | ".join(cells) + " |")
    lines += ["", "| labels | draws | " + " | ".join(
        f"{name} in its interval | width" for name in ("mAP", "CF1", "OF1", "precision of a tag", "recall of a tag")
    ) + " |", "|" + "---|" * 12]  # fmt: skip
    for labels in DRAWS:
        found = [row for row in rows if int(row["labels"]) == labels]
        if not found:
            continue
        cells = []
        for name in OVERALL:
            inside = [float(r[f"{name}_low"]) <= float(r[name]) <= float(r[f"{name}_high"]) for r in found]
            width = median(float(r[f"{name}_high"]) - float(r[f"{name}_low"]) for r in found)
            cells += [f"{sum(inside)} of {len(found)}", f"{width:.1f}"]
        for name in ("precision", "recall"):
            covered, tags = (sum(int(r[f"{name}_{part}"]) for r in found) for part in ("covered", "tags"))
            widths = [float(r[f"{name}_width"]) for r in found if r[f"{name}_width"]]
            cells += [
                f"{100 * covered / tags:.0f} % of {tags}" if tags else "–",
                f"{median(widths):.0f}" if widths else "–",
            ]
        lines.append(f"| {labels} | {len(found)} | " + " | ".join(cells) + " |")
    truth = {(int(row["labels"]), int(row["seed"])): float(row["map"]) for row in rows}
    pairs = [
        (float(row["gain_to_285"]), truth[285, int(row["seed"])] - float(row["map"]))
        for row in rows
        if row["gain_to_285"] and int(row["seed"]) <= FULL and (285, int(row["seed"])) in truth
    ]
    if pairs:
        forecast, came = (mean(one) for one in zip(*pairs, strict=True))
        lines += [
            "",
            f"From 143 to 285 labels, mean of {len(pairs)} seeds: forecast {forecast:+.1f} mAP, came {came:+.1f}.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("data", nargs="?")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--counts", type=int, nargs="+", default=list(DRAWS), choices=list(DRAWS))
    given = parser.parse_args()
    if given.what == "table":
        sys.stdout.write(table())
    else:
        run(given.data, given.jobs, given.counts)


if __name__ == "__main__":
    main()
