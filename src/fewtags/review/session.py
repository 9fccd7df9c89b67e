"""A review session: the images of a run with scores, labels, thresholds and decisions."""

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
from fewtags.review.order import active_learning_order, distances
from fewtags.training.run_folder import RunFolder
from fewtags.utils.progress import say

LARGE, SMALL = 1024, 320  # px, the longer side of a single picture and of one in the grid
QUALITY = 88  # JPEG
PARTS = ("labelled", "held_out", "unlabelled")  # no test images: reviewing them would bias the evaluation


@dataclass(frozen=True)
class ReviewData:
    """The N images that can be reviewed, with scores and labels of K tags."""

    tags: tuple[str, ...]
    thresholds: NDArray[np.float64]  # [K], infinite for a tag that is never given
    names: Names
    scores: NDArray[np.float32]  # [N, K]; out-of-fold for labelled images, if available
    labels: NDArray[np.int8]  # [N, K] 1, 0 or UNKNOWN
    images: ImageSource


class ReviewSession:
    """The data and the log of decisions; images and tags are referred to by number."""

    def __init__(self, data: ReviewData, log: ReviewLog) -> None:
        self.data, self.log = data, log
        self._numbers = {name: number for number, name in enumerate(data.names)}
        self._columns = {tag: column for column, tag in enumerate(data.tags)}
        self._lock = Lock()  # requests are handled by several threads

    def tags(self) -> list[dict[str, Any]]:
        """Name and threshold of every tag; None for a tag that is never given."""
        return [
            {"name": _shown(tag), "threshold": float(value) if np.isfinite(value) else None}
            for tag, value in zip(self.data.tags, self.data.thresholds, strict=True)
        ]

    def progress(self) -> dict[str, int]:
        """The number of images, of images with decisions, and of decisions."""
        with self._lock:
            self.log.refresh()
            mine = [image for image, _ in self.log.answers if image in self._numbers]
        return {"images": len(self.data.names), "touched": len(set(mine)), "decisions": len(mine)}

    def queue(self, by: str, tag: int | None = None, given: bool = True) -> list[int]:
        """Numbers of images in the order of questions.

        With a tag: the undecided images for which it is shown as given (or as not given).
        """
        answers = self._answers()
        open_cells = (answers == _UNANSWERED) & (self.data.labels == UNKNOWN)
        if tag is None:
            if by == "stored":
                return list(range(len(answers)))
            examples = (self._shown_as_given(answers) & ~open_cells).sum(axis=0)
            order = active_learning_order(self.data.scores, self.data.thresholds, open_cells, examples)
            return [int(number) for number in order]
        rows = np.flatnonzero(open_cells[:, tag] & (self._shown_as_given(answers)[:, tag] == given))
        if by == "teach":
            away = distances(self.data.scores[rows][:, [tag]], self.data.thresholds[[tag]])[:, 0]
            rows = rows[np.argsort(away, kind="stable")]
        return [int(number) for number in rows]

    def with_tag(self, tag: int, by: str) -> list[int]:
        """Numbers of all images for which a tag is shown as given, in the order of questions."""
        has = self._shown_as_given(self._answers())[:, tag]
        return [number for number in self.queue(by) if has[number]]

    def first_open(self, numbers: Sequence[int]) -> int:
        """The index of the first image with an open cell; 0 if there is none."""
        answers = self._answers()
        is_open = ((answers == _UNANSWERED) & (self.data.labels == UNKNOWN)).any(axis=1)
        return next((place for place, number in enumerate(numbers) if is_open[number]), 0)

    def image(self, number: int) -> dict[str, Any]:
        """Score, label (or None) and answer (or None) of an image for every tag."""
        name = self.data.names[number]
        labels = [None if label == UNKNOWN else int(label) for label in self.data.labels[number]]
        with self._lock:
            self.log.refresh()
            answers = [self.log.answers.get((name, tag)) for tag in self.data.tags]
        scores = [float(score) for score in self.data.scores[number]]  # exact: the page compares them with thresholds
        return {"number": number, "name": _shown(name), "scores": scores, "labels": labels, "answers": answers}

    def decide(self, cells: Sequence[tuple[int, int, str]]) -> str:
        """Save (image, tag, answer) decisions; returns the name of the action, for undo."""
        names, tags = self.data.names, self.data.tags
        with self._lock:
            return self.log.append([Decision(names[image], tags[tag], answer) for image, tag, answer in cells])

    def undo(self, action: str) -> bool:
        """Undo an action; False if there is none of this name."""
        with self._lock:
            return self.log.undo(action)

    def jpeg(self, number: int, side: int) -> bytes:
        """The picture as JPEG, its longer side at most `side` pixels. Raises BadImage."""
        picture = self.data.images.image(self.data.names[number])
        picture.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
        file = BytesIO()
        picture.save(file, "JPEG", quality=QUALITY)
        return file.getvalue()

    def _answers(self) -> NDArray[np.int8]:
        """[N, K] of 1, 0, UNKNOWN for unsure, or _UNANSWERED."""
        table = np.full(self.data.labels.shape, _UNANSWERED, np.int8)
        with self._lock:
            self.log.refresh()
            for (image, tag), answer in self.log.answers.items():
                number, column = self._numbers.get(image), self._columns.get(tag)
                if number is not None and column is not None:
                    table[number, column] = CODES[answer]
        return table

    def _shown_as_given(self, answers: NDArray[np.int8]) -> NDArray[np.bool_]:
        """[N, K] tags shown as given: by the answer, else by the label, else by the model."""
        said = np.where(answers == _UNANSWERED, self.data.labels, answers)
        by_model = self.data.scores >= self.data.thresholds
        shown: NDArray[np.bool_] = np.where((said == UNKNOWN) & (answers == _UNANSWERED), by_model, said == 1)
        return shown


_UNANSWERED = -2


def open_session(folder: RunFolder, catalogue: Catalogue) -> ReviewSession:
    """The session of a finished run; `catalogue` holds the data of the run."""
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
        say(f"{count_of(len(places) - len(kept), 'image')} of {folder.path} no longer in {config.data}: left out")
    if not kept:
        raise UserError(f"{config.data} has none of the images of {folder.path}; put them back, or train again")
    if "held_out" in scores and not named["held_out"]:  # out-of-fold scores of the labelled images
        scores["labelled"] = scores["held_out"]
    table = np.stack([scores[part][place] for part, place in (places[name] for name in kept)])
    chosen = [rows[name] for name in kept]
    labels = catalogue.targets[chosen]
    labels[catalogue.roles[chosen] == Role.UNLABELLED] = UNKNOWN  # the hidden truth of a benchmark is not shown
    thresholds = np.array(info.threshold_values())
    data = ReviewData(catalogue.tags, thresholds, Names(kept), table, labels, catalogue.images)
    return ReviewSession(data, ReviewLog(folder.path / LOG))


def _shown(text: str) -> str:
    """Valid Unicode: bytes of a name that are not UTF-8 are replaced."""
    return text.encode("utf-8", "replace").decode()
