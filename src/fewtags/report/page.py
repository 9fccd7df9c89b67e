"""The whole page: sections, style and script in one file without dependencies."""

import base64
import hashlib
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from fewtags.data import split_spec
from fewtags.errors import UserError
from fewtags.report import sections
from fewtags.report.assessment import tag_rows
from fewtags.report.facts import Facts, read_facts
from fewtags.report.gallery import gallery
from fewtags.report.markup import Html, element, join
from fewtags.report.summary import figures, sentence, summary
from fewtags.report.tag_table import tag_table
from fewtags.utils.files import write_text

LINKS = {
    "summary": "Summary",
    "tags": "Tags",
    "next": "Next labels",
    "learning": "Learning",
    "pseudo": "Pseudo-labels",
    "reliability": "Scores",
    "together": "Together",
    "images": "Images",
    "settings": "Settings",
}


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write the report of a finished run, by default to RUN/report.html; returns its path."""
    facts = read_facts(run)
    out = out or run / "report.html"
    if out.is_dir():
        raise UserError(f"--out {out} is a folder; name a file, such as {out / 'report.html'}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: {out.parent} cannot be made ({error.strerror}); name another file") from error
    write_text(out, page(facts))
    return out


def page(facts: Facts) -> str:
    """The whole page."""
    rows = tag_rows(facts)
    parts = {
        "summary": summary(facts, rows),
        "tags": element("section", element("h2", "Tag by tag"), figures(facts), tag_table(rows), id="tags"),
        "next": sections.outlook(facts),
        "learning": sections.learning(facts),
        "pseudo": sections.pseudo_labels(facts),
        "reliability": sections.reliability(facts),
        "together": sections.co_occurrence(facts),
        "images": gallery(facts),
        "settings": sections.settings(facts),
    }
    links = [element("a", LINKS[name], href=f"#{name}") for name, part in parts.items() if part is not None]
    name = _name(facts)
    title = element("h1", element("small", "fewtags report"), name)
    versions = f"Trained by fewtags {facts.config.fewtags}, written by {version('fewtags')}."
    body = join(
        element("header", title, element("nav", *links, aria_label="Sections")),
        element("main", *parts.values()),
        element("footer", versions, " This file loads nothing from elsewhere."),
    )
    return _document(f"{name} – fewtags report", sentence(facts, rows), body)


def _name(facts: Facts) -> str:
    kind, rest = split_spec(facts.config.data)
    return Path(rest).name or rest if kind == "folder" else facts.config.data


def _document(title: str, description: str, body: Html) -> str:
    style, script = (files(__package__).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # only this script may run and nothing may be loaded: protects against injection through names
    allowed = f"img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    policy = f"default-src 'none'; {allowed}; form-action 'none'; base-uri 'none'"
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="description", content=description),
        element("title", title),
        element("style", Html(style)),
    ]
    whole = element("html", element("head", *head), element("body", body, element("script", Html(script))), lang="en")
    return f"<!doctype html>\n{whole}\n"
