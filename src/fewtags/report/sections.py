"""Sections with charts and explanations: learning, pseudo-labels, reliability, co-occurrence, settings."""

import math
from typing import Any

import numpy as np

from fewtags.metrics import f1_scores
from fewtags.report import charts
from fewtags.report.counts import Bin, co_occurrence_counts, reliability_bins
from fewtags.report.facts import Facts
from fewtags.report.markup import Html, element, join
from fewtags.report.summary import enumerate_words, images
from fewtags.training.evaluator import Record
from fewtags.training.repeat import command
from fewtags.utils.progress import duration

GAINS = 20  # tags that gain most from more labels
MATRIX = 24  # tags in the matrix; more would not be legible
STAGES = {"warmup": "Loss on the labelled images", "main": "Loss on all images"}
TEST = {"map": "mAP", "cf1": "CF1", "of1": "OF1"}
PSEUDO = {"pseudo_cp": "precision", "pseudo_cr": "recall", "pseudo_cf1": "CF1"}
PARTS = {"unlabelled": "that came without tags", "test": "for testing", "labelled": "with labels"}


def learning(facts: Facts) -> Html | None:
    """Loss and test figures by epoch."""
    drawn = []
    for stage, title in STAGES.items():
        points = _points([r for r in facts.records if r.get("stage") == stage], "loss")
        if len(points) > 1:
            curve = charts.line_chart([charts.Line("loss", points)], "epoch", f"{title}, by epoch", percent=False)
            drawn.append(_figure(title, curve))
    curves = [charts.Line(name, _points(facts.records, key)) for key, name in TEST.items()]
    if any(len(curve.points) > 1 for curve in curves):
        curve = charts.line_chart(curves, "epoch", "mAP, CF1 and OF1 on the test images, by epoch", percent=True)
        drawn.append(_figure("On the test images", curve))
    if not drawn:
        return None
    seconds = facts.result.get("seconds")
    time = f" It took {duration(seconds)} in all." if seconds else ""
    epochs = f"{len(facts.records):,} epoch{'' if len(facts.records) == 1 else 's'}"
    note = f"Measured in {epochs} of training; a loss should fall and then level off.{time}"
    return _section("learning", "How it learned", note, element("div", *drawn, class_="charts"))


def outlook(facts: Facts) -> Html | None:
    """What is held back, what corrections brought, and what more labels should bring."""
    curve, held_back = facts.result.get("learning_curve"), facts.result.get("not_given") or []
    notes = [f"{str(facts.result['compared']['text'])[0].upper()}{facts.result['compared']['text'][1:]}."] if (
        facts.result.get("compared")
    ) else []  # fmt: skip
    parts: list[Html] = []
    if held_back:
        named = ", ".join(f"{row['tag']} (about {row['more_labels']:,} more labels would help)" for row in held_back)
        notes.append(f"Given to no image, because too few examples show what they are: {named}.")
    if curve:
        steps = curve["next"]
        gains = ", ".join(f"{100 * step['map']:+.1f} after {step['labels']} more" for step in steps)
        sizes = enumerate_words([f"{size:,}" for size in curve["labels"]])
        notes.append(
            f"Models that learned from {sizes} of the labelled images say what more should bring, in mAP: {gains}."
        )
        heads = [element("th", "tag", scope="col")]
        heads += [element("th", f"{step['labels']} more", scope="col", class_="num") for step in steps]
        order = sorted(steps[-1]["per_tag"], key=lambda tag: -steps[-1]["per_tag"][tag])
        rows = [
            element(
                "tr",
                element("th", tag, scope="row"),
                *(element("td", f"{100 * step['per_tag'][tag]:+.1f}", class_="num") for step in steps),
            )
            for tag in order[:GAINS]
        ]
        head = element("thead", element("tr", *heads))
        parts.append(element("table", head, element("tbody", *rows), class_="bins"))
    if not notes:
        return None
    return _section("next", "What more labels would bring", " ".join(notes), *parts)


def pseudo_labels(facts: Facts) -> Html | None:
    """The quality of tags of unlabelled images with known truth, and of pseudo-labels."""
    truth = facts.tables.get("unlabelled_targets")
    parts: list[Html] = []
    note = ""
    if truth is not None and (truth >= 0).any():
        found = f1_scores(facts.tables["unlabelled"] >= facts.thresholds, truth)
        note = (
            f"The truth of {images(int((truth >= 0).any(1).sum()))} that came without tags is known, though training "
            f"did not see it. Of the tags they were given {_percent(found['op'])} are right, and "
            f"{_percent(found['or'])} of the tags that are there were given "
            f"(CF1 {_percent(found['cf1'])}, OF1 {_percent(found['of1'])})."
        )
    curves = [charts.Line(name, _points(facts.records, key)) for key, name in PSEUDO.items()]
    last = next((r for r in reversed(facts.records) if "pseudo_cf1" in r), None)
    if last is not None:
        words = ", ".join(f"{name} {_percent(last[key])}" for key, name in PSEUDO.items() if key in last)
        note += f" Pseudo-labels in the last epoch: {int(last.get('pseudo_positives', 0)):,} positives, {words}."
        if any(len({y for _, y in curve.points}) > 1 for curve in curves):
            alt = "precision, recall and CF1 of pseudo-labels, by epoch"
            parts.append(_figure("Pseudo-labels, by epoch", charts.line_chart(curves, "epoch", alt, percent=True)))
    if not note:
        return None
    content = element("div", *parts, class_="charts") if parts else None
    return _section("pseudo", "Quality of pseudo-labels", note.strip(), content)


