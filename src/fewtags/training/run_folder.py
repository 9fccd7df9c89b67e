"""A run folder: its settings, log and checkpoint, and the watch that keeps them while the loop runs."""

import csv
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from fewtags.data.catalogue import Catalogue, Role
from fewtags.errors import Interrupted, UserError
from fewtags.training.checkpoint import load_checkpoint, save_checkpoint
from fewtags.training.config import Config
from fewtags.training.evaluator import Record
from fewtags.training.loop import Loop, Observer, Position
from fewtags.training.recipe import Stage
from fewtags.utils.files import atomic_write, csv_line, write_text
from fewtags.utils.progress import Progress
from fewtags.utils.stopping import StopRequest

CORRECTIONS = "corrections.jsonl"  # decisions of a review that a run learned from
LEARNING = ("learning from the labelled images", "learning from all images")  # as progress shows it
SAVE_SECONDS = 60.0  # between two checkpoints; what a kill can cost


class RunFolder:
    """Where everything of one run lies; see docs/architecture.md."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"
        self.split_file = path / "split.csv"
        self.metrics_file = path / "metrics.jsonl"
        self.checkpoint_file = path / "checkpoint" / "state.safetensors"
        self.model_folder = path / "model"
        self.tags_file = path / "tags.csv"
        self.sheet_file = path / "tags.png"
        self.bad_file = path / "bad.csv"
        self.scores_file = path / "scores.safetensors"
        self.result_file = path / "result.json"

    @property
    def finished(self) -> bool:
        """Whether everything was written: tags.csv, then result.json."""
        return self.tags_file.exists() and self.result_file.exists()

    def result(self) -> dict[str, Any]:
        """The figures of a finished run."""
        try:
            content = json.loads(self.result_file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UserError(f"{self.path} is not finished (it has no result.json); go on with --resume") from error
        except (OSError, ValueError) as error:
            raise UserError(f"{self.result_file} is damaged ({error}); train again, or copy the run again") from error
        if not isinstance(content, dict):
            raise UserError(f"{self.result_file} is damaged (no object); train again, or copy the run again")
        return content

    def config(self) -> Config:
        """The settings the run was started with."""
        if not self.config_file.is_file():
            raise UserError(f"{self.path} is not a run folder (it has no config.yaml); give the --out of a `train`")
        return Config.from_yaml(self.config_file.read_text(encoding="utf-8", errors="replace"), str(self.config_file))

    def begin(self, config: Config, resume: bool) -> None:
        """Take the folder for this run, or go on with the run that is in it."""
        if self.config_file.is_file():
            if not resume:
                raise UserError(f"{self.path} holds a run already: --resume goes on with it, or choose another --out")
            differences = self.config().differences(config)
            if differences:
                raise UserError(
                    f"{self.path} was started with other settings, so it cannot be resumed with these:\n  "
                    + "\n  ".join(differences)
                )
            for torn in self.checkpoint_file.parent.glob(f".{self.checkpoint_file.name}.*"):
                torn.unlink()  # a kill came while it was written
            return
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise UserError(f"{self.path} exists and is no run folder; choose another --out")
        write_text(self.config_file, config.to_yaml())

    def write_split(self, catalogue: Catalogue) -> None:
        """split.csv: image,role."""
        lines = [csv_line(["image", "role"])]
        for name, role in zip(catalogue.names, catalogue.roles, strict=True):
            lines.append(csv_line([name, Role(int(role)).name.lower()]))
        write_text(self.split_file, "".join(lines))

    def split(self) -> dict[str, list[str]]:
        """What split.csv holds: the names of every role, in its order."""
        found: dict[str, list[str]] = {role.name.lower(): [] for role in Role}
        try:
            with self.split_file.open(encoding="utf-8", errors="surrogateescape", newline="") as lines:
                for name, role in list(csv.reader(lines))[1:]:
                    found[role].append(name)
        except (OSError, ValueError, KeyError, csv.Error) as error:
            raise UserError(f"{self.split_file} is missing or damaged ({error}); train again") from error
        return found

    def write_bad(self, bad: list[tuple[str, str]]) -> None:
        """bad.csv: the images that could not be used, each with the reason."""
        if bad or self.bad_file.exists():
            write_text(self.bad_file, "".join(map(csv_line, [("image", "reason"), *bad])))

    def write_scores(self, tables: Mapping[str, NDArray[Any]]) -> None:
        """Scores and what is known of the images, by name; see `scores`."""
        with atomic_write(self.scores_file) as file:
            file.write(save({name: np.ascontiguousarray(table) for name, table in tables.items()}))

    def scores(self) -> dict[str, NDArray[Any]]:
        """What the finished model says of all images, rows as in split.csv, a column for each tag.

        `labelled`, `unlabelled`, `test`: scores; `labelled_targets`, `unlabelled_targets`, `test_targets`: 1, 0 or -1
        for unknown. `held_out`, `held_out_targets`: the same of labelled images, scored by models that never saw their
        labels: of all labelled images in their order, or of the images whose role in split.csv is held_out.
        A part that has no images, or of which nothing is known, is missing.
        """
        try:
            return load_file(self.scores_file)
        except (OSError, SafetensorError) as error:
            raise UserError(f"{self.scores_file} cannot be read ({error}); train again with this version") from error

    def records(self) -> list[Record]:
        """What metrics.jsonl holds; a line cut off by a kill is left out."""
        if not self.metrics_file.exists():
            return []
        records = []
        for line in self.metrics_file.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records

    def keep_records_before(self, position: Position, stages: list[Stage]) -> None:
        """Drop the log of epochs that will be done again."""
        order = {stage.name: number for number, stage in enumerate(stages)}
        here = (position.stage, position.epoch)
        kept = [r for r in self.records() if (order.get(r.get("stage", ""), 99), r.get("epoch", 0)) < here]
        write_text(self.metrics_file, "".join(json.dumps(r) + "\n" for r in kept))


class Watch(Observer):
    """Shows progress, writes the log, saves in time, and stops between two steps when asked to."""

    def __init__(self, run: RunFolder, belongs_to: str, stop: StopRequest, main_process: bool, resume: bool) -> None:
        self._run, self._belongs_to, self._stop = run, belongs_to, stop
        self._main, self._resume = main_process, resume
        self._saved = self._epoch_began = time.monotonic()
        self._progress: Progress | None = None

    def begin(self, loop: Loop) -> None:
        """Go on from the checkpoint of an earlier run."""
        if self._resume and self._run.checkpoint_file.exists():
            load_checkpoint(loop, self._run.checkpoint_file, self._belongs_to)
        if self._main:
            self._run.keep_records_before(loop.position, loop.stages)

    def end(self, loop: Loop) -> None:
        """Whatever happens now, nothing is learned twice."""
        self.close()
        if self._main:
            save_checkpoint(loop, self._run.checkpoint_file, self._belongs_to)

    def stage(self, stage: Stage, steps: int, done: int) -> None:
        """A new line of progress."""
        self.close()
        self._progress = Progress(LEARNING[stage.unlabelled_batch > 0], steps, done, show=self._main)
        self._epoch_began = time.monotonic()

    def step(self, report: Record) -> None:
        """One step on."""
        if self._progress is not None:
            self._progress.advance()

    def epoch(self, record: Record) -> None:
        """Append to metrics.jsonl."""
        now = time.monotonic()
        record["seconds"] = round(now - self._epoch_began, 3)
        self._epoch_began = now
        if self._progress is not None and "map" in record:
            self._progress.advance(0, note=f"mAP {100 * record['map']:.1f}")
        if self._main:
            with self._run.metrics_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def save(self, loop: Loop) -> None:
        """A checkpoint now and then, and one before stopping."""
        stopping = loop.any_process(self._stop.requested)
        if stopping or time.monotonic() - self._saved > SAVE_SECONDS:
            if self._main:
                save_checkpoint(loop, self._run.checkpoint_file, self._belongs_to)
            self._saved = time.monotonic()
        if stopping:
            self.close()
            raise Interrupted(f"stopped; everything so far is kept in {self._run.path}")

    def close(self) -> None:
        """End the running line of progress."""
        if self._progress is not None:
            self._progress.__exit__(None, None, None)
            self._progress = None
