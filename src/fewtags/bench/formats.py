"""A table for the terminal, as Markdown, CSV or LaTeX."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from fewtags.bench.table import Entry, Table


def as_markdown(tables: Sequence[Table]) -> str:
    """Headings, tables, notes."""
    parts = []
    for table in tables:
        lines = [f"## {table.title}", "", "| | " + " | ".join(map(_pipe, table.columns)) + " |"]
        lines.append("|---|" + "---:|" * len(table.columns))
        for name, entries in table.lines:
            cells = [f"**{one.text(table.digits)}**" if one.best else one.text(table.digits) for one in entries]
            lines.append(f"| {_pipe(name)} | " + " | ".join(cells) + " |")
        parts.append("\n".join([*lines, "", *(f"{note[0].upper()}{note[1:]}.  " for note in table.notes)]))
    return "\n\n".join(parts) + "\n"


def as_csv(tables: Sequence[Table]) -> str:
    """One line a number: table, row, column, mean, standard deviation, seeds, best, noise."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "row", "column", "mean", "std", "seeds", "best", "noise"])
    for table in tables:
        for name, entries in table.lines:
            for column, one in zip(table.columns, entries, strict=True):
                mean, spread = ("" if value is None else f"{value:.3f}" for value in (one.mean, one.spread))
                writer.writerow([table.title, name, column, mean, spread, one.seeds, int(one.best), int(one.noise)])
    return text.getvalue()


def as_latex(tables: Sequence[Table]) -> str:
    """booktabs tables; what LaTeX reads as commands is escaped."""
    parts = []
    for table in tables:
        lines = [f"% {table.title}", r"\begin{tabular}{l" + "r" * len(table.columns) + "}", r"\toprule"]
        lines.append(" & ".join(["", *map(_tex, table.columns)]) + r" \\")
        lines.append(r"\midrule")
        for name, entries in table.lines:
            cells = [_tex_entry(one, table.digits) for one in entries]
            lines.append(" & ".join([_tex(name), *cells]) + r" \\")
        parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}", *(f"% {note}" for note in table.notes)]))
    return "\n\n".join(parts) + "\n"


def for_terminal(table: Table) -> Any:
    """As rich shows it, notes beneath."""
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=None, padding=(0, 2, 0, 0), header_style="bold")
    shown.add_column("")
    for column in table.columns:
        shown.add_column(column, justify="right", no_wrap=True)
    for name, entries in table.lines:
        shown.add_row(Text(name), *(Text(one.text(table.digits), style="bold" if one.best else "") for one in entries))
    return Group(Text(table.title, style="bold"), shown, *(Text(note, style="dim") for note in table.notes))


def _pipe(text: str) -> str:
    return text.replace("|", r"\|")


def _tex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(one, "\\" + one if one in "&%$#_{}" else one) for one in text)


def _tex_entry(one: Entry, digits: int) -> str:
    text = one.text(digits).replace(" ~", "")
    text = _tex(text).replace("±", r"$\pm$").replace("–", "--")
    text += r"$^{\sim}$" if one.noise and not one.best else ""
    return rf"\textbf{{{text}}}" if one.best else text
