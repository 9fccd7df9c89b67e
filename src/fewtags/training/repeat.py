"""The options that repeat a run, from what its folder holds."""

import shlex
from pathlib import Path
from typing import Any

from fewtags.errors import UserError
from fewtags.methods import method_names
from fewtags.training.config import Config, resolve_settings
from fewtags.training.options import option_names
from fewtags.training.recipe import Recipe, small_batches
from fewtags.training.resolve import ON
from fewtags.training.run_folder import RunFolder
from fewtags.words import OFF


def repeated(folder: RunFolder) -> dict[str, Any]:
    """The options of `train` that repeat a run, every setting named."""
    config = folder.config()
    named = _named(config) | {"validate": bool(folder.split()["held_out"])}
    return named | {"settings": _settings(config)}


def command(config: Config, labelled: int, unlabelled: int, validated: bool) -> str:
    """`fewtags train …` with every choice named, and no setting that would be the same anyway."""
    if config.review:
        return shlex.join(["fewtags", "train", str(Path(config.review).parent), "--with-review", "--out", "again"])
    named = _named(config)
    defaults = {name: field.default for name, field in Config.model_fields.items()}
    # names are read where they can be, unless told otherwise
    defaults["words"] = ON if config.recipe.tune == "heads" and config.recipe.features == "evidence" else OFF
    words = ["fewtags", "train", str(named.pop("data"))]
    for name, value in named.items():
        if value is not None and not (name in defaults and value == defaults[name]):
            words += [f"--{name}", str(value)]
    words += ["--validate"] if validated else []
    changed = _changed(config, labelled, unlabelled)
    words += ["--set", *changed] if changed else []
    return shlex.join([*words, "--out", "again"])


def _named(config: Config) -> dict[str, Any]:
    """Options that have a name of their own and decide what a run becomes."""
    found: dict[str, Any] = {}
    for name in option_names(unmarked=("running",)):
        if name == "tags":  # the config's are those of the labels too
            found[name] = config.given_tags
        elif name in Config.model_fields:
            found[name] = getattr(config, name)
        elif name in Recipe.model_fields:
            found[name] = getattr(config.recipe, name)
    for name in config.recipe.meaningless_options():
        found[name] = None
    return found


def _settings(config: Config) -> dict[str, Any]:
    named = set(option_names())
    return config.method_settings | config.recipe.model_dump(exclude=named)


def _changed(config: Config, labelled: int, unlabelled: int) -> list[str]:
    """`key=value` for all that would have another value without it."""
    try:
        usual = _usual(config, labelled, unlabelled)
    except UserError:  # a method of the user's own that is not at hand: then every setting is named
        usual = {}
    ours = _settings(config)
    return [f"{key}={'none' if value is None else value}" for key, value in ours.items() if value != usual.get(key)]


def _usual(config: Config, labelled: int, unlabelled: int) -> dict[str, Any]:
    """What every setting is for these options and so many images, unless told otherwise."""
    if config.method not in method_names():  # a file must not decide which code is imported
        raise UserError(f"{config.method} is a method of another package")
    recipe = config.recipe
    method, usual = resolve_settings(
        config.method,
        recipe.tune,
        recipe.protocol,
        labelled_share=labelled / max(1, labelled + unlabelled),
        small_batches=small_batches(config.data),
        given={name: getattr(recipe, name) for name in option_names() if name in Recipe.model_fields},
        settings={},
        labelled_count=labelled,
        unlabelled_count=unlabelled,
    )
    return method.model_dump() | usual.model_dump()
