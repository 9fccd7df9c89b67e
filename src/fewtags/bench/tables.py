"""The tables of a grid: methods × labelled shares, mean ± standard deviation over seeds, with a significance test."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fewtags.bench.grid import ABLATION, PAPER, Cell, Row
from fewtags.bench.published import Published
from fewtags.bench.records import Record, common_seeds, comparable
from fewtags.bench.significance import is_significant
from fewtags.metrics.decision_rules import RULES

# Groups of rows that the paper shows as one: the best of them.
FAMILIES = {"LL-*": ("ll_r", "ll_ct", "ll_cp"), "Top-*": ("top_1", "top_k")}
NAMES = {
    "bce": "BCE", "asl": "ASL", "plc": "PLC", "iat": "IAT", "adsh": "ADSH", "freematch": "FreeMatch", "drml": "DRML",
    "cap": "CAP", "d2l": "D2L + MAT", "ll_r": "LL-R", "ll_ct": "LL-Ct", "ll_cp": "LL-Cp", "top_1": "Top-1",
    "top_k": "Top-k", "dicap": "DiCaP", "neighbours": "neighbours", "mat": "MAT", "mat+cdd": "MAT + CDD",
    "d2l-quantiles": "D2L, CAP's thresholds", "asl-views": "ASL, five views", "cap-views": "CAP, five views at test",
}  # fmt: skip
PARTS = {"cap": "none of the three (CAP)", "mat": "MAT", "mat+cdd": "MAT + CDD", "d2l": "MAT + CDD + GUD (D2L + MAT)"}
ORDER = [*PAPER, "mat", "mat+cdd", "d2l-quantiles", "asl-views", "cap-views", "dicap", "neighbours"]


@dataclass(frozen=True)
class Entry:
    """One cell of a table."""

    mean: float | None = None  # None: no value
    std: float | None = None  # standard deviation over seeds; None with one seed
    seeds: int = 0  # finished seeds
    wanted: int = 0  # seeds that the grid asks for
    best: bool = False
    tied: bool = False  # not significantly different from the best

    def text(self, digits: int = 1) -> str:
        """`87.7 ± 0.5`, with ~ if tied with the best, `(2 of 3)` if seeds are missing, – without a value."""
        if self.mean is None:
            return "–" if self.wanted else ""
        std = "" if self.std is None else f" ± {self.std:.{digits}f}"
        part = f" ({self.seeds} of {self.wanted})" if self.seeds < self.wanted else ""
        return f"{self.mean:.{digits}f}{std}{' ~' if self.tied else ''}{part}"


@dataclass(frozen=True)
class Table:
    """A title, lines of entries, and notes."""

    title: str
    columns: list[str]
    lines: list[tuple[str, list[Entry]]]
    notes: list[str]
    digits: int = 1


class Measure(NamedTuple):
    """A figure of a run that tables show."""

    title: str
    of: Callable[[Record], float | None]
    draws: str = ""  # its name in Record.draws, if there is one for the paired test
    higher_is_better: bool = True
    digits: int = 1


MAP = Measure("mAP, %", lambda one: one.figures.get("map"), "map")
PSEUDO = Measure("CF1 of the last pseudo-labels, %", lambda one: (one.pseudo or [{}])[-1].get("cf1"))
SECONDS = Measure(
    "seconds a run (of CPU, where features are at hand)", lambda one: one.cost, higher_is_better=False, digits=0
)
MEMORY = Measure("peak memory, MB", lambda one: one.peak_memory_mb, higher_is_better=False, digits=0)
TIED = "~: not told apart from the best by a paired bootstrap over seeds and test images (95 %)"
UNTESTED = "no paired test"
TESTED = "mat"  # the rule whose CF1 and OF1 are in Record.draws


def tables(
    records: Sequence[Record], cells: Iterable[Cell], rule: str = "mat", paper: Published | None = None
) -> list[Table]:
    """All tables of a grid: quality by share, decision rules, ablation, cost."""
    every_record, every_cell = records, list(cells)
    common = common_seeds(every_cell)
    records = comparable(records, common)
    rows_of_shares = dict.fromkeys((cell.row, cell.labelled) for cell in every_cell)
    cells = [Cell(row, share, seed) for row, share in rows_of_shares for seed in sorted(common[share])]
    quality = {"map": MAP, "cf1": f1_measure("cf1", rule), "of1": f1_measure("of1", rule)}
    made = [_by_share(records, cells, one, published=_published(paper, name)) for name, one in quality.items()]
    made.append(_by_share(records, cells, PSEUDO))
    made += _rules(records, cells)
    ablation = [cell for cell in cells if cell.row.name in ABLATION]
    if {"mat", "d2l"} <= {cell.row.name for cell in ablation}:
        measure = MAP._replace(title=f"Ablation of D2L + MAT: {MAP.title}")
        made.append(_by_share(records, ablation, measure, names=PARTS, published=_published(paper, "map")))
    extra = {(cell.row, cell.labelled) for cell in every_cell if cell.seed not in common[cell.labelled]}
    longer = [cell for cell in every_cell if (cell.row, cell.labelled) in extra]
    theirs = [one for one in every_record if (one.row, one.labelled) in extra]
    made.append(_by_share(theirs, longer, MAP._replace(title=f"{MAP.title}; rows with more seeds, over all")))
    made += [_by_share(records, cells, measure) for measure in (SECONDS, MEMORY)]
    made = [table for table in made if any(entry.mean is not None for _, line in table.lines for entry in line)]
    if paper is not None:
        made = [replace(one, notes=[*one.notes, paper.protocol]) if has_paper(one) else one for one in made]
    return made


def f1_measure(figure: str, rule: str) -> Measure:
    """CF1 or OF1 under a decision rule; bootstrap samples are stored for one rule only."""
    return Measure(
        f"{figure.upper()}, %; decided by {RULES[rule]}",
        lambda one: one.rules.get(rule, {}).get(figure),
        figure if rule == TESTED else "",
    )


def missing_cells(records: Sequence[Record], cells: Iterable[Cell]) -> list[Cell]:
    """The cells of a grid that have no record."""
    there = {one.cell for one in records}
    return [cell for cell in cells if cell not in there]


Figure = Callable[[str, float | None], float | None]  # (row, share) -> published figure


def _by_share(
    records: Sequence[Record],
    cells: Sequence[Cell],
    measure: Measure,
    names: Mapping[str, str] | None = None,
    published: Figure | None = None,
) -> Table:
    """One figure: one line per row (with `names`, only these, in their order), one column per share."""
    rows = [row for row in ordered(dict.fromkeys(cell.row for cell in cells)) if _has_figure(row, records, measure)]
    if names is not None:
        rows.sort(key=lambda row: list(names).index(row.name))
    columns, heads = [], []
    theirs: dict[int, float | None] = {}  # column of published figures -> its share
    for share in _shares(cells):
        columns.append(_column(records, cells, rows, share, measure))
        heads.append("labels as given" if share is None else f"{100 * share:g} %")
        figures = [] if published is None else [published(row.name, share) for row in rows]
        if any(figure is not None for figure in figures):
            theirs[len(columns)] = share
            columns.append([Entry(figure) for figure in figures])
            heads.append(f"{heads[-1]}, paper")
    called = [label(row) if names is None else names[row.name] for row in rows]
    lines = [(name, [column[place] for column in columns]) for place, name in enumerate(called)]
    if measure.higher_is_better and names is None:
        lines = _with_families(rows, lines, published, theirs)
    return Table(measure.title, heads, lines, _notes(lines, measure), measure.digits)


def _has_figure(row: Row, records: Sequence[Record], measure: Measure) -> bool:
    """Whether a row can have this figure: a supervised method has no pseudo-labels."""
    mine = [one for one in records if one.row == row]
    return not mine or any(measure.of(one) is not None for one in mine)


def _shares(cells: Iterable[Cell]) -> list[float | None]:
    return sorted({cell.labelled for cell in cells}, key=lambda share: (share is None, share))


def _column(
    records: Sequence[Record], cells: Sequence[Cell], rows: Sequence[Row], share: float | None, measure: Measure
) -> list[Entry]:
    """The entries of one column, with the best and those tied with it marked."""
    able = {row for row in rows if _has_figure(row, records, measure)}
    wanted = Counter(cell.row for cell in cells if cell.labelled == share and cell.row in able)
    groups = [{one.seed: one for one in records if one.row == row and one.labelled == share} for row in rows]
    known = [[value for one in group.values() if (value := measure.of(one)) is not None] for group in groups]
    means = [float(np.mean(values)) if values else None for values in known]
    best = max((mean for mean in means if mean is not None), default=None) if measure.higher_is_better else None
    top = next((group for group, mean in zip(groups, means, strict=True) if mean is not None and mean == best), {})
    entries = []
    for row, group, values, mean in zip(rows, groups, known, means, strict=True):
        is_best = mean is not None and mean == best
        entries.append(
            Entry(
                mean=mean,
                std=float(np.std(values, ddof=1)) if len(values) > 1 else None,
                seeds=len(values),
                wanted=wanted[row],
                best=is_best,
                tied=mean is not None and not is_best and _is_tied(group, top, measure.draws),
            )
        )
    return entries


def _is_tied(group: Mapping[int, Record], top: Mapping[int, Record], name: str) -> bool:
    """Whether a row does not differ significantly from the best; False without bootstrap samples."""
    ours, theirs = (
        {seed: np.asarray(one.draws[name]) for seed, one in some.items() if name in one.draws} for some in (group, top)
    )
    return bool(ours) and bool(theirs) and not is_significant(ours, theirs)


def _with_families(
    rows: Sequence[Row],
    lines: list[tuple[str, list[Entry]]],
    published: Figure | None,
    theirs: Mapping[int, float | None],
) -> list[tuple[str, list[Entry]]]:
    """Insert, after each family, a line with its best entry in every column, as in the paper."""
    after: dict[int, tuple[str, list[Entry]]] = {}
    for family, members in FAMILIES.items():
        places = [place for place, row in enumerate(rows) if row.name in members]
        if len(places) < 2:
            continue
        best = [max(column, key=_sort_value) for column in zip(*(lines[place][1] for place in places), strict=True)]
        best = [replace(entry, best=False, tied=False) for entry in best]  # marked in the member's own line
        if published is not None:
            for column, share in theirs.items():
                best[column] = Entry(published(family, share))
        after[places[-1]] = (f"{family} (best of these {len(places)})", best)
    return [line for place, one in enumerate(lines) for line in ([one, after[place]] if place in after else [one])]


def _sort_value(entry: Entry) -> float:
    return -np.inf if entry.mean is None else entry.mean


def _notes(lines: Sequence[tuple[str, list[Entry]]], measure: Measure) -> list[str]:
    entries = [entry for _, line in lines for entry in line]
    notes = ["bold: best"] if measure.higher_is_better else []
    notes += [TIED] if any(entry.tied for entry in entries) else []
    notes += [UNTESTED] if measure.higher_is_better and not measure.draws else []
    counts = sorted({entry.seeds for entry in entries if entry.seeds})
    if counts and counts[-1] > 1:
        several = f"{counts[0]} to {counts[-1]}" if counts[0] < counts[-1] else f"{counts[0]}"
        notes.append(f"mean ± standard deviation over {several} seeds")
    elif counts:
        notes.append("one seed")
    if any(entry.seeds < entry.wanted for entry in entries):
        notes.append("–, (2 of 3): seeds that are missing or that only other rows have")
    return notes


def _rules(records: Sequence[Record], cells: Sequence[Cell]) -> list[Table]:
    """CF1 and OF1 of every row under every rule, one table per share."""
    made = []
    for share in _shares(cells):
        rows = ordered(dict.fromkeys(cell.row for cell in cells if cell.labelled == share))
        measures = {f"{figure.upper()} {rule}": f1_measure(figure, rule) for figure in ("cf1", "of1") for rule in RULES}
        columns = [_column(records, cells, rows, share, measure) for measure in measures.values()]
        lines = [(label(row), [column[place] for column in columns]) for place, row in enumerate(rows)]
        where = "labels as given" if share is None else f"{100 * share:g} % labelled"
        untested = ", ".join(rule for rule in RULES if rule != TESTED)
        notes = [*_notes(lines, MAP), *(f"{name}: {words}" for name, words in RULES.items()), f"{untested}: {UNTESTED}"]
        made.append(Table(f"CF1 and OF1 under the same rules for all, {where}, %", list(measures), lines, notes))
    return made


def _published(paper: Published | None, figure: str) -> Figure | None:
    if paper is None:
        return None
    return lambda name, share: paper.figure(NAMES.get(name, name), figure, share)


def has_paper(table: Table) -> bool:
    """Whether a table contains published figures."""
    return any(head.endswith(", paper") for head in table.columns)


def label(row: Row) -> str:
    """The name of a row in tables."""
    return NAMES.get(row.name, row.name)


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Rows in the order of the paper; others after them, in their given order."""
    rows = list(rows)
    place = {name: number for number, name in enumerate(ORDER)}
    return sorted(rows, key=lambda row: (place.get(row.name, place.get(row.method, len(place))), rows.index(row)))
