"""Everything that is decided before training begins: data with its roles, method, settings, encoder."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import torch
from lightning_fabric import Fabric

from fewtags.backbones.base import Backbone, backbone_list, build_backbone
from fewtags.backbones.weights import digest
from fewtags.data import Catalogue, Role, hide, read, split_spec
from fewtags.data.labels.names import parse_tags
from fewtags.data.vectors import VectorSource
from fewtags.encoders.base import Encoder, make_encoder
from fewtags.encoders.vectors import Vectors
from fewtags.errors import UserError
from fewtags.methods import Method, find_method
from fewtags.solvers.folds import MIN_LABELLED, balanced_folds
from fewtags.training.config import Config, resolve_settings
from fewtags.training.options import TrainOptions, option_names
from fewtags.training.prepare import Preparation
from fewtags.training.recipe import PIXEL_OPTIONS, Recipe, choose, small_batches
from fewtags.training.run_folder import RunFolder
from fewtags.utils.stopping import StopRequest
from fewtags.words import OFF, Match, own_names, parse_words, tag_weights, weight_matrix, words_text

# options of the training that `--set` refuses: each has an option of its own
OPTIONS_ONLY = tuple(name for name in option_names(unmarked=("settable",)) if name in Recipe.model_fields)
SHOWN_BAD = 5  # images that cannot be used, on the screen
ON = "on"  # tags' names are read as they are
SCENES_LABELLED = 0.1  # what stays labelled of the drawn scenes unless told otherwise


class Relabelling(Protocol):
    """Decisions that are laid over the labels; fewtags.review has them."""

    @property
    def source(self) -> str:
        """Where they come from."""
        ...

    @property
    def digest(self) -> str:
        """Ties a run to them."""
        ...

    def apply(self, catalogue: Catalogue) -> Catalogue:
        """The catalogue with them."""
        ...

    def keep(self, run: Path) -> None:
        """Write them into the folder of the run that learns from them."""
        ...


@dataclass(frozen=True)
class Job:
    """A run that could begin."""

    config: Config
    catalogue: Catalogue
    method: Method
    encoder: Encoder
    names: tuple[Match, ...] = ()  # what was found for each tag's name; empty where names are not read

    @property
    def recipe(self) -> Recipe:
        """Settings of the loop."""
        return self.config.recipe

    def preparation(self, fabric: Fabric, stop: StopRequest, workers: int | None = None) -> Preparation:
        """How the images are read; workers: processes that read pixels, by default one for two cores."""
        cores = os.cpu_count() or 1
        spare = 0 if cores <= 2 else min(8, cores // 2)
        return Preparation(
            encoder=self.encoder,
            recipe=self.recipe,
            uses_unlabelled=self.method.uses_unlabelled,
            draws_views=self.method.draws_views,
            workers=spare if workers is None else workers,
            fabric=fabric,
            stop=stop,
        )


def resolve(options: TrainOptions, corrections: Relabelling | None = None, catalogue: Catalogue | None = None) -> Job:
    """Fill in what was not said, and refuse what cannot be done; the data may be at hand already."""
    data, method, settings = options.data, options.method, options.settings
    _refuse_run_folder(data)
    _check_settings(settings)
    if catalogue is None:
        catalogue = read(
            data, options.labels, seed=1, tags=parse_tags(options.tags) if options.tags is not None else ()
        )
    elif options.tags is not None:
        raise UserError("tags of vectors are named with their labels")
    catalogue = split_labels(catalogue, data, options.labelled, options.seed, options.split, corrections)
    on_gpu = torch.cuda.is_available()
    vectors = isinstance(catalogue.images, VectorSource)
    learns_all = on_gpu and not vectors and len(catalogue.rows(Role.LABELLED)) > 0  # names are read by heads alone
    tune = options.tune or ("all" if learns_all or options.protocol == "paper" else "heads")
    if vectors:  # there is nothing to cut patches from
        settings = {"patches": 1, **settings}
    if options.validate_ and tune == "heads":
        raise UserError("--validate: with --tune heads quality is estimated from all labelled images already")
    if options.validate_:
        catalogue = hold_out(catalogue)
    labelled_count, unlabelled_count = (len(catalogue.rows(role)) for role in (Role.LABELLED, Role.UNLABELLED))
    if corrections and not unlabelled_count and method != "auto" and find_method(method).uses_unlabelled:
        note = f"no unlabelled image is left for {method}: the default takes its place"
        catalogue, method, settings = replace(catalogue, notes=(*catalogue.notes, note)), "auto", {}
        options = options.model_copy(update={"words": None})  # what is left of the default reads none
    plan = choose(method, tune, options.features, options.backbone, unlabelled_count > 0, vectors)
    method, backbone = plan.method, plan.backbone
    built_method, recipe = resolve_settings(
        method,
        tune,
        options.protocol,
        labelled_share=labelled_count / max(1, labelled_count + unlabelled_count),
        small_batches=small_batches(data),
        given={
            "seed": options.seed,
            "epochs": options.epochs,
            "warmup": options.warmup,
            "size": options.size or plan.size,
            "features": plan.features,
            "blocks": plan.blocks,
            "prefer": options.prefer,
            "precision": "bf16-mixed" if on_gpu and tune == "all" and torch.cuda.is_bf16_supported() else None,
        },
        settings={key: str(value) for key, value in settings.items()},
        labelled_count=labelled_count,
        unlabelled_count=unlabelled_count,
    )
    if recipe.warmup + recipe.epochs == 0 and built_method.learns_by_steps:
        raise UserError("--warmup 0 --epochs 0: nothing would be learned; give one of them more")
    reads_names = _reads_names(options, recipe, built_method)
    own = parse_words(options.words, catalogue.tags) if reads_names and options.words not in (None, ON) else {}
    found = tag_weights(catalogue.tags, own) if reads_names else []
    if labelled_count:  # what merely goes with a name is a guess, worth less than a few labels
        found = [Match(one.name, (), "nothing", {}) if one.how == "mentioned" else one for one in found]
    tags = [" or ".join(said) if (said := own_names(own.get(tag, ()))) else tag for tag in catalogue.tags]
    encoder, recipe, weights_digest = _encoder(
        options, catalogue, built_method, recipe, backbone, bool(plan.size), tags if reads_names else ()
    )
    knows_texts = any(one.tag_count for one in encoder.backbones)
    names = tuple(found) if (any(found) or knows_texts) and encoder.read_words(_matrix(found)) else ()
    _check_names(options, reads_names, names, found)
    if reads_names and not names and not (catalogue.targets[catalogue.rows(Role.LABELLED)] == 1).any():
        raise _nothing_to_go_by(data, found)
    check_usable(catalogue, built_method.uses_unlabelled, data, method, names=bool(names))
    config = Config(
        fewtags=version("fewtags"),
        data=data,
        labels=None if options.labels is None else str(options.labels),
        labelled=options.labelled,
        split=options.split,
        method=method,
        method_settings=built_method.model_dump(),
        backbone=backbone,
        weights=None if options.weights is None else str(options.weights),
        weights_digest=weights_digest,
        recipe=recipe,
        given_tags=options.tags,
        words=(words_text(own) or ON) if names else OFF,
        tags=list(catalogue.tags),
        data_digest=catalogue.digest(),
        review=corrections.source if corrections else None,
        review_digest=corrections.digest if corrections else None,
    )
    return Job(config, catalogue, built_method, encoder, names)


def _nothing_to_go_by(data: str, found: Sequence[Match]) -> UserError:
    names = ", ".join(one.name[:40] for one in found[:5]) + (", …" if len(found) > 5 else "")
    return UserError(
        f"{data}: no labelled image has a tag, and nothing is found for {names or 'the names of tags'}; "
        "tag a few images, or say a name in other words, such as --words 'seaside=beach|coast'"
    )


def _reads_names(options: TrainOptions, recipe: Recipe, method: Method) -> bool:
    """Whether tags' names are read: by the default on evidence, never under the papers' protocol."""
    if options.words == OFF or recipe.protocol == "paper":
        return False
    return recipe.tune == "heads" and recipe.features == "evidence" and method.reads_words


def _matrix(found: Sequence[Match]) -> torch.Tensor:
    return torch.from_numpy(weight_matrix(found))


def _check_names(options: TrainOptions, reads_names: bool, names: Sequence[Match], found: Sequence[Match]) -> None:
    """Refuse words of a person's own that nothing would read."""
    if options.words in (None, ON, OFF) or names:
        return
    if options.protocol == "paper":
        raise UserError("--words: the papers use none, so --protocol paper reads none; leave it out")
    if not reads_names:
        raise UserError("--words: only the default (--tune heads, evidence features) reads tags' names; leave it out")
    if any(found):
        raise UserError("--words: these backbones have no ImageNet classes or texts to match words with; leave it out")


