"""The record of a finished cell, for tables and figures: record.json in its run folder, one line of records.jsonl."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from fewtags.bench.grid import Cell, Row, row_of
from fewtags.errors import UserError
from fewtags.metrics.bootstrap import bootstrap, bootstrap_figures
from fewtags.thresholds import decide, metric_adaptive
from fewtags.training.config import Config
from fewtags.training.run_folder import RunFolder
from fewtags.utils.files import write_text

FILE = "records.jsonl"
FILE_OF_A_CELL = "record.json"


@dataclass(frozen=True)
class Record:
    """One cell. Figures in percent."""

    method: str
    settings: dict[str, str]
    labelled: float | None
    seed: int
    figures: dict[str, float]  # map, cf1, of1 (with the tagging thresholds), map_paper, …
    rules: dict[str, dict[str, float]]  # cf1 and of1 under each decision rule
    pseudo: list[dict[str, float]]  # pseudo-labels of every main-stage epoch: cf1, cp, cr, positives
    epochs: list[dict[str, float]]  # epochs in which the test split was evaluated: epoch, map
    draws: dict[str, list[float]]  # figures of bootstrap samples of the test images; see fewtags.metrics.bootstrap
    cpu_seconds: float
    peak_memory_mb: int | None
    backbone: str
    size: int
    tune: str
    protocol: str
    features: str
    images: dict[str, int]
    seconds: float | None = None  # wall-clock time
    made: dict[str, Any] = field(default_factory=dict)  # command, commit, versions, cores

    @cached_property
    def row(self) -> Row:
        """Its row in a table."""
        return row_of(self.method, self.settings)

    @property
    def cost(self) -> float:
        """CPU seconds on stored features, which do not depend on load; wall-clock seconds if every weight learns."""
        return self.cpu_seconds if self.tune == "heads" or self.seconds is None else self.seconds

    @cached_property
    def cell(self) -> Cell:
        """Its place in the grid."""
        return Cell(self.row, self.labelled, self.seed)


_RECORD = TypeAdapter(Record)


def finished(run: Path) -> bool:
    """Whether a cell is done: its record is written last into its run folder."""
    return (run / FILE_OF_A_CELL).exists()


def keep_record(cell: Cell, run: Path) -> None:
    """Write the record of a run into its folder."""
    write_text(run / FILE_OF_A_CELL, _line(record_of(cell, run)))


def record_of(cell: Cell, run: Path) -> Record:
    """The record of a finished run folder."""
    folder = RunFolder(run)
    config, result = folder.config(), folder.result()
    main = [one for one in folder.records() if one["stage"] == "main"]
    scores = folder.scores()
    draws: dict[str, list[float]] = {}
    if "test_targets" in scores:
        thresholds = metric_adaptive(scores["labelled"], scores["labelled_targets"], "f1")
        found = bootstrap_figures(bootstrap(scores["test"], scores["test_targets"], decide(scores["test"], thresholds)))
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
        features=_features(config, result),
        images=result["images"],
        seconds=result["seconds"],
        made=json.loads(made.read_text(encoding="utf-8")) if made.is_file() else {},
    )  # fmt: skip


def read_records(folder: Path) -> list[Record]:
    """The records in records.jsonl of a folder."""
    file = folder / FILE
    if not file.is_file():
        return []
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    remedy = "remove this line and repeat the `fewtags bench run`"
    return [
        _parsed(line, f"{file}, line {number}", remedy) for number, line in enumerate(lines, start=1) if line.strip()
    ]


def refresh_records(folder: Path, cells: Iterable[Cell]) -> list[Record]:
    """The records of a grid's finished cells, in the order of the grid; new ones are added to records.jsonl."""
    cells = list(cells)
    known = {one.cell: one for one in read_records(folder)}
    fresh = [cell for cell in cells if cell not in known and finished(folder / cell.folder)]
    for cell in fresh:
        file = folder / cell.folder / FILE_OF_A_CELL
        remedy = "remove the file and repeat the `fewtags bench run`"
        known[cell] = _parsed(file.read_text(encoding="utf-8", errors="replace"), str(file), remedy)
    found = [known[cell] for cell in cells if cell in known]
    if fresh:
        _write(folder, found)
    return found


def common_seeds(cells: Iterable[Cell]) -> dict[float | None, frozenset[int]]:
    """Per share, the set of seeds that most rows have: only means over the same seeds can be compared.

    Ties go to the smallest set: rows with more seeds usually include these.
    """
    seeds: dict[float | None, dict[Row, set[int]]] = {}
    for cell in cells:
        seeds.setdefault(cell.labelled, {}).setdefault(cell.row, set()).add(cell.seed)
    counted = {share: Counter(map(frozenset, rows.values())) for share, rows in seeds.items()}
    return {share: max(count, key=lambda some: (count[some], -len(some))) for share, count in counted.items()}


def comparable(records: Sequence[Record], common: Mapping[float | None, frozenset[int]]) -> list[Record]:
    """The records with common seeds; all records of a row that has none of these."""
    have = {(one.row, one.labelled) for one in records if one.seed in common[one.labelled]}
    return [one for one in records if one.seed in common[one.labelled] or (one.row, one.labelled) not in have]


def drop_records(folder: Path, cells: Iterable[Cell]) -> None:
    """Remove the records of these cells, which will run (again), from records.jsonl."""
    records, gone = read_records(folder), set(cells)
    if any(one.cell in gone for one in records):
        _write(folder, [one for one in records if one.cell not in gone])


def _parsed(line: str, where: str, remedy: str) -> Record:
    try:
        return _RECORD.validate_json(line)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UserError(f"{where}: not a record of a run of this version ({reason}); {remedy}") from error


def _write(folder: Path, records: Iterable[Record]) -> None:
    write_text(folder / FILE, "".join(map(_line, records)))


def _line(record: Record) -> str:
    return _RECORD.dump_json(record).decode() + "\n"


def _percents(content: dict[str, Any], names: Iterable[str]) -> dict[str, float]:
    return {
        name.removeprefix("pseudo_"): round(100 * content[name], 3) for name in names if content.get(name) is not None
    }


def _percent_list(values: Any) -> list[float]:
    return [round(float(value), 2) for value in 100 * np.nan_to_num(values)]


def _features(config: Config, result: dict[str, Any]) -> str:
    """What the heads read: the kind of features, or pixels."""
    if config.recipe.tune == "all":
        return "pixels"
    return str(result.get("features", {}).get("blocks", config.recipe.features))
