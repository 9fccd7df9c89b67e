"""The figures of a grid, in one style that can be read in grey: lines differ by dash and mark, not by colour alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fewtags.bench.grid import Row
from fewtags.bench.records import Record
from fewtags.bench.table import NAMES, label, ordered
from fewtags.files import written_whole

FORMATS = ("png", "svg", "pdf")
# Okabe and Ito's colours from dark to light, each with a mark and a dash of its own.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C8C8C")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (4, 1.5, 1, 1.5)), (0, (7, 2)), (0, (2, 1)))
FOREMOST = ("d2l", "neighbours", "cap", "asl", "mat", "mat+cdd")  # drawn over the others, with thicker lines
STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.titlesize": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#DDDDDD", "grid.linewidth": 0.6, "legend.frameon": False, "legend.fontsize": 8, "figure.dpi": 150,
    "savefig.bbox": "tight", "svg.fonttype": "none", "svg.hashsalt": "fewtags", "pdf.fonttype": 42,
}  # fmt: skip
STUDIES = {  # setting of D2L + MAT: title, label of the axis (figures 4a to 4d of the paper)
    "metric": ("What MAT maximises", "metric"),
    "beta": ("β of MAT's F_β", "β"),
    "patches": ("Patches", "patches a side"),
    "alpha": ("Temperature of the merge", "α"),
}


@dataclass(frozen=True)
class Figure:
    """A drawing under a file name."""

    name: str
    draw: Callable[[], Any]  # a matplotlib figure


def figures(records: Sequence[Record]) -> list[Figure]:
    """Those that the records have something to show for."""
    made = []
    shares = sorted({one.labelled for one in records if one.labelled is not None})
    for share in shares:
        mine = [one for one in records if one.labelled == share]
        if any(len(one.pseudo) > 1 for one in mine):
            made.append(Figure(f"pseudo-labels-{share:g}", partial(draw_pseudo, mine, share)))
    made += [
        Figure(f"study-{setting}", partial(draw_study, records, setting))
        for setting in STUDIES
        if len({value_of(one, setting) for one in studied(records, setting)}) > 1
    ]
    plain = [one for one in records if one.row.name in NAMES]
    if len(shares) > 1:
        made.append(Figure("map-over-share", partial(draw_shares, plain or records)))
    if records:
        made.append(Figure("cost", partial(draw_cost, plain or records)))
    return made


def save_figures(records: Sequence[Record], folder: Path) -> list[Path]:
    """Draw all, each as PNG, SVG and PDF; the files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    files = []
    with matplotlib.rc_context(STYLE):
        for figure in figures(records):
            drawn = figure.draw()
            for kind in FORMATS:
                file = folder / f"{figure.name}.{kind}"
                # without a date equal records give equal files
                metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
                with written_whole(file) as target:
                    drawn.savefig(target, format=kind, metadata=metadata)
                files.append(file)
            pyplot.close(drawn)
    return files


