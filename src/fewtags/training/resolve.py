"""Everything that is decided before training begins: data with its roles, method, settings, backbones."""

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
from fewtags.errors import UserError
from fewtags.methods import Method, find_method
from fewtags.solvers.folds import MIN_LABELLED, balanced_folds
from fewtags.training.config import Config, choose, resolve
from fewtags.training.prepare import Preparation
from fewtags.training.recipe import Recipe
from fewtags.training.run_folder import RunFolder, StopRequest

OPTIONS_ONLY = ("seed", "tune", "protocol", "features", "prefer")  # each has an option of its own, never `--set`
SHOWN_BAD = 5  # images that cannot be used, on the screen
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


@dataclass(frozen=True)
class Job:
    """A run that could begin."""

    config: Config
    catalogue: Catalogue
    method: Method
    backbones: Sequence[Backbone]

    @property
    def recipe(self) -> Recipe:
        """Settings of the loop."""
        return self.config.recipe

    def preparation(self, fabric: Fabric, stop: StopRequest, workers: int | None = None) -> Preparation:
        """What its images are made into; workers: processes that read pixels, by default one for two cores."""
        cores = os.cpu_count() or 1
        spare = 0 if cores <= 2 else min(8, cores // 2)
        return Preparation(
            backbones=self.backbones,
            recipe=self.recipe,
            patches=self.method.patches,
            uses_unlabelled=self.method.uses_unlabelled,
            draws_views=self.method.draws_views,
            workers=spare if workers is None else workers,
            fabric=fabric,
            stop=stop,
        )


def settle(
    data: str,
    *,
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
    protocol: str = "ours",
    prefer: str = "balance",
    validate: bool = False,
    settings: Mapping[str, object] | None = None,
    corrections: Relabelling | None = None,
) -> Job:
    """Fill in what was not said, and refuse what cannot be done; the arguments are those of `fewtags train`."""
    _refuse_run_folder(data)
    _check_choices(features=features, tune=tune, protocol=protocol, split=split, prefer=prefer)
    _check_settings(seed, settings or {})
    catalogue = read_split(data, labels, labelled, seed, split, corrections)
    on_gpu = torch.cuda.is_available()
    tune = tune or ("all" if on_gpu or protocol == "paper" else "heads")
    if tune == "all" and features == "evidence":
        raise UserError("--features evidence: features are stored with --tune heads only; add it, or leave this out")
    if validate and tune == "heads":
        raise UserError("--validate: with --tune heads quality is estimated from all labelled images already")
    if validate:
        catalogue = hold_out(catalogue)
    labelled_count, unlabelled_count = (len(catalogue.rows(role)) for role in (Role.LABELLED, Role.UNLABELLED))
    if corrections and not unlabelled_count and method != "auto" and find_method(method).uses_unlabelled:
        note = f"no unlabelled image is left for {method}: the default takes its place"
        catalogue, method, settings = replace(catalogue, notes=(*catalogue.notes, note)), "auto", None
    plan = choose(method, tune, features, backbone, unlabelled_count > 0)
    method, backbone = plan.method, plan.backbone
    built_method, recipe = resolve(
        method,
        tune,
        protocol,
        labelled_share=labelled_count / max(1, labelled_count + unlabelled_count),
        small_batches=split_spec(data)[0] == "voc",
        given={
            "seed": seed,
            "epochs": epochs,
            "warmup": warmup,
            "size": size or plan.size,
            "features": plan.features,
            "blocks": plan.blocks,
            "prefer": prefer,
            "precision": "bf16-mixed" if on_gpu and tune == "all" and torch.cuda.is_bf16_supported() else None,
        },
        settings={key: str(value) for key, value in (settings or {}).items()},
        labelled_count=labelled_count,
        unlabelled_count=unlabelled_count,
    )
    if recipe.warmup + recipe.epochs == 0:
        raise UserError("--warmup 0 --epochs 0: nothing would be learned; give one of them more")
    check_usable(catalogue, built_method.uses_unlabelled, data, method)
    backbones = [build_backbone(one, _file(weights), scaling=recipe.scaling) for one in backbone_list(backbone)]
    if not size and not plan.size and all(":" in one.name for one in backbones):
        recipe = recipe.model_copy(update={"size": backbones[0].size})
    _check_backbones(backbones, recipe, weights)
    config = Config(
        fewtags=version("fewtags"),
        data=data,
        labels=None if labels is None else str(labels),
        labelled=labelled,
        split=split,
        method=method,
        method_settings=built_method.model_dump(),
        backbone=backbone,
        weights=None if weights is None else str(weights),
        weights_digest=" ".join(digest(one) for one in backbones),
        recipe=recipe,
        tags=list(catalogue.tags),
        data_digest=catalogue.digest(),
        review=corrections.source if corrections else None,
        review_digest=corrections.digest if corrections else None,
    )
    return Job(config, catalogue, built_method, backbones)


def read_split(
    data: str,
    labels: str | Path | None,
    labelled: float | None,
    seed: int,
    split: str,
    corrections: Relabelling | None = None,
) -> Catalogue:
    """The data, labels hidden as asked and then corrected; the pictures of `scenes` are the same for every seed."""
    catalogue = read(data, _file(labels), seed=1)
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


def _check_choices(**given: str | None) -> None:
    known = {
        "features": ("crops", "evidence"),
        "tune": ("heads", "all"),
        "protocol": ("ours", "paper"),
        "split": ("paper", "balanced"),
        "prefer": ("precision", "balance", "recall"),
    }
    for name, value in given.items():
        if value is not None and value not in known[name]:
            raise UserError(f"--{name} {value}: there is only {' and '.join(known[name])}")


def _check_settings(seed: int, settings: Mapping[str, object]) -> None:
    if not 0 <= seed < 2**32:
        raise UserError(f"--seed {seed}: must be between 0 and {2**32 - 1}")
    for key in OPTIONS_ONLY:
        if key in settings:
            raise UserError(f"--set {key}={settings[key]}: this has an option of its own, --{key} {settings[key]}")


def check_usable(
    catalogue: Catalogue,
    uses_unlabelled: bool,
    data: str | Path,
    method: str,
    bad: Sequence[tuple[str, str]] = (),
) -> None:
    """Refuse data that nothing can be learned from."""
    labelled = catalogue.targets[catalogue.rows(Role.LABELLED)]
    because = f" ({count_images(bad)} cannot be used, such as {bad[0][0]}: {bad[0][1]})" if bad else ""
    if not (labelled == 1).any():
        raise UserError(f"{data}: no labelled image has a tag{because}; tag a few images, then train")
    if uses_unlabelled and not len(catalogue.rows(Role.UNLABELLED)):
        raise UserError(
            f"{data}: every image is labelled{because}, and {method} learns from unlabelled ones too: hide some labels "
            "with --labelled 0.05, or learn from labels alone with --method asl"
        )


def _check_backbones(backbones: Sequence[Backbone], recipe: Recipe, weights: str | Path | None) -> None:
    several = "+".join(one.name for one in backbones)
    if len(backbones) > 1 and (recipe.tune == "all" or recipe.features == "crops"):
        raise UserError(f"--backbone {several}: several backbones stand side by side with --features evidence only")
    if recipe.tune == "all" and not any(True for _ in backbones[0].parameters()):
        raise UserError(f"--tune all: {several} cannot learn; give --tune heads, or another backbone")
    for one in backbones:
        if ":" not in one.name and not one.gives_maps(recipe.size):
            raise UserError(f"--size {recipe.size}: too small for {one.name}; give 64 px or more")
    if len(backbones) > 1 and weights is not None:
        raise UserError(f"--weights {weights}: one file cannot fill {several}; choose one backbone")


def count_images(images: Sequence[object]) -> str:
    """`1 image`, `1,234 images`."""
    return f"{len(images):,} image{'' if len(images) == 1 else 's'}"


def _file(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)
