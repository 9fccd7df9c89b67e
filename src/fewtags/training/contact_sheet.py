"""A contact sheet: a dozen images with their tags."""

from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont, ImageOps

COLUMNS, SIDE, GAP, LINE = 4, 260, 22, 24
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
PAPER, INK, RIGHT, WRONG, MISSED = "#fbfaf7", "#24292f", "#1a6e3a", "#b3261e", "#8a8f98"


class Entry(NamedTuple):
    """One image of the sheet."""

    image: Image.Image
    tags: Sequence[str]
    truth: Sequence[str] | None = None  # where it is known, wrong and missed tags are shown as such


def contact_sheet(entries: Sequence[Entry], title: str) -> Image.Image:
    """Images in a grid, their tags beneath. With truth: right tags green, wrong ones red, missed ones grey."""
    font, bold = ImageFont.load_default(17), ImageFont.load_default(21)
    cells = [_words(entry, font) for entry in entries]
    rows = [cells[start : start + COLUMNS] for start in range(0, len(cells), COLUMNS)]
    heights = [SIDE + 10 + LINE * max(max((len(lines) for lines in row), default=1), 1) + GAP for row in rows]
    legend = any(entry.truth is not None for entry in entries)
    top = 64 + (26 if legend else 0)
    sheet = Image.new("RGB", (GAP + COLUMNS * (SIDE + GAP), top + sum(heights)), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, 22), title, INK, bold)
    if legend:
        x = float(GAP)
        for word, colour in (("right", RIGHT), ("wrong", WRONG), ("(missed)", MISSED)):
            draw.text((x, 54), word, colour, font)
            x += draw.textlength(word + "   ", font)
    y = top
    for number, row in enumerate(rows):
        for column, lines in enumerate(row):
            x0 = GAP + column * (SIDE + GAP)
            picture = ImageOps.fit(entries[number * COLUMNS + column].image, (SIDE, SIDE))
            sheet.paste(picture, (x0, y))
            for place, line in enumerate(lines):
                x = float(x0)
                for word, colour in line:
                    draw.text((x, y + SIDE + 8 + LINE * place), word, colour, font)
                    x += draw.textlength(word + "  ", font)
        y += heights[number]
    return sheet


def _cut(word: str, font: Font) -> str:
    """The word, or as much of its beginning as fits under a picture."""
    if font.getlength(word) <= SIDE:
        return word
    fits = next((n for n in range(len(word), 1, -1) if font.getlength(word[:n] + "…") <= SIDE), 1)
    return word[:fits] + "…"


def _words(entry: Entry, font: Font) -> list[list[tuple[str, str]]]:
    """The tags of an entry with their colours, in lines that fit under the picture."""
    words = [(tag, INK if entry.truth is None else RIGHT if tag in entry.truth else WRONG) for tag in entry.tags]
    words += [(f"({tag})", MISSED) for tag in entry.truth or () if tag not in entry.tags]
    lines: list[list[tuple[str, str]]] = [[]]
    left = float(SIDE)
    for word, colour in words or [("no tag", MISSED)]:
        word = _cut(word, font)
        width = font.getlength(word + "  ")
        if width > left and lines[-1]:
            lines.append([])
            left = float(SIDE)
        lines[-1].append((word, colour))
        left -= width
    return lines
