"""DRML (Wang et al., AAAI 2020): two classifiers that may disagree, and a network of the relations between tags.

On fixed features, a projection P feeds two classifiers C1 and C2; what they say of each other's tags, f1 f2', feeds the
relation network C_R, whose output is the prediction. Each step has four updates: all learn from labels; C1 and C2 also
learn to disagree on unlabelled images, P to make them agree; C_R learns from labels alone. Once an epoch the unlabelled
images on which C1 and C2 agree best take C_R's scores as soft labels and count as labelled for good. Row "DRML".
"""

import math
from typing import ClassVar

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn

from fewtags.methods.base import Method, Pseudo, Step, TeacherView, UnlabelledBatch, Update
from fewtags.methods.parts.heads import Logits
from fewtags.thresholds import lowest


class DRML(Method):
    """Dual relation multi-label learning."""

    paper: ClassVar[str] = "Wang et al., AAAI"
    year: ClassVar[int] = 2020
    updates: ClassVar[dict[str, Update]] = {
        "classify": Update(("heads.project", "heads.first", "heads.second"), 1e-4),
        "disagree": Update(("heads.first", "heads.second"), 1e-5),
        "agree": Update(("heads.project",), 1e-5),
        "relate": Update(("heads.relation",), 1e-3),
    }

    relation_weight: float = Field(0.2, ge=0)
    """Weight of the relation network's loss beside the two classifiers'; the released code has 0.2."""
    discrepancy_weight: float = Field(1e-5, ge=0)
    """Weight of the disagreement, which is a sum over the batch."""
    share_per_epoch: float = Field(0.01, gt=0, le=1)
    """Unlabelled images that join the labelled ones after every epoch, as a share of all."""
    _heads: "RelationHeads" = PrivateAttr()

    def build_heads(self, width: int, tags: int) -> nn.Module:
        """P, C1, C2 and C_R."""
        self._heads = RelationHeads(width, tags)
        return self._heads

    def begin_main(self, teacher: TeacherView) -> None:
        """No unlabelled image has joined yet."""
        self.state["soft"] = torch.zeros_like(teacher.unlabelled_scores)
        self.state["joined"] = torch.zeros_like(self.state["soft"][:, 0], dtype=torch.bool)

    def begin_epoch(self, teacher: TeacherView) -> None:
        """The images with the least disagreement after an epoch join, with soft labels, for good."""
        if teacher.epoch == 0:
            return
        soft, joined = self.state["soft"], self.state["joined"]
        common = self._heads.project(teacher.unlabelled_vectors.to(next(self._heads.parameters()).device))
        gap = self._heads.first(common).sigmoid() - self._heads.second(common).sigmoid()
        apart = gap.detach().square().sum(1).to(joined.device)
        new = lowest(apart, ~joined, math.ceil(self.share_per_epoch * len(apart)))
        joined[new] = True
        soft[new] = teacher.unlabelled_scores.to(soft.device)[new]

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """Soft labels of the images that have joined; the others teach nothing but agreement."""
        soft, joined = (self.recall(name, batch.scores, batch.rows) for name in ("soft", "joined"))
        return Pseudo(soft, joined[:, None].expand_as(soft).to(soft))

    def loss(self, step: Step, update: str = "classify") -> dict[str, Tensor]:
        """The terms of one of the four updates."""
        labelled, apart = {f"labelled_{update}": self._labelled(step)}, self._apart(step)
        if update in ("classify", "relate"):
            return labelled
        if apart is None:
            return {}
        return {"agree": apart} if update == "agree" else labelled | {"disagree": -apart}

    def _labelled(self, step: Step) -> Tensor:
        """L1 + L2 + weight · L_R: mean squares over known cells of labelled images and of those that have joined."""
        targets, weights, logits = step.targets.float(), (step.targets >= 0).float(), step.labelled
        if step.pseudo is not None and step.pseudo.mask is not None:
            targets = torch.cat([targets, step.pseudo.targets])
            weights = torch.cat([weights, step.pseudo.mask])
            logits = {name: torch.cat([z, step.unlabelled[name]]) for name, z in step.labelled.items()}
        squares = {name: weights * (z.float().sigmoid() - targets).square() for name, z in logits.items()}
        cells = squares["first"] + squares["second"] + self.relation_weight * squares["whole_make"]
        return cells.sum() / weights.sum().clamp(min=1)

    def _apart(self, step: Step) -> Tensor | None:
        """L_DA: how much C1 and C2 disagree, summed over the images that have not joined; None where all have."""
        warm_up = step.pseudo is None and not (step.unlabelled and len(step.unlabelled["first"]))
        if warm_up or (step.pseudo is not None and bool(self.state["joined"].all())):
            return None  # on all processes alike: later one with an empty share answers too, for the others wait
        first, second = (step.unlabelled[name].float().sigmoid() for name in ("first", "second"))
        left = 1.0 if step.pseudo is None or step.pseudo.mask is None else 1 - step.pseudo.mask
        return self.discrepancy_weight * ((first - second).abs() * left).sum()


class RelationHeads(nn.Module):
    """P: width -> 1024 -> 1024; C1, C2: 1024 -> 800 -> tags; C_R: tags² -> 1000 -> tags."""

    def __init__(self, width: int, tags: int, hidden: tuple[int, int, int, int] = (1024, 1024, 800, 1000)) -> None:
        super().__init__()
        wide, common, narrow, relations = hidden
        self.project = nn.Sequential(nn.Linear(width, wide), nn.LeakyReLU(0.1), nn.Linear(wide, common))
        self.first = nn.Sequential(nn.Linear(common, narrow), nn.ReLU(), nn.Linear(narrow, tags))
        self.second = nn.Sequential(nn.Linear(common, narrow), nn.ReLU(), nn.Linear(narrow, tags))
        self.relation = nn.Sequential(nn.Linear(tags * tags, relations), nn.ReLU(), nn.Linear(relations, tags))
        for layer in (module for module in self.modules() if isinstance(module, nn.Linear)):
            nn.init.normal_(layer.weight, std=1 / math.sqrt(layer.in_features / 2))
            nn.init.zeros_(layer.bias)

    def forward(self, vectors: Tensor, part: str) -> Logits:
        """vectors [B, width] -> "whole_make" (C_R), "first" and "second" [B, tags]."""
        if part != "whole":
            return {}
        common = self.project(vectors)
        first, second = self.first(common), self.second(common)
        relations = first.sigmoid()[:, :, None] * second.sigmoid()[:, None, :]
        return {"whole_make": self.relation(relations.flatten(1)), "first": first, "second": second}
