"""Take the gain apart: features × learners × backbones on VOC 2012, in one process that shares the features.

    python results/voc/recipe.py PATH              every row, on val: recipe.csv, and the table in recipe.md
    python results/voc/recipe.py PATH --develop    on images held out of train (285 and 57 labelled): recipe-develop.csv
    python results/voc/recipe.py --table           the tables again from the CSV files, without training

All methods under equal conditions, on the paper's crops and on these features: crops/, evidence/ (`fewtags bench`);
their asl, cap and d2l stand in the table too.
Rows that are in the CSV file already are not run again; `--rows TEXT` runs those whose name ends with it. PATH holds
VOCdevkit with the full-size images.
"""

import argparse
import csv
import json
import os
import subprocess
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from develop import development_split

from fewtags.backbones.base import build_backbone
from fewtags.data import Catalogue, Role, hide, read
from fewtags.encoders.base import EncoderSettings, Images
from fewtags.encoders.evidence import Evidence
from fewtags.encoders.extract import fingerprints
from fewtags.encoders.store import Stored
from fewtags.metrics import summarise
from fewtags.thresholds import metric_adaptive
from fewtags.training.build import build_network, make_fabric
from fewtags.training.config import resolve_settings
from fewtags.training.loop import Loop
from fewtags.training.prepare import ROLES, targets_of
from fewtags.training.source import FeatureSource

