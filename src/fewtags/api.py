"""The verbs of the library: train, load, evaluate, write_report. The command line says the same words."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewtags.data import Catalogue, Role, read
from fewtags.data.readers.vectors import catalogue_of_arrays, write_arrays
from fewtags.errors import UserError
from fewtags.methods import method_names
from fewtags.metrics import calibration_error, per_tag, summarise
from fewtags.model.base import BaseTagger
from fewtags.review.compare import compare
from fewtags.review.corrections import corrections_for, kept_corrections
from fewtags.training.evaluator import Record
from fewtags.training.options import TrainOptions, option_names
from fewtags.training.repeat import repeated
from fewtags.training.resolve import SHOWN_BAD, count_images, read_split
from fewtags.training.run_folder import RunFolder
from fewtags.training.train import free_name
from fewtags.training.train import train as run_training
from fewtags.utils.files import write_json
from fewtags.utils.progress import Report, reporting, say
from fewtags.utils.stopping import StopRequest

__all__ = ["Run", "data_of", "evaluate", "load", "train", "write_report"]


@dataclass(frozen=True)
class Run:
    """A finished run."""

    path: Path
    result: dict[str, Any]  # figures on the test split (if there is one), seconds, peak memory
    method: str = "auto"  # as `train` was told: loading a model may import a module only if somebody named it

    @property
    def records(self) -> list[Record]:
        """What was measured in every epoch."""
        return RunFolder(self.path).records()

    def tagger(self) -> BaseTagger:
        """The trained model, ready to tag."""
        return load(self.path, methods=[self.method])


def train(
    data: str | Path | None = None,
    *,
    vectors: ArrayLike | None = None,
    ids: Sequence[str] | None = None,
    tags: str | Sequence[str] | None = None,
    progress: Report = True,
    stop: StopRequest | None = None,
    **options: Any,
) -> Run:
    """Learn from the labelled and unlabelled images of `data` and tag the latter; the result is a run folder.

    The options are those of `fewtags train`, see fewtags.training.options.TrainOptions; settings are those that
    `fewtags methods NAME` lists. In the place of `data`, vectors [n, D] that somebody computed already, with labels
    [n, K] of 1, 0 or -1 for unknown, ids of the rows and names of the tags. Tags of a folder may be named
    too; they then need no label. Progress is shown (True), kept silent (False), or told to a function.

    >>> run = fewtags.train("photos", out="run")                             # doctest: +SKIP
    >>> run = fewtags.train(vectors=X, labels=Y, tags=["sea", "dog"])        # doctest: +SKIP
    """
    stop = stop or StopRequest()
    with reporting(progress):
        if vectors is not None:
            if data is not None:
                raise UserError("give data or vectors, not both")
            return _train_on_arrays(vectors, ids, tags, stop, options)
        if ids is not None:
            raise UserError("ids name the rows of vectors=…; data brings its own")
        if tags is not None:
            options["tags"] = tags
        if data is None:
            raise UserError("name the data: a folder of images, or vectors=…")
        if options.get("with_review"):
            return _train_again(Path(data), stop, options)
        return _trained(TrainOptions.of({"data": data, **options}), stop)


# what an editor shows: the options, each by its name
train.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        *(one for one in inspect.signature(train).parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in TrainOptions.defaults().items()
            if name not in ("data", "tags")
        ),
    ],
    return_annotation=Run,
)


def load(run: str | Path, methods: Sequence[str] = ()) -> BaseTagger:
    """The trained model of a run, of an exported folder or of an exported .onnx file, ready to tag.

    methods: importable modules of methods that are not part of fewtags, for models that were trained with one; no file
    decides by itself which code is imported.

    >>> fewtags.load("run").tag(["a.jpg"])    # doctest: +SKIP
    [Tagging(image='a.jpg', tags=['boat'], scores={...})]
    """
    file = Path(run)
    if file.suffix.lower() == ".onnx" and not file.is_dir():
        from fewtags.model.onnx_tagger import OnnxTagger

        return OnnxTagger(file)
    from fewtags.model.tagger import Tagger

    return Tagger(file, methods)


def evaluate(
    run: str | Path,
    data: str | Path | None = None,
    *,
    labels: str | Path | None = None,
    methods: Sequence[str] = (),
) -> dict[str, Any]:
    """How good a run's model is on the test images of its own data, or on the labelled images of other data.

    Returns the summary (map, cf1, of1, …, in 0..1) and under "per_tag" a row for every tag.
    """
    folder = RunFolder(Path(run))
    tagger = load(folder.path, methods)
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
        "calibration_error": calibration_error(scores[good], truth[good]) if tagger.calibrated else None,
        "per_tag": table,
    }


def write_report(run: str | Path, out: str | Path | None = None) -> Path:
    """Write one self-contained HTML file about a finished run, by default RUN/report.html; returns where it is.

    >>> fewtags.write_report("run")    # doctest: +SKIP
    """
    from fewtags.report import write_report as write

    return write(Path(run), None if out is None else Path(out))


def data_of(folder: RunFolder) -> Catalogue:
    """The data that a run was trained on, split as it was then, with the decisions that it learned from."""
    config = folder.config()
    kept = None if config.review is None else kept_corrections(folder.path, config.review)
    seed, tags = config.recipe.seed, config.given_tags
    return read_split(config.data, config.labels, config.labelled, seed, config.split, kept, tags)


def _trained(options: TrainOptions, stop: StopRequest, *rest: Any) -> Run:
    folder = run_training(options, stop, *rest)
    return Run(folder.path, folder.result(), options.method)


def _train_on_arrays(
    vectors: ArrayLike,
    ids: Sequence[str] | None,
    tags: str | Sequence[str] | None,
    stop: StopRequest,
    given: dict[str, Any],
) -> Run:
    """Vectors and labels in memory; the run folder keeps them, so that every other verb can read them again."""
    labels = given.pop("labels", None)
    options = TrainOptions.of({"data": "vectors:arrays", **given})
    if options.with_review:
        raise UserError("with_review learns again from a run folder; give it as data, without vectors")
    catalogue = catalogue_of_arrays(vectors, labels, ids, tags)
    out = options.out or free_name(options.data, options.method, options.seed, options.resume)
    file = out / "vectors.npz"
    options = options.model_copy(update={"data": f"vectors:{file}", "out": out})
    return _trained(options, stop, None, catalogue, lambda: write_arrays(file, catalogue))


def _train_again(run: Path, stop: StopRequest, given: dict[str, Any]) -> Run:
    """`train` as for an earlier run, with its review. Only options about how it is carried out may be given."""
    folder, out = RunFolder(run), given.get("out")
    method = folder.config().method
    if method not in method_names() and given.get("method") != method:
        raise UserError(
            f"{run} was trained with {method!r}, a method of another package, which a file must not import by itself; "
            f"name it: --method {method}"
        )
    for name in given:
        if name not in option_names("running") and not (name == "method" and given[name] == method):
            option = "set" if name == "settings" else name
            raise UserError(f"--{option}: --with-review takes the settings of {run} as they were; leave it out")
    arguments = repeated(folder)
    corrections = corrections_for(run, Path(out) if out and given.get("resume") else None)
    say(f"learning again with the data and settings of {run}")
    options = TrainOptions.of(arguments | {name: value for name, value in given.items() if name != "with_review"})
    again = _trained(options, stop, corrections)
    if "compared" in again.result:
        return again
    compared = compare(folder, RunFolder(again.path))
    result = again.result if compared is None else {**again.result, "compared": compared}
    write_json(RunFolder(again.path).result_file, result)
    return replace(again, result=result)


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
