"""What lies before the person who reviews: images of a run with scores, labels, thresholds and decisions."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewtags.data.catalogue import UNKNOWN, Catalogue, ImageSource, Names, Role
from fewtags.errors import UserError
from fewtags.model.saved import read_info
from fewtags.review.corrections import CODES, LOG, count_of
from fewtags.review.log import Decision, ReviewLog
from fewtags.review.order import distances, teaching_order
from fewtags.training.run_folder import RunFolder
from fewtags.utils.progress import say

LARGE, SMALL = 1024, 320  # px, the longer side of what is shown; of a picture in the grid
QUALITY = 88  # of the JPEG that is sent
PARTS = ("labelled", "held_out", "unlabelled")  # test images are not asked about: they would no longer tell the truth


@dataclass(frozen=True)
class Material:
    """The images that can be reviewed, N of them, and what is known of K tags."""

    tags: tuple[str, ...]
    thresholds: NDArray[np.float64]  # [K], infinite: never given
    names: Names
    scores: NDArray[np.float32]  # [N, K]; of labelled images by models that never saw their labels, where there are
    labels: NDArray[np.int8]  # [N, K] 1, 0 or UNKNOWN
    images: ImageSource


class Desk:
    """The material with the log of decisions; images and tags are called by their numbers."""

    def __init__(self, material: Material, log: ReviewLog) -> None:
        self.material, self.log = material, log
        self._numbers = {name: number for number, name in enumerate(material.names)}
        self._columns = {tag: column for column, tag in enumerate(material.tags)}
        self._lock = Lock()  # requests are answered by several threads

    def tags(self) -> list[dict[str, Any]]:
        """Name and threshold of every tag; None: it is never given."""
        return [
            {"name": _shown(tag), "threshold": float(value) if np.isfinite(value) else None}
            for tag, value in zip(self.material.tags, self.material.thresholds, strict=True)
        ]

    def progress(self) -> dict[str, int]:
        """How many images there are, how many have been looked at, and how many decisions stand."""
        with self._lock:
            self.log.refresh()
            mine = [image for image, _ in self.log.answers if image in self._numbers]
        return {"images": len(self.material.names), "touched": len(set(mine)), "decisions": len(mine)}

    def queue(self, by: str, tag: int | None = None, given: bool = True) -> list[int]:
        """Numbers of images in the order to ask.

        With a tag: the images of which it is shown as given (or not), and of which it is not yet decided.
        """
        answers = self._answers()
        open_cells = (answers == _NONE) & (self.material.labels == UNKNOWN)
        if tag is None:
            if by == "stored":
                return list(range(len(answers)))
            examples = (self._shown_yes(answers) & ~open_cells).sum(axis=0)
            order = teaching_order(self.material.scores, self.material.thresholds, open_cells, examples)
            return [int(number) for number in order]
        rows = np.flatnonzero(open_cells[:, tag] & (self._shown_yes(answers)[:, tag] == given))
        if by == "teach":
            away = distances(self.material.scores[rows][:, [tag]], self.material.thresholds[[tag]])[:, 0]
            rows = rows[np.argsort(away, kind="stable")]
        return [int(number) for number in rows]

    def having(self, tag: int, by: str) -> list[int]:
        """Numbers of all images of which a tag is shown as given, in the order to ask."""
        has = self._shown_yes(self._answers())[:, tag]
        return [number for number in self.queue(by) if has[number]]

    def first_open(self, numbers: Sequence[int]) -> int:
        """The place of the first image that still has an open cell; 0 when there is none."""
        answers = self._answers()
        is_open = ((answers == _NONE) & (self.material.labels == UNKNOWN)).any(axis=1)
        return next((place for place, number in enumerate(numbers) if is_open[number]), 0)

    def image(self, number: int) -> dict[str, Any]:
        """All that is known of an image: a score, a label (or None) and an answer (or None) for every tag."""
        name = self.material.names[number]
        labels = [None if label == UNKNOWN else int(label) for label in self.material.labels[number]]
        with self._lock:
            self.log.refresh()
            answers = [self.log.answers.get((name, tag)) for tag in self.material.tags]
        scores = [float(score) for score in self.material.scores[number]]  # exact: the page decides by them too
        return {"number": number, "name": _shown(name), "scores": scores, "labels": labels, "answers": answers}

    def decide(self, cells: Sequence[tuple[int, int, str]]) -> str:
        """Keep (image, tag, answer) for good; returns the name of the action, for undoing it."""
        names, tags = self.material.names, self.material.tags
        with self._lock:
            return self.log.append([Decision(names[image], tags[tag], answer) for image, tag, answer in cells])

    def undo(self, action: str) -> bool:
        """Take the decisions of an action back; False when there is none of this name."""
        with self._lock:
            return self.log.undo(action)

    def jpeg(self, number: int, side: int) -> bytes:
        """The picture, no side longer than so many pixels. Raises BadImage."""
        picture = self.material.images.image(self.material.names[number])
        picture.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
        file = BytesIO()
        picture.save(file, "JPEG", quality=QUALITY)
        return file.getvalue()

    def _answers(self) -> NDArray[np.int8]:
        """[N, K] 1, 0, UNKNOWN for unsure, or _NONE."""
        table = np.full(self.material.labels.shape, _NONE, np.int8)
        with self._lock:
            self.log.refresh()
            for (image, tag), answer in self.log.answers.items():
                number, column = self._numbers.get(image), self._columns.get(tag)
                if number is not None and column is not None:
                    table[number, column] = CODES[answer]
        return table

    def _shown_yes(self, answers: NDArray[np.int8]) -> NDArray[np.bool_]:
        """[N, K] what is shown as given: by the answer, else by the label, else by the model."""
        said = np.where(answers == _NONE, self.material.labels, answers)
        by_model = self.material.scores >= self.material.thresholds
        shown: NDArray[np.bool_] = np.where((said == UNKNOWN) & (answers == _NONE), by_model, said == 1)
        return shown


_NONE = -2  # nobody was asked


def open_desk(folder: RunFolder, catalogue: Catalogue) -> Desk:
    """The desk of a finished run whose data is this catalogue."""
    config = folder.config()
    if not folder.finished:
        raise UserError(f"{folder.path}: its training has not ended; finish it with --resume, then review its tags")
    if catalogue.tags != tuple(config.tags):
        raise UserError(f"{config.data} has other tags than {folder.path} was trained on; train again, then review")
    info, scores = read_info(folder.model_folder / "model.json"), folder.scores()
    named = folder.split()
    rows = {catalogue.names[int(row)]: int(row) for row in np.flatnonzero(catalogue.roles != Role.TEST)}
    places = {name: (part, place) for part in PARTS for place, name in enumerate(named[part])}
    kept = [name for name in rows if name in places]
    if len(kept) < len(places):
        say(f"{count_of(len(places) - len(kept), 'image')} of {folder.path} not in {config.data} any more: left out")
    if not kept:
        raise UserError(f"{config.data} has none of the images of {folder.path}; put them back, or train again")
    if "held_out" in scores and not named["held_out"]:  # of the labelled images themselves
        scores["labelled"] = scores["held_out"]
    table = np.stack([scores[part][place] for part, place in (places[name] for name in kept)])
    chosen = [rows[name] for name in kept]
    labels = catalogue.targets[chosen]
    labels[catalogue.roles[chosen] == Role.UNLABELLED] = UNKNOWN  # the hidden truth of a benchmark is not for showing
    thresholds = np.array(info.threshold_values())
    material = Material(catalogue.tags, thresholds, Names(kept), table, labels, catalogue.images)
    return Desk(material, ReviewLog(folder.path / LOG))


def _shown(text: str) -> str:
    """Text that every browser can take: names that are no UTF-8 lose the bytes that are not."""
    return text.encode("utf-8", "replace").decode()
