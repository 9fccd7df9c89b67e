"""The verbs of the library: train, load, evaluate, write_report. The command line says the same words."""

import contextlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewtags.data import Catalogue, Role, split_spec
from fewtags.encoders.evidence import Choice
from fewtags.errors import Fault, UserError
from fewtags.measuring import data_of, evaluate, load
from fewtags.metrics.estimate import tagging_thresholds
from fewtags.review.again import arguments_of, decisions_for
from fewtags.review.corrections import KEPT, Corrections
from fewtags.training.build import build_network, make_fabric, processes
from fewtags.training.checkpoint import load_checkpoint, save_checkpoint
from fewtags.training.config import Config
from fewtags.training.crossfit import held_out_scores
from fewtags.training.evaluator import Record
from fewtags.training.loop import Loop, Stopwatch
from fewtags.training.prepare import prepare
from fewtags.training.recipe import Recipe
from fewtags.training.resolve import SHOWN_BAD, check_usable, count_images, settle
from fewtags.training.results import Outcome, write_results
from fewtags.training.run_folder import RunFolder, Watch
from fewtags.utils.files import write_json
from fewtags.utils.progress import say
from fewtags.utils.stopping import StopRequest

WITH_REVIEW = ("data", "out", "workers", "strict", "resume", "with_review")  # the rest is that of the earlier run
KIND_WORDS = {"both": "both kinds", "evidence": "evidence of windows", "pooled": "pooled vectors"}
__all__ = ["Run", "data_of", "evaluate", "load", "train", "write_report"]


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
    method: str = "auto",
    backbone: str | None = None,
    features: str | None = None,
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
    prefer: str = "balance",
    validate: bool = False,
    settings: Mapping[str, object] | None = None,
    with_review: bool = False,
    corrections: Corrections | None = None,
) -> Run:
    """Learn from the labelled and unlabelled images of `data` and tag the latter; the result is a run folder.

    The arguments are those of `fewtags train`. Settings are those that `fewtags methods NAME` lists. `with_review`
    makes `data` a run folder, whose data and settings are taken again with its review laid over the labels;
    `corrections` are such decisions read already.

    >>> run = fewtags.train("photos", out="run")    # doctest: +SKIP
    """
    if with_review:
        return _train_again(locals())
    spent = Stopwatch()
    job = settle(
        str(data),
        labels=labels,
        method=method,
        backbone=backbone,
        features=features,
        tune=tune,
        labelled=labelled,
        seed=seed,
        epochs=epochs,
        warmup=warmup,
        size=size,
        weights=weights,
        split=split,
        protocol=protocol,
        prefer=prefer,
        validate=validate,
        settings=settings,
        corrections=corrections,
    )
    config, recipe, built_method, backbones = job.config, job.recipe, job.method, job.backbones
    rank, world_size = processes()
    if out is None and world_size > 1:
        raise UserError("several processes must agree on a folder for the run; name one with --out")
    folder = RunFolder(Path(out) if out else _free_name(str(data), config.method, seed, resume))
    if rank == 0:
        _begin(folder, config, resume)
        if corrections is not None:
            corrections.keep(folder.path)
    if resume and folder.finished and _result_file(folder).exists():
        say(f"{folder.path} is finished already")
        return Run(folder.path, _result(folder))
    for note in job.catalogue.notes if rank == 0 else ():
        say(note)

    with StopRequest().listening() as stop:
        fabric = make_fabric(recipe)
        prepared = prepare(job.catalogue, job.preparation(fabric, stop, workers))
        try:
            _check_bad(prepared.bad, strict, data)
            check_usable(prepared.catalogue, built_method.uses_unlabelled, data, config.method, prepared.bad)
        except UserError:
            if fabric.is_global_zero and not resume:
                _take_back(folder)
            raise
        if fabric.is_global_zero:
            _report_bad(prepared.bad, folder)
            folder.write_split(prepared.catalogue)
            _say_what_is_learned(prepared.catalogue, config)
            _say_choice(prepared.supply.choice, recipe)
        network = build_network(backbones[0], prepared.supply, built_method, recipe, len(config.tags), fabric)
        belongs_to = f"{config.digest()} {prepared.content} {prepared.supply.digest()}"
        watch = Watch(folder, belongs_to, stop, fabric.is_global_zero)
        loop = Loop(network, prepared.supply.source, built_method, recipe, prepared.targets, fabric, watch, spent)
        if resume and folder.checkpoint_file.exists():
            load_checkpoint(loop, folder.checkpoint_file, belongs_to)
        if fabric.is_global_zero:
            folder.keep_records_before(loop.position, loop.stages)
        try:
            chosen = loop.run()
        except Fault as fault:
            kept = folder.checkpoint_file
            there = f"{kept} holds the last checkpoint" if kept.exists() else "no checkpoint had been written yet"
            raise Fault(f"{fault}. {there}") from fault
        finally:
            watch.close()
        scores: dict[str, NDArray[np.float32]] = {
            part: loop.scores(part, "plain", chosen).numpy() for part in loop.parts
        }
        if fabric.is_global_zero:
            save_checkpoint(loop, folder.checkpoint_file, belongs_to)  # whatever happens now, nothing is learned twice
        held_out = held_out_scores(job, prepared, loop, scores, stop)
        learned = scores["labelled"], prepared.targets.labelled.numpy()
        thresholds = tagging_thresholds(held_out and (held_out.scores, held_out.targets), learned, recipe.prefer)
        if fabric.is_global_zero:
            own = built_method.state.get("thresholds")
            own_thresholds = None if own is None else own.cpu().numpy()
            settled = built_method.settled()
            outcome = Outcome(chosen, settled, scores, held_out, thresholds, own_thresholds, loop.judge.best)
            result = write_results(folder, config, backbones, prepared, outcome)
            result["seconds"], result["cpu_seconds"] = spent.read()
            result["peak_memory_mb"] = peak_memory_mb()
            write_json(_result_file(folder), result)
        fabric.barrier()
    return Run(folder.path, _result(folder))