def reliability(facts: Facts) -> Html | None:
    """The reliability diagram."""
    for scores, targets, who in (
        ("held_out", "held_out_targets", "Labelled images, scored by models that were not trained on them"),
        ("test", "test_targets", "The test images"),
    ):
        if scores not in facts.tables or targets not in facts.tables:
            continue
        bins = reliability_bins(facts.tables[scores], facts.tables[targets])
        if not any(each.decisions for each in bins):
            continue
        count = sum(each.decisions for each in bins)
        note = (
            f"{who}: {count:,} decisions (one image, one tag), grouped by score. On the dashed line scores are "
            f"calibrated. {_interpretation(bins)} Bars count the decisions, on a logarithmic scale."
        )
        chart = charts.reliability_diagram(bins, "How often a tag is there, by the score that the model gives it")
        drawn = _figure("How often the tag is there", chart)
        rows = [
            element("tr", *(element("td", text, class_="num") for text in _bin_words(each)))
            for each in bins
            if each.decisions
        ]
        heads = element("tr", *(element("th", text, class_="num") for text in ("score", "decisions", "tag is there")))
        table = element("table", element("thead", heads), element("tbody", *rows), class_="bins")
        return _section("reliability", "What a score means", note, element("div", drawn, table, class_="charts"))
    return None


def _bin_words(each: Bin) -> tuple[str, str, str]:
    return f"{100 * each.low:.0f}–{100 * each.high:.0f} %", f"{each.decisions:,}", _percent(each.positive_share)


def _interpretation(bins: list[Bin]) -> str:
    """One sentence about the calibration of scores above one half."""
    upper = [each for each in bins if each.low >= 0.5 and each.decisions]
    count = sum(each.decisions for each in upper)
    if not count:
        return "No score is above one half."
    said, true = (sum(each.decisions * value for each, value in pairs) / count for pairs in _weighted(upper))
    gap = round(100 * (said - true))
    if abs(gap) < 3:
        return "Scores above one half are well calibrated."
    return f"Scores above one half are {abs(gap)} points too {'high' if gap > 0 else 'low'} on average."


def _weighted(bins: list[Bin]) -> tuple[list[tuple[Bin, float]], list[tuple[Bin, float]]]:
    return [(each, each.score) for each in bins], [(each, each.positive_share) for each in bins]


def co_occurrence(facts: Facts) -> Html | None:
    """The co-occurrence of given tags."""
    table = co_occurrence_counts(facts.given, facts.tags, MATRIX)
    if len(table.tags) < 2:
        return None
    pairs = ", ".join(f"{first} and {second} ({count:,})" for first, second, count in table.pairs(3))
    some = f" Only the {MATRIX} most frequent tags are shown." if len(facts.tags) > MATRIX else ""
    note = (
        f"Among the {images(len(facts.scores))} {PARTS[facts.part]}: of those with the row's tag, the share in "
        f"percent that also get the column's; the diagonal counts images."
        + (f" Most often together: {pairs}." if pairs else "")
        + some
    )
    drawn = charts.matrix(table, "How often two tags are given to the same image")
    return _section("together", "Tags that go together", note, element("div", drawn, class_="scroll matrix"))


def settings(facts: Facts) -> Html:
    """The command that reproduces the run, and all settings."""
    config = facts.config.model_dump(exclude={"tags", "recipe", "method_settings"})
    tables = [
        ("Run", config),
        (f"Method {facts.config.method}", facts.config.method_settings),
        ("Training", facts.config.recipe.model_dump()),
    ]
    return _section(
        "settings",
        "How to reproduce it",
        "The command with all options; --out names a new folder.",
        element("pre", element("code", _command(facts))),
        element("details", element("summary", "All settings"), *(_settings_table(*table) for table in tables)),
    )


def _settings_table(title: str, values: dict[str, Any]) -> Html:
    rows = [
        element("tr", element("th", key, scope="row"), element("td", "–" if value is None else str(value)))
        for key, value in values.items()
    ]
    return join(element("h3", title), element("table", element("tbody", *rows), class_="settings"))


def _section(name: str, title: str, note: str, *content: Html | None) -> Html:
    return element("section", element("h2", title), element("p", note, class_="note"), *content, id=name)


def _figure(title: str, drawn: Html) -> Html:
    return element("figure", element("figcaption", title), drawn)


def _points(records: list[Record], key: str) -> list[tuple[float, float]]:
    """(record number from 1, value) of the records that have the value."""
    numbered = ((float(number), record.get(key)) for number, record in enumerate(records, start=1))
    return [(x, float(y)) for x, y in numbered if isinstance(y, (int, float)) and math.isfinite(y)]


def _percent(value: float) -> str:
    return "–" if np.isnan(value) else f"{100 * value:.0f} %"


def _command(facts: Facts) -> str:
    """The command that makes the run again."""
    labelled, unlabelled = (len(facts.names[part]) for part in ("labelled", "unlabelled"))
    return command(facts.config, labelled, unlabelled, facts.kept_back)
