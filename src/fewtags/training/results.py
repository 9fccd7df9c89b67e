"""What a run leaves behind: the model, the tags of the unlabelled images, a sheet to glance at, the figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fewtags.backbones.base import Backbone
from fewtags.data.catalogue import Catalogue, Role
from fewtags.errors import BadImage
from fewtags.methods.parts.heads import Adapter, Heads
from fewtags.metrics import f1_under_rules, per_tag, summarise
from fewtags.metrics.estimate import estimate
from fewtags.model.base import given_tags
from fewtags.model.network import Network
from fewtags.model.saved import Model, ModelInfo, save_model
from fewtags.training.config import Config
from fewtags.training.contact_sheet import Entry, contact_sheet
from fewtags.training.crossfit import HeldOut
from fewtags.training.loop import Targets
from fewtags.training.prepare import Prepared
from fewtags.training.run_folder import RunFolder
from fewtags.utils.files import atomic_write, csv_cell, write_text

SHEET_IMAGES = 12
Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Outcome:
    """What training ends with."""

    network: Network
    settled: dict[str, object]  # settings that the method chose by itself
    scores: Mapping[str, Scores]  # of the images of every part [n, K]
    held_out: HeldOut | None  # scores of labelled images by models that never saw their labels
    thresholds: Scores  # [K], for tagging
    own_thresholds: Scores | None  # [K], by which the method made pseudo-labels at the end
    chosen_on_test: dict[str, Any]  # under the paper's protocol


def write_results(
    folder: RunFolder, config: Config, backbones: Sequence[Backbone], prepared: Prepared, outcome: Outcome
) -> dict[str, Any]:
    """Write model/, scores, tags.png and tags.csv (the last: a run that has it is finished); return the figures."""
    scores, thresholds, targets = outcome.scores, outcome.thresholds, prepared.targets
    save_model(folder.model_folder, _model(config, backbones, prepared, outcome))
    folder.write_scores(_score_tables(outcome, targets))
    catalogue = prepared.catalogue
    count = {role.name.lower(): len(catalogue.rows(role)) for role in Role}
    result: dict[str, Any] = {"images": {name: some for name, some in count.items() if some or name != "held_out"}}
    if targets.test is not None:
        truth, known = targets.test.numpy(), targets.labelled.numpy()
        result |= summarise(scores["test"], truth, thresholds, catalogue.tags)
        result["per_tag"] = per_tag(scores["test"], truth, thresholds, catalogue.tags)
        result["rules"] = f1_under_rules(scores["test"], truth, scores["labelled"], known, outcome.own_thresholds)
    if prepared.supply.choice is not None:
        result["features"] = prepared.supply.choice._asdict()
    if outcome.held_out is not None:
        held, prefer = outcome.held_out, config.recipe.prefer
        result["estimate"] = estimate(
            held.scores, held.targets, held.fold, thresholds, catalogue.tags, prefer, held.how
        )
    if outcome.chosen_on_test:
        result["chosen_on_the_test_split"] = outcome.chosen_on_test
    rows = catalogue.rows(Role.UNLABELLED)
    if len(rows):
        with atomic_write(folder.sheet_file) as file:
            sheet(catalogue, rows, scores["unlabelled"], thresholds, config.recipe.seed).save(file, "PNG")
    lines = ["image,tags"]
    for row, one in zip(rows, scores.get("unlabelled", np.empty((0, 0))), strict=True):
        tags = given_tags(one, thresholds, catalogue.tags)
        lines.append(f"{csv_cell(catalogue.names[int(row)])},{csv_cell('|'.join(tags))}")
    write_text(folder.tags_file, "\n".join(lines) + "\n")
    return result


def _score_tables(outcome: Outcome, targets: Targets) -> dict[str, NDArray[Any]]:
    tables: dict[str, NDArray[Any]] = dict(outcome.scores)
    if outcome.held_out is not None:
        tables["held_out"], tables["held_out_targets"] = outcome.held_out.scores, outcome.held_out.targets
    known = {"labelled": targets.labelled, "unlabelled": targets.truth, "test": targets.test}
    return tables | {f"{part}_targets": table.numpy() for part, table in known.items() if table is not None}


def sheet(catalogue: Catalogue, rows: NDArray[np.int64], scores: Scores, thresholds: Scores, seed: int) -> Any:
    """A contact sheet of some unlabelled images, chosen by the seed alone."""
    entries = []
    for place in np.random.default_rng(seed).permutation(len(rows)):
        row = int(rows[place])
        try:
            image = catalogue.images.image(catalogue.names[row])
        except BadImage:
            continue
        known = catalogue.targets[row] >= 0
        truth = [tag for tag, t in zip(catalogue.tags, catalogue.targets[row], strict=True) if t == 1]
        entries.append(
            Entry(image, given_tags(scores[place], thresholds, catalogue.tags), truth if known.all() else None)
        )
        if len(entries) == SHEET_IMAGES:
            break
    return contact_sheet(entries, f"{len(entries)} of {len(rows):,} images that came without tags")


def _model(config: Config, backbones: Sequence[Backbone], prepared: Prepared, outcome: Outcome) -> Model:
    """The model as it is kept, without the heads that only training needs."""
    chosen = outcome.network
    recipe, method, supply = config.recipe, config.build_method(), prepared.supply
    frozen = recipe.tune == "heads"
    names: list[str] = []
    heads = chosen.heads
    if isinstance(heads, Heads):  # those that only learn from pseudo-labels have done their work
        names = [name for name in method.head_names if name.endswith("make")]
        heads = Heads(supply.width, len(config.tags), names)
        heads.load_state_dict({k: v for k, v in chosen.heads.state_dict().items() if k.split(".")[0] in names})
    body = chosen.body if frozen else nn.Identity()
    kept = backbones if frozen else [chosen.body]
    info = ModelInfo(
        fewtags=config.fewtags,
        method=config.method,
        method_settings=config.method_settings | outcome.settled,
        tags=config.tags,
        thresholds=[float(value) if np.isfinite(value) else None for value in outcome.thresholds],
        backbone=config.backbone,
        input_shift=[one.shift.flatten().tolist() for one in backbones],
        input_scale=[one.scale.flatten().tolist() for one in backbones],
        features=recipe.features if frozen else "crops",
        blocks=supply.choice.blocks if supply.choice else "both",
        components=supply.width if supply.components else None,
        size=recipe.size,
        patches=method.patches,
        patch_source=recipe.patch_source,
        patch_size=recipe.patch_size,
        merge=method.merge,
        alpha=method.alpha,
        heads=names,
        adapter=recipe.adapter if isinstance(body, Adapter) else None,
        frozen=frozen,
        learned_from=len(prepared.targets.labelled) + prepared.targets.unlabelled,
    )
    return Model(info, list(kept), Network(body, heads), supply.components)  # type: ignore[arg-type]
