"""The gallery: image cards in four groups; a script filters them by tag and confidence."""

from collections.abc import Sequence

import numpy as np

from fewtags.report.facts import Facts
from fewtags.report.markup import Html, element, join
from fewtags.report.selection import MIN_AP, MIN_CONFIDENCE, UNCERTAIN_MARGIN, ImageGroup, Selected, select_images
from fewtags.report.summary import images
from fewtags.report.thumbnails import MEAN_BYTES, Thumbnails
from fewtags.utils.progress import Progress

CHIPS = 6  # tags shown on a card
TITLES = {
    "sample": ("A random sample", "Random images with the tags they get."),
    "confident": ("Most confident", "For every tag, the images that get it with the highest scores."),
    "uncertain": (
        "Least certain",
        f"For every tag, the images with scores nearest to its threshold, at most {100 * UNCERTAIN_MARGIN:.0f} points "
        "away. A dashed tag is not given.",
    ),
    "mistakes": (
        "Likely mistakes in your labels",
        f"Labels contradicted with a confidence of {100 * MIN_CONFIDENCE:.0f} % or more by a model not trained on "
        "them, the largest contradiction first. Either the label or the model is wrong. Only tags that the model "
        f"recognises well are listed: an average precision of {100 * MIN_AP:.0f} % or more on these labels.",
    ),
}
NO_MISTAKES = (
    f"None: no label is contradicted with a confidence of {100 * MIN_CONFIDENCE:.0f} % or more by a model that was not "
    f"trained on it, among the tags that it recognises well (an average precision of {100 * MIN_AP:.0f} % or more)."
)
NO_HELD_OUT = (
    "This run has no scores by models that were not trained on the labels, so its labels cannot be checked; "
    "train with --tune heads, or with --tune all --validate."
)


def gallery(facts: Facts) -> Html:
    """The section with its filters, which are shown only if scripts run."""
    thumbnails = Thumbnails(facts.config)
    chosen = select_images(facts)
    with Progress("pictures for the report", sum(len(group.images) for group in chosen)) as progress:
        cards = {group.name: _cards(group, facts, thumbnails, progress) for group in chosen}
    shown = {image.row for each in chosen for image in each.images[: len(cards[each.name])] if image.part == facts.part}
    return element(
        "section",
        element("h2", "Images"),
        element("p", _note(len(shown), len(facts.scores), thumbnails), class_="note"),
        _filters(facts.tags),
        *(_group(name, some, facts) for name, some in cards.items()),
        id="images",
    )


def _note(shown: int, total: int, thumbnails: Thumbnails) -> str:
    words = (
        f"{shown:,} of {images(total)} are here, so that the page stays small; tags.csv in the run folder holds all."
    )
    if shown == total:
        words = f"All {images(total)} are here."
    if thumbnails.error:
        words += f" Pictures are missing: {thumbnails.error}. Names and scores are shown without them."
    elif thumbnails.missing:
        words += f" {thumbnails.missing:,} could not be read: shown without a picture."
    return words


def _filters(names: Sequence[str]) -> Html:
    kinds = [
        element(
            "label",
            element("input", type="radio", name="group", value=kind, checked="checked" if kind == "sample" else None),
            element("span", title.removesuffix(" in your labels")),
        )
        for kind, (title, _) in TITLES.items()
    ]
    tags = [element("option", "all tags", value="")]
    tags += [element("option", tag, value=place) for place, tag in enumerate(names)]
    bounds = [
        element(
            "label",
            f"{word} ",
            element("input", type="range", min=0, max=100, step=1, value=value, id=name),
            element("output", f"{value} %", for_=name),
        )
        for word, name, value in (("confidence from", "least", 0), ("to", "most", 100))
    ]
    return element(
        "form",
        element("fieldset", element("legend", "Show"), *kinds, class_="kinds"),
        element("label", "tag ", element("select", *tags, id="tag")),
        *bounds,
        element("output", id="found", aria_live="polite"),
        class_="filters",
        hidden="hidden",
    )