def draw_pseudo(records: Sequence[Record], share: float) -> Any:
    """CF1 of the pseudo-labels over the epochs of the main stage, mean over seeds."""
    figure, axes = _axes(f"Quality of pseudo-labels, {100 * share:g} % labelled", "epoch of the main stage", "CF1, %")
    rows = ordered(dict.fromkeys(one.row for one in records if one.pseudo))
    for place, row in enumerate(rows):
        curves = [[epoch["cf1"] for epoch in one.pseudo] for one in records if one.row == row and one.pseudo]
        length = min(map(len, curves))
        mean = np.mean([curve[:length] for curve in curves], axis=0)
        # one point a row at the end of long trainings; many epochs need no mark each
        axes.plot(np.arange(1, length + 1), mean, markevery=max(1, length // 8), **_line(row, place))
    axes.set_xlim(left=0.5)
    return _with_legend(figure, axes)


def studied(records: Sequence[Record], setting: str) -> list[Record]:
    """Runs of D2L + MAT that differ from its defaults in this setting at most."""
    return [one for one in records if one.method == "d2l" and set(one.settings) <= {setting}]


def value_of(record: Record, setting: str) -> str:
    """What the setting was, given or not."""
    from fewtags.methods.d2l import D2L

    return record.settings.get(setting, f"{getattr(D2L(), setting)}")


def draw_study(records: Sequence[Record], setting: str) -> Any:
    """mAP and CF1 of the pseudo-labels over the values of one setting, a line a share."""
    title, axis = STUDIES[setting]
    mine = studied(records, setting)
    values = sorted({value_of(one, setting) for one in mine}, key=_number)
    figure, axes = _axes(title, axis, "mAP, %")
    for place, share in enumerate(sorted({one.labelled or 1.0 for one in mine})):
        here = [one for one in mine if (one.labelled or 1.0) == share]
        groups = [[one.figures["map"] for one in here if value_of(one, setting) == value] for value in values]
        where = [number for number, group in enumerate(groups) if group]
        means = [float(np.mean(groups[number])) for number in where]
        spread = [float(np.std(groups[number])) for number in where]
        style = {"color": COLOURS[place % 8], "marker": MARKS[place % 8], "linestyle": DASHES[place % 6]}
        axes.errorbar(where, means, spread, capsize=3, label=f"{100 * share:g} % labelled", **style)
    axes.set_xticks(range(len(values)), values)
    return _with_legend(figure, axes)


def draw_shares(records: Sequence[Record]) -> Any:
    """mAP over the labelled share, a band of one standard deviation over seeds."""
    figure, axes = _axes("mAP over the share of labelled images", "labelled images, %", "mAP, %")
    for place, row in enumerate(ordered(dict.fromkeys(one.row for one in records))):
        mine = [one for one in records if one.row == row and one.labelled is not None]
        shares = sorted({one.labelled for one in mine if one.labelled is not None})
        groups = [[one.figures["map"] for one in mine if one.labelled == share] for share in shares]
        mean, spread = np.array([np.mean(group) for group in groups]), np.array([np.std(group) for group in groups])
        percent = [100 * share for share in shares]
        line = _line(row, place)
        axes.plot(percent, mean, **line)
        if row.name in FOREMOST:
            axes.fill_between(percent, mean - spread, mean + spread, color=line["color"], alpha=0.12, linewidth=0)
    return _with_legend(figure, axes)


def draw_cost(records: Sequence[Record]) -> Any:
    """Seconds a run against mAP at the share that most rows have; up and left is better."""
    shares = [one.labelled for one in records]
    share = max(dict.fromkeys(shares), key=lambda each: (len({one.row for one in records if one.labelled == each}),
                                                         each == 0.05))  # fmt: skip
    where = "" if share is None else f", {100 * share:g} % labelled"
    figure, axes = _axes(f"Cost and quality{where}", "seconds of CPU a run, features at hand", "mAP, %")
    for place, row in enumerate(ordered(dict.fromkeys(one.row for one in records))):
        mine = [one for one in records if one.row == row and one.labelled == share]
        if mine:
            style = _line(row, place)
            seconds, quality = (
                float(np.mean(some)) for some in np.transpose([[one.cpu_seconds, one.figures["map"]] for one in mine])
            )
            shown = {name: style[name] for name in ("color", "marker", "label")}
            axes.plot(seconds, quality, linestyle="", markersize=7, **shown)
    axes.set_xscale("log")
    return _with_legend(figure, axes)


def _axes(title: str, x: str, y: str) -> tuple[Any, Any]:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5.2, 3.6))
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def _line(row: Row, place: int) -> dict[str, Any]:
    """Colour, mark, dash and label of a row; the same row looks the same in every figure of a grid."""
    names = list(NAMES)
    number = names.index(row.name) if row.name in names else place
    foremost = row.name in FOREMOST
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKS[(number + number // len(COLOURS)) % len(MARKS)],
        "linestyle": DASHES[(number + number // 3) % len(DASHES)],
        "linewidth": 2.0 if foremost else 1.0,
        "markersize": 5 if foremost else 4,
        "zorder": 3 if foremost else 2,
        "label": label(row),
    }


def _with_legend(figure: Any, axes: Any) -> Any:
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _number(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
