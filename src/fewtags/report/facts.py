"""The data of a finished run, read once and checked, for all parts of the report."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewtags.errors import UserError
from fewtags.training.config import Config
from fewtags.training.evaluator import Record
from fewtags.training.run_folder import RunFolder

PARTS = ("labelled", "unlabelled", "test", "held_out")


@dataclass(frozen=True)
class Facts:
    """A finished run. Tables have one row per image of their part and one column per tag."""

    path: Path
    config: Config
    names: dict[str, list[str]]  # images of every part; held_out: those with out-of-fold or validation scores
    kept_back: bool  # the held-out images are a validation split, not the labelled images themselves
    tables: dict[str, NDArray[Any]]  # see RunFolder.scores
    thresholds: NDArray[np.float64]  # [K], infinite for a tag that is never given
    result: dict[str, Any]
    records: list[Record]

    @property
    def tags(self) -> list[str]:
        """The K tags."""
        return self.config.tags

    @property
    def labelled(self) -> int:
        """Images that came with labels."""
        return len(self.names["labelled"]) + self.kept_back * len(self.names["held_out"])

    @property
    def held_out(self) -> tuple[NDArray[np.float32], NDArray[np.int8]] | None:
        """Scores [n, K] by models that were not trained on these images, and their labels [n, K]."""
        if "held_out" not in self.tables or "held_out_targets" not in self.tables:
            return None
        return self.tables["held_out"], self.tables["held_out_targets"]

    @property
    def estimate(self) -> dict[str, Any] | None:
        """The quality estimated on the labelled images; None for older runs."""
        return self.result.get("estimate")

    @cached_property
    def part(self) -> str:
        """The part that the report is about: unlabelled images, else test images, else labelled ones."""
        return next((part for part in ("unlabelled", "test") if self.names[part]), "labelled")

    @cached_property
    def scores(self) -> NDArray[np.float32]:
        """Scores [n, K] of the images that the report is about."""
        return self.tables[self.part]

    @cached_property
    def given(self) -> NDArray[np.bool_]:
        """Which tags these images get [n, K]."""
        return self.scores >= self.thresholds


def read_facts(path: Path) -> Facts:
    """Read a run folder. Raises UserError if it is not a run, not finished or inconsistent."""
    folder = RunFolder(path)
    config = folder.config()
    if not folder.finished:
        raise UserError(f"{path}: its training has not ended; go on with `fewtags train … --resume`")
    names = folder.split()
    tables = folder.scores()
    if "test" not in tables:
        names["test"] = []  # no test image shows any of the tags, so they were not evaluated
    kept_back = bool(names["held_out"])
    facts = Facts(
        path,
        config,
        names if kept_back else names | {"held_out": names["labelled"]},
        kept_back,
        tables,
        _thresholds(folder.model_folder / "model.json", len(config.tags)),
        folder.result(),
        folder.records(),
    )
    _check_outlook(facts.result, folder.result_file)
    for part in PARTS:
        _check_table(facts, part, part, folder.scores_file)
        _check_table(facts, f"{part}_targets", part, folder.scores_file)
    return facts


def _check_outlook(result: dict[str, Any], file: Path) -> None:
    """Refuse what the section on more labels could not show."""
    curve, held_back, compared = (result.get(name) for name in ("learning_curve", "not_given", "compared"))
    try:
        steps = [] if curve is None else [(int(step["labels"]), float(step["map"])) for step in curve["next"]]
        gains = [] if curve is None else [float(gain) for step in curve["next"] for gain in step["per_tag"].values()]
        rows = [(str(row["tag"]), int(row["more_labels"])) for row in held_back or ()]
        whole = curve is None or (steps and gains and [int(size) for size in curve["labels"]])
        if not whole or (compared is not None and not compared["text"]):
            raise ValueError(f"nothing to show, {len(rows)} tags not given")  # noqa: TRY301 - one message for all
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file} is damaged (what more labels would bring: {error}); train again") from error


def _check_table(facts: Facts, name: str, part: str, file: Path) -> None:
    images, expected = len(facts.names[part]), (len(facts.names[part]), len(facts.tags))
    found = facts.tables.get(name)
    if found is None and images and name in PARTS[:3]:
        raise UserError(f"{file}: no scores of the {images:,} {part} images of split.csv; train again")
    if found is not None and found.shape != expected:
        raise UserError(f"{file}: {name} is {found.shape}, split.csv and config.yaml say {expected}; train again")


def _thresholds(file: Path, tags: int) -> NDArray[np.float64]:
    values = _json(file).get("thresholds")
    if not isinstance(values, list) or len(values) != tags:
        raise UserError(f"{file} is damaged (thresholds): there must be one for each of the {tags} tags; train again")
    return np.array([np.inf if value is None else value for value in values], np.float64)


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); train again") from error
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}); train again") from error
    if not isinstance(content, dict):
        raise UserError(f"{file} is damaged (no JSON object); train again")
    return content
