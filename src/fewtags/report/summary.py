"""The top of the page: a summary of the run, tags by verdict, and the figures over all tags."""

from collections.abc import Sequence
from typing import Any

from fewtags.report.assessment import MEANING, Figure, TagRow, Verdict, figure
from fewtags.report.facts import Facts
from fewtags.report.markup import Content, Html, element, join

SHOWN = 5  # tags in the first sentence
LISTED = 40  # tags in the list below it
TITLES: dict[Verdict, str] = {
    "trust": "Trust",
    "fair": "Mostly right",
    "check": "Check",
    "few": "Too few to say",
    "unverified": "Unverified",
    "never": "Not given",
}
OVERALL = {
    "map": ("mAP", "how well images are ranked, mean over tags"),
    "cf1": ("CF1", "precision and recall combined, averaged over tags"),
    "of1": ("OF1", "precision and recall combined, over all decisions"),
}
PREFER = {
    "balance": "precision and recall count equally (prefer: balance)",
    "precision": "a wrong tag counts more than a missing one (prefer: precision)",
    "recall": "a missing tag counts more than a wrong one (prefer: recall)",
}


def summary(facts: Facts, rows: Sequence[TagRow]) -> Html:
    """The first sentence, the tags by verdict, and counts."""
    return element(
        "section",
        element("p", sentence(facts, rows), class_="lead"),
        element("dl", *(_listed(verdict, rows) for verdict in TITLES), class_="verdicts"),
        _tiles(facts),
        id="summary",
    )


def sentence(facts: Facts, rows: Sequence[TagRow]) -> str:
    """`Tags 5,432 images; trust person, car and cat; check sofa and bottle.`"""
    count = len(facts.names["unlabelled"])
    parts = [f"Tags {images(count)}" if count else f"Learned from {images(facts.labelled)}, none to tag"]
    named: tuple[tuple[Verdict, str], ...] = (("trust", "trust"), ("check", "check"))
    for verdict, word in named:
        tags = _with_verdict(verdict, rows)
        parts += [f"{word} {enumerate_words(tags)}"] if tags else []
    if len(parts) == 1:
        fair = _with_verdict("fair", rows)
        unknown = "too few known labels to say how well" if facts.labelled else "quality unknown until you label some"
        parts.append(f"{enumerate_words(fair)} mostly right" if fair else unknown)
    return "; ".join(parts) + "."


def enumerate_words(words: Sequence[str]) -> str:
    """`a, b and c`; only the first few of many."""
    if len(words) > SHOWN + 1:  # never "and 1 more"
        return f"{', '.join(words[:SHOWN])} and {len(words) - SHOWN:,} more"
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def images(count: int) -> str:
    """`1 image`, `5,432 images`."""
    return f"{count:,} image{'' if count == 1 else 's'}"


def badge(verdict: Verdict) -> Html:
    """A verdict as a coloured word."""
    return element("span", TITLES[verdict], class_=f"badge {verdict}", title=MEANING[verdict])


def figures(facts: Facts) -> Html:
    """mAP, CF1 and OF1, estimated and on the test split (if there is one), and how they were obtained."""
    estimate, tested = facts.estimate, facts.result if facts.result.get("map") is not None else None
    how = element("p", _how(estimate, tested is not None, facts), class_="note")
    if estimate is None and tested is None:
        return how
    heads: list[Content] = [element("th", "over all tags", scope="col")]
    heads += [element("th", "estimated", scope="col", class_="num")] if estimate else []
    heads += [element("th", f"on {images(len(facts.names['test']))} for testing", class_="num")] if tested else []
    lines = []
    for key, (name, meaning) in OVERALL.items():
        cells = [element("th", name, element("small", meaning), scope="row")]
        if estimate:
            cells.append(element("td", _figure_text(_of_all(estimate, key)), class_="num"))
        if tested:
            cells.append(element("td", _figure_text(figure(tested.get(key))), class_="num"))
        lines.append(element("tr", *cells))
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *lines), class_="overall")
    return join(table, how)


def _of_all(estimate: dict[str, Any], key: str) -> Figure | None:
    return figure(estimate.get(key), (estimate.get("intervals") or {}).get(key))


def _figure_text(found: Figure | None) -> Html:
    if found is None:
        return Html("–")
    words = element("b", f"{100 * found.value:.1f} %")
    if found.interval is None:
        return words
    low, high = found.interval
    return join(words, element("small", f"{100 * low:.1f} to {100 * high:.1f}"))


def _how(estimate: dict[str, Any] | None, tested: bool, facts: Facts) -> str:
    """One sentence on how the figures were obtained."""
    if estimate:
        how = str(estimate.get("how", "")).strip().rstrip(".")
        prefer = PREFER.get(str(estimate.get("prefer")), "")
        interval = "in 95 of 100 cases the interval beside a figure holds what is true of new images"
        return "; ".join(filter(None, (f"How these figures were made: from {how}", interval, prefer))) + "."
    if tested:
        seen = "also chose the epoch" if facts.config.recipe.protocol == "paper" else "took no part in training"
        count = images(len(facts.names["test"]))
        return f"How these figures were made: the model tagged {count} that {seen}, and was compared with their labels."
    if not facts.labelled:
        return (
            "There are no figures: no image is labelled, so the quality is unknown until you label some. "
            f"fewtags review {facts.path.name} asks about the most useful images first."
        )
    return (
        "There are no figures: this run has no estimate of its quality, and its data no test images; "
        "train again with --tune heads or --validate, or compare with other labels (fewtags evaluate RUN DATA)."
    )


def _with_verdict(verdict: Verdict, rows: Sequence[TagRow]) -> list[str]:
    """Tags with a verdict, best first; those to check worst first."""
    tags = [row.tag for row in rows if row.verdict == verdict]
    return tags[::-1] if verdict == "check" else tags


def _listed(verdict: Verdict, rows: Sequence[TagRow]) -> Html | None:
    tags = _with_verdict(verdict, rows)
    if not tags:
        return None
    words = [element("span", tag, class_=f"pill {verdict}") for tag in tags[:LISTED]]
    if len(tags) > LISTED:
        words.append(element("span", f"and {len(tags) - LISTED:,} more", class_="more"))
    note = element("small", MEANING[verdict])
    return element("div", element("dt", TITLES[verdict], note), element("dd", *words))


def _tiles(facts: Facts) -> Html:
    tags = facts.given.sum(1)
    tiles = [(f"{facts.labelled:,}", "images with your labels")]
    tiles += [(f"{len(facts.names['unlabelled']):,}", "images tagged")]
    if len(tags):
        tiles += [
            (f"{tags.mean():.1f}", "tags per image"),
            (f"{100 * (tags == 0).mean():.0f} %", "of images get no tag"),
        ]
    tiles += [(f"{len(facts.tags):,}", "tags")]
    return element(
        "ul", *(element("li", element("b", n), element("span", words)) for n, words in tiles), class_="tiles"
    )
