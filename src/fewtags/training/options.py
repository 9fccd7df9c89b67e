"""Everything `train` can be told: the only list of options.

The command line, `fewtags.train` in Python, `fewtags bench`, learning again with a review, the command in a report and
the table in the documents are derived from it, so an option is added here and nowhere else.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fewtags.data.labels.names import tags_text
from fewtags.encoders.kinds import PixelKind
from fewtags.errors import UserError, nearest
from fewtags.metrics.decisions import Prefer

AXIS = {"axis": True}  # what differs between the cells of a grid
RUNNING = {"running": True}  # how a run is carried out, not what becomes of it
SETTABLE = {"settable": True}  # may also be given by `--set`, which is how a grid varies it


def _option(default: Any, metavar: str | None = None, extra: Mapping[str, bool] | None = None, **bounds: Any) -> Any:
    return Field(default, json_schema_extra={"metavar": metavar, **(extra or {})}, **bounds)


class TrainOptions(BaseModel):
    """The options of `fewtags train`; what is None is filled in by `resolve`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    data: str = Field(json_schema_extra={"metavar": "DATA", **AXIS})
    """A folder with labels.csv, voc:PATH, coco:PATH, nus:PATH, npy:PATH, vectors:FILE, or scenes[:N]."""
    out: Path | None = _option(None, "RUN", RUNNING)
    """A new folder for the run; else below runs/."""
    labels: Path | None = _option(None, "FILE")
    """The labels, if not DATA/labels.csv."""
    tags: str | None = _option(None, "A,B,C")
    """Names of tags, for a folder without labels or beside its labels."""
    words: str | None = _option(None, "on|off|FILE|TEXT")
    """What tags' names say: on or off; or your words: a CSV file (tag,words), or 'sofa=couch|settee; tv=television'."""
    method: str = _option("auto", extra=AXIS)
    """`fewtags methods` lists them; or an importable module."""
    backbone: str | None = None
    """efficientnet_lite0…4, resnet18…101, hf:NAME, timm:NAME, onnx:FILE; several as A+B."""
    features: PixelKind | None = None
    """What a frozen backbone gives: pooled crops, or evidence from windows (default of auto)."""
    tune: Literal["heads", "all"] | None = None
    """What learns: heads on frozen features (default on a CPU), or all (on a GPU)."""
    labelled: float | None = _option(None, "SHARE", AXIS)
    """Hide labels until this share is left, as the papers do."""
    seed: int = _option(1, extra=AXIS, ge=0, lt=2**32)
    """Decides everything random."""
    epochs: int | None = _option(None, extra=SETTABLE, ge=0)
    """Epochs of the main stage."""
    warmup: int | None = _option(None, extra=SETTABLE, ge=0)
    """Epochs on the labelled images before it."""
    size: int | None = _option(None, "PX", SETTABLE, ge=16)
    """Side of the network's input."""
    weights: Path | None = _option(None, "FILE")
    """Backbone weights: .safetensors or .pth."""
    split: Literal["paper", "balanced"] = "paper"
    """How --labelled chooses."""
    workers: int | None = _option(None, extra=RUNNING, ge=0)
    """Processes that read pixels (--tune all)."""
    strict: bool = _option(False, extra=RUNNING)
    """Stop at images that cannot be used."""
    resume: bool = _option(False, extra=RUNNING)
    """Go on with the run in --out."""
    protocol: Literal["ours", "paper"] = "ours"
    """paper: the released schedule; the test split chooses the epoch."""
    prefer: Prefer = "balance"
    """What thresholds for tagging serve: few wrong tags, few missing ones, or both."""
    validate_: bool = _option(False, alias="validate")
    """With --tune all: keep a fifth of the labels to estimate quality."""
    settings: dict[str, Any] = _option({}, "KEY=VALUE", AXIS)
    """Settings of `fewtags methods NAME`."""
    with_review: bool = _option(False, extra=RUNNING)
    """DATA is a run: learn again with the decisions of its review."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "TrainOptions":
        """Options by name. Raises UserError for a value that cannot be, TypeError for a name that does not exist."""
        for name in given:
            if name not in option_names():
                known = option_names()
                raise TypeError(f"train() got an unexpected keyword argument {name!r}{nearest(name, known)}")
        try:
            defaults = cls.defaults()
            kept = {name: value for name, value in given.items() if value is not None or defaults[name] is None}
            return cls(**{name: _plain(value) for name, value in kept.items()})
        except ValidationError as error:
            raise _as_user_error(error) from error

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The options by name with their defaults; `data` has none."""
        return {_FIELDS[field]: info.get_default() for field, info in cls.model_fields.items()}


# `validate` is a method of pydantic's models, so the field has another name inside the class
_FIELDS = {field: info.alias or field for field, info in TrainOptions.model_fields.items()}


def option_names(marked: str | None = None, unmarked: tuple[str, ...] = ()) -> list[str]:
    """The names of options, in order: all, those with one mark, or those with none of some marks."""
    found = []
    for field, info in TrainOptions.model_fields.items():
        marks = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        if (marked is None or marks.get(marked)) and not any(marks.get(mark) for mark in unmarked):
            found.append(_FIELDS[field])
    return found


def choices(name: str) -> tuple[str, ...]:
    """The words that an option may have; none if it is free."""
    annotation = TrainOptions.model_fields[next(field for field, known in _FIELDS.items() if known == name)].annotation
    if annotation in (str, int, float, bool):
        return ()
    inner = [one for one in (annotation, *get_args(annotation)) if getattr(one, "__origin__", None) is Literal]
    return get_args(inner[0]) if inner else ()


def _plain(value: Any) -> Any:
    """A folder or file may be given as text or as a path, data too; tags in Python as a list."""
    if isinstance(value, list | tuple):
        return tags_text([str(one) for one in value])
    return str(value) if isinstance(value, Path) else value


def _as_user_error(error: ValidationError) -> UserError:
    first = error.errors()[0]
    name, value = str(first["loc"][0]), first["input"]
    if known := choices(name):
        return UserError(f"--{name} {value}: there is only {' and '.join(known)}")
    if name == "seed" and first["type"] in ("greater_than_equal", "less_than"):
        return UserError(f"--seed {value}: must be between 0 and {2**32 - 1}")
    if name == "labelled":
        return UserError(f"--labelled {value}: must be between 0 and 1; leave it out to use every label")
    option = "set" if name == "settings" else name.replace("_", "-")
    return UserError(f"--{option} {value}: {first['msg'].lower()}")
