"""The figures of a grid, readable without colour: every row has its own marker and its name beside it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fewtags.bench.grid import Row
from fewtags.bench.records import Record, common_seeds, comparable
from fewtags.bench.tables import NAMES, label, ordered
from fewtags.utils.files import atomic_write

FORMATS = ("png", "svg", "pdf")
# Highlighted rows have a colour (Okabe and Ito), a dash pattern and a marker of their own; all others are grey.
HIGHLIGHTED: dict[str, tuple[str, Any, str]] = {
    "d2l": ("#000000", "-", "*"),
    "neighbours": ("#D55E00", (0, (6, 1.5)), "h"),
    "cap": ("#0072B2", (0, (3, 1.2)), ">"),
    "asl": ("#009E73", (0, (1.2, 1)), "p"),
    "dicap": ("#CC79A7", (0, (5, 1.5, 1, 1.5)), "d"),
}
GREY = "#8A8A8A"
# 24 markers that differ without colour: filled, hollow, light; hollow and light crosses would look filled
MARKS = (*((mark, GREY) for mark in "os^DvPX<"), *((mark, "none") for mark in "os^Dv+x<"),
         *((mark, "#DDDDDD") for mark in "os^Dv12<"))  # fmt: skip
STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.titlesize": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#E4E4E4", "grid.linewidth": 0.6, "legend.frameon": False, "legend.fontsize": 8, "figure.dpi": 150,
    "savefig.bbox": "tight", "svg.fonttype": "none", "svg.hashsalt": "fewtags", "pdf.fonttype": 42,
}  # fmt: skip
LABEL_INCHES = 0.145  # between two names beside the lines
STUDIES = {  # setting of D2L + MAT: title, label of the axis (figures 4a to 4d of the paper)
    "metric": ("What MAT maximises", "metric"),
    "beta": ("β of MAT's F-measure", "β"),
    "patches": ("Patches", "patches a side"),
    "alpha": ("Temperature of the merge", "α"),
}


@dataclass(frozen=True)
class Figure:
    """A drawing under a file name."""

    name: str
    draw: Callable[[], Any]  # a matplotlib figure


def figures(records: Sequence[Record]) -> list[Figure]:
    """The figures that the records have data for."""
    made = []
    plain = [one for one in records if not _in_a_study(one)] or records
    plain = comparable(plain, common_seeds(one.cell for one in plain))
    for share in sorted({one.labelled for one in records}, key=lambda share: (share is None, share)):
        mine = [one for one in plain if one.labelled == share and len(one.pseudo) > 1]
        if mine:
            name = "as-given" if share is None else f"{share:g}"
            made.append(Figure(f"pseudo-labels-{name}", partial(draw_pseudo, mine, share)))
    measured = [one for one in records if "map" in one.figures]
    made += [
        Figure(f"study-{setting}", partial(draw_study, measured, setting))
        for setting in STUDIES
        if len({value_of(one, setting) for one in studied(measured, setting)}) > 1
    ]
    plain = [one for one in plain if "map" in one.figures]
    if len({one.labelled for one in plain if one.labelled is not None}) > 1:
        made.append(Figure("map-over-share", partial(draw_shares, plain)))
    if plain:
        made.append(Figure("cost", partial(draw_cost, plain)))
    return made


def save_figures(records: Sequence[Record], folder: Path) -> list[Path]:
    """Draw all figures, each as PNG, SVG and PDF; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    files = []
    with matplotlib.rc_context(STYLE):
        for figure in figures(records):
            drawn = figure.draw()
            for kind in FORMATS:
                file = folder / f"{figure.name}.{kind}"
                # no date, so that equal records give equal files
                metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
                with atomic_write(file) as target:
                    drawn.savefig(target, format=kind, metadata=metadata)
                files.append(file)
            pyplot.close(drawn)
    return files


