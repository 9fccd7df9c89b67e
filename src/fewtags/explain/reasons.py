"""What a model says of one image, tag by tag, and which part of the image decided."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fewtags.data.images import ImageFiles
from fewtags.encoders.base import Box
from fewtags.errors import BadImage, UserError, nearest
from fewtags.explain.heat import Heat, Heated, heat_of, scores_of
from fewtags.methods.parts.heads import patch_logits
from fewtags.model.saved import Model, load_model

MOST_GIVEN, MISSES = 6, 2  # tags shown unless some are named


@dataclass(frozen=True)
class Part:
    """The whole image or a patch."""

    name: str
    box: Box
    score: float  # of this part alone, 0..1
    heat: Heat  # [h, w] in logits: its mean is what all places together add
    share: float | None = None  # of a patch: how much it counts in the merge; a tag's patches sum to one


@dataclass(frozen=True)
class TagExplained:
    """Why an image got a tag, or did not."""

    tag: str
    score: float
    threshold: float | None  # None: never given
    given: bool
    whole: Part
    patches: list[Part]
    merged: float | None  # the score of the patches together; None without patches

    @property
    def decided(self) -> str:
        """What decided, in words."""
        if self.threshold is None:
            return "not given to any image: too few labelled images show this tag"
        score, threshold = told_apart(self.score, self.threshold)
        compared = f"{score} {'reaches' if self.given else 'stays below'} its threshold of {threshold}"
        if self.merged is None:
            return compared
        alike = [(score >= self.threshold) == self.given for score in (self.whole.score, self.merged)]
        best = max(self.patches, key=lambda part: part.score)
        if all(alike):
            who = "whole image and patches agree"
        elif alike[0]:
            who = "the whole image decided against the patches"
        else:
            who = f"the patches decided{f', above all {best.name},' if self.given else ''} against the whole image"
        return f"{compared}; {who}"


@dataclass(frozen=True)
class Explained:
    """An image with what a model says of it."""

    name: str
    image: Image.Image
    tags: list[TagExplained]
    left_out: list[str]  # given tags that are not shown
    how: str  # "activation" or "occlusion"


def explain(run: str | Path, image: str | Path, tags: Sequence[str] = (), methods: Sequence[str] = ()) -> Explained:
    """Why an image gets these tags, or (none named) the tags it is given and the nearest misses."""
    model = load_model(Path(run), methods)
    if not model.encoder.backbones:
        raise UserError(f"{run} reads vectors: there is no picture in which to show what decided")
    places = [_place(tag, model.info.tags, run) for tag in dict.fromkeys(tags)]
    try:
        picture = ImageFiles().image(str(image))
    except BadImage as error:
        raise UserError(f"{image} cannot be used: {error}") from error
    limits = np.array(model.info.threshold_values())
    if not places:
        places = chosen(scores_of(model, picture), limits)
    heated = heat_of(model, picture, places)
    scores = heated.scores
    shown = [_tag(model, heated, order, place) for order, place in enumerate(places)]
    left_out = [tag for k, tag in enumerate(model.info.tags) if scores[k] >= limits[k] and k not in places]
    return Explained(Path(image).name, picture, shown, [] if tags else left_out, heated.how)


def chosen(scores: NDArray[np.float32], thresholds: NDArray[np.float64]) -> list[int]:
    """The surest of the given tags, then the nearest misses: positions in the order of their margin."""
    margin = scores - thresholds
    order = [int(place) for place in np.argsort(-margin, kind="stable")]
    given = [place for place in order if margin[place] >= 0]
    missed = [place for place in order if -np.inf < margin[place] < 0]
    return (given[:MOST_GIVEN] + missed[:MISSES]) or order[:1]


def _place(tag: str, tags: list[str], run: str | Path) -> int:
    if tag not in tags:
        raise UserError(f"--tag {tag}: {run} knows no such tag{nearest(tag, tags)} (it knows {', '.join(tags)})")
    return tags.index(tag)


def told_apart(score: float, threshold: float) -> tuple[str, str]:
    """Both with as many decimals as show that they differ, two at least."""
    for digits in range(2, 7):
        found = f"{score:.{digits}f}", f"{threshold:.{digits}f}"
        if found[0] != found[1]:
            break
    return found


def _tag(model: Model, heated: Heated, order: int, place: int) -> TagExplained:
    """The tag at a position, whose heat is at another."""
    info, method = model.info, model.method
    score, threshold = float(heated.scores[place]), info.thresholds[place]
    heat = heated.heat[order]

    def probability(logit: float) -> float:
        every = torch.sigmoid(torch.full((1, len(info.tags)), float(logit)))
        return float(model.calibrated(every)[0, place])

    whole = Part("whole image", heated.boxes[0], probability(heated.whole[place]), heat[0])
    values = torch.from_numpy(heated.patches[:, place])
    shares = torch.softmax((values if method.merge == "logits" else values.sigmoid()) / method.alpha, dim=0)
    patches = [
        Part(_patch_name(number, info.patches), box, probability(float(values[number])), heat[1 + number], float(share))
        for number, (box, share) in enumerate(zip(heated.boxes[1:], shares, strict=True))
    ]
    merged = None
    if patches:
        merged = probability(float(patch_logits(values[None, :, None], method.merge, method.alpha)))
    given = threshold is not None and score >= threshold
    return TagExplained(info.tags[place], score, threshold, given, whole, patches, merged)


def _patch_name(number: int, side: int) -> str:
    row, column = divmod(number, side)
    if side == 2:
        return f"{('top', 'bottom')[row]} {('left', 'right')[column]}"
    return f"row {row + 1}, column {column + 1}"