def write_report(run: str | Path, out: str | Path | None = None) -> Path:
    """Write one self-contained HTML file about a finished run, by default RUN/report.html; returns where it is.

    >>> fewtags.write_report("run")    # doctest: +SKIP
    """
    from fewtags.report import write_report as write

    return write(Path(run), _file(out))


def _train_again(given: Mapping[str, Any]) -> Run:
    """`train` as for an earlier run, with its review. Of the arguments only those of WITH_REVIEW may be given."""
    run = RunFolder(Path(given["data"]))
    for name, parameter in inspect.signature(train).parameters.items():
        if name not in WITH_REVIEW and given[name] not in (parameter.default, {}):
            option = "set" if name == "settings" else name
            raise UserError(f"--{option}: --with-review takes the settings of {run.path} as they were; leave it out")
    arguments = arguments_of(run)
    corrections = decisions_for(run.path, _file(given["out"]) if given["resume"] else None)
    say(f"learning again with the data and settings of {run.path}")
    kept = {name: given[name] for name in ("out", "workers", "strict", "resume")}
    return train(**kept, **arguments, corrections=corrections)


def _say_choice(choice: Choice | None, recipe: Recipe) -> None:
    if choice is None or recipe.blocks != "choose":
        return
    if not choice.tried and choice.blocks == "pooled":
        say("features: pooled vectors, for the backbone gives no map to read windows of")
        return
    if not choice.tried:
        say("too few labelled images to choose features by: pooled vectors and evidence of windows are both taken")
        return
    figures = ", ".join(f"{KIND_WORDS[kind]} {100 * value:.1f}" for kind, value in choice.tried.items())
    say(f"features: {KIND_WORDS[choice.blocks]}, by five-fold mAP on the labelled images ({figures})")


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


def _check_bad(bad: list[tuple[str, str]], strict: bool, data: str | Path) -> None:
    if bad and strict:
        shown = "".join(f"\n  {name}: {reason}" for name, reason in bad[:SHOWN_BAD])
        raise UserError(f"--strict: {count_images(bad)} cannot be used; `fewtags check {data}` lists all{shown}")


def _report_bad(bad: list[tuple[str, str]], folder: RunFolder) -> None:
    folder.write_bad(bad)
    if bad:
        say(f"{count_images(bad)} cannot be used: {folder.bad_file} lists the reasons")


def _begin(folder: RunFolder, config: Config, resume: bool) -> None:
    try:
        folder.begin(config, resume)
    except OSError as error:
        raise UserError(f"--out {folder.path} cannot be made ({error.strerror}); choose another folder") from error


def _take_back(folder: RunFolder) -> None:
    """Leave nothing of a run that could not begin."""
    folder.config_file.unlink(missing_ok=True)
    (folder.path / KEPT).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.path.rmdir()


def _free_name(data: str, method: str, seed: int, resume: bool) -> Path:
    """A folder below runs/ that is not there yet; to resume, the last one that is."""
    kind, rest = split_spec(data)
    stem = f"{Path(rest).resolve().name if kind == 'folder' else kind}-{method.rpartition('.')[2]}-seed{seed}"
    path, number, last = Path("runs") / stem, 1, None
    while path.exists():
        last, number = path, number + 1
        path = Path("runs") / f"{stem}-{number}"
    return last if resume and last else path


def _file(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def _result_file(folder: RunFolder) -> Path:
    return folder.path / "result.json"


def _result(folder: RunFolder) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_result_file(folder).read_text(encoding="utf-8"))
    return content


def peak_memory_mb() -> int | None:
    """The most memory this process has held, where the system tells."""
    with contextlib.suppress(OSError, StopIteration):  # Linux can forget the peak between two runs of one process
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) // 1024
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