def draw_pseudo(records: Sequence[Record], share: float | None) -> Any:
    """CF1 of the pseudo-labels over the epochs of the main stage, mean over seeds."""
    from matplotlib.ticker import MaxNLocator

    rows = ordered(dict.fromkeys(one.row for one in records))
    curves = {row: [[epoch["cf1"] for epoch in one.pseudo] for one in records if one.row == row] for row in rows}
    lengths = {row: min(map(len, some)) for row, some in curves.items()}
    equal = len(set(lengths.values())) == 1  # else a method with many short epochs would leave the others no room
    where = "" if share is None else f", {100 * share:g} % labelled"
    below = "epoch of the main stage" if equal else "part of the main stage, %"
    figure, axes = _axes(f"Quality of pseudo-labels{where}", below, f"CF1, %; {_over_seeds(records)}", len(rows))
    ends = []
    for row, length in lengths.items():
        mean = np.mean([curve[:length] for curve in curves[row]], axis=0)
        at = np.arange(1, length + 1) * (1 if equal else 100 / length)
        axes.plot(at, mean, markevery=max(1, length // 8), **_line(row, rows))
        ends.append((row, float(at[-1]), float(mean[-1])))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _label_curves(figure, axes, ends, rows)


def studied(records: Sequence[Record], setting: str) -> list[Record]:
    """Runs of D2L + MAT that differ from its defaults at most in this setting, one per value, share and seed.

    At each share only seeds that all values have, so that all values are compared on the same labelled images.
    """
    mine = [one for one in records if one.method == "d2l" and set(one.settings) <= {setting}]
    found = {(one.labelled, value_of(one, setting), one.seed): one for one in mine}
    kept = []
    for share in dict.fromkeys(share for share, _, _ in found):
        values = {value for at, value, _ in found if at == share}
        common = set.intersection(*({seed for at, v, seed in found if (at, v) == (share, value)} for value in values))
        kept += [one for (at, _, seed), one in found.items() if at == share and seed in common]
    return kept


def value_of(record: Record, setting: str) -> str:
    """The value of the setting, given or default; 1 and 1.0 are the same."""
    from fewtags.methods import make_method

    value = getattr(make_method("d2l", record.settings), setting)
    return f"{value:g}" if isinstance(value, float) else str(value)


def draw_study(records: Sequence[Record], setting: str) -> Any:
    """mAP over the values of one setting, one line per share, error bars of one standard deviation over seeds."""
    title, axis = STUDIES[setting]
    mine = studied(records, setting)
    values = sorted({value_of(one, setting) for one in mine}, key=_number)
    figure, axes = _axes(f"D2L + MAT: {title}", axis, f"mAP, %; {_over_seeds(mine)}")
    for place, share in enumerate(sorted({one.labelled for one in mine}, key=lambda share: (share is None, share))):
        here = [one for one in mine if one.labelled == share]
        groups = [[one.figures["map"] for one in here if value_of(one, setting) == value] for value in values]
        where = [number for number, group in enumerate(groups) if group]
        means, std = np.transpose([_mean_and_std(groups[number]) for number in where])
        colour, dash, mark = list(HIGHLIGHTED.values())[place % len(HIGHLIGHTED)]
        name = "labels as given" if share is None else f"{100 * share:g} % labelled"
        axes.errorbar(where, means, std, color=colour, linestyle=dash, marker=mark,
                      markersize=6, capsize=3, label=name)  # fmt: skip
    axes.set_xticks(range(len(values)), values)
    axes.margins(x=0.08)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def draw_shares(records: Sequence[Record]) -> Any:
    """mAP over the labelled share; highlighted rows have a band of one standard deviation over seeds."""
    rows = ordered(dict.fromkeys(one.row for one in records if one.labelled is not None))
    title = "mAP over the share of labelled images"
    figure, axes = _axes(title, "labelled images, %", f"mAP, %; {_over_seeds(records)}", len(rows))
    ends = []
    for row in rows:
        mine = [one for one in records if one.row == row and one.labelled is not None]
        shares = sorted({one.labelled for one in mine if one.labelled is not None})
        groups = [[one.figures["map"] for one in mine if one.labelled == share] for share in shares]
        mean, std = np.transpose([_mean_and_std(group) for group in groups])
        percent = [100 * share for share in shares]
        style = _line(row, rows)
        axes.plot(percent, mean, **style)
        if row.name in HIGHLIGHTED:
            axes.fill_between(percent, mean - std, mean + std, color=style["color"], alpha=0.10, linewidth=0)
        ends.append((row, percent[-1], float(mean[-1])))
    ticks = sorted({100 * one.labelled for one in records if one.labelled is not None})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    return _label_curves(figure, axes, ends, rows)


def draw_cost(records: Sequence[Record]) -> Any:
    """Seconds per run against mAP at the share that most rows have; up and left is better."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    shares = dict.fromkeys(one.labelled for one in records)
    # not sets: rows without a name keep the order of the records, and so their markers
    rows_at = {share: dict.fromkeys(one.row for one in records if one.labelled == share) for share in shares}
    share = max(shares, key=lambda each: (len(rows_at[each]), each == 0.05))
    rows = ordered(rows_at[share])
    where = "" if share is None else f", {100 * share:g} % labelled"
    frozen = all(one.tune == "heads" for one in records)
    axis = "seconds of CPU a run, features at hand" if frozen else "seconds a run"
    shown = [one for one in records if one.labelled == share]
    figure, axes = _axes(f"Cost and quality{where}", axis, f"mAP, %; {_over_seeds(shown)}", len(rows))
    points = []
    for row in rows:
        mine = [one for one in shown if one.row == row]
        points.append(
            (float(np.mean([one.cost for one in mine])), float(np.mean([one.figures["map"] for one in mine])))
        )
    # the legend is in the order of mAP
    for place in sorted(range(len(rows)), key=lambda place: -points[place][1]):
        style = _line(rows[place], rows)
        # open markers are drawn above filled ones
        style |= {"linestyle": "", "markersize": 7, "zorder": 3 if style.get("markerfacecolor") in (None, GREY) else 4}
        axes.plot(*points[place], label=label(rows[place]), **style)
    if max(x for x, _ in points) > 4 * min(x for x, _ in points) > 0:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _in_a_study(record: Record) -> bool:
    """Whether a record belongs to a study, which has its own figure."""
    return record.row.name not in NAMES and record.method == "d2l" and len(STUDIES.keys() & record.settings.keys()) == 1


def _mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """The standard deviation of a single value is NaN, which is not drawn."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def _over_seeds(records: Sequence[Record]) -> str:
    """`mean over 1 to 3 seeds`."""
    counts = sorted(Counter((one.row, one.labelled) for one in records).values())
    several = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    return "one seed" if counts[-1] == 1 else f"mean over {several} seeds"


def _axes(title: str, x: str, y: str, rows: int = 0) -> tuple[Any, Any]:
    """Axes tall enough for the names of `rows` rows beside them."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5.2, max(3.4, LABEL_INCHES * rows + 1.0)))
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def _line(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
    """Colour, dash and marker of a row; a named row looks the same in every figure."""
    if row.name in HIGHLIGHTED:
        colour, dash, mark = HIGHLIGHTED[row.name]
        return {"color": colour, "linestyle": dash, "linewidth": 1.8, "marker": mark, "markersize": 6, "zorder": 3}
    names = [name for name in NAMES if name not in HIGHLIGHTED]
    names += [other.name for other in rows if other.name not in NAMES]
    mark, fill = MARKS[names.index(row.name) % len(MARKS)]
    return {
        "color": GREY,
        "linewidth": 0.8,
        "marker": mark,
        "markersize": 4,
        "markerfacecolor": fill,
        "markeredgewidth": 0.9,
        "zorder": 2,
    }


def _label_curves(figure: Any, axes: Any, ends: Sequence[tuple[Row, float, float]], rows: Sequence[Row]) -> Any:
    """The name of every row right of the axes, at the height of its last point or as near as the others leave room."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    apart = LABEL_INCHES / (figure.get_figheight() * axes.get_position().height)  # of the height of the axes
    order = sorted(ends, key=lambda end: end[2])
    heights = _spread_out([(y - low) / (high - low) for _, _, y in order], apart)
    # a leader line, the marker and the name of each row; positions in axes coordinates
    for (row, x, y), height in zip(order, heights, strict=True):
        style = _line(row, rows)
        leader = {"arrowstyle": "-", "color": "#C8C8C8", "linewidth": 0.5, "shrinkA": 4, "shrinkB": 0}
        axes.annotate("", (1.03, height), (x, y), "axes fraction", "data", leader, annotation_clip=False)
        axes.plot(1.05, height, transform=axes.transAxes, clip_on=False, **style | {"linestyle": ""})
        highlighted = row.name in HIGHLIGHTED
        axes.text(1.075, height, label(row), transform=axes.transAxes, va="center", fontsize=8, color="black",
                  fontweight="bold" if highlighted else "normal")  # fmt: skip
    return figure


def _spread_out(heights: Sequence[float], apart: float) -> list[float]:
    """Ascending heights moved as little as needed to be `apart`, within 0 and 1 if there is room."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + apart) if placed else max(0.0, height))
    top = max(1.0, apart * (len(heights) - 1))
    for place in range(len(placed) - 1, -1, -1):
        limit = top if place == len(placed) - 1 else placed[place + 1] - apart
        placed[place] = min(placed[place], limit)
    return placed


def _number(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
