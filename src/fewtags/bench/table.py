"""The tables of a grid: methods × labelled shares, mean ± standard deviation over seeds, with what may be noise."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fewtags.bench.grid import ABLATION, PAPER, VARIANTS, Cell, Row
from fewtags.bench.noise import is_noise
from fewtags.bench.published import Published
from fewtags.bench.records import Record
from fewtags.evaluation.rules import RULES

# Rows of which the paper shows the best under one name.
FAMILIES = {"LL-*": ("ll_r", "ll_ct", "ll_cp"), "Top-*": ("top_1", "top_k")}
NAMES = {
    "bce": "BCE", "asl": "ASL", "plc": "PLC", "iat": "IAT", "adsh": "ADSH", "freematch": "FreeMatch", "drml": "DRML",
    "cap": "CAP", "d2l": "D2L + MAT", "ll_r": "LL-R", "ll_ct": "LL-Ct", "ll_cp": "LL-Cp", "top_1": "Top-1",
    "top_k": "Top-k", "dicap": "DiCaP", "neighbours": "neighbours", "mat": "MAT", "mat+cdd": "MAT + CDD",
    "d2l-quantiles": "D2L, CAP's thresholds", "asl-views": "ASL, five views", "cap-views": "CAP, five views at test",
}  # fmt: skip
ORDER = [*(name for name in PAPER), "mat", "mat+cdd", "d2l-quantiles", "asl-views", "cap-views", "dicap", "neighbours"]


@dataclass(frozen=True)
class Entry:
    """One number of a table, or its absence."""

    mean: float | None = None  # None: missing
    spread: float | None = None  # standard deviation over seeds; None with one seed
    seeds: int = 0
    best: bool = False
    noise: bool = False  # not told apart from the best by the paired test
    note: str = ""

    def text(self, digits: int = 1) -> str:
        """`87.7 ± 0.5`, with ~ where it may be as good as the best; – where it is missing."""
        if self.mean is None:
            return self.note or "–"
        spread = "" if self.spread is None else f" ± {self.spread:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}{' ~' if self.noise and not self.best else ''}{self.note}"


@dataclass(frozen=True)
class Table:
    """Lines of entries under a title."""

    title: str
    columns: list[str]
    lines: list[tuple[str, list[Entry]]]
    notes: list[str]
    digits: int = 1


Measure = Callable[[Record], float | None]
MEASURES: dict[str, tuple[str, Measure, bool, int]] = {  # title, what, more is better, digits
    "map": ("mAP, %", lambda one: one.figures.get("map"), True, 1),
    "pseudo_cf1": ("CF1 of the last pseudo-labels, %", lambda one: (one.pseudo or [{}])[-1].get("cf1"), True, 1),
    "seconds": ("seconds of CPU a run, features at hand", lambda one: one.cpu_seconds, False, 0),
    "memory": ("peak memory, MB", lambda one: one.peak_memory_mb, False, 0),
}  # fmt: skip


def tables(
    records: Sequence[Record], cells: Iterable[Cell], rule: str = "mat", paper: Published | None = None
) -> list[Table]:
    """Everything that a grid shows: quality by share, the rules of decision, the ablation, the cost."""
    cells = list(cells)
    made = [_by_share(records, cells, "map", paper)]
    made += [_by_share(records, cells, figure, paper, rule) for figure in ("cf1", "of1")]
    made.append(_by_share(records, cells, "pseudo_cf1"))
    made += _rules(records, cells)
    ablation = [cell for cell in cells if cell.row.name in ABLATION]
    if {"mat", "d2l"} <= {cell.row.name for cell in ablation}:
        made.append(_by_share(records, ablation, "map", paper, ablation=True))
    made += [_by_share(records, cells, name) for name in ("seconds", "memory")]
    return [table for table in made if any(entry.mean is not None for _, line in table.lines for entry in line)]


def missing_cells(records: Sequence[Record], cells: Iterable[Cell]) -> list[Cell]:
    """The cells of a grid that have no record."""
    there = {one.cell for one in records}
    return [cell for cell in cells if cell not in there]


def _by_share(
    records: Sequence[Record],
    cells: Sequence[Cell],
    name: str,
    paper: Published | None = None,
    rule: str | None = None,
    ablation: bool = False,
) -> Table:
    """One figure: a line a row, a column a share."""
    title, measure, more, digits = _measure(name, rule)
    shares = sorted({cell.labelled for cell in cells}, key=lambda share: (share is None, share))
    rows = ordered(dict.fromkeys(cell.row for cell in cells))
    columns: list[list[Entry]] = []
    for share in shares:
        mine = {row: _of(records, row, share) for row in rows}
        columns.append(_compared([mine[row] for row in rows], measure, more, name))
    lines = [(label(row), [column[place] for column in columns]) for place, row in enumerate(rows)]
    if not ablation:
        lines += _families(rows, lines, more)
    notes = []
    if any(entry.noise and not entry.best for _, line in lines for entry in line):
        notes.append("bold: best; ~: not told apart from it by a paired bootstrap over seeds and test images (95 %)")
    elif more:
        notes.append("bold: best")
    heads = ["all labels" if share is None else f"{100 * share:g} %" for share in shares]
    if paper is not None:
        heads, lines = _beside(paper, name, shares, heads, lines, ablation)
        notes.append(paper.protocol)
    seeds = {len({one.seed for one in records if one.row == row}) for row in rows}
    notes.append(f"mean ± standard deviation over {'–'.join(map(str, sorted({min(seeds), max(seeds)})))} seeds")
    return Table(("Ablation: " if ablation else "") + title, heads, lines, notes, digits)


def _measure(name: str, rule: str | None) -> tuple[str, Measure, bool, int]:
    if rule is None:
        return MEASURES[name]
    title = f"{name.upper()}, %; decided by {RULES[rule]}"

    def measure(one: Record) -> float | None:
        return one.rules.get(rule, {}).get(name)

    return title, measure, True, 1


def _of(records: Sequence[Record], row: Row, share: float | None) -> dict[int, Record]:
    return {one.seed: one for one in records if one.row == row and one.labelled == share}


def _compared(groups: Sequence[dict[int, Record]], measure: Measure, more: bool, name: str) -> list[Entry]:
    """The entries of one column, the best marked, and what cannot be told apart from it."""
    values = [{seed: measure(one) for seed, one in group.items()} for group in groups]
    known = [[value for value in each.values() if value is not None] for each in values]
    means = [float(np.mean(each)) if each else None for each in known]
    there = [mean for mean in means if mean is not None]
    best = (max(there) if more else min(there)) if there else None
    top = next((group for group, mean in zip(groups, means, strict=True) if mean is not None and mean == best), {})
    entries = []
    for group, each, mean in zip(groups, known, means, strict=True):
        spread = float(np.std(each, ddof=1)) if len(each) > 1 else None
        draws = [{seed: one.draws[name] for seed, one in some.items() if name in one.draws} for some in (group, top)]
        noise = more and mean is not None and mean != best and all(draws) and is_noise(*map(_arrays, draws))
        entries.append(Entry(mean, spread, len(each), mean is not None and mean == best and more, noise))
    return entries


def _arrays(draws: dict[int, list[float]]) -> dict[int, Any]:
    return {seed: np.asarray(values) for seed, values in draws.items()}


def _families(rows: Sequence[Row], lines: list[tuple[str, list[Entry]]], more: bool) -> list[tuple[str, list[Entry]]]:
    """The best of each family in every column, as the paper shows them."""
    found = []
    for family, members in FAMILIES.items():
        mine = [line for row, (_, line) in zip(rows, lines, strict=True) if row.name in members]
        if len(mine) > 1:
            best = [
                max(column, key=lambda entry: (entry.mean is not None, (entry.mean or 0.0) * (1 if more else -1)))
                for column in zip(*mine, strict=True)
            ]
            found.append((f"{family} (best of the above)", best))
    return found


def _rules(records: Sequence[Record], cells: Sequence[Cell]) -> list[Table]:
    """CF1 / OF1 of every row under every rule, one table a share."""
    made = []
    for share in sorted({cell.labelled for cell in cells}, key=lambda share: (share is None, share)):
        rows = ordered(dict.fromkeys(cell.row for cell in cells if cell.labelled == share))
        groups = [_of(records, row, share) for row in rows]
        columns, heads = [], []
        for rule in RULES:
            for figure in ("cf1", "of1"):
                measure = _measure(figure, rule)[1]
                columns.append(_compared(groups, measure, True, ""))
                heads.append(f"{figure.upper()} {rule}")
        lines = [(label(row), [column[place] for column in columns]) for place, row in enumerate(rows)]
        where = "all labels" if share is None else f"{100 * share:g} % labelled"
        notes = [f"{name}: {words}" for name, words in RULES.items()]
        made.append(Table(f"CF1 and OF1 under the same rules for all, {where}, %", heads, lines, notes))
    return made


def _beside(
    paper: Published,
    name: str,
    shares: Sequence[float | None],
    heads: list[str],
    lines: list[tuple[str, list[Entry]]],
    ablation: bool,
) -> tuple[list[str], list[tuple[str, list[Entry]]]]:
    """A column with the published figure behind every share."""
    wide = [word for head in heads for word in (head, f"{head}, paper")]
    beside = []
    for label_, line in lines:
        row: list[Entry] = []
        for share, entry in zip(shares, line, strict=True):
            value = paper.figure(label_.split(" (")[0], name, share, ablation)
            row += [entry, Entry(value, note="" if value is not None else " ")]
        beside.append((label_, row))
    return wide, beside


def label(row: Row) -> str:
    """What a table calls a row."""
    if row.name in NAMES:
        return NAMES[row.name]
    known = VARIANTS.get(row.name)
    return row.name if known is None else NAMES.get(known[0], row.name)


def ordered(rows: Iterable[Row]) -> list[Row]:
    """As in the paper; others after them, in the order they came."""
    rows = list(rows)
    place = {name: number for number, name in enumerate(ORDER)}
    return sorted(rows, key=lambda row: (place.get(row.name, place.get(row.method, len(place))), rows.index(row)))
