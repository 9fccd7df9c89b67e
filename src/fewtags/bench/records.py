"""What tables and figures need of a finished cell, as one line of records.jsonl: small enough to keep and to share."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from fewtags.bench.grid import Cell, Row
from fewtags.bench.noise import redrawn_figures
from fewtags.errors import UserError
from fewtags.files import write_text
from fewtags.thresholds import metric_adaptive
from fewtags.training.run import RunFolder

FILE = "records.jsonl"


@dataclass(frozen=True)
class Record:
    """One cell. Figures in percent."""

    method: str
    settings: dict[str, str]
    labelled: float | None
    seed: int
    figures: dict[str, float]  # map, cf1, of1 (with the thresholds that tag), map_paper, …
    rules: dict[str, dict[str, float]]  # cf1 and of1 under each rule of decision
    pseudo: list[dict[str, float]]  # of every epoch of the main stage: cf1, cp, cr, positives
    epochs: list[dict[str, float]]  # epochs in which the test split was measured: epoch, map
    draws: dict[str, list[float]]  # figures under other draws of the test images; see fewtags.bench.noise
    cpu_seconds: float
    peak_memory_mb: int | None
    backbone: str
    size: int
    tune: str
    protocol: str
    features: str
    images: dict[str, int]
    made: dict[str, Any] = field(default_factory=dict)  # command, commit, versions, cores

    @property
    def row(self) -> Row:
        """The line of a table that it belongs to."""
        return Row(self.method, tuple(self.settings.items()))

    @property
    def cell(self) -> Cell:
        """Its place in the grid."""
        return Cell(self.row, self.labelled, self.seed)


_RECORD = TypeAdapter(Record)


def record_of(cell: Cell, run: Path) -> Record:
    """Read a finished run folder."""
    folder = RunFolder(run)
    config, result = folder.config(), json.loads((run / "result.json").read_text(encoding="utf-8"))
    main = [one for one in folder.records() if one["stage"] == "main"]
    scores = folder.scores()
    draws: dict[str, list[float]] = {}
    if "test_targets" in scores:
        thresholds = metric_adaptive(scores["labelled"], scores["labelled_targets"], "f1")
        found = redrawn_figures(scores["test"], scores["test_targets"], thresholds)
        draws = {name: _percent_list(values) for name, values in found.items()}
    made = run / "made.json"
    return Record(
        method=cell.row.method,
        settings=dict(cell.row.settings),
        labelled=cell.labelled,
        seed=cell.seed,
        figures=_percents(result, ("map", "map_paper", "cf1", "of1", "cf1_nanmean")),
        rules={name: _percents(one, ("cf1", "of1", "cf1_nanmean")) for name, one in result.get("rules", {}).items()},
        pseudo=[_percents(one, ("pseudo_cf1", "pseudo_cp", "pseudo_cr")) | {"positives": one["pseudo_positives"]}
                for one in main if "pseudo_cf1" in one],
        epochs=[{"epoch": one["epoch"], **_percents(one, ("map", "map_whole", "map_patch"))}
                for one in main if "map" in one],
        draws=draws,
        cpu_seconds=result["cpu_seconds"],
        peak_memory_mb=result["peak_memory_mb"],
        backbone=config.backbone,
        size=config.recipe.size,
        tune=config.recipe.tune,
        protocol=config.recipe.protocol,
        features=result.get("features", {}).get("blocks", "crops") if config.recipe.tune == "heads" else "pixels",
        images=result["images"],
        made=json.loads(made.read_text(encoding="utf-8")) if made.is_file() else {},
    )  # fmt: skip


def read_records(folder: Path) -> list[Record]:
    """What records.jsonl of a folder holds."""
    file = folder / FILE
    if not file.is_file():
        return []
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            found.append(_RECORD.validate_json(line))
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise UserError(f"{file}, line {number}: not a record of a run ({reason}); remove the file: "
                            "`fewtags bench table` makes it again from the run folders") from error  # fmt: skip
    return found


def refresh_records(folder: Path, cells: Iterable[Cell]) -> list[Record]:
    """The records of a grid's finished cells, new ones read from their run folders and kept."""
    cells = list(cells)
    known = {one.cell: one for one in read_records(folder)}
    fresh = [cell for cell in cells if cell not in known and RunFolder(folder / cell.folder).finished]
    for cell in fresh:
        known[cell] = record_of(cell, folder / cell.folder)
    found = [known[cell] for cell in cells if cell in known]
    if fresh:
        write_text(folder / FILE, "".join(_RECORD.dump_json(one).decode() + "\n" for one in found))
    return found


def _percents(content: dict[str, Any], names: Iterable[str]) -> dict[str, float]:
    return {
        name.removeprefix("pseudo_"): round(100 * content[name], 3) for name in names if content.get(name) is not None
    }


def _percent_list(values: Any) -> list[float]:
    return [round(float(value), 2) for value in 100 * np.nan_to_num(values)]
