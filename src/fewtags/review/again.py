"""A run repeated with its review: the decisions to learn from, and the arguments of `train` that repeat it."""

from pathlib import Path
from typing import Any

from fewtags.review.corrections import Corrections, corrections_of, kept_corrections
from fewtags.training.resolve import OPTIONS_ONLY
from fewtags.training.run_folder import RunFolder


def decisions_for(run: Path, resumed: Path | None) -> Corrections:
    """The decisions to learn from; a run that is resumed goes on with those it began with."""
    if resumed is not None and RunFolder(resumed).config_file.is_file():
        kept = kept_corrections(resumed, RunFolder(resumed).config().review or "")
        if kept is not None:
            return kept
    return corrections_of(run)


def arguments_of(folder: RunFolder) -> dict[str, Any]:
    """The arguments of `train` that repeat a run."""
    config, recipe = folder.config(), folder.config().recipe
    return {
        "data": config.data,
        "labels": config.labels,
        "method": config.method,
        "backbone": config.backbone,
        "features": recipe.features if recipe.tune == "heads" else None,
        "tune": recipe.tune,
        "labelled": config.labelled,
        "seed": recipe.seed,
        "size": recipe.size,
        "weights": config.weights,
        "split": config.split,
        "protocol": recipe.protocol,
        "prefer": recipe.prefer,
        "validate": bool(folder.split()["held_out"]),
        "settings": config.method_settings | recipe.model_dump(exclude=set(OPTIONS_ONLY)),
    }