def _encoder(
    options: TrainOptions,
    catalogue: Catalogue,
    method: Method,
    recipe: Recipe,
    backbone: str,
    planned_size: bool,
    tags: Sequence[str],
) -> tuple[Encoder, Recipe, str]:
    """What images become, the recipe with the size they are read at, and a digest of the weights.

    tags: whose names an image-text backbone is told.
    """
    if isinstance(catalogue.images, VectorSource):
        _check_vectors(options, method, recipe)
        return Vectors(catalogue.images.width, recipe.encoder_settings(1)), recipe, ""
    backbones = [build_backbone(one, options.weights, scaling=recipe.scaling) for one in backbone_list(backbone)]
    if not options.size and not planned_size and all(":" in one.name for one in backbones):
        recipe = recipe.model_copy(update={"size": backbones[0].size})
    _check_backbones(backbones, recipe, options.weights)
    for one in backbones:
        if one.reads_text and tags:
            one.set_tags(tags)
    encoder = make_encoder(recipe.features, backbones, recipe.encoder_settings(method.patches))
    return encoder, recipe, " ".join(digest(one) for one in backbones)


def read_split(
    data: str,
    labels: str | Path | None,
    labelled: float | None,
    seed: int,
    split: str,
    corrections: Relabelling | None = None,
    tags: str | None = None,
) -> Catalogue:
    """The data, labels hidden as asked and then corrected; the pictures of `scenes` are the same for every seed."""
    named = parse_tags(tags) if tags is not None else ()
    catalogue = read(data, None if labels is None else Path(labels), seed=1, tags=named)
    return split_labels(catalogue, data, labelled, seed, split, corrections)


