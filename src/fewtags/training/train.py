"""One training run, from options to a run folder; start reading at `train`."""

import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from lightning_fabric import Fabric
from numpy.typing import NDArray

from fewtags.data import Catalogue, Role, split_spec
from fewtags.encoders.extract import EXTRACTING
from fewtags.errors import Fault, UserError
from fewtags.metrics.decisions import calibrated_thresholds, thresholds_by_name, thresholds_of_learned
from fewtags.metrics.estimate import givable_tags
from fewtags.model.network import Network
from fewtags.training.build import build_network, make_fabric, processes
from fewtags.training.config import Config
from fewtags.training.crossfit import CHOOSING, fold_steps, held_out_scores
from fewtags.training.curve import FEWER
from fewtags.training.loop import Loop, Observer, Stopwatch
from fewtags.training.options import TrainOptions
from fewtags.training.prepare import Prepared, prepare
from fewtags.training.resolve import SHOWN_BAD, Job, Relabelling, check_usable, count_images, resolve
from fewtags.training.results import Outcome, figures, write_tags
from fewtags.training.run_folder import CORRECTIONS, LEARNING, RunFolder, Watch
from fewtags.training.source import FeatureSource
from fewtags.utils.files import write_json
from fewtags.utils.progress import Overall, overall, say
from fewtags.utils.stopping import StopRequest

SHOWN_NAMES = 30  # tags whose classes are listed


def train(
    options: TrainOptions,
    stop: StopRequest,
    corrections: Relabelling | None = None,
    catalogue: Catalogue | None = None,
    keep_data: Callable[[], None] = lambda: None,
) -> RunFolder:
    """Learn from the labelled and unlabelled images and tag the latter; returns the finished run.

    corrections are laid over the labels. A catalogue that is at hand is not read again; `keep_data` then writes what
    is needed to read it later.
    """
    spent = Stopwatch()
    job = resolve(options, corrections, catalogue)
    rank, world_size = processes()
    if options.out is None and world_size > 1:
        raise UserError("several processes must agree on a folder for the run; name one with --out")
    folder = RunFolder(options.out or free_name(options.data, job.config.method, options.seed, options.resume))
    if rank == 0:
        _begin(folder, job.config, options.resume)
        keep_data()
        if corrections is not None:
            corrections.keep(folder.path)
    if options.resume and folder.finished:
        say(f"{folder.path} is finished already")
        return folder
    for note in job.catalogue.notes if rank == 0 else ():
        say(note)
    with overall(expected_seconds(job), show=rank == 0) as phases:
        return _run(job, options, folder, stop, spent, phases)


def _run(
    job: Job, options: TrainOptions, folder: RunFolder, stop: StopRequest, spent: Stopwatch, phases: Overall
) -> RunFolder:
    """From the images to a finished run."""
    fabric = make_fabric(job.recipe)
    prepared = prepare(job.catalogue, job.preparation(fabric, stop, options.workers))
    try:
        _check_bad(prepared.bad, options.strict, options.data)
        uses_unlabelled, names = job.method.uses_unlabelled, bool(job.names)
        check_usable(prepared.catalogue, uses_unlabelled, options.data, job.config.method, prepared.bad, names)
    except UserError:
        if fabric.is_global_zero and not options.resume:
            _take_back(folder)
        raise
    if fabric.is_global_zero:
        _report_bad(prepared.bad, folder)
        folder.write_split(prepared.catalogue)
        _say_what_is_learned(prepared, job)
    watch = Watch(folder, f"{job.config.digest()} {prepared.identity}", stop, fabric.is_global_zero, options.resume)
    try:
        outcome = learn(job, prepared, fabric, stop, watch, spent, phases)
    except Fault as fault:
        kept = folder.checkpoint_file
        there = f"{kept} holds the last checkpoint" if kept.exists() else "no checkpoint had been written yet"
        raise Fault(f"{fault}. {there}") from fault
    finally:
        watch.close()
    if fabric.is_global_zero:
        write_tags(folder, job.config, prepared, outcome)
        result = figures(job.config, prepared, outcome, stop)
        result["seconds"], result["cpu_seconds"] = spent.read()
        result["peak_memory_mb"] = peak_memory_mb()
        write_json(folder.result_file, result)  # the last: a run that has it is finished
    fabric.barrier()
    return folder


