"""The three verbs of the library: train, load, evaluate. The command line says the same words."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import fewtags
from fewtags.data import Catalogue, Role, hide, read, split_spec
from fewtags.errors import UserError
from fewtags.evaluation import per_tag, summarise
from fewtags.files import write_json
from fewtags.models import build_backbone
from fewtags.models.weights import digest
from fewtags.progress import say
from fewtags.tagging import Tagger
from fewtags.tagging.results import write_results
from fewtags.thresholds import metric_adaptive
from fewtags.training.build import build_network, make_fabric, processes
from fewtags.training.checkpoint import load_checkpoint
from fewtags.training.config import Config, resolve
from fewtags.training.judge import Record
from fewtags.training.loop import Loop
from fewtags.training.prepare import Preparation, prepare
from fewtags.training.run import RunFolder, StopRequest, Watch

SCENES_LABELLED = 0.1  # what stays labelled of the drawn scenes unless told otherwise


@dataclass(frozen=True)
class Run:
    """A finished run."""

    path: Path
    result: dict[str, Any]  # figures on the test split (if there is one), seconds, peak memory

    @property
    def records(self) -> list[Record]:
        """What was measured in every epoch."""
        return RunFolder(self.path).records()


def train(
    data: str | Path,
    *,
    out: str | Path | None = None,
    labels: str | Path | None = None,
    method: str = "d2l",
    backbone: str = "efficientnet_lite0",
    features: str = "crops",
    tune: str | None = None,
    labelled: float | None = None,
    seed: int = 1,
    epochs: int | None = None,
    warmup: int | None = None,
    size: int | None = None,
    weights: str | Path | None = None,
    split: str = "paper",
    workers: int | None = None,
    strict: bool = False,
    resume: bool = False,
    protocol: str = "ours",
    settings: Mapping[str, object] | None = None,
) -> Run:
    """Learn from the labelled and unlabelled images of `data` and tag the latter; the result is a run folder.

    The arguments are those of `fewtags train`. Settings are those that `fewtags methods NAME` lists.

    >>> run = fewtags.train("photos", method="d2l", out="run")    # doctest: +SKIP
    """
    began = time.monotonic()
    _check_choices(features=features, tune=tune, protocol=protocol, split=split)
    catalogue = _read(str(data), labels, labelled, seed, split)
    on_gpu = torch.cuda.is_available()
    tune = tune or ("all" if on_gpu or protocol == "paper" else "heads")
    built_method, recipe = resolve(
        method,
        tune,
        protocol,
        labelled_share=len(catalogue.rows(Role.LABELLED)) / max(1, int((catalogue.roles != Role.TEST).sum())),
        small_batches=split_spec(str(data))[0] == "voc",
        given={
            "seed": seed,
            "epochs": epochs,
            "warmup": warmup,
            "size": size,
            "precision": "bf16-mixed" if on_gpu and tune == "all" and torch.cuda.is_bf16_supported() else None,
        },
        settings={key: str(value) for key, value in (settings or {}).items()},
    )
    _check_usable(catalogue, built_method.uses_unlabelled, method)
    body = build_backbone(backbone, _file(weights), scaling=recipe.scaling)
    config = Config(
        fewtags=fewtags.__version__,
        data=str(data),
        labels=None if labels is None else str(labels),
        labelled=labelled,
        split=split,
        method=method,
        method_settings=built_method.model_dump(),
        backbone=backbone,
        weights=None if weights is None else str(weights),
        weights_digest=digest(body),
        recipe=recipe,
        tags=list(catalogue.tags),
        data_digest=catalogue.digest(),
    )
    folder = RunFolder(Path(out) if out else _free_name(str(data), method, seed, resume))
    rank, _ = processes()
    if rank == 0:
        folder.begin(config, resume)
    if resume and folder.finished:
        say(f"{folder.path} is finished already")
        return Run(folder.path, _result(folder))
    for note in catalogue.notes if rank == 0 else ():
        say(note)

    with StopRequest().listening() as stop:
        fabric = make_fabric(recipe)
        spare = 0 if (os.cpu_count() or 1) <= 2 else min(8, (os.cpu_count() or 1) // 2)
        how = Preparation(
            backbone=body,
            recipe=recipe,
            patches=built_method.patches,
            uses_unlabelled=built_method.uses_unlabelled,
            workers=spare if workers is None else workers,
            fabric=fabric,
            stop=stop,
        )
        prepared = prepare(catalogue, how)
        _report_bad(prepared.bad, folder, strict, fabric.is_global_zero)
        _check_usable(prepared.catalogue, built_method.uses_unlabelled, method)
        if fabric.is_global_zero:
            folder.write_split(prepared.catalogue)
            _say_what_is_learned(prepared.catalogue, config)
        network = build_network(body, built_method, recipe, len(catalogue.tags), fabric)
        watch = Watch(folder, config, stop, fabric.is_global_zero)
        loop = Loop(network, prepared.source, built_method, recipe, prepared.targets, fabric, watch)
        if resume and folder.checkpoint_file.exists():
            load_checkpoint(loop, folder.checkpoint_file, config.digest())
        if fabric.is_global_zero:
            folder.keep_records_before(loop.position, loop.stages)
        chosen = loop.run()
        watch.close()
        scores: dict[str, NDArray[np.float32]] = {
            part: loop.scores(part, "plain", chosen).numpy() for part in loop.parts
        }
        thresholds = metric_adaptive(scores["labelled"], prepared.targets.labelled.numpy(), "f1")
        if fabric.is_global_zero:
            result = write_results(folder, config, body, chosen, prepared, scores, thresholds, loop.judge.best)
            result["seconds"] = round(time.monotonic() - began, 1)
            result["peak_memory_mb"] = peak_memory_mb()
            write_json(folder.path / "result.json", result)
        fabric.barrier()
    return Run(folder.path, _result(folder))


def load(run: str | Path) -> Tagger:
    """The trained model of a run, ready to tag.

    >>> fewtags.load("run").tag(["a.jpg"])    # doctest: +SKIP
    [Tagging(image='a.jpg', tags=['boat'], scores={...})]
    """
    return Tagger(run)


def evaluate(run: str | Path, data: str | Path | None = None, *, labels: str | Path | None = None) -> dict[str, Any]:
    """How good a run's model is on the test images of its own data, or on the labelled images of other data.

    Returns the summary (map, cf1, of1, …, in 0..1) and under "per_tag" a row for every tag.
    """
    folder = RunFolder(Path(run))
    tagger = Tagger(folder.path)
    if data is None:
        config = folder.config()
        catalogue = _read(config.data, config.labels, config.labelled, config.recipe.seed, config.split)
    else:
        catalogue = read(str(data), _file(labels))
    rows = catalogue.rows(Role.TEST)
    if not len(rows) and data is None:
        raise UserError(f"{folder.config().data} has no test images; name labelled images: fewtags evaluate {run} DATA")
    rows = rows if len(rows) else catalogue.rows(Role.LABELLED)
    truth = _targets_for(tagger.tags, catalogue)[rows]
    scores, bad = tagger.score_table(catalogue, rows)
    for name, reason in bad:
        say(f"left out: {name}: {reason}")
    good = ~np.isnan(scores).any(axis=1)
    thresholds = np.array(list(tagger.thresholds.values()))
    table = per_tag(scores[good], truth[good], thresholds, tagger.tags)
    return {
        "images": int(good.sum()),
        **summarise(scores[good], truth[good], thresholds, tagger.tags),
        "per_tag": table,
    }


def _targets_for(tags: list[str], catalogue: Catalogue) -> NDArray[np.int8]:
    """The catalogue's targets in the model's order of tags; a tag it does not have is unknown."""
    columns = {tag: place for place, tag in enumerate(catalogue.tags)}
    if not columns.keys() & set(tags):
        raise UserError(f"none of the model's tags ({', '.join(tags[:5])}, …) stands in the labels of this data")
    unknown = np.full(len(catalogue), -1, np.int8)
    return np.stack([catalogue.targets[:, columns[tag]] if tag in columns else unknown for tag in tags], axis=1)


def _read(data: str, labels: str | Path | None, labelled: float | None, seed: int, split: str) -> Catalogue:
    catalogue = read(data, _file(labels), seed=1)  # the pictures of `scenes` are the same for every seed
    if labelled is None and split_spec(data)[0] == "scenes":
        labelled = SCENES_LABELLED
    return catalogue if labelled is None else hide(catalogue, labelled, seed, split)


def _check_choices(**given: str | None) -> None:
    known = {
        "features": ("crops",),
        "tune": ("heads", "all"),
        "protocol": ("ours", "paper"),
        "split": ("paper", "balanced"),
    }
    for name, value in given.items():
        if value is not None and value not in known[name]:
            raise UserError(f"--{name} {value}: there is only {' and '.join(known[name])}")


def _check_usable(catalogue: Catalogue, uses_unlabelled: bool, method: str) -> None:
    labelled = catalogue.targets[catalogue.rows(Role.LABELLED)]
    if not (labelled == 1).any():
        raise UserError("no labelled image carries a tag; there is nothing to learn from")
    if uses_unlabelled and not len(catalogue.rows(Role.UNLABELLED)):
        raise UserError(
            f"every image is labelled, so {method} has nothing to learn from: hide some with --labelled 0.05, "
            "or learn from labels alone with --method asl"
        )


def _say_what_is_learned(catalogue: Catalogue, config: Config) -> None:
    count = {role: len(catalogue.rows(role)) for role in Role}
    say(
        f"{count[Role.LABELLED]:,} labelled, {count[Role.UNLABELLED]:,} unlabelled, {count[Role.TEST]:,} test images; "
        f"{len(catalogue.tags)} tags; method {config.method}, {config.backbone} at {config.recipe.size} px"
    )
    labelled = catalogue.targets[catalogue.rows(Role.LABELLED)]
    missing = [tag for tag, column in zip(catalogue.tags, labelled.T, strict=True) if not (column == 1).any()]
    if missing:
        say(f"no labelled image shows {', '.join(missing)}: never given as a tag until one does")
    if config.recipe.protocol == "paper":
        say("protocol paper: the test split chooses the epoch, so its figures are not those of unseen images")


def _report_bad(bad: list[tuple[str, str]], folder: RunFolder, strict: bool, first_process: bool) -> None:
    if first_process:
        folder.write_bad(bad)
        if bad:
            say(f"{len(bad)} image{'s' if len(bad) > 1 else ''} cannot be used: {folder.bad_file} lists the reasons")
    if bad and strict:
        raise UserError(f"--strict: {bad[0][0]}: {bad[0][1]} ({len(bad)} in all, listed in {folder.bad_file})")


def _free_name(data: str, method: str, seed: int, resume: bool) -> Path:
    kind, rest = split_spec(data)
    stem = f"{Path(rest).resolve().name if kind == 'folder' else kind}-{method.rpartition('.')[2]}-seed{seed}"
    number, path = 1, Path("runs") / stem
    while path.exists() and not resume:
        number += 1
        path = Path("runs") / f"{stem}-{number}"
    return path


def _file(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def _result(folder: RunFolder) -> dict[str, Any]:
    import json

    content: dict[str, Any] = json.loads((folder.path / "result.json").read_text(encoding="utf-8"))
    return content


def peak_memory_mb() -> int | None:
    """The most memory this process has held, where the system tells."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
