"""The table with one row per tag."""

from collections.abc import Sequence

from fewtags.report.assessment import NAMES, Figure, Figures, TagRow
from fewtags.report.charts import interval_bar
from fewtags.report.markup import Content, Html, element, join
from fewtags.report.summary import badge

TITLES = {"precision": "Precision", "recall": "Recall", "f1": "F1", "ap": "AP"}
MEANING = {
    "precision": "share of the images with the tag given that show it",
    "recall": "share of the images that show the tag that get it",
    "f1": "precision and recall combined",
    "ap": "how well images are ranked by the tag's score",
}
RANKS = {"trust": 4, "fair": 3, "check": 2, "few": 1, "unverified": 1, "never": 0}


def tag_table(rows: Sequence[TagRow]) -> Html:
    """Tag, verdict, counts, threshold and figures; a script makes the columns sortable."""
    kinds = [("estimated", "Estimated from your labels")] if any(row.estimated for row in rows) else []
    kinds += [("tested", "On the test images")] if any(row.tested for row in rows) else []
    groups: list[Content] = [element("th", colspan=5, class_="blank")]
    groups += [element("th", title, colspan=4, scope="colgroup", class_=f"group {kind}") for kind, title in kinds]
    heads = [
        _head("Tag", None, text=True),
        _head("Verdict", None, text=True),
        _head("Labelled", "labelled images that show it"),
        _head("Given", "images that get it"),
        _head("Threshold", "the lowest score at which the tag is given"),
    ]
    heads += [_head(TITLES[name], MEANING[name], kind) for kind, _ in kinds for name in NAMES]
    body = [_row(row, [kind for kind, _ in kinds]) for row in rows]
    table = element(
        "table",
        element("thead", element("tr", *groups) if kinds else None, element("tr", *heads)),
        element("tbody", *body),
        class_="tags sortable",
    )
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Table of tags")


def _head(title: str, meaning: str | None, kind: str = "", text: bool = False) -> Html:
    return element("th", title, scope="col", title=meaning, class_=f"{'' if text else 'num'} {kind}".strip() or None)


def _row(row: TagRow, kinds: Sequence[str]) -> Html:
    threshold = "never" if row.threshold is None else f"{row.threshold:.2f}"
    cells = [
        element("th", row.tag, scope="row"),
        element("td", badge(row.verdict), data_value=RANKS[row.verdict]),
        _number(f"{row.labelled:,}", row.labelled),
        _number(f"{row.given:,}", row.given),
        _number(threshold, row.threshold),
    ]
    for kind in kinds:
        figures: Figures = (row.estimated if kind == "estimated" else row.tested) or {}
        cells += [_figure(figures.get(name), kind, name) for name in NAMES]
    return element("tr", *cells)


def _number(text: str, value: float | None, kind: str = "") -> Html:
    return element("td", text, class_=f"num {kind}".strip(), data_value="" if value is None else value)


def _figure(found: Figure | None, kind: str, name: str) -> Html:
    if found is None:
        return _number("–", None, kind)
    words: list[Content] = [f"{100 * found.value:.0f} %"]
    low, high = found.interval or (found.value, found.value)
    if found.interval:
        words.append(element("small", f"{100 * low:.0f}–{100 * high:.0f}"))
    if name == "f1" and kind == "estimated":
        words.append(interval_bar(found.value, low, high))
    return element("td", join(*words), class_=f"num {kind} {name}", data_value=f"{found.value:.6f}")
