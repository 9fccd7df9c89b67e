"""An explanation as one picture: the image and its scores on top, one row of heat maps per tag below."""

import io
import textwrap
import warnings
from typing import Any

import numpy as np

from fewtags.explain.picture import COLOURS, Pixels, max_heat, overlay, scaled_down
from fewtags.explain.reasons import Explained, TagExplained

WIDTH, DPI = 12.0, 120  # inches, dots per inch
HEAD, ROW = 3.5, 2.9  # inches of height
INK, FAINT, PAPER, GIVEN, MISSED = "#1f2328", "#6a717b", "#ffffff", "#1f2328", "#b9bec6"
HOW = {
    "activation": "Bright: evidence for the tag (gradient × activation of the last map). ",
    "occlusion": "Bright: where covering the image lowers the score most. ",
}
SCALE = "One scale for all pictures of a tag, in logits per area of the image."


def draw_figure(explained: Explained) -> bytes:
    """A PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(explained.tags)
    height = HEAD + ROW * count + 0.4
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor=PAPER)
    FigureCanvasAgg(figure)
    _head(figure, explained, height)
    for number, tag in enumerate(explained.tags):
        top = 1 - (HEAD + ROW * number) / height
        _row(figure, explained, tag, top, ROW / height)
    _text(figure, 0.03, 0.14 / height, _truncated(footnote(explained), 160), color=FAINT, fontsize=8.5)
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that the font does not have
        figure.savefig(content, format="png", facecolor=PAPER)
    return content.getvalue()


def footnote(explained: Explained) -> str:
    """The meaning of the colours, and the tags that are not shown."""
    left_out = f" Given too: {', '.join(explained.left_out)} (choose with --tag)." if explained.left_out else ""
    return HOW[explained.how] + SCALE + left_out


def _head(figure: Any, explained: Explained, height: float) -> None:
    """The image, and the score and threshold of every tag."""
    _text(figure, 0.03, 1 - 0.32 / height, _truncated(explained.name, 80), fontsize=15, fontweight="bold")
    picture = figure.add_axes((0.03, 1 - (HEAD - 0.25) / height, 0.36, (HEAD - 0.75) / height))
    picture.imshow(np.asarray(scaled_down(explained.image)))
    picture.set_anchor("W")
    picture.set_axis_off()
    bars = figure.add_axes((0.56, 1 - (HEAD - 0.65) / height, 0.38, (HEAD - 1.25) / height))
    for place, tag in enumerate(explained.tags):
        bars.barh(place, tag.score, height=0.62, color=GIVEN if tag.given else MISSED)
        if tag.threshold is not None:
            bars.plot([tag.threshold] * 2, [place - 0.42, place + 0.42], color="#c9510c", linewidth=2.5)
        bars.text(1.02, place, f"{tag.score:.2f}", va="center", fontsize=9.5, color=INK)
    names = [_truncated(tag.tag, 26) for tag in explained.tags]
    bars.set_yticks(range(len(names)), names, fontsize=10.5, parse_math=False)
    bars.set_ylim(max(len(names), 4) - 0.4, -0.6)  # keeps bars thin if there are few
    bars.set_xlim(0, 1)
    bars.set_xlabel("score; dark: given, light: not given, vertical line: threshold", fontsize=9, color=FAINT)
    bars.tick_params(axis="y", length=0)
    bars.tick_params(axis="x", labelsize=8.5, colors=FAINT)
    bars.spines[["top", "right", "left"]].set_visible(False)


def _row(figure: Any, explained: Explained, tag: TagExplained, top: float, height: float) -> None:
    """Text, the heat map of the whole image, those of the patches, and the colour scale."""
    line = figure.add_axes((0.03, top - 0.01 * height, 0.94, 0.001))
    line.set_axis_off()
    line.axhline(0, color="#d8dce2", linewidth=1)
    _text(figure, 0.03, top - 0.16 * height, _truncated(tag.tag, 24), fontsize=14, fontweight="bold")
    words = ["given" if tag.given else "not given", *textwrap.wrap(tag.decided, 34), "", *_parts(tag)]
    _text(figure, 0.03, top - 0.23 * height, "\n".join(words), fontsize=9.5, va="top", linespacing=1.45)
    image, end = scaled_down(explained.image), max_heat(tag)
    bottom, tall = top - 0.95 * height, 0.78 * height
    left, right = (0.29, bottom, 0.29, tall), (0.60, bottom, 0.29, tall)
    heated = overlay(image, tag.whole, end)
    if tag.patches:
        _picture(figure, left, heated, f"whole image  {tag.whole.score:.2f}")
        _patches(figure, explained, tag, right, end)
    else:
        _picture(figure, left, np.asarray(image), "the image")
        _picture(figure, right, heated, "where the score comes from")
    scale = figure.add_axes((0.915, bottom + 0.1 * tall, 0.011, 0.8 * tall))
    scale.imshow(np.linspace(1, 0, 256)[:, None], aspect="auto", cmap=COLOURS, extent=(0, 1, 0, end))
    scale.set_xticks([])
    scale.set_yticks([0, end], ["0", f"+{end:.2g}"], fontsize=8.5, color=FAINT)
    scale.yaxis.tick_right()
    scale.tick_params(length=0)
    scale.spines[:].set_visible(False)


def _picture(figure: Any, place: tuple[float, ...], pixels: Pixels, title: str) -> None:
    axes = figure.add_axes(place)
    axes.imshow(pixels)
    axes.set_axis_off()
    axes.set_title(title, fontsize=10, color=INK)


def _patches(figure: Any, explained: Explained, tag: TagExplained, place: tuple[float, ...], end: float) -> None:
    """The grid of patches, each with its score; the highest-scoring one has a frame."""
    side = round(len(tag.patches) ** 0.5)
    image = scaled_down(explained.image)
    left, bottom, wide, tall = _centred_box(image.width / image.height, place, figure)
    leading = max(tag.patches, key=lambda part: part.score)
    grid = figure.add_gridspec(
        side, side, left=left, right=left + wide, bottom=bottom, top=bottom + tall, wspace=0.05, hspace=0.05
    )
    for number, part in enumerate(tag.patches):
        axes = figure.add_subplot(grid[number // side, number % side])
        axes.imshow(overlay(image, part, end), aspect="auto")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_color("#c9510c" if part is leading else PAPER)
        axes.spines[:].set_linewidth(2.2 if part is leading else 0)
        box = {"facecolor": "#000000b0", "edgecolor": "none", "pad": 1.5}
        axes.text(0.03, 0.04, f"{part.score:.2f}", transform=axes.transAxes, fontsize=8.5, color="white", bbox=box)
    above = bottom + tall + 0.07 / figure.get_size_inches()[1]
    _text(figure, left + wide / 2, above, f"patches  {tag.merged:.2f}", fontsize=10, ha="center")


def _centred_box(aspect: float, place: tuple[float, ...], figure: Any) -> tuple[float, float, float, float]:
    """The largest centred box of this aspect ratio within `place`, in figure coordinates."""
    left, bottom, wide, tall = place
    inches_wide, inches_tall = figure.get_size_inches()
    width = min(wide, tall * inches_tall * aspect / inches_wide)
    height = width * inches_wide / aspect / inches_tall
    return left + (wide - width) / 2, bottom + (tall - height) / 2, width, height


def _parts(tag: TagExplained) -> list[str]:
    if tag.merged is None:
        return []
    best = max(tag.patches, key=lambda part: part.score)
    return [
        f"whole image alone  {tag.whole.score:.2f}",
        f"patches merged  {tag.merged:.2f}",
        f"best patch  {best.score:.2f}  ({best.name})",
    ]


def _truncated(text: str, letters: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _text(figure: Any, x: float, y: float, words: str, color: str = INK, **how: Any) -> None:
    figure.text(x, y, words, color=color, parse_math=False, **how)