def _cards(group: ImageGroup, facts: Facts, thumbnails: Thumbnails, progress: Progress) -> list[Html]:
    """The cards of a group, as many as its byte budget allows."""
    cards: list[Html] = []
    left = group.room * MEAN_BYTES
    for image in group.images:
        url = thumbnails.data_url(facts.names[image.part][image.row])
        left -= len(url or "")
        if left < 0:
            break
        cards.append(_card(group.name, image, facts, url))
        progress.advance()
    return cards


def _group(name: str, cards: Sequence[Html], facts: Facts) -> Html:
    title, note = TITLES[name]
    if name == "mistakes" and not cards:
        note = NO_MISTAKES if facts.held_out else NO_HELD_OUT
    return element(
        "div",
        element("h3", title),
        element("p", note, class_="note"),
        element("div", *cards, class_="cards"),
        class_="group-of-cards",
        id=f"group-{name}",
    )


def _card(kind: str, image: Selected, facts: Facts, url: str | None) -> Html:
    name = facts.names[image.part][image.row]
    picture = element("img", src=url, alt=name) if url else element("span", "no picture", class_="missing")
    words = {"mistakes": _doubts, "uncertain": _close}.get(kind, _given)(image, facts)
    sure = image.tags
    if kind == "mistakes":
        labels = facts.tables["held_out_targets"][image.row]
        sure = [(place, 1 - score if labels[place] == 1 else score) for place, score in image.tags]
    marks = " ".join(f"{place}:{100 * score:.1f}" for place, score in sure)
    caption = element("figcaption", words, element("span", name, class_="name", title=name))
    return element("figure", element("div", picture, class_="frame"), caption, class_="card", data_tags=marks)


def _given(image: Selected, facts: Facts) -> Html:
    """The tags an image gets, marked right or wrong if the truth is known."""
    truth = facts.tables.get(f"{image.part}_targets")
    known = truth[image.row] if truth is not None and image.part != "labelled" else np.full(len(facts.tags), -1)
    chips = [_chip(facts.tags[place], score, int(known[place])) for place, score in image.tags[:CHIPS]]
    if len(image.tags) > CHIPS:
        chips.append(element("span", f"+{len(image.tags) - CHIPS}", class_="more"))
    return element("span", *(chips or [element("span", "no tag", class_="more")]), class_="chips")


def _chip(tag: str, score: float, known: int) -> Html:
    kind, mark = {1: ("right", "✓ "), 0: ("wrong", "✗ ")}.get(known, ("", ""))
    return element("span", f"{mark}{tag} ", element("b", percent(score)), class_=f"chip {kind}".strip())


def _close(image: Selected, facts: Facts) -> Html:
    """`sofa 41 %, given from 43 %`."""
    lines = []
    for place, score in image.tags[:CHIPS]:
        limit = float(facts.thresholds[place])
        words = element("span", f"{100 * score:.1f} %, given from {100 * limit:.1f} %", class_="why")
        kind = "chip" if score >= limit else "chip not"
        lines.append(element("span", element("span", facts.tags[place], class_=kind), words, class_="line"))
    return element("span", *lines, class_="chips")


def _doubts(image: Selected, facts: Facts) -> Html:
    """`You said no boat; the model is 97 % sure that it is there.`"""
    lines = []
    labels = facts.tables["held_out_targets"][image.row]
    for place, score in image.tags[:CHIPS]:
        said, sure, is_there = ("", 1 - score, "is not") if labels[place] == 1 else ("no ", score, "is")
        words = (f"You said {said}", element("b", facts.tags[place]), f"; the model is {percent(sure)} sure that it ")
        lines.append(element("span", *words, f"{is_there} there.", class_="doubt"))
    return join(*lines)


def percent(score: float) -> str:
    """A score in percent, with a decimal only where it matters."""
    if score < 0.001:
        return "under 0.1 %"
    if score > 0.999:
        return "over 99.9 %"
    return f"{100 * score:.1f} %" if score < 0.01 or score > 0.99 else f"{100 * score:.0f} %"
