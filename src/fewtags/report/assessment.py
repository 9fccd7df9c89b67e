"""An assessment of every tag: its figures, and whether it can be trusted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fewtags.data.catalogue import MIN_POSITIVES
from fewtags.report.facts import Facts

Verdict = Literal["trust", "fair", "check", "few", "unverified", "never"]
GOOD = 0.7  # the F1 from which a tag saves more work than its corrections cost
MEANING: dict[Verdict, str] = {
    "trust": f"F1 is {100 * GOOD:.0f} % or more, even at the lower end of its interval",
    "fair": f"F1 is {100 * GOOD:.0f} % or more, but its interval reaches lower",
    "check": f"F1 is under {100 * GOOD:.0f} %",
    "few": f"fewer than {MIN_POSITIVES} labelled images show the tag: too few to assess it",
    "unverified": "no labelled image shows the tag; its name alone decides, and only the surest images get it",
    "never": "too few examples to be sure of any image, so none gets it",
}


@dataclass(frozen=True)
class Figure:
    """A share in 0..1 with its confidence interval, if there is one."""

    value: float
    interval: tuple[float, float] | None = None

    @property
    def low(self) -> float:
        """The lower bound."""
        return self.value if self.interval is None else self.interval[0]


Figures = dict[str, Figure | None]  # by name: precision, recall, f1, ap
NAMES = ("precision", "recall", "f1", "ap")


@dataclass(frozen=True)
class TagRow:
    """Everything the report shows of one tag."""

    tag: str
    place: int  # index of the tag
    labelled: int  # labelled images that show it
    given: int  # images that get it
    threshold: float | None
    estimated: Figures | None  # from the labelled images
    tested: Figures | None  # on the test split
    verdict: Verdict


def tag_rows(facts: Facts) -> list[TagRow]:
    """One row per tag, best first, those that cannot be assessed last."""
    estimated = _by_tag(facts.estimate or {})
    tested = _by_tag(facts.result)
    labelled, unverified = _labelled(facts), set(facts.result.get("unverified") or ())
    rows = []
    for place, tag in enumerate(facts.tags):
        ours, theirs = estimated.get(tag), tested.get(tag)
        limit = float(facts.thresholds[place])
        figures = (_figures(ours), _figures(theirs))
        verdict = _assess(limit, ours or theirs or {}, figures[0] or figures[1] or {}, tag in unverified)
        threshold = limit if np.isfinite(limit) else None
        given = int(facts.given[:, place].sum())
        rows.append(TagRow(tag, place, int(labelled[place]), given, threshold, *figures, verdict))
    return sorted(rows, key=_quality, reverse=True)


def _labelled(facts: Facts) -> NDArray[np.int64]:
    """The number of labelled images that show each tag [K]."""
    parts = ("labelled_targets", "held_out_targets") if facts.kept_back else ("labelled_targets",)
    counts = np.zeros(len(facts.tags), np.int64)
    for part in parts:
        if part in facts.tables:
            counts += (facts.tables[part] == 1).sum(0)
    return counts


def _by_tag(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["tag"]: row for row in result.get("per_tag") or ()}


def _figures(row: Mapping[str, Any] | None) -> Figures | None:
    if row is None:
        return None
    intervals = row.get("intervals") or {}
    return {name: figure(row.get(name), intervals.get(name)) for name in NAMES}


def figure(value: float | None, interval: Any = None) -> Figure | None:
    """A figure from result.json."""
    if value is None:
        return None
    return Figure(float(value), (float(interval[0]), float(interval[1])) if interval else None)


def _assess(limit: float, row: Mapping[str, Any], figures: Figures, unverified: bool) -> Verdict:
    """From the estimate, else from the test split."""
    if not np.isfinite(limit):
        return "never"
    if unverified:
        return "unverified"
    f1 = figures.get("f1")
    if f1 is None or not row.get("enough", row.get("support", 0) >= MIN_POSITIVES):
        return "few"
    value, low = round(f1.value, 2), round(f1.low, 2)  # as shown on the page
    if value < GOOD:
        return "check"
    return "trust" if low >= GOOD else "fair"


def _quality(row: TagRow) -> tuple[bool, float]:
    f1 = (row.estimated or row.tested or {}).get("f1")
    return row.verdict not in ("few", "unverified", "never"), f1.value if f1 else -1.0
