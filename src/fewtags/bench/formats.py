"""A table for the terminal, as Markdown, CSV or LaTeX."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from fewtags.bench.tables import Entry, Table

GAP = 2  # between two columns of a terminal


def as_text(tables: Sequence[Table], width: int = 100) -> str:
    """As on a terminal of this width, without colours."""
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
    """One line a number: table, row, column, mean, standard deviation, seeds (done, wanted), best, noise.

    What a table says below its numbers stands in lines without any: row `note`, the words as the column.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "row", "column", "mean", "std", "seeds", "wanted", "best", "noise"])
    for table in tables:
        for name, entries in table.lines:
            for column, one in zip(table.columns, entries, strict=True):
                mean, spread = ("" if value is None else f"{value:.3f}" for value in (one.mean, one.spread))
                writer.writerow([table.title, name, column, mean, spread, one.seeds, one.wanted, int(one.best),
                                 int(one.noise)])  # fmt: skip
        writer.writerows([table.title, "note", note, "", "", "", "", "", ""] for note in table.notes)
    return text.getvalue()


def as_latex(tables: Sequence[Table]) -> str:
    """booktabs tables, the notes in the caption; what LaTeX reads as commands is escaped."""
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
    """As rich shows it, notes beneath; columns that do not fit beside each other go below, with the names again."""
    from rich.console import Group
    from rich.text import Text

    widths = [max(map(len, [head, *(_starred(line[place], table.digits) for _, line in table.lines)])) + GAP
              for place, head in enumerate(table.columns)]  # fmt: skip
    names = max(len(name) for name, _ in table.lines) + GAP
    beside = max(1, (width - names) // max(widths))  # columns
    count = -(-len(widths) // beside)
    beside = -(-len(widths) // count)  # as many in every part
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
    """Text that Markdown does not read as anything else."""
    return "".join("\\" + one if one in r"\`*_<|[]" else one for one in text)


def _tex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
               "±": r"$\pm$", "–": "--"}  # fmt: skip
    return "".join(special.get(one, "\\" + one if one in "&%$#_{}" else one) for one in text)


def _tex_entry(one: Entry, digits: int) -> str:
    text = _tex(one.text(digits).replace(" ~", "", 1))
    text += r"$^{\sim}$" if one.noise else ""
    return rf"\textbf{{{text}}}" if one.best else text
