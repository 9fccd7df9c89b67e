"""Charts as inline SVG. Colours are CSS variables of the page, for its light and dark themes."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fewtags.report.counts import Bin, CoOccurrence
from fewtags.report.markup import Html, element, join

WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 48, 22, 14, 42  # margins around the plot
CELL = 34  # side of a cell of the matrix
Point = tuple[float, float]


class Line(NamedTuple):
    """A named curve."""

    name: str
    points: list[Point]


class Frame(NamedTuple):
    """Maps data coordinates to pixels within the margins."""

    x: tuple[float, float]
    y: tuple[float, float]
    height: float = HEIGHT

    def to_pixels(self, point: Point) -> Point:
        """Data coordinates -> pixels."""
        across, up = (
            (value - low) / ((high - low) or 1) for value, (low, high) in zip(point, (self.x, self.y), strict=True)
        )
        return LEFT + across * (WIDTH - LEFT - RIGHT), self.height - BOTTOM - up * (self.height - TOP - BOTTOM)


def line_chart(curves: Sequence[Line], across: str, alt: str, percent: bool) -> Html:
    """Curves over the epochs with a legend; percent: values are shares, shown on an axis of 0 to 100 %."""
    curves = [curve for curve in curves if curve.points]
    xs, ys = ([point[axis] for curve in curves for point in curve.points] for axis in (0, 1))
    top = 1.0 if percent else _ceiling(max(ys))
    frame = Frame((min(xs), max(max(xs), min(xs) + 1)), (0.0, top))
    ticks = [top * part / 4 for part in range(5)]
    shown: Callable[[float], str] = (lambda value: f"{100 * value:.0f} %") if percent else _short
    parts = [_axes(frame, _whole_ticks(frame.x), ticks, str, shown, across)]
    for number, curve in enumerate(curves):
        places = [frame.to_pixels(point) for point in curve.points]
        route = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(element("polyline", points=route, class_=f"line s{number}"))
        end = shown(curve.points[-1][1]) if percent else _short(curve.points[-1][1])
        title = element("title", f"{curve.name}: {end} at the end")
        parts.append(
            element("circle", title, cx=f"{places[-1][0]:.1f}", cy=f"{places[-1][1]:.1f}", r=4, class_=f"dot s{number}")
        )
    keys = [
        element(
            "span", element("i", class_=f"key s{number}"), f"{curve.name} ", element("b", shown(curve.points[-1][1]))
        )
        for number, curve in enumerate(curves)
    ]
    return join(_drawing(HEIGHT, alt, *parts), element("p", *keys, class_="legend"))


def reliability_diagram(bins: Sequence[Bin], alt: str) -> Html:
    """The share of positives over the score, above a histogram of the scores."""
    height, strip = 330, 78  # of the whole, and of the histogram
    frame = Frame((0.0, 1.0), (0.0, 1.0), height - strip + 8)
    percents = [part / 5 for part in range(6)]
    parts = [_axes(frame, [], percents, str, _percent, "")]
    (x0, y0), (x1, y1) = frame.to_pixels((0.0, 0.0)), frame.to_pixels((1.0, 1.0))
    parts.append(element("line", x1=x0, y1=y0, x2=x1, y2=y1, class_="ideal"))
    filled = [each for each in bins if each.decisions]
    places = [frame.to_pixels((each.score, each.positive_share)) for each in filled]
    parts.append(element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places), class_="line s0"))
    for each, (x, y) in zip(filled, places, strict=True):
        words = (
            f"scores {_range(each)}: {each.decisions:,} decisions, the tag is there in {_percent(each.positive_share)}"
        )
        parts.append(element("circle", element("title", words), cx=f"{x:.1f}", cy=f"{y:.1f}", r=4.5, class_="dot s0"))
    base, most = height - BOTTOM, math.log1p(max(each.decisions for each in bins))
    for each in bins:
        left, right = (frame.to_pixels((value, 0.0))[0] for value in (each.low, each.high))
        tall = (strip - 34) * math.log1p(each.decisions) / (most or 1)
        title = element("title", f"scores {_range(each)}: {each.decisions:,} decisions")
        box = {"x": f"{left + 2:.1f}", "y": f"{base - tall:.1f}", "width": f"{right - left - 4:.1f}"}
        parts.append(element("rect", title, **box, height=f"{tall:.1f}", class_="count"))
        middle = f"{(left + right) / 2:.1f}"
        parts.append(
            element("text", _short(each.decisions), x=middle, y=f"{base - tall - 4:.1f}", class_="tiny middle")
        )
    for value in percents:
        x = frame.to_pixels((value, 0.0))[0]
        parts.append(element("text", _percent(value), x=f"{x:.1f}", y=base + 16, class_="tick middle"))
    parts.append(element("text", "score of the model", x=(x0 + x1) / 2, y=height - 6, class_="axis middle"))
    return _drawing(height, alt, *parts)


def matrix(table: CoOccurrence, alt: str) -> Html:
    """Cells: the share of images with the row's tag that also have the column's; diagonal: numbers of images."""
    letters = min(14, max(len(tag) for tag in table.tags))
    margin = 14 + 7.2 * letters
    span = margin + CELL * len(table.tags)
    wide = span + 0.4 * margin  # room for the rotated last name
    parts = []
    for row, tag in enumerate(table.tags):
        middle = margin + CELL * (row + 0.5)
        words = (element("title", tag), _cut(tag, letters))
        parts.append(element("text", *words, x=margin - 8, y=middle + 4, class_="tick end"))
        turn = f"translate({middle + 4:.0f} {margin - 8:.0f}) rotate(-55)"
        parts.append(element("text", *words, transform=turn, class_="tick"))
    parts += [_cell(table, row, column, margin) for row in range(len(table.tags)) for column in range(len(table.tags))]
    size = f"min-width:{min(span, 16 * CELL + margin):.0f}px;max-width:{1.15 * wide:.0f}px"
    return element("svg", *parts, viewBox=f"0 0 {wide:.0f} {span:.0f}", role="img", aria_label=alt, style=size)


def _cell(table: CoOccurrence, row: int, column: int, margin: float) -> Html:
    first, second = table.tags[row], table.tags[column]
    count, own = int(table.counts[row, column]), int(table.counts[row, row])
    share, same = count / own, row == column
    x, y = margin + CELL * column, margin + CELL * row
    words = f"{first}: {count:,} images" if same else f"{_percent(share)} of {first} with {second} ({count:,})"
    box = element(
        "rect",
        element("title", words),
        x=f"{x + 1:.0f}",
        y=f"{y + 1:.0f}",
        width=CELL - 2,
        height=CELL - 2,
        rx=4,
        class_="self" if same else "cell",
        fill_opacity=None if same else f"{0.04 + 0.86 * share:.2f}",
    )
    text = _short(count) if same else f"{100 * share:.0f}" if share >= 0.005 else ""
    kind = "tiny middle" + (" strong" if share > 0.75 and not same else "")
    return join(box, element("text", text, x=f"{x + CELL / 2:.0f}", y=f"{y + CELL / 2 + 4:.0f}", class_=kind))


def interval_bar(value: float, low: float, high: float) -> Html:
    """A share as a bar, with a whisker from low to high."""
    width, middle = 88.0, 7
    bar = element("rect", x=0, y=4, width=f"{width * value:.1f}", height=6, rx=2, class_="bar")
    track = element("rect", x=0, y=4, width=width, height=6, rx=2, class_="track")
    whisker = None
    if high > low:
        start, end = width * low, width * high
        route = f"M{start:.1f} 3v8M{end:.1f} 3v8M{start:.1f} {middle}H{end:.1f}"
        whisker = element("path", d=route, class_="whisker")
    return element("svg", track, bar, whisker, viewBox="-1 0 90 14", class_="mini", aria_hidden="true")


def _drawing(height: float, alt: str, *parts: Html) -> Html:
    return element("svg", *parts, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=alt, class_="chart")


def _axes(
    frame: Frame,
    xs: Sequence[float],
    ys: Sequence[float],
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
    across: str,
) -> Html:
    """Grid lines with tick labels, and the label of the x axis."""
    parts = []
    for value in ys:
        x, y = frame.to_pixels((frame.x[0], value))
        parts.append(element("line", x1=x, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid"))
        parts.append(element("text", y_text(value), x=x - 7, y=f"{y + 4:.1f}", class_="tick end"))
    base = frame.height - BOTTOM
    for value in xs:
        x, _ = frame.to_pixels((value, frame.y[0]))
        parts.append(element("text", x_text(value), x=f"{x:.1f}", y=base + 17, class_="tick middle"))
    if across:
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(element("text", across, x=middle, y=frame.height - 6, class_="axis middle"))
    return join(*parts)


def _whole_ticks(bounds: tuple[float, float]) -> list[int]:
    """Round ticks between two bounds."""
    least = (bounds[1] - bounds[0]) / 6
    step = next(size * 10**power for power in range(9) for size in (1, 2, 5) if size * 10**power >= least)
    ticks = range(step, math.floor(bounds[1]) + 1, step)
    return [math.ceil(bounds[0]), *(tick for tick in ticks if tick - bounds[0] >= step / 2)]


def _ceiling(value: float) -> float:
    """The next larger round number."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * step for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if value <= unit * step * 1.0001)


def _short(value: float) -> str:
    """`0.25`, `12`, `1.2k`, `3.4M`."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.{0 if value >= 10 * size else 1}f}".removesuffix(".0") + letter
    return f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _range(each: Bin) -> str:
    return f"{100 * each.low:.0f}–{100 * each.high:.0f} %"


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"
