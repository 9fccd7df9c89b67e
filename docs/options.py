"""Writes docs/options.md: every option of `fewtags train`, from the one list of them.

python docs/options.py
"""

from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from fewtags.training.options import TrainOptions, choices, option_names

PAGE = Path(__file__).with_name("options.md")
HEAD = """# Options of train

Every option of `fewtags train`, of `fewtags.train` in Python and of the runs of `fewtags bench`. `docs/options.py`
writes this page from `fewtags.training.options.TrainOptions`, the only list of options.

In Python an option is a keyword argument with `_` in place of `-`: `--with-review` is `with_review=True`, and
`--set key=value` is `settings={"key": value}`. A default of – means that fewtags decides by the data and the machine.

| option | in Python | values | default | meaning |
|---|---|---|---|---|
"""
FOOT = """
`fewtags bench run` takes {shared}
with the same meaning. It varies `--method`, `--labelled`, `--seed` and `--set` over lists, and carries out its runs
itself.

`fewtags methods NAME` lists the settings of a method and of the training, for `--set`.
"""
WORDS = {int: "a whole number", float: "a number", str: "text", Path: "a path", bool: "a switch", dict: "`KEY=VALUE …`"}


def page() -> str:
    """The whole page."""
    rows = "".join(f"| {' | '.join(cells(name))} |\n" for name in option_names())
    *most, last = [f"`{flag(name)}`" for name in option_names(unmarked=("axis", "running"))]
    return HEAD + rows + FOOT.format(shared=f"{', '.join(most)} and {last}")


def cells(name: str) -> tuple[str, ...]:
    """One row of the table."""
    info = TrainOptions.model_fields["validate_" if name == "validate" else name]
    default = info.get_default()
    meaning = " ".join((info.description or "").split()).replace("|", "\\|")
    written = "required" if info.is_required() else "–" if default in (None, {}) else f"`{default}`"
    if isinstance(default, bool):
        written = "off"
    return f"`{flag(name)}`", f"`{name}`", values(name, info), written, meaning


def flag(name: str) -> str:
    """As it is typed."""
    return {"data": "DATA", "settings": "--set"}.get(name, f"--{name.replace('_', '-')}")


def values(name: str, info: Any) -> str:
    """What may be given, in words."""
    if words := choices(name):
        return ", ".join(f"`{word}`" for word in words)
    kinds = [one for one in _kinds(info.annotation) if one is not type(None)]
    bounds = [
        f"{sign} {getattr(bound, key)}"
        for bound in info.metadata
        for key, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
        if hasattr(bound, key)
    ]
    return ", ".join([WORDS[kinds[0]], *([" and ".join(bounds)] if bounds else [])])


def _kinds(annotation: Any) -> list[Any]:
    if isinstance(annotation, UnionType):
        return [kind for one in get_args(annotation) for kind in _kinds(one)]
    return [get_origin(annotation) or annotation]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