def split_labels(
    catalogue: Catalogue,
    data: str,
    labelled: float | None,
    seed: int,
    split: str,
    corrections: Relabelling | None = None,
) -> Catalogue:
    """Data that was read, labels hidden as asked and then corrected."""
    if labelled is None and split_spec(data)[0] == "scenes":
        labelled = SCENES_LABELLED
    catalogue = catalogue if labelled is None else hide(catalogue, labelled, seed, split)
    return corrections.apply(catalogue) if corrections else catalogue


def hold_out(catalogue: Catalogue) -> Catalogue:
    """The catalogue with a fifth of the labelled images, balanced by tag, kept from training."""
    rows = catalogue.rows(Role.LABELLED)
    if len(rows) < 2 * MIN_LABELLED:
        raise UserError(
            f"--validate: {len(rows)} labelled images are too few to keep some back; label {2 * MIN_LABELLED}"
        )
    roles = catalogue.roles.copy()
    roles[rows[balanced_folds(catalogue.targets[rows]) == 0]] = Role.HELD_OUT
    return replace(catalogue, roles=roles)


def _refuse_run_folder(data: str) -> None:
    """A run is no data: say how to learn again from it."""
    try:
        RunFolder(Path(data)).config()
    except UserError:  # none; a folder of images may also hold a config.yaml of something else
        return
    raise UserError(
        f"{data} is a run folder, not data: add --with-review to learn again with its review, "
        "or name the folder of images"
    )


def _check_settings(settings: Mapping[str, object]) -> None:
    for key in OPTIONS_ONLY:
        if key in settings:
            raise UserError(f"--set {key}={settings[key]}: this has an option of its own, --{key} {settings[key]}")


def check_usable(
    catalogue: Catalogue,
    uses_unlabelled: bool,
    data: str | Path,
    method: str,
    bad: Sequence[tuple[str, str]] = (),
    names: bool = False,
) -> None:
    """Refuse data that nothing can be learned from; names: tags' names say something."""
    labelled = catalogue.targets[catalogue.rows(Role.LABELLED)]
    because = f" ({count_images(bad)} cannot be used, such as {bad[0][0]}: {bad[0][1]})" if bad else ""
    if not (labelled == 1).any() and not names:
        remedy = "tag a few images, then train; or let the default read names of things: --tags dog,sea"
        raise UserError(f"{data}: no labelled image has a tag{because}, and no tag's name is read; {remedy}")
    if uses_unlabelled and not len(catalogue.rows(Role.UNLABELLED)):
        raise UserError(
            f"{data}: every image is labelled{because}, and {method} learns from unlabelled ones too: hide some labels "
            "with --labelled 0.05, or learn from labels alone with --method asl"
        )


def _check_backbones(backbones: Sequence[Backbone], recipe: Recipe, weights: str | Path | None) -> None:
    several = "+".join(one.name for one in backbones)
    if len(backbones) > 1 and not recipe.several_backbones:
        raise UserError(f"--backbone {several}: several backbones stand side by side with --features evidence only")
    if recipe.tune == "all" and not any(True for _ in backbones[0].parameters()):
        raise UserError(f"--tune all: {several} cannot learn; give --tune heads, or another backbone")
    for one in backbones:
        if ":" not in one.name and not one.gives_maps(recipe.size):
            raise UserError(f"--size {recipe.size}: too small for {one.name}; give 64 px or more")
    if len(backbones) > 1 and weights is not None:
        raise UserError(f"--weights {weights}: one file cannot fill {several}; choose one backbone")


def _check_vectors(options: TrainOptions, method: Method, recipe: Recipe) -> None:
    """Options that are about pixels mean nothing for vectors."""
    for name in PIXEL_OPTIONS:
        if getattr(options, name) is not None:
            raise UserError(f"--{name}: {options.data} holds vectors, there are no images to read; leave it out")
    if recipe.tune == "all":
        raise UserError(f"{options.data} holds vectors, and --tune all trains on pixels; give --tune heads")
    if method.patches > 1:
        raise UserError(f"vectors have no patches: add --set patches=1, or choose another method than {options.method}")


def count_images(images: Sequence[object]) -> str:
    """`1 image`, `1,234 images`."""
    return f"{len(images):,} image{'' if len(images) == 1 else 's'}"
