"""What the loop shows to a method, made small: labelled and unlabelled vectors with tags that follow from them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fewtags.methods.neighbours import Neighbours

LABELLED, UNLABELLED, WIDTH, TAGS = 30, 50, 6, 3
HOW = {"strength": 0.05, "neighbours": 5}


@dataclass(frozen=True)
class Shown:
    """What the loop shows to a method."""

    targets: Tensor
    labelled_vectors: Tensor
    unlabelled_vectors: Tensor

    @property
    def vectors(self):
        return torch.cat([self.labelled_vectors, self.unlabelled_vectors])


def shown(unknown=0.15, labelled=LABELLED):
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn(labelled + UNLABELLED, WIDTH, generator=random) + torch.randn(WIDTH, generator=random)
    logits = 2 * vectors @ torch.randn(WIDTH, TAGS, generator=random) + torch.randn(
        len(vectors), TAGS, generator=random
    )
    targets = (logits > logits.median(0).values).to(torch.int8)[:labelled]
    hidden = torch.rand(targets.shape, generator=random) < unknown
    return Shown(targets.masked_fill(hidden, -1), vectors[:labelled], vectors[labelled:])


def begun(teacher, **settings):
    method = Neighbours(**{"raise_rare": False, "share": 0.5, **settings})
    method.begin_main(teacher)
    return method
