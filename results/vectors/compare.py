"""FewTagsClassifier against logistic regression with the same few labels, on vectors that are no photos.

    python results/vectors/compare.py digits
    python results/vectors/compare.py texts --vectors texts.npz      # made by results/vectors/texts.py
    python results/vectors/compare.py table                          # README.md from the CSV files

digits: scikit-learn's 8 × 8 digits, with seven tags that several digits share. texts: short descriptions of Debian
packages with the tags that people gave them, embedded by all-MiniLM-L6-v2. Labelled rows are drawn by the seed; the
rest of the training rows is unlabelled, and a part that no method sees is for testing. Logistic regression is
scikit-learn's, one per tag, on the labelled rows alone: with C = 1, and with C chosen by cross-validation.
"""

import argparse
import csv
import subprocess
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from fewtags import FewTagsClassifier
from fewtags.metrics import f1_scores, mean_average_precision

HERE = Path(__file__).parent
COUNTS, SEEDS = (20, 50, 100, 200), range(1, 6)
COLUMNS = ("data", "labelled", "seed", "method", "map", "of1", "seconds", "commit")


def digits():
    """1,797 digits of 64 numbers; tags are properties of the digit."""
    data = load_digits()
    tags = {
        "even": (0, 2, 4, 6, 8),
        "five or more": (5, 6, 7, 8, 9),
        "a loop": (0, 6, 8, 9),
        "prime": (2, 3, 5, 7),
        "a straight line": (1, 4, 7),
        "square": (0, 1, 4, 9),
        "a multiple of three": (0, 3, 6, 9),
    }
    return data.data / 16, np.stack([np.isin(data.target, some) for some in tags.values()], axis=1).astype(int)


def draw(X, Y, count, seed):
    """Training rows of which `count` are labelled, and test rows."""
    order = np.random.default_rng(seed).permutation(len(X))
    test, train = order[: len(X) // 3], order[len(X) // 3 :]
    hidden = np.full_like(Y[train], -1)
    hidden[:count] = Y[train[:count]]
    return X[train], hidden, X[test], Y[test]


def regression(X, Y, X_new, chosen):
    """Scores of one regression per tag; a tag with one kind of label only gets its share everywhere."""
    scores = np.empty((len(X_new), Y.shape[1]))
    for k in range(Y.shape[1]):
        kinds, counts = np.unique(Y[:, k], return_counts=True)
        if len(kinds) < 2:
            scores[:, k] = kinds[0]
            continue
        model = LogisticRegression(max_iter=2000)
        if chosen and counts.min() >= 3:
            grid = {"C": [0.01, 0.1, 1, 10, 100, 1000]}
            model = GridSearchCV(model, grid, cv=3, scoring="average_precision")
        scores[:, k] = model.fit(X, Y[:, k]).predict_proba(X_new)[:, 1]
    return scores


def one(name, X, Y, count, seed, commit):
    """The rows of one draw."""
    X_train, hidden, X_test, Y_test = draw(X, Y, count, seed)
    known = hidden[:count]
    for method in ("logistic regression, C = 1", "logistic regression, C chosen", "FewTagsClassifier"):
        began = time.monotonic()
        if method == "FewTagsClassifier":
            model = FewTagsClassifier(random_state=seed).fit(X_train, hidden)
            scores, decisions = model.predict_proba(X_test), model.predict(X_test)
        else:
            scores = regression(X_train[:count], known, X_test, "chosen" in method)
            decisions = scores >= 0.5
        figures = mean_average_precision(scores, Y_test), f1_scores(decisions, Y_test)["of1"]
        seconds = time.monotonic() - began
        yield (name, count, seed, method, *(f"{100 * value:.2f}" for value in figures), f"{seconds:.1f}", commit)


def table():
    """README.md: the mean over seeds, and how often FewTagsClassifier is ahead of the better regression."""
    lines = [
        "# Vectors that are no photos", "", "FewTagsClassifier against logistic regression with the same few labels, by
        `compare.py` (which says how; one", "thread). mAP in percent on rows that no method saw, mean of five seeds; in
        brackets OF1 with each method's", "own thresholds (one half for the regressions). The last column counts the
        seeds in which FewTagsClassifier has the", "higher mAP than both regressions.", "", "| data | labelled |
        regression, C = 1 | regression, C chosen | FewTagsClassifier | ahead |", "|---|---|---|---|---|---|",
    ]
    for name in ("digits", "texts"):
        with (HERE / f"{name}.csv").open(newline="") as rows:
            found = list(csv.DictReader(rows))
        for count in COUNTS:
            some = [row for row in found if int(row["labelled"]) == count]
            by = {
                m: {row["seed"]: row for row in some if row["method"] == m}
                for m in dict.fromkeys(r["method"] for r in some)
            }
            cells = []
            for each in by.values():
                means = [np.mean([float(row[key]) for row in each.values()]) for key in ("map", "of1")]
                cells.append(f"{means[0]:.1f} ({means[1]:.1f})")
            *others, ours = by.values()
            ahead = sum(all(float(ours[s]["map"]) > float(o[s]["map"]) for o in others) for s in ours)
            lines.append(f"| {name} | {count} | {' | '.join(cells)} | {ahead} of {len(ours)} |")
    lines += [
        "",
        "## VOC",
        "",
        "The features that the default stores, given to FewTagsClassifier as vectors (`voc.py`), 5 % labelled:",
        "",
    ]
    lines += ["| seed | FewTagsClassifier | `fewtags train` |", "|---|---|---|"]
    with (HERE / "voc.csv").open(newline="") as rows:
        lines += [f"| {row['seed']} | {row['map']} | {row['map_default']} |" for row in csv.DictReader(rows)]
    (HERE / "README.md").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=["digits", "texts", "table"])
    parser.add_argument("--vectors", type=Path)
    given = parser.parse_args()
    if given.data == "table":
        table()
        return
    if given.data == "digits":
        X, Y = digits()
    else:
        content = np.load(given.vectors)
        X, Y = content["vectors"], content["labels"].astype(int)
    words = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    file = HERE / f"{given.data}.csv"
    done = set()
    if file.exists():
        with file.open(newline="") as lines:
            done = {(int(row["labelled"]), int(row["seed"])) for row in csv.DictReader(lines)}
    else:
        file.write_text(",".join(COLUMNS) + "\n")
    for seed in SEEDS:
        for count in COUNTS:
            if (count, seed) in done:
                continue
            rows = list(one(given.data, X, Y, count, seed, commit))
            with file.open("a", newline="") as out:
                csv.writer(out, lineterminator="\n").writerows(rows)
            print(*rows, sep="\n", flush=True)


if __name__ == "__main__":
    main()
