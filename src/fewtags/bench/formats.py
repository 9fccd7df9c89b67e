"""A table as terminal text, Markdown, CSV or LaTeX."""

import io
from collections.abc import Sequence
from typing import Any

from fewtags.bench.tables import Entry, Table
from fewtags.utils.files import csv_line

GAP = 2  # characters between two columns on a terminal


def as_text(tables: Sequence[Table], width: int = 100) -> str:
    """Plain text for a terminal of this width."""
    from rich.console import Console

    text = io.StringIO()
    console = Console(file=text, width=width)
    for table in tables:
        console.print(for_terminal(table, width))
        console.print()
    return text.getvalue()


def as_markdown(tables: Sequence[Table]) -> str:
    """Headings, tables, notes."""
    parts = []
    for table in tables:
        lines = [f"## {_plain(table.title)}", "", "| | " + " | ".join(map(_plain, table.columns)) + " |"]
        lines.append("|---|" + "---:|" * len(table.columns))
        for name, entries in table.lines:
            cells = [f"**{one.text(table.digits)}**" if one.best else one.text(table.digits) for one in entries]
            lines.append(f"| {_plain(name)} | " + " | ".join(cells) + " |")
        parts.append("\n".join([*lines, "", *(f"{note[0].upper()}{note[1:]}.  " for note in table.notes)]))
    return "\n\n".join(parts) + "\n"


def as_csv(tables: Sequence[Table]) -> str:
    """One line per number: table, row, column, mean, standard deviation, seeds (done, wanted), best, noise (tied).

    Notes of a table are lines without numbers: the row is `note`, the column is the text.
    """
    rows: list[list[object]] = [["table", "row", "column", "mean", "std", "seeds", "wanted", "best", "noise"]]
    for table in tables:
        for name, entries in table.lines:
            for column, one in zip(table.columns, entries, strict=True):
                mean, std = ("" if value is None else f"{value:.3f}" for value in (one.mean, one.std))
                counts = [one.seeds, one.wanted, int(one.best), int(one.tied)]
                rows.append([table.title, name, column, mean, std, *counts])
        rows += [[table.title, "note", note, "", "", "", "", "", ""] for note in table.notes]
    return "".join(csv_line(map(str, row)) for row in rows)


def as_latex(tables: Sequence[Table]) -> str:
    """booktabs tables with the notes in the caption; special characters are escaped."""
    parts = []
    for table in tables:
        caption = _tex(". ".join([table.title, *(f"{note[0].upper()}{note[1:]}" for note in table.notes)]))
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{caption}.}}"]
        lines += [r"\begin{tabular}{l" + "r" * len(table.columns) + "}", r"\toprule"]
        lines.append(" & ".join(["", *map(_tex, table.columns)]) + r" \\")
        lines.append(r"\midrule")
        for name, entries in table.lines:
            cells = [_tex_entry(one, table.digits) for one in entries]
            lines.append(" & ".join([_tex(name), *cells]) + r" \\")
        parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]))
    return "\n\n".join(parts) + "\n"


def for_terminal(table: Table, width: int) -> Any:
    """A rich renderable with notes below; columns that do not fit continue below, with the row names repeated."""
    from rich.console import Group
    from rich.text import Text

    widths = [max(map(len, [head, *(_starred(line[place], table.digits) for _, line in table.lines)])) + GAP
              for place, head in enumerate(table.columns)]  # fmt: skip
    names = max(len(name) for name, _ in table.lines) + GAP
    beside = max(1, (width - names) // max(widths))  # columns
    count = -(-len(widths) // beside)
    beside = -(-len(widths) // count)  # about the same number in every part
    shown = [_rich(table, range(start, min(start + beside, len(widths)))) for start in range(0, len(widths), beside)]
    notes = [note.replace("bold: best", "*: best") for note in table.notes]
    return Group(Text(table.title, style="bold"), *shown, *(Text(note, style="dim") for note in notes))


def _rich(table: Table, places: Sequence[int]) -> Any:
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=None, padding=(0, GAP, 0, 0), header_style="bold")
    shown.add_column("")
    for place in places:
        shown.add_column(Text(table.columns[place]), justify="right", no_wrap=True)
    for name, line in table.lines:
        entries = [line[place] for place in places]
        shown.add_row(Text(name), *(Text(_starred(one, table.digits), "bold" if one.best else "") for one in entries))
    return shown


def _starred(one: Entry, digits: int) -> str:
    return f"*{one.text(digits)}" if one.best else one.text(digits)


def _plain(text: str) -> str:
    """Text with Markdown characters escaped."""
    return "".join("\\" + one if one in r"\`*_<|[]" else one for one in text)


def _tex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
               "±": r"$\pm$", "–": "--"}  # fmt: skip
    return "".join(special.get(one, "\\" + one if one in "&%$#_{}" else one) for one in text)


def _tex_entry(one: Entry, digits: int) -> str:
    text = _tex(one.text(digits).replace(" ~", "", 1))
    text += r"$^{\sim}$" if one.tied else ""
    return rf"\textbf{{{text}}}" if one.best else text
