"""Run folders that nobody trained, for tests of what reads them: scores as a test wants them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fewtags.data.catalogue import Catalogue, Names, Role
from fewtags.data.images import FolderImages
from fewtags.methods import make_method
from fewtags.training.config import Config
from fewtags.training.recipe import Recipe
from fewtags.training.run_folder import RunFolder
from fewtags.utils.files import write_json, write_text

ROLES = {"labelled": Role.LABELLED, "unlabelled": Role.UNLABELLED, "test": Role.TEST, "held_out": Role.HELD_OUT}


def made_up_run(
    path: Path,
    tags: list[str],
    tables: dict[str, Any],
    names: dict[str, list[str]] | None = None,
    data: str = "scenes:600",
    thresholds: list[float | None] | None = None,
    result: dict[str, Any] | None = None,
    records: list[dict[str, Any]] | None = None,
    config: Config | None = None,
    kept_back: bool = False,
) -> Path:
    """A finished run. `tables` as RunFolder.scores gives them; images are scenes unless `names` says otherwise.

    `held_out` is about the labelled images, or, kept_back, about others.
    """
    tables = {name: np.asarray(table, np.int8 if "targets" in name else np.float32) for name, table in tables.items()}
    if "held_out" in tables and not kept_back:
        tables["held_out_targets"] = tables["labelled_targets"]
    folder = RunFolder(path)
    every, roles = [], []
    for part, role in ROLES.items():
        if part == "held_out" and not kept_back:
            continue
        count = len(tables.get(part, ()))
        drawn = [f"scene-{len(every) + number:05d}.png" for number in range(count)]
        every += (names or {}).get(part, drawn)
        roles += [role] * count
    write_text(folder.config_file, (config or a_config(tags, data)).to_yaml())
    unknown = np.full((len(every), len(tags)), -1, np.int8)
    folder.write_split(Catalogue(tuple(tags), Names(every), unknown, np.array(roles, np.int8), FolderImages(path)))
    folder.write_scores(tables)
    write_json(folder.model_folder / "model.json", {"thresholds": thresholds or [0.5] * len(tags)})
    counts = {part: len(tables.get(part, ())) for part in ("labelled", "unlabelled", "test")}
    write_json(path / "result.json", {"images": counts, "seconds": 61.0, **(result or {})})
    write_text(folder.metrics_file, "".join(json.dumps(record) + "\n" for record in records or []))
    write_text(folder.tags_file, "image,tags\n")
    return path


def a_config(tags: list[str], data: str) -> Config:
    """Settings of a run, as training would have written them."""
    return Config(
        fewtags="0.2.0",
        data=data,
        method="asl",
        method_settings=make_method("asl", {}).model_dump(),
        backbone="efficientnet_lite0",
        weights_digest="0",
        recipe=Recipe(),
        tags=tags,
        data_digest="0",
    )


def an_estimate(tags: list[str], f1: list[float | None], support: int = 20, half: float = 0.05) -> dict[str, Any]:
    """What result.json says of the quality of each tag: F1 as given, with an interval around it."""
    rows = []
    for tag, value in zip(tags, f1, strict=True):
        interval = None if value is None else [max(0.0, value - half), min(1.0, value + half)]
        figures = dict.fromkeys(("precision", "recall", "f1", "ap"), value)
        intervals = dict.fromkeys(figures, interval)
        rows.append({"tag": tag, "support": support, "threshold": 0.5, **figures, "intervals": intervals})
        rows[-1]["enough"] = support >= 5
    overall = {"map": 0.81, "cf1": 0.72, "of1": 0.76}
    intervals = {name: [value - 0.04, value + 0.03] for name, value in overall.items()}
    how = "40 labelled images in 5 parts, each tagged by a model that learned without it"
    return {"how": how, "prefer": "balance", "images": 40, **overall, "intervals": intervals, "per_tag": rows}


def save_pictures(folder: Path, names: list[str]) -> Path:
    """A folder of small pictures."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 24), (20 * number % 256, 90, 120)).save(folder / name, "PNG")
    return folder
