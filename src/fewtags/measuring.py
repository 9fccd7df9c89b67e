"""A trained model in use: load it, and evaluate it on images whose tags are known."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewtags.data import Catalogue, Role, read
from fewtags.errors import UserError
from fewtags.metrics import per_tag, summarise
from fewtags.model.onnx_tagger import OnnxTagger
from fewtags.model.tagger import Tagger
from fewtags.review.corrections import kept_corrections
from fewtags.training.resolve import SHOWN_BAD, count_images, read_split
from fewtags.training.run_folder import RunFolder
from fewtags.utils.progress import say


def load(run: str | Path) -> Tagger | OnnxTagger:
    """The trained model of a run, of an exported folder or of an exported .onnx file, ready to tag.

    >>> fewtags.load("run").tag(["a.jpg"])    # doctest: +SKIP
    [Tagging(image='a.jpg', tags=['boat'], scores={...})]
    """
    file = Path(run)
    return OnnxTagger(file) if file.suffix.lower() == ".onnx" and not file.is_dir() else Tagger(file)


def evaluate(run: str | Path, data: str | Path | None = None, *, labels: str | Path | None = None) -> dict[str, Any]:
    """How good a run's model is on the test images of its own data, or on the labelled images of other data.

    Returns the summary (map, cf1, of1, …, in 0..1) and under "per_tag" a row for every tag.
    """
    folder = RunFolder(Path(run))
    tagger = load(folder.path)
    if data is None and not folder.config_file.is_file():
        raise UserError(f"{run} is a model without its run; name labelled images: fewtags evaluate {run} DATA")
    catalogue = _own_data(folder) if data is None else read(str(data), None if labels is None else Path(labels))
    rows = catalogue.rows(Role.TEST)
    if not len(rows) and data is None:
        raise UserError(f"{folder.config().data} has no test images; name labelled images: fewtags evaluate {run} DATA")
    rows = rows if len(rows) else catalogue.rows(Role.LABELLED)
    if not len(rows):
        raise UserError(f"{data}: no labelled image to compare with; label some in its labels.csv")
    truth = _targets_for(tagger.tags, catalogue, data)[rows]
    scores, bad = tagger.score_table(catalogue, rows)
    good = ~np.isnan(scores).any(axis=1)
    if not good.any():
        raise UserError(f"{data or run}: none of the {len(rows):,} images can be read, so there is nothing to compare")
    if bad:
        say(f"{count_images(bad)} cannot be used and {'is' if len(bad) == 1 else 'are'} left out:")
        for name, reason in bad[:SHOWN_BAD]:
            say(f"  {name}: {reason}")
    thresholds = np.array(list(tagger.thresholds.values()))
    table = per_tag(scores[good], truth[good], thresholds, tagger.tags)
    return {
        "images": int(good.sum()),
        **summarise(scores[good], truth[good], thresholds, tagger.tags),
        "per_tag": table,
    }


def data_of(folder: RunFolder) -> Catalogue:
    """The data that a run was trained on, split as it was then, with the decisions that it learned from."""
    config = folder.config()
    kept = None if config.review is None else kept_corrections(folder.path, config.review)
    return read_split(config.data, config.labels, config.labelled, config.recipe.seed, config.split, kept)


def _own_data(folder: RunFolder) -> Catalogue:
    """As `data_of`, for `evaluate`: which can do with other data."""
    try:
        return data_of(folder)
    except UserError as error:
        raise UserError(
            f"{error}\n  {folder.path} was trained on this data and it is needed again; "
            f"or name other labelled images: fewtags evaluate {folder.path} DATA"
        ) from error


def _targets_for(tags: list[str], catalogue: Catalogue, data: str | Path | None) -> NDArray[np.int8]:
    """The catalogue's targets in the model's order of tags; a tag it does not have is unknown."""
    columns = {tag: place for place, tag in enumerate(catalogue.tags)}
    if not columns.keys() & set(tags):
        theirs, ours = (", ".join(some[:5]) + (", …" if len(some) > 5 else "") for some in (catalogue.tags, tags))
        raise UserError(
            f"{data}: the model knows none of its tags ({theirs}); the model's are {ours}. Use the same words for both"
        )
    unknown = np.full(len(catalogue), -1, np.int8)
    return np.stack([catalogue.targets[:, columns[tag]] if tag in columns else unknown for tag in tags], axis=1)
