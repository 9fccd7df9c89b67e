"""The command that makes a run again, from its settings."""

import shlex
from pathlib import Path
from typing import Any

from fewtags.data import split_spec
from fewtags.errors import UserError
from fewtags.report.facts import Facts
from fewtags.training.config import Config, resolve

# options of the recipe; its other settings go by --set
OPTIONS = ("seed", "epochs", "warmup", "size", "features", "tune", "protocol", "prefer")
FOLLOWS = {"fewtags", "data", "method_settings", "weights_digest", "recipe", "tags", "data_digest"}  # no options
FOLLOWS |= {"review", "review_digest"}


def command(facts: Facts) -> str:
    """`fewtags train …` with every choice named, and no setting that would be the same anyway."""
    config = facts.config
    if config.review:
        return shlex.join(["fewtags", "train", str(Path(config.review).parent), "--with-review", "--out", "again"])
    fields = {name: field for name, field in Config.model_fields.items() if name not in FOLLOWS}
    named = {name: getattr(config, name) for name, field in fields.items() if getattr(config, name) != field.default}
    named |= {name: getattr(config.recipe, name) for name in OPTIONS}
    words = ["fewtags", "train", config.data]
    for name, value in named.items():
        words += [f"--{name}", str(value)]
    words += ["--validate"] if facts.kept_back else []
    changed = _changed(facts)
    words += ["--set", *changed] if changed else []
    return shlex.join([*words, "--out", "again"])


def _changed(facts: Facts) -> list[str]:
    """`key=value` for all that would have another value without it."""
    ours = facts.config.method_settings | facts.config.recipe.model_dump(exclude=set(OPTIONS))
    try:
        usual = _usual(facts)
    except UserError:  # a method of the user's own that is not at hand: then every setting is named
        usual = {}
    return [f"{key}={'none' if value is None else value}" for key, value in ours.items() if value != usual.get(key)]


def _usual(facts: Facts) -> dict[str, Any]:
    """What every setting is for these options and so many images, unless told otherwise."""
    config = facts.config
    labelled, unlabelled = len(facts.names["labelled"]), len(facts.names["unlabelled"])
    method, recipe = resolve(
        config.method,
        config.recipe.tune,
        config.recipe.protocol,
        labelled_share=labelled / max(1, labelled + unlabelled),
        small_batches=split_spec(config.data)[0] == "voc",
        given={name: getattr(config.recipe, name) for name in OPTIONS},
        settings={},
        labelled_count=labelled,
        unlabelled_count=unlabelled,
    )
    return method.model_dump() | recipe.model_dump()
