"""What the site takes from elsewhere when it is built, so that it cannot grow old: help, results, figures."""

import html
import re
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
RESULTS = "results"
HELP_MARK = "<!-- the help of every verb -->"
HELP_WIDTH = 78  # of a terminal with 80 columns
FIGURE = re.compile(r"^!\[(?P<alt>[^\]]*)\]\((?P<file>figures/[\w-]+\.svg)\)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The tables of results/ are pages of the site, though they lie beside docs/ and not in it."""
    for path in sorted((ROOT / RESULTS).rglob("*")):
        if path.suffix in (".md", ".csv", ".png", ".svg"):
            uri = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Help of the command line, figures that follow the page's colours, and links that hold in both places."""
    if page.file.src_uri.startswith(f"{RESULTS}/"):
        return markdown
    markdown = markdown.replace(f"](../{RESULTS}/", f"]({RESULTS}/")  # as it is written for readers of the repository
    if HELP_MARK in markdown:
        markdown = markdown.replace(HELP_MARK, help_of_every_verb())
    return FIGURE.sub(_inline, markdown)


def help_of_every_verb() -> str:
    """A heading and the help of `fewtags` and of each verb, as a terminal shows it."""
    from fewtags.cli.app import app

    parts = [f"## {words}\n\n```help\n{text}\n```" for words, text in _helps(typer.main.get_command(app), "fewtags")]
    return "\n\n".join(parts)


def _helps(command: Any, words: str, parent: Any = None) -> list[tuple[str, str]]:
    """(`fewtags bench run`, its help) of a command and of those below it."""
    # resilient: nothing is asked for that is missing, for nothing is run
    settings = {"parent": parent, "terminal_width": HELP_WIDTH, "resilient_parsing": True}
    context = command.make_context(words.rpartition(" ")[2], [], **settings)
    # a command that is read when it is used stands in the context with its options, not in `command`
    found = [(words, context.command.get_help(context).strip())]
    for name, below in getattr(command, "commands", {}).items():
        found += _helps(below, f"{words} {name}", context)
    return found


def _inline(found: re.Match[str]) -> str:
    """The SVG itself in the place of its name: an image from a file cannot see the colours of the page."""
    drawing = (ROOT / "docs" / found["file"]).read_text(encoding="utf-8")
    drawing = re.sub(r"<\?xml.*?\?>\s*|\n\s*\n", "", drawing)  # an empty line would end the HTML block
    return f'<figure class="drawing" role="img" aria-label="{html.escape(found["alt"])}">\n{drawing.strip()}\n</figure>'