def learn(
    job: Job,
    prepared: Prepared,
    fabric: Fabric,
    stop: StopRequest,
    observer: Observer | None = None,
    spent: Stopwatch | None = None,
    phases: Overall | None = None,
) -> Outcome:
    """Train the network, score every image, and set the thresholds by labelled images that were left out in turn."""
    encoder, source, prefer = prepared.encoder, prepared.source, job.recipe.prefer
    network = build_network(encoder, source, job.method, job.recipe, len(job.config.tags), fabric)
    loop = Loop(network, source, job.method, job.recipe, prepared.targets, fabric, observer, spent)
    began = time.monotonic()
    first = loop.run()
    if phases is not None and loop.steps_done:
        phases.expect(CHOOSING, (time.monotonic() - began) / loop.steps_done * fold_steps(loop, job.recipe.folds))
    quick = loop.quick_scores()  # before cross-fitting, which borrows what it is made of: a run that goes on has it too
    variants = loop.variants()
    scores = _all_scores(loop, first)
    held_out = held_out_scores(job, prepared, loop, list(variants), scores, stop)
    variant = held_out.variant if held_out and held_out.variant in variants else next(iter(variants))
    job.method.take_variant(variant)
    if variant != next(iter(variants)):
        scores = _all_scores(loop, variants[variant])
    labelled = prepared.targets.labelled.numpy()
    scores.setdefault("labelled", np.empty(labelled.shape, np.float32))
    names = None
    if encoder.words and isinstance(source, FeatureSource) and "unlabelled" in scores:
        evidence = encoder.name_evidence(source.last("unlabelled", encoder.words))
        names = thresholds_by_name(scores["unlabelled"], evidence, prefer)
    calibration = None
    if held_out is None or not (held_out.targets == 1).any():
        thresholds = thresholds_of_learned(scores["labelled"], labelled, prefer)
        if names is not None:
            thresholds = np.where(np.isfinite(thresholds), thresholds, names.alone)
    else:
        pool = scores.get("unlabelled", np.empty((0, labelled.shape[1]), np.float32))
        calibration, thresholds = calibrated_thresholds(held_out.known, pool, givable_tags(labelled, names), prefer)
    own = job.method.state.get("thresholds")
    return Outcome(
        variants[variant],
        job.method.chosen_settings(),
        scores,
        held_out,
        calibration,
        thresholds.astype(np.float32),
        names,
        None if own is None else own.cpu().numpy(),
        loop.evaluator.best,
        prefer,
        quick,
    )


def expected_seconds(job: Job) -> dict[str, float]:
    """A rough guess for every phase on two cores; each corrects itself, and those after it, once it is under way."""
    images, recipe = len(job.catalogue), job.recipe
    labelled, unlabelled = (len(job.catalogue.rows(role)) for role in (Role.LABELLED, Role.UNLABELLED))
    found = {"reading the images": images / 4000}
    per_image = len(job.encoder.backbones) * (recipe.size / 448) ** 2 / 20
    if recipe.tune == "heads" and job.encoder.backbones:
        found[EXTRACTING] = math.nan  # features may be there already
    steps = [
        (stage, stage.epochs * -(-(unlabelled if stage.unlabelled_batch else labelled) // max(1, size)))
        for stage in recipe.stages(job.method.uses_unlabelled)
        for size in [stage.unlabelled_batch or stage.labelled_batch]
    ]
    each = 0.01 if recipe.tune == "heads" else 64 * per_image
    for stage, count in steps if job.method.learns_by_steps else ():
        found[LEARNING[stage.unlabelled_batch > 0]] = count * each
    if recipe.tune == "heads" and recipe.folds:
        found[CHOOSING] = sum(count for _, count in steps) * each * recipe.folds / 2
        found[FEWER] = 5.0
    return found


def _all_scores(loop: Loop, network: Network) -> dict[str, NDArray[np.float32]]:
    return {part: loop.scores(part, "plain", network).numpy() for part in loop.parts}


def _say_what_is_learned(prepared: Prepared, job: Job) -> None:
    catalogue, encoder, config = prepared.catalogue, prepared.encoder, job.config
    count = {role: len(catalogue.rows(role)) for role in Role}
    reads = (
        f"{config.backbone} at {config.recipe.size} px" if encoder.backbones else f"vectors of {encoder.width} numbers"
    )
    say(
        f"{count[Role.LABELLED]:,} labelled, {count[Role.UNLABELLED]:,} unlabelled, {count[Role.TEST]:,} test images; "
        f"{len(catalogue.tags)} tags; method {config.method}, {reads}"
    )
    labelled = catalogue.targets[catalogue.rows(Role.LABELLED)]
    missing = [tag for tag, column in zip(catalogue.tags, labelled.T, strict=True) if not (column == 1).any()]
    readers = [one.name for one in encoder.backbones if one.tag_count]  # these know every name
    unheard = [one.name for one in job.names if not one and not readers] if job.names else missing
    if never := [tag for tag in missing if tag in unheard]:
        say(f"no labelled image shows {', '.join(never)}: never given as a tag until one does")
    if by_name := [tag for tag in missing if tag not in never]:
        say(f"no labelled image shows {', '.join(by_name)}: given by name alone, to the surest images, unverified")
    if readers:
        say(f"tags' names are read by {' and '.join(readers)}")
    elif job.names:
        say("what tags' names lead to (fewtags words NAME shows more; --words changes it):")
        for one in job.names[:SHOWN_NAMES]:
            say(f"  {one.line()}")
        if len(job.names) > SHOWN_NAMES:
            say(f"  and {len(job.names) - SHOWN_NAMES} more")
    if config.recipe.protocol == "paper":
        say("protocol paper: the test split chooses the epoch, so its figures are not those of unseen images")
    for note in encoder.notes():
        say(note)


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
    (folder.path / CORRECTIONS).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.path.rmdir()


def free_name(data: str, method: str, seed: int, resume: bool) -> Path:
    """A folder below runs/ that is not there yet; to resume, the last one that is."""
    kind, rest = split_spec(data)
    stem = f"{Path(rest).resolve().name if kind == 'folder' else kind}-{method.rpartition('.')[2]}-seed{seed}"
    path, number, last = Path("runs") / stem, 1, None
    while path.exists():
        last, number = path, number + 1
        path = Path("runs") / f"{stem}-{number}"
    return last if resume and last else path


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
