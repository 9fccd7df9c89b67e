"""What is measured at the end of an epoch, and the paper's choice of the best one."""

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fewtags.methods.parts.heads import Logits, patch_logits
from fewtags.metrics import f1_scores, mean_average_precision
from fewtags.model.network import Network
from fewtags.thresholds import decide, metric_adaptive
from fewtags.training.recipe import Stage

if TYPE_CHECKING:
    from fewtags.training.loop import Loop

Record = dict[str, Any]
LOOKS = 40  # at the test split in a stage, spread over its epochs
FIGURES = ("map", "map_paper", "cf1", "of1", "cf1_nanmean")


class EpochEvaluator:
    """Measures. Only under the protocol of the paper does what it sees on the test split choose anything."""

    def __init__(self, paper: bool) -> None:
        self.paper = paper
        self.best: Record = {}
        self.best_weights: dict[str, Tensor] = {}
        self.last_gain: dict[str, int] = {}  # epoch in which raw and averaged weights were at their best
        self.top: dict[str, float] = {}  # and how good they were

    def measure(self, loop: "Loop", stage: Stage) -> Record:
        """Losses, thresholds, quality of pseudo-labels, figures on the test split."""
        epoch = loop.position.epoch
        losses = {k.removeprefix("loss_"): v.item() for k, v in loop.tally.items() if k.startswith("loss_")}
        record: Record = {"stage": stage.name, "epoch": epoch, "loss": sum(losses.values()), **losses}
        if "pseudo_made" in loop.tally:
            record |= pseudo_quality(loop.tally)
        thresholds = loop.method.state.get("thresholds")
        if thresholds is not None:
            values = thresholds.tolist()
            record["thresholds"] = [value if np.isfinite(value) else None for value in values]
        last = epoch == stage.epochs - 1
        often = stage.name == "main" and epoch % -(-stage.epochs // LOOKS) == 0  # short epochs are many
        worth_it = often or last or self.paper
        if loop.targets.test is not None and worth_it:
            record |= test_figures(loop, loop.average.network, thresholds)
            if self.paper:
                raw = test_figures(loop, loop.network, thresholds)
                record |= {f"raw_{name}": value for name, value in raw.items()}
                if stage is loop.stages[-1]:
                    self._choose(loop, record, raw)
        return record

    def stalled(self, record: Record) -> bool:
        """The released early stop: six epochs without a gain, and the averaged weights past their best."""
        if not self.paper or not self.last_gain:
            return False
        waited = record["epoch"] - max(self.last_gain.values())
        return bool(waited > 5 and record["map_paper"] < self.top["average"])

    def _choose(self, loop: "Loop", average: Record, raw: Record) -> None:
        """By mAP on the test split: raw before averaged weights, earlier before later epochs."""
        for name, found in (("raw", raw), ("average", average)):
            if found["map_paper"] > self.top.get(name, 0.0):
                self.top[name] = found["map_paper"]
                self.last_gain[name] = loop.position.epoch
        use_average = average["map_paper"] > raw["map_paper"]
        chosen = average if use_average else raw
        if chosen["map_paper"] > self.best.get("map_paper", -1.0):
            figures = {name: chosen[name] for name in FIGURES}
            self.best = {**figures, "epoch": loop.position.epoch, "average": use_average}
            network = loop.average.network if use_average else loop.network
            self.best_weights = {name: value.clone() for name, value in network.state_dict().items()}


def test_figures(loop: "Loop", network: Network, thresholds: Tensor | None) -> Record:
    """mAP, CF1, OF1 of a network on the test split, with the method's thresholds or MAT's on labelled images."""
    if thresholds is None:
        thresholds = metric_adaptive(loop.scores("labelled", "plain", network), loop.targets.labelled, "f1")
    assert loop.targets.test is not None  # noqa: S101 - for the type checker
    truth = loop.targets.test.numpy()
    scores = loop.sweep("test", "plain", network, lambda logits: _whole_and_patches(loop, logits))
    mixed = scores.pop("mixed")
    f1 = f1_scores(decide(mixed, thresholds.cpu().to(mixed)).numpy(), truth)
    return {
        "map": mean_average_precision(mixed.numpy(), truth),
        "map_paper": mean_average_precision(mixed.numpy(), truth, empty="zero"),
        **{f"map_{part}": mean_average_precision(alone.numpy(), truth) for part, alone in scores.items()},
        **{name: f1[name] for name in ("cf1", "of1", "cf1_nanmean")},
    }


def _whole_and_patches(loop: "Loop", logits: Logits) -> dict[str, Tensor]:
    """The score that counts, and what whole image and patches say alone."""
    scores = {"mixed": loop.method.predict(logits)}
    if "patch_make" in logits:
        patch = patch_logits(logits["patch_make"].float(), loop.method.merge, loop.method.alpha)
        scores |= {"whole": logits["whole_make"].float().sigmoid(), "patch": patch.sigmoid()}
    return scores


def pseudo_quality(tally: dict[str, Tensor]) -> Record:
    """Precision, recall and CF1 of an epoch's pseudo-labels, from the counts of its steps."""
    right, made, true = (tally[f"pseudo_{name}"].numpy() for name in ("right", "made", "true"))
    precision = float(np.divide(right, made, out=np.zeros_like(right), where=made > 0).mean())
    recall = float(np.divide(right, true, out=np.zeros_like(right), where=true > 0).mean())
    both = precision + recall
    return {
        "pseudo_cp": precision,
        "pseudo_cr": recall,
        "pseudo_cf1": 2 * precision * recall / both if both else 0.0,
        "pseudo_positives": int(made.sum()),
    }