HERE = Path(__file__).parent
LITE0, BOTH = "efficientnet_lite0", "efficientnet_lite0+efficientnet_lite2"
REGRESSION = {"learner": "regression", "share": "0"}
SEEDS = (1, 2, 3, 4, 5)
SHARES = (0.01, 0.10, 0.15, 0.20)  # with seed 1


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    backbone: str
    size: int
    features: str  # pooled, evidence, both
    learner: str
    method: str
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Known by this in the CSV file."""
        return f"{self.backbone.replace('efficientnet_', '')} {self.size} {self.features}: {self.learner}"


def row(backbone: str, size: int, features: str, learner: str, method: str, settings: dict[str, str]) -> Row:
    """A row; the learned settings as a tuple, so that it can be a key."""
    return Row(backbone, size, features, learner, method, tuple(settings.items()))


BANK, ALONE = {"bank": "true"}, {"bank": "false"}
ROWS = [
    row(LITE0, 224, "pooled", "logistic regression", "neighbours", REGRESSION),
    row(LITE0, 224, "pooled", "student", "neighbours", ALONE),
    row(LITE0, 224, "both", "logistic regression", "neighbours", REGRESSION),
    row(LITE0, 224, "both", "student", "neighbours", ALONE),
    row(LITE0, 448, "both", "logistic regression", "neighbours", REGRESSION),
    row(LITE0, 448, "both", "student", "neighbours", ALONE),
    row(BOTH, 448, "pooled", "logistic regression", "neighbours", REGRESSION),
    row(BOTH, 448, "pooled", "student", "neighbours", ALONE),
    row(BOTH, 448, "evidence", "logistic regression", "neighbours", REGRESSION),
    row(BOTH, 448, "both", "logistic regression", "neighbours", REGRESSION),
    row(BOTH, 448, "both", "regression and neighbours", "neighbours", {"learner": "regression"} | BANK),
    row(BOTH, 448, "both", "student without the graph", "neighbours", {"share": "0"} | ALONE),
    row(BOTH, 448, "both", "student", "neighbours", ALONE),
    row(BOTH, 448, "both", "student and neighbours", "neighbours", BANK),
]  # fmt: skip
FEATURES = [
    "lite0 224 pooled", "lite0 224 crops", "lite0 224 both", "lite0 448 both", "lite0+lite2 448 pooled",
    "lite0+lite2 448 evidence", "lite0+lite2 448 both",
]  # fmt: skip
LEARNERS = [
    "logistic regression", "asl", "asl, five views", "cap", "d2l", "regression and neighbours",
    "student without the graph", "student", "student and neighbours",
]  # fmt: skip
COLUMNS = [
    "name", "labelled", "seed", "map", "cf1", "of1", "seconds", "cores", "fewtags", "commit", "method", "settings",
]  # fmt: skip


class Features:
    """Everything that one kind of features needs once."""

    def __init__(self, voc: Catalogue, keys: list[bytes], each: Row, patches: int) -> None:
        self._each, self._keys = each, keys
        self._where = {name: place for place, name in enumerate(voc.names)}
        self._voc = voc
        # at 224 px the pooled vector is that of the half-size reading of 448: no pass of its own is needed
        size = 448 if each.features == "pooled" else each.size
        backbones = [build_backbone(one).eval() for one in each.backbone.split("+")]
        self._settings = EncoderSettings(size=size, patches=patches, blocks=each.features)
        self.encoder = Evidence(backbones, self._settings)
        if any((store.rows(keys) < 0).any() for store in self.encoder.stores):
            raise SystemExit(
                f"features of {each.backbone} at {size} px are missing; compute them once: fewtags train voc:PATH "
                f"--labelled 0.05 --features evidence --backbone {each.backbone} --size {size}"
            )
        self._projected: dict[frozenset[int], np.ndarray] = {}

    def source(self, catalogue: Catalogue, recipe, fabric) -> FeatureSource:
        """What the loop reads of a catalogue with its roles."""
        rows = {part: np.array([self._where[catalogue.names[r]] for r in catalogue.rows(role)], np.int64)
                for part, role in ROLES.items()}  # fmt: skip
        training = frozenset([*rows["labelled"].tolist(), *rows["unlabelled"].tolist()])
        if training not in self._projected:
            self.encoder.settings = replace(self._settings, components=recipe.components)
            images = [
                Images(self._voc.images, [], [self._keys[r] for r in rows[part]]) for part in ("labelled", "unlabelled")
            ]
            self.encoder.fit(*images, torch.empty(0), fabric)
            every = Images(self._voc.images, list(self._voc.names), self._keys)
            self._projected = {training: self.encoder.stored("plain", every).features}
        found = self._projected[training]
        return FeatureSource({part: Stored(found, some) for part, some in rows.items()})


def measure(features: Features, catalogue: Catalogue, each: Row, seed: int) -> dict[str, float]:
    """One run: figures on the test images in percent, and seconds."""
    began = time.monotonic()
    labelled, unlabelled = (len(catalogue.rows(role)) for role in (Role.LABELLED, Role.UNLABELLED))
    given = {"seed": seed, "size": each.size, "features": "evidence"}
    share = labelled / (labelled + unlabelled)
    method, recipe = resolve_settings(
        each.method, "heads", "ours", share, True, given, dict(each.settings), labelled, unlabelled
    )
    fabric = make_fabric(recipe)
    source = features.source(catalogue, recipe, fabric)
    targets = targets_of(catalogue)
    network = build_network(features.encoder, source, method, recipe, len(catalogue.tags), fabric)
    loop = Loop(network, source, method, recipe, targets, fabric)
    chosen = loop.run()
    known, truth = targets.labelled.numpy(), targets.test.numpy()
    thresholds = metric_adaptive(loop.scores("labelled", "plain", chosen).numpy(), known, "f1")
    found = summarise(loop.scores("test", "plain", chosen).numpy(), truth, thresholds, catalogue.tags)
    figures = {name: round(100 * found[name], 2) for name in ("map", "cf1", "of1")}
    return {**figures, "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    """Run what is missing, then write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", nargs="?")
    parser.add_argument("--develop", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--rows", default="")
    parser.add_argument("--commit", default="")
    parser.add_argument("--set", nargs="*", default=[], help="other settings for these rows, noted in their name")
    given = parser.parse_args()
    if not given.table:
        run_all(given)
    put_table(HERE / "recipe.md", "recipe.csv", table(read_rows(HERE / "recipe.csv") + rows_of_grids()))
    put_table(HERE / "recipe.md", "recipe-develop.csv", table(read_rows(HERE / "recipe-develop.csv")))


def run_all(given: argparse.Namespace) -> None:
    """Every row that is not there yet."""
    file = HERE / ("recipe-develop.csv" if given.develop else "recipe.csv")
    voc = read(f"voc:{given.path}")
    if given.develop:
        voc = voc.take(voc.rows(Role.LABELLED))
    keys = fingerprints(voc, {})
    commit = (
        given.commit
        or subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
    )

    @cache
    def features_of(backbone: str, size: int, kind: str, patches: int) -> Features:
        return Features(voc, keys, Row(backbone, size, kind, "", ""), patches)

    for each in ROWS:
        extra = tuple(tuple(word.split("=")) for word in given.set)
        each = replace(each, settings=each.settings + extra, learner=" ".join([each.learner, *given.set]))
        if not each.name.endswith(given.rows):
            continue
        cases = [(0.05, seed) for seed in SEEDS] + [(share, 1) for share in SHARES]
        if given.develop:
            cases = [(count, seed) for count in (285, 57) for seed in (1001, 1002, 1003)]
        for amount, seed in cases:
            done = {(r["name"], float(r["labelled"]), int(r["seed"])) for r in read_rows(file)}
            if (each.name, float(amount), seed) in done:
                continue
            patches = int(dict(each.settings).get("patches", 2 if each.method == "d2l" else 1))
            features = features_of(each.backbone, each.size, each.features, patches)
            catalogue = development_split(voc, seed, amount) if given.develop else hide(voc, amount, seed)
            found = measure(features, catalogue, each, seed)
            append(file, {
                "name": each.name, "labelled": amount, "seed": seed, **found, "cores": os.cpu_count(),
                "fewtags": __import__("fewtags").__version__, "commit": commit, "method": each.method,
                "settings": " ".join(f"{key}={value}" for key, value in each.settings),
            })  # fmt: skip
            print(each.name, amount, seed, found, flush=True)


def read_rows(file: Path) -> list[dict[str, str]]:
    """What the CSV file holds."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as content:
        return list(csv.DictReader(content))


def rows_of_grids() -> list[dict[str, str]]:
    """asl, cap and d2l as `fewtags bench` ran them: the seeds and shares of this table."""
    # on crops, asl and cap see the whole image alone, which is its pooled vector
    whole = {"crops": "lite0 224 pooled", "evidence": "lite0+lite2 448 both"}
    patches = {"crops": "lite0 224 crops", "evidence": "lite0+lite2 448 both"}
    found = []
    for folder in whole:
        file = HERE / folder / "records.jsonl"
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            record = json.loads(line)
            name = {
                ("asl", ""): f"{whole[folder]}: asl",
                ("asl", "2"): f"{patches[folder]}: asl, five views",
                ("cap", ""): f"{whole[folder]}: cap",
                ("d2l", ""): f"{patches[folder]}: d2l",
            }.get((record["method"], ",".join(record["settings"].values())))
            if name and record["seed"] in (SEEDS if record["labelled"] == 0.05 else (1,)):
                values = {"map": record["figures"]["map"], "seconds": record["cpu_seconds"]}
                found.append({"name": name, **{k: str(v) for k, v in {**record, **values}.items()}})
    return found


def append(file: Path, values: dict[str, object]) -> None:
    """One more row."""
    new = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as content:
        writer = csv.DictWriter(content, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerow(values)


def put_table(document: Path, name: str, lines: str) -> None:
    """Replace what stands in a document between the marks of a CSV file."""
    text = document.read_text(encoding="utf-8")
    before, mark, rest = text.partition(f"<!-- {name} -->\n")
    if mark:
        document.write_text(before + mark + lines + "<!-- end" + rest.partition("<!-- end")[2], encoding="utf-8")


def place(name: str) -> tuple[int, int]:
    """Where a row stands in the table."""
    features, _, learner = name.partition(": ")
    return FEATURES.index(features), LEARNERS.index(learner) if learner in LEARNERS else len(LEARNERS)  # `--set` last


def table(rows: list[dict[str, str]]) -> str:
    """Mean over the seeds where there are several, one line a name; features and learners from plain to ours."""
    amounts = sorted({float(r["labelled"]) for r in rows}, key=lambda amount: (amount != 0.05, amount))
    lines = ["| | " + " | ".join(f"{amount:g}" for amount in amounts) + " | seconds a run |",
             "|---|" + "---|" * (len(amounts) + 1)]  # fmt: skip
    for name in sorted({r["name"] for r in rows}, key=place):
        mine = [r for r in rows if r["name"] == name]
        cells = []
        for amount in amounts:
            maps = [float(r["map"]) for r in mine if float(r["labelled"]) == amount]
            spread = f" ± {np.std(maps, ddof=1):.1f}" if len(maps) > 1 else ""
            count = f" ({len(maps)} seeds)" if len(maps) > 1 else ""
            cells.append(f"{np.mean(maps):.1f}{spread}{count}" if maps else "")
        seconds = np.mean([float(r["seconds"]) for r in mine])
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {seconds:.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
