"""A grid of runs: rows (a method with settings) × labelled shares × seeds, each cell an ordinary run folder."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fewtags.errors import UserError, nearest
from fewtags.methods import find_method, make_method, method_names
from fewtags.training.recipe import Recipe
from fewtags.utils.files import write_json
from fewtags.words import OFF

# Rows that are a method with settings, under the names that tables use.
VARIANTS: dict[str, tuple[str, dict[str, str]]] = {
    "mat": ("d2l", {"patches": "1", "separate_heads": "false"}),
    "mat+cdd": ("d2l", {"separate_heads": "false"}),
    "d2l-quantiles": ("d2l", {"thresholds": "proportion"}),
    "asl-views": ("asl", {"patches": "2"}),
    "cap-views": ("cap", {"patches": "2", "patch_heads": "false"}),
}
# The rows of the paper's table, and those of its ablation.
PAPER = [
    "bce",
    "asl",
    "ll_r",
    "ll_ct",
    "ll_cp",
    "plc",
    "top_1",
    "top_k",
    "iat",
    "adsh",
    "freematch",
    "drml",
    "cap",
    "d2l",
]
ABLATION = ["cap", "mat", "mat+cdd", "d2l"]
GROUPS = {"paper": PAPER, "ablation": ABLATION}


@dataclass(frozen=True)
class Row:
    """A method with settings, which `row_of` sorts so that equal rows are equal: a line of a table."""

    method: str
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """What a person calls it: the method, a known variant of it, or the method and its settings."""
        if not self.settings:
            return self.method
        for name, (method, settings) in VARIANTS.items():
            if self.method == method and dict(self.settings) == settings:
                return name
        return " ".join([self.method, *(f"{key}={value}" for key, value in self.settings)])


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    row: Row
    labelled: float | None
    seed: int

    @property
    def folder(self) -> str:
        """Where it lies below the grid's folder."""
        share = "as-given" if self.labelled is None else f"{self.labelled:.12g}"
        return f"cells/{quote(self.row.name, safe='=+ ').replace(' ', '_')}/labelled-{share}/seed-{self.seed}"

    @property
    def words(self) -> str:
        """For a person."""
        share = "" if self.labelled is None else f", {self.labelled:g} labelled"
        return f"{self.row.name}{share}, seed {self.seed}"


@dataclass(frozen=True)
class Grid:
    """The data, the options that all cells share, and the cells."""

    data: str
    options: dict[str, Any]
    cells: tuple[Cell, ...]

    def with_cells_of(self, other: "Grid") -> "Grid":
        """Both together, for a folder that grows."""
        return Grid(self.data, self.options, tuple(dict.fromkeys([*self.cells, *other.cells])))


def row_of(method: str, settings: Mapping[str, str]) -> Row:
    """The row of a method with these settings, in whatever order they come."""
    return Row(method, tuple(sorted(settings.items())))


def rows_of(methods: Iterable[str], lists: Mapping[str, Sequence[str]]) -> list[Row]:
    """The rows that names stand for: methods, variants, `paper`, `ablation`, `all`; each with every value of `lists`.

    A list goes to the rows whose method (or the training of all) has such a setting; one that nobody has is refused.
    """
    groups = {**GROUPS, "all": method_names()}
    names = [name for word in methods for name in groups.get(word, [word])]
    rows: dict[Row, None] = {}
    used: set[str] = set()
    for name in names:
        method, fixed = VARIANTS.get(name, (name, {}))
        if "." not in method and method not in method_names():
            known = [*method_names(), *VARIANTS, *groups]
            raise UserError(f"--methods {name}: unknown{nearest(name, known)} (there are {', '.join(known)})")
        fields = find_method(method).model_fields
        keys = [key for key in lists if key in fields or key in Recipe.model_fields]
        used |= set(keys)
        for values in itertools.product(*(lists[key] for key in keys)):
            settings = {**fixed, **dict(zip(keys, values, strict=True))}
            make_method(method, {key: value for key, value in settings.items() if key in fields})
            rows[row_of(method, settings)] = None
    for key in lists:
        if key not in used:
            known = sorted({*Recipe.model_fields, *(k for name in rows for k in find_method(name.method).model_fields)})
            raise UserError(f"--set {key}: none of these methods has it{nearest(key, known)}")
    return list(rows)


def make_grid(
    data: str,
    rows: Sequence[Row],
    labelled: Sequence[float | None],
    seeds: Sequence[int],
    options: Mapping[str, Any],
) -> Grid:
    """All combinations, seed after seed, so that a grid that is cut short has whole tables."""
    for share in labelled:
        if share is not None and not 0 <= share < 1:
            raise UserError(f"--labelled {share:g}: must be between 0 and 1; leave it out to use every label")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise UserError(f"--seeds {seed}: must be between 0 and {2**32 - 1}")
    cells = dict.fromkeys(Cell(row, share, seed) for seed in seeds for share in labelled for row in rows)
    shared = {key: value for key, value in options.items() if value is not None}
    return Grid(data, {"words": OFF, **shared}, tuple(cells))  # names are read only where a grid is told to


def save_grid(folder: Path, grid: Grid) -> None:
    """Write grid.json: what the folder is meant to hold."""
    cells = [
        {"method": one.row.method, "settings": dict(one.row.settings), "labelled": one.labelled, "seed": one.seed}
        for one in grid.cells
    ]
    write_json(folder / "grid.json", {"data": grid.data, "options": grid.options, "cells": cells})


def load_grid(folder: Path) -> Grid:
    """Read what `save_grid` wrote."""
    file = folder / "grid.json"
    if not file.is_file():
        raise UserError(f"{folder} is no grid of runs (it has no grid.json); give the --out of `fewtags bench run`")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        cells = tuple(
            Cell(
                row_of(str(one["method"]), {str(key): str(value) for key, value in one["settings"].items()}),
                None if one["labelled"] is None else float(one["labelled"]),
                int(one["seed"]),
            )
            for one in content["cells"]
        )
        return Grid(str(content["data"]), {"words": OFF, **content["options"]}, cells)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{file} is damaged ({error!r}); run the grid into a new folder") from error
