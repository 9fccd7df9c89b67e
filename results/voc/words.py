"""The default with and without words on VOC 2012: every run's figures with its command and commit, and the table.

python results/voc/words.py voc:PATH results/voc/words.csv --with on off --jobs 2     # goes on where it stopped
python results/voc/words.py --table results/voc/words.csv --beside results/voc/default.csv     # the table

Counts are labelled images of 5,717, drawn as `--labelled` draws them. A run is deleted once it is written down.
Other data: name its folder and the number of its labelled training images with --train, for example

python results/voc/actions.py VOCdevkit/VOC2012 actions
python results/voc/words.py actions results/voc/actions.csv --train 2296 --counts 0 10 20 57 115 230
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
from statistics import mean

TRAIN = 5717
COUNTS = {
    115: 5,
    230: 5,
    0: 5,
    5: 5,
    10: 5,
    20: 5,
    40: 5,
    57: 5,
    100: 5,
    143: 5,
    285: 5,
    571: 1,
    857: 1,
    1143: 1,
}  # labels -> seeds
FIGURES = ("map", "cf1", "of1", "op", "or")
COLUMNS = ["labels", "seed", "words", *FIGURES, "given", "wrong", "seconds", "commit", "command"]
# five tags named after one another, and all tags named by words that mean nothing
PERMUTED = "bicycle=car; car=cat; cat=person; person=tvmonitor; tvmonitor=bicycle"


def one(data: str, train: int, labels: int, seed: int, words: str, commit: str) -> dict[str, object]:
    """Train once and read what it measured; figures in percent, tags given and wrong per image."""
    import numpy as np
    import torch

    import fewtags
    from fewtags.training.run_folder import RunFolder

    torch.set_num_threads(1)
    share = (labels + 0.5) / train if labels else 0.0
    with tempfile.TemporaryDirectory(prefix="words-") as place:
        out = Path(place) / "run"
        said = {"permuted": PERMUTED}.get(words, words)
        run = fewtags.train(data, labelled=share, seed=seed, words=said, out=out, progress=False)
        folder = RunFolder(out)
        tables = folder.scores()
        chosen = [row["threshold"] for row in run.result["per_tag"]]
        thresholds = np.array([np.inf if one is None else one for one in chosen])
        given = tables["test"] >= thresholds
        shutil.rmtree(out)
    wrong = (given & (tables["test_targets"] == 0)).sum(1).mean()
    option = "" if words == "on" else f" --words '{said}'"
    name = "voc:PATH" if data.startswith("voc:") else Path(data).name
    return {
        "labels": labels,
        "seed": seed,
        "words": words,
        **{name: round(100 * run.result[name], 2) for name in FIGURES},
        "given": round(float(given.sum(1).mean()), 3),
        "wrong": round(float(wrong), 3),
        "seconds": run.result["seconds"],
        "commit": commit,
        "command": f"fewtags train {name} --labelled {share:.6g} --seed {seed}{option}",
    }


def without_words(file: Path) -> list[dict[str, str]]:
    """Rows of results/voc/default.csv: runs of 0.3.0, which read no names."""
    with file.open(encoding="utf-8", newline="") as text:
        found = list(csv.DictReader(text))
    return [{**row, "labels": str(int(float(row["labelled"]) * TRAIN)), "words": "off"} for row in found]


def table(rows: list[dict[str, str]]) -> str:
    """Means over seeds, one line per count; in brackets the number of seeds."""
    kinds = [kind for kind in ("on", "off", "permuted") if any(row["words"] == kind for row in rows)]
    heads = [f"{name} {figure}" for figure in ("mAP", "CF1", "OF1", "wrong") for name in kinds]
    lines = ["| labels | " + " | ".join(heads) + " |", "|" + "---|" * (len(heads) + 1)]
    for labels in sorted({int(row["labels"]) for row in rows}):
        of_count = [row for row in rows if int(row["labels"]) == labels]
        cells = []
        for figure in ("map", "cf1", "of1", "wrong"):
            for kind in kinds:
                found = [float(row[figure]) for row in of_count if row["words"] == kind and figure in row]
                digits = 2 if figure == "wrong" else 1
                seeds = f" ({len(found)})" if figure == "map" else ""
                cells.append(f"{mean(found):.{digits}f}{seeds}" if found else "–")
        lines.append(f"| {labels} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("csv", nargs="?", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--train", type=int, default=TRAIN)
    parser.add_argument("--with", dest="kinds", nargs="+", default=["on", "off"], choices=["on", "off", "permuted"])
    parser.add_argument("--counts", type=int, nargs="+", default=[one for one in COUNTS if one not in (115, 230)])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if given.table:
        with given.table.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        measured = {(int(row["labels"]), int(row["seed"])) for row in rows if row["words"] == "off"}
        beside = without_words(given.beside) if given.beside else []
        rows += [row for row in beside if (int(row["labels"]), int(row["seed"])) not in measured]
        sys.stdout.write(table(rows))
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    here = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(here, capture_output=True, text=True, check=True).stdout.strip()
    done = set()
    if given.csv.exists():
        with given.csv.open(encoding="utf-8", newline="") as file:
            done = {(int(row["labels"]), int(row["seed"]), row["words"]) for row in csv.DictReader(file)}
    wanted = [
        (labels, seed, words)
        for words in given.kinds
        for seed in given.seeds
        for labels in given.counts
        if seed <= COUNTS[labels] and (labels or words == "on") and (labels, seed, words) not in done
    ]
    with ProcessPoolExecutor(given.jobs) as pool:
        running = [pool.submit(one, given.data, given.train, *cell, commit) for cell in wanted]
        for finished in as_completed(running):
            row = finished.result()
            fresh = not given.csv.exists()
            with given.csv.open("a", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                if fresh:
                    writer.writeheader()
                writer.writerow(row)
            print({name: row[name] for name in ("labels", "seed", "words", "map", "cf1", "of1")}, flush=True)


if __name__ == "__main__":
    main()
