"""The resolved settings of a run: what config.yaml holds, and what a resumed run is compared with."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from fewtags.errors import UserError, nearest
from fewtags.methods import Method, find_method, make_method
from fewtags.training.recipe import Recipe, default_settings

_CHANGED = {
    "data_digest": "data: other images, roles or labels than the run was started with",
    "review_digest": "review: other decisions than the run was started with",
}


class Config(BaseModel):
    """Everything that decides what a run becomes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fewtags: str  # version
    data: str
    labels: str | None = None
    labelled: float | None = None  # share that stays labelled, in benchmarks where all labels are known
    split: Literal["paper", "balanced"] = "paper"
    method: str
    method_settings: dict[str, Any]
    backbone: str
    weights: str | None = None  # a file; None: those of the backbone's package
    weights_digest: str
    recipe: Recipe
    given_tags: str | None = None  # named beside the labels, or in their place
    words: str = "off"  # whether tags' names are read: off, on, or also a person's own words for some
    tags: list[str]
    data_digest: str  # of names, roles and every label that training may see
    review: str | None = None  # the log of decisions that were laid over the labels
    review_digest: str | None = None  # of those decisions; the run keeps them in corrections.jsonl

    def to_yaml(self) -> str:
        """As written into the run folder."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True)

    @classmethod
    def from_yaml(cls, text: str, where: str) -> "Config":
        """Read what `to_yaml` wrote."""
        try:
            return cls(**yaml.safe_load(text))
        except (yaml.YAMLError, ValidationError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{where} is not the settings of a fewtags run ({reason})") from error

    def digest(self) -> str:
        """Ties a checkpoint to its run."""
        newer = {name for name in ("given_tags", "words") if getattr(self, name) == Config.model_fields[name].default}
        content = self.model_dump(exclude={"fewtags", *newer})  # checkpoints of 0.3 know nothing of them
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def differences(self, other: "Config") -> list[str]:
        """`name: ours, theirs` for every setting that is not the same."""
        ours, theirs = (_flat(config.model_dump(exclude={"fewtags"})) for config in (self, other))
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        return [
            _CHANGED[name] if name in _CHANGED else f"{name}: {_short(ours.get(name))}, now {_short(theirs.get(name))}"
            for name in names
        ]

    def build_method(self, chosen: Mapping[str, object] | None = None) -> Method:
        """The method, without state; with the settings that a training chose by itself, if there are any."""
        return make_method(self.method, {**self.method_settings, **(chosen or {})})


def resolve_settings(
    method: str,
    tune: str,
    protocol: str,
    labelled_share: float,
    small_batches: bool,
    given: Mapping[str, object],
    settings: Mapping[str, str],
    labelled_count: int | None = None,
    unlabelled_count: int = 0,
) -> tuple[Method, Recipe]:
    """Method and recipe from defaults, from named options that were given, and from `--set key=value`.

    A key of `settings` belongs to the method or to the recipe; an unknown one is refused with the nearest name.
    """
    fields = find_method(method).model_fields
    known = [*fields, *Recipe.model_fields]
    for key in settings:
        if key not in known:
            raise UserError(f"unknown setting {key!r}{nearest(key, known)} (`fewtags methods {method}` lists them)")
    values = {key: _parsed(value) for key, value in settings.items()}
    built = make_method(method, {key: value for key, value in values.items() if key in fields})
    numbers = default_settings(tune, protocol, labelled_share, small_batches, labelled_count)
    if tune == "heads" and protocol == "ours":
        numbers |= built.training(labelled_count or 1, unlabelled_count)
    numbers |= {"tune": tune, "protocol": protocol}
    numbers |= {key: value for key, value in given.items() if value is not None}
    numbers |= {key: value for key, value in values.items() if key not in fields}
    try:
        return built, Recipe(**numbers)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{first['loc'][0]}={first['input']!r}: {first['msg'].lower()}") from error


def _parsed(text: str) -> str | None:
    return None if text.lower() in {"none", "null", ""} else text


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 60 else text[:57] + "..."
