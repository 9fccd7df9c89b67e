"""Do the labelled images choose well? The default's choices against every single one, on VOC 2012 and drawn scenes.

python results/voc/honest/choices.py VOCdevkit       # choices.csv; rows that are there are not run again
python results/voc/honest/choices.py --table

The regression alone tags (`--words off --set learner=regression bank=false share=0 folds=0`), so that a run takes
seconds: kind of features and strength are chosen on it in any case. Means over seeds 1 to 3.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean

FILE = Path(__file__).with_name("choices.csv")
COUNTS, SEEDS = (10, 30, 100, 285), (1, 2, 3)
LEARNER = {"learner": "regression", "bank": "false", "share": 0, "folds": 0}
CHOICES = {
    "chosen": {},
    "pooled": {"blocks": "pooled"},
    "evidence": {"blocks": "evidence"},
    "both": {"blocks": "both"},
    "strength 0.001": {"strength": 0.001},
    "strength 0.1": {"strength": 0.1},
}
COLUMNS = ["data", "labels", "seed", "choice", "map", "features", "share", "strength", "commit"]


def one(data: str, train: int, labels: int, seed: int, choice: str, commit: str) -> dict[str, object]:
    """Train once."""
    import fewtags
    from fewtags.model.saved import read_info

    with tempfile.TemporaryDirectory() as out:
        run = fewtags.train(
            data, labelled=(labels + 0.5) / train, seed=seed, out=Path(out) / "run", progress=False,
            method="neighbours", features="evidence", tune="heads",
            settings={"blocks": "choose", **LEARNER, **CHOICES[choice]},
        )  # fmt: skip
        settings = read_info(run.path / "model" / "model.json").method_settings
    return {
        "data": data.split(":")[0],
        "labels": labels,
        "seed": seed,
        "choice": choice,
        "map": round(100 * run.result["map"], 2),
        "features": run.result["features"]["blocks"],
        "share": settings["share"],
        "strength": settings["strength"],
        "commit": commit,
    }


def table() -> str:
    """One line per data set and count."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = ["| data | labels | " + " | ".join(CHOICES) + " | chosen − best |", "|" + "---|" * (len(CHOICES) + 3)]
    for data in ("voc", "scenes"):
        for labels in COUNTS:
            means = {}
            seeds = [
                {row["seed"] for row in rows if (row["data"], row["labels"], row["choice"]) == (data, str(labels), one)}
                for one in CHOICES
            ]
            shared = set.intersection(*seeds)
            for choice in CHOICES:
                kept = [
                    row
                    for row in rows
                    if (row["data"], row["labels"], row["choice"]) == (data, str(labels), choice)
                    and row["seed"] in shared
                ]
                if kept:
                    means[choice] = mean(float(row["map"]) for row in kept)
            if "chosen" in means:
                cells = [f"{means[choice]:.1f}" if choice in means else "–" for choice in CHOICES]
                behind = means["chosen"] - max(means.values())
                lines.append(f"| {data} | {labels} | " + " | ".join(cells) + f" | {behind:+.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--data", nargs="+", default=["scenes", "voc"], choices=["scenes", "voc"])
    given = parser.parse_args()
    if given.table:
        sys.stdout.write(table())
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    commit = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(commit, capture_output=True, text=True, check=True).stdout.strip()
    done = set()
    if FILE.exists():
        with FILE.open(encoding="utf-8", newline="") as file:
            done = {(row["data"], int(row["labels"]), int(row["seed"]), row["choice"]) for row in csv.DictReader(file)}
    for data, train in (("scenes:1600", 1200), (f"voc:{given.path}", 5717)):
        for seed in SEEDS if data.split(":")[0] in given.data else ():
            for labels in COUNTS:
                for choice in CHOICES:
                    if (data.split(":")[0], labels, seed, choice) in done:
                        continue
                    row = one(data, train, labels, seed, choice, commit)
                    fresh = not FILE.exists()
                    with FILE.open("a", encoding="utf-8", newline="") as file:
                        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                        if fresh:
                            writer.writeheader()
                        writer.writerow(row)
                    print(row, flush=True)


if __name__ == "__main__":
    main()
