"""What a run leaves behind: the model, the tags of the unlabelled images, a contact sheet, the figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fewtags.data.catalogue import Catalogue, Role
from fewtags.errors import BadImage
from fewtags.methods.base import QuickScores
from fewtags.metrics import calibration_error, f1_under_rules, per_tag, summarise
from fewtags.metrics.calibration import Calibration
from fewtags.metrics.decisions import NameThresholds, Prefer
from fewtags.metrics.estimate import estimate, out_of_fold_decisions
from fewtags.model.base import given_tags
from fewtags.model.network import Network
from fewtags.model.saved import Model, ModelInfo, save_model
from fewtags.training.config import Config
from fewtags.training.contact_sheet import Entry, contact_sheet
from fewtags.training.crossfit import HeldOut
from fewtags.training.curve import learning_curve, not_given
from fewtags.training.loop import Targets
from fewtags.training.prepare import Prepared
from fewtags.training.run_folder import RunFolder
from fewtags.utils.files import atomic_write, csv_line, write_text
from fewtags.utils.stopping import StopRequest

SHEET_IMAGES = 12
Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Outcome:
    """What training ends with."""

    network: Network
    chosen_settings: dict[str, object]  # that the method chose by itself
    raw_scores: Mapping[str, Scores]  # of the images of every part [n, K], as the network gives them
    held_out: HeldOut | None  # scores of labelled images by models that never saw their labels
    calibration: Calibration | None  # from these scores to probabilities
    thresholds: Scores  # [K], for tagging
    names: NameThresholds | None  # what tags' names say about them
    own_thresholds: Scores | None  # [K], by which the method made pseudo-labels at the end
    chosen_on_test: dict[str, Any]  # under the paper's protocol
    prefer: Prefer
    quick_scores: QuickScores | None  # other labels tried at once, for learning curves

    @cached_property
    def scores(self) -> Mapping[str, Scores]:
        """Of the images of every part [n, K]: probabilities where they were calibrated."""
        return {part: self.calibrated(one) for part, one in self.raw_scores.items()}

    @cached_property
    def held_out_decisions(self) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """Tags and probabilities of labelled images [n, K], by curves and thresholds that were chosen without them."""
        held = self.held_out
        if held is None or self.calibration is None:
            raise RuntimeError("there are no scores of images that were left out")
        pool = self.raw_scores.get("unlabelled", held.scores)
        return out_of_fold_decisions(held.scores, held.targets, held.fold, pool, self.prefer, self.names)

    @property
    def held_out_scores(self) -> Scores:
        """Of the labelled images [n, K]: probabilities where they were calibrated."""
        if self.calibration is not None:
            return self.held_out_decisions[1]
        return np.empty((0, len(self.thresholds)), np.float32) if self.held_out is None else self.held_out.scores

    def calibrated(self, scores: Scores) -> Scores:
        """What the network gives -> what is shown."""
        return scores if self.calibration is None else self.calibration(scores)


def figures(config: Config, prepared: Prepared, outcome: Outcome, stop: StopRequest) -> dict[str, Any]:
    """What is known of the quality: on the test split, and estimated from the labelled images."""
    thresholds, targets = outcome.thresholds, prepared.targets
    catalogue = prepared.catalogue
    count = {role.name.lower(): len(catalogue.rows(role)) for role in Role}
    result: dict[str, Any] = {"images": {name: some for name, some in count.items() if some or name != "held_out"}}
    if targets.test is not None:
        truth, known = targets.test.numpy(), targets.labelled.numpy()
        scores = outcome.scores["test"]
        result |= summarise(scores, truth, thresholds, catalogue.tags)
        result["calibration_error"] = None if outcome.calibration is None else calibration_error(scores, truth)
        result["per_tag"] = per_tag(scores, truth, thresholds, catalogue.tags)
        raw = outcome.raw_scores
        result["rules"] = f1_under_rules(raw["test"], truth, raw["labelled"], known, outcome.own_thresholds)
    shown = (targets.labelled == 1).any(0).tolist()
    if outcome.names is not None:
        tags = zip(catalogue.tags, shown, np.isfinite(thresholds), strict=True)
        result["unverified"] = [tag for tag, seen, given in tags if given and not seen]
    learned = prepared.encoder.learned()
    if learned is not None:
        result["features"] = learned
    if outcome.held_out is not None and outcome.calibration is not None:
        held, prefer = outcome.held_out, config.recipe.prefer
        if held.tried:
            result["variants"] = {"chosen": held.variant, "tried": dict(held.tried)}
        unlabelled = "unlabelled" if "unlabelled" in outcome.scores else "labelled"
        curve = learning_curve(held, outcome, stop)
        result["estimate"] = estimate(
            held.scores,
            held.targets,
            outcome.held_out_decisions,
            thresholds,
            outcome.scores[unlabelled],
            catalogue.tags,
            prefer,
            held.how,
            outcome.names,
            (0.0, 0.0) if curve is None else curve.shift(held.learned_share),
        )
        if curve is not None:
            result["learning_curve"] = curve.summary(catalogue.tags)
        result["not_given"] = not_given(catalogue.tags, held.targets, thresholds, outcome.scores[unlabelled])
    if outcome.chosen_on_test:
        result["chosen_on_the_test_split"] = outcome.chosen_on_test
    return result


def write_tags(folder: RunFolder, config: Config, prepared: Prepared, outcome: Outcome) -> None:
    """Write what the trained model is for: model/, scores, tags.png and tags.csv; the estimate comes after them."""
    save_model(folder.model_folder, model_of(config, prepared, outcome))
    folder.write_scores(_score_tables(outcome, prepared.targets))
    catalogue, thresholds = prepared.catalogue, outcome.thresholds
    rows = catalogue.rows(Role.UNLABELLED)
    scores = outcome.scores.get("unlabelled", np.empty((0, 0), np.float32))
    lines = [csv_line(["image", "tags"])]
    for row, one in zip(rows, scores, strict=True):
        tags = given_tags(one, thresholds, catalogue.tags)
        lines.append(csv_line([catalogue.names[int(row)], "|".join(tags)]))
    write_text(folder.tags_file, "".join(lines))
    by_name = not len(prepared.targets.labelled)
    sheet = contact_sheet_of(catalogue, rows, scores, thresholds, config.recipe.seed, by_name)
    if sheet is not None:
        with atomic_write(folder.sheet_file) as file:
            sheet.save(file, "PNG")


def _score_tables(outcome: Outcome, targets: Targets) -> dict[str, NDArray[Any]]:
    tables: dict[str, NDArray[Any]] = dict(outcome.scores)
    if outcome.held_out is not None:
        tables["held_out"] = outcome.held_out_scores
        tables["held_out_targets"] = outcome.held_out.targets
    known = {"labelled": targets.labelled, "unlabelled": targets.truth, "test": targets.test}
    return tables | {f"{part}_targets": table.numpy() for part, table in known.items() if table is not None}


def contact_sheet_of(
    catalogue: Catalogue, rows: NDArray[np.int64], scores: Scores, thresholds: Scores, seed: int, by_name: bool = False
) -> Any:
    """Some unlabelled images with their tags, chosen by the seed alone; None where there is nothing to show.

    by_name: no image is labelled; the tags then take turns, each with the image that is surest to show it.
    """
    entries = []
    order = np.random.default_rng(seed).permutation(len(rows))
    if by_name:
        given = [tag for tag in range(len(thresholds)) if np.isfinite(thresholds[tag])]
        surest = np.argsort(-scores[:, given], axis=0, kind="stable").ravel()  # the best of every tag, then the second
        order = np.concatenate([np.array(list(dict.fromkeys(surest.tolist())), np.int64), order])[: len(order)]
    for place in order:
        row = int(rows[place])
        try:
            image = catalogue.images.image(catalogue.names[row])
        except BadImage:
            if not getattr(catalogue.images, "has_pictures", True):
                break
            continue
        known = catalogue.targets[row] >= 0
        truth = [tag for tag, t in zip(catalogue.tags, catalogue.targets[row], strict=True) if t == 1]
        entries.append(
            Entry(image, given_tags(scores[place], thresholds, catalogue.tags), truth if known.all() else None)
        )
        if len(entries) == SHEET_IMAGES:
            break
    title = f"{len(entries)} of {len(rows):,} images that came without tags"
    if by_name:
        title = f"The {len(entries)} surest of {len(rows):,} images: tagged by name alone, unverified"
    return contact_sheet(entries, title) if entries else None


def model_of(config: Config, prepared: Prepared, outcome: Outcome) -> Model:
    """The model as it is kept: with `tune all` the network's body is the encoder's backbone."""
    recipe, method, chosen = config.recipe, config.build_method(outcome.chosen_settings), outcome.network
    encoder, body = prepared.encoder, chosen.body
    if recipe.tune == "all":
        encoder, body = encoder.with_backbones([chosen.body]), nn.Identity()  # type: ignore[list-item]
    info = ModelInfo(
        fewtags=config.fewtags,
        method=config.method,
        method_settings=method.model_dump(),
        tags=config.tags,
        thresholds=[float(value) if np.isfinite(value) else None for value in outcome.thresholds],
        calibration=None if outcome.calibration is None else outcome.calibration.pairs(),
        learned_from=len(prepared.targets.labelled) + prepared.targets.unlabelled,
        adapter=recipe.adapter if recipe.tune == "heads" else None,
        features=encoder.kind,
        **encoder.state(),
    )
    return Model(info, encoder.cpu(), Network(body, method.kept_heads(chosen.heads)).cpu(), method)
