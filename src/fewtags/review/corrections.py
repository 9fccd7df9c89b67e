"""What learning makes of decisions: laid over the labels, and kept with the run that learned from them."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from fewtags.data.catalogue import UNKNOWN, Catalogue, Role
from fewtags.errors import UserError
from fewtags.review.log import Cell, current_answers, parse_lines, read_log
from fewtags.training.run_folder import CORRECTIONS, RunFolder
from fewtags.utils.files import atomic_write

LOG = "review.jsonl"  # decisions made about a run
CODES = {"yes": 1, "no": 0, "unsure": UNKNOWN}


@dataclass(frozen=True)
class Corrections:
    """The decisions a run learns from, as lines of a log."""

    source: str  # the log that the newest of them come from
    content: bytes

    @property
    def digest(self) -> str:
        """Ties a run to them."""
        return hashlib.sha256(self.content).hexdigest()

    def answers(self) -> dict[Cell, str]:
        """What holds after all of them."""
        return current_answers(parse_lines(self.content, Path(self.source)))

    def apply(self, catalogue: Catalogue) -> Catalogue:
        """The catalogue with yes as 1, no as 0 and unsure as unknown in the cells that were decided.

        An unlabelled image with a yes or no becomes labelled, its other cells unknown; test images stay as they are.
        """
        train = {name: row for row, name in enumerate(catalogue.names) if catalogue.roles[row] != Role.TEST}
        rows = {name: row for row, name in enumerate(catalogue.names)} | train  # benchmarks may name an image twice
        columns = {tag: column for column, tag in enumerate(catalogue.tags)}
        targets, roles = catalogue.targets.copy(), catalogue.roles.copy()
        lost = tested = 0
        fresh: set[int] = set()
        answers = self.answers()
        for (image, tag), answer in answers.items():
            row, column = rows.get(image), columns.get(tag)
            if row is None or column is None:
                lost += 1
            elif roles[row] == Role.TEST:
                tested += 1
            else:
                if roles[row] == Role.UNLABELLED and answer != "unsure":
                    targets[row], roles[row] = UNKNOWN, Role.LABELLED  # what is hidden of it stays hidden
                    fresh.add(row)
                targets[row, column] = CODES[answer]
        bare = (roles == Role.LABELLED) & (targets == UNKNOWN).all(axis=1)
        roles[bare] = Role.UNLABELLED
        notes = [
            f"{count_of(len(answers), 'decision')} of {self.source}: {count_of(len(fresh), 'image')} newly labelled"
        ]
        if lost:
            notes.append(f"{count_of(lost, 'decision')} left out: the data has no such image or tag any more")
        if tested:
            notes.append(f"{count_of(tested, 'decision')} left out: test images are never learned from")
        return replace(catalogue, targets=targets, roles=roles, notes=(*catalogue.notes, *notes))

    def keep(self, run: Path) -> None:
        """Write them into the run that learns from them: it stays what it is when the review goes on."""
        with atomic_write(run / CORRECTIONS) as file:
            file.write(self.content)


def corrections_of(run: Path) -> Corrections:
    """All that was decided up to now: what the run itself learned from, and what was said of its tags since."""
    log = run / LOG
    if not log.is_file():
        raise UserError(f"{run} has no {LOG}: nothing was decided yet; start with `fewtags review {run}`")
    if not current_answers(read_log(log)):
        raise UserError(f"{log} holds no decision; make some with `fewtags review {run}`")
    before = _whole_lines(run / CORRECTIONS) if (run / CORRECTIONS).is_file() else b""
    return Corrections(str(log), before + _whole_lines(log))


def corrections_for(run: Path, resumed: Path | None) -> Corrections:
    """The decisions to learn from; a run that is resumed goes on with those it began with."""
    if resumed is not None and RunFolder(resumed).config_file.is_file():
        kept = kept_corrections(resumed, RunFolder(resumed).config().review or "")
        if kept is not None:
            return kept
    return corrections_of(run)


def kept_corrections(run: Path, source: str) -> Corrections | None:
    """The decisions that a run learned from, if it did."""
    return Corrections(source, _whole_lines(run / CORRECTIONS)) if (run / CORRECTIONS).is_file() else None


def _whole_lines(file: Path) -> bytes:
    content = file.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def count_of(number: int, what: str) -> str:
    """`1 image`, `2 images`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
