"""Check a data set and report all problems at once, without training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewtags.data import read, split_spec
from fewtags.data.catalogue import MIN_POSITIVES, Catalogue, Role
from fewtags.errors import BadImage, UserError

THUMBNAIL = 24  # px a side
_SHOWN = 20  # bad files and pairs shown in the text; the report holds all


@dataclass(frozen=True)
class TagCount:
    """Counts of a tag: present, absent and unknown in labelled images, present in test images."""

    tag: str
    present: int
    absent: int
    unknown: int
    test: int


@dataclass
class Report:
    """The findings of `fewtags check`. Only problems prevent training."""

    spec: str
    problems: list[str] = field(default_factory=list)  # with file and line
    warnings: list[str] = field(default_factory=list)
    images: dict[str, int] = field(default_factory=dict)  # role -> number of images
    tags: list[TagCount] = field(default_factory=list)
    rare: list[str] = field(default_factory=list)  # tags with fewer than MIN_POSITIVES labelled positives
    duplicates: list[tuple[str, str]] = field(default_factory=list)  # training image, identical test image
    bad: list[tuple[str, str]] = field(default_factory=list)  # image, reason
    thumbnails: dict[str, NDArray[np.float32]] = field(default_factory=dict)  # of labelled images, by name
    taken: dict[str, float | None] = field(default_factory=dict)  # when, in seconds
    alike: list[list[str]] = field(default_factory=list)  # labelled images of one moment; see fewtags.solvers.bursts

    @property
    def ok(self) -> bool:
        """Whether training would start."""
        return not self.problems

    def lines(self) -> list[str]:
        """The report as plain text."""
        total = ", ".join(f"{count} {role}" for role, count in self.images.items())
        lines = [f"{self.spec}: {total or 'nothing could be read'}"]
        lines += _section("problem", self.problems, shown=len(self.problems))
        lines += _section("bad image file", [f"{name}: {reason}" for name, reason in self.bad])
        pairs = [f"{train} = {test}" for train, test in self.duplicates]
        lines += _section("image both in training and in test", pairs, plural="images both in training and in test")
        moments = [" = ".join(some) for some in self.alike]
        title = "of one moment, by the look of them: they share a fold"
        lines += _section(f"group of labelled images {title}", moments, plural=f"groups of labelled images {title}")
        lines += _section("warning", self.warnings)
        if self.tags:
            width = max(len("tag"), *(len(count.tag) for count in self.tags))
            lines.append(f"{'tag':<{width}}  present   absent  unknown     test")
            lines += [
                f"{c.tag:<{width}} {c.present:>8} {c.absent:>8} {c.unknown:>8} {c.test:>8}"
                + (f"  fewer than {MIN_POSITIVES}" if c.tag in self.rare else "")
                for c in self.tags
            ]
        if not (self.problems or self.bad or self.duplicates or self.warnings):
            lines.append("nothing wrong found")
        return lines


def check(
    spec: str,
    labels: Path | None = None,
    seed: int = 1,
    advance: Callable[[int, int], None] | None = None,
    tags: Sequence[str] = (),
) -> Report:
    """Read DATA and decode every image; calls advance(done, total) after each. tags: names that need no label."""
    report = Report(spec)
    catalogue = _read(spec, labels, seed, report, tags)
    if catalogue is None:
        return report
    report.warnings += catalogue.notes
    report.images = {role.name.lower(): len(catalogue.rows(role)) for role in Role if role != Role.HELD_OUT}
    _count_tags(catalogue, report)
    _check_images(catalogue, report, advance)
    return report


def _read(spec: str, labels: Path | None, seed: int, report: Report, tags: Sequence[str]) -> Catalogue | None:
    try:
        kind, path = split_spec(spec)
        if kind != "folder":
            return read(spec, labels, seed, tags)
        from fewtags.data.readers.folder import scan_folder

        catalogue, problems = scan_folder(Path(path), labels, tags)
    except UserError as error:
        report.problems.append(str(error))
        return None
    report.problems += problems.texts
    if problems.count > len(problems.texts):
        report.problems.append(f"… and {problems.count - len(problems.texts)} more")
    return catalogue


def _count_tags(catalogue: Catalogue, report: Report) -> None:
    labelled = catalogue.targets[catalogue.roles == Role.LABELLED]
    test = catalogue.targets[catalogue.roles == Role.TEST]
    for column, tag in enumerate(catalogue.tags):
        present, absent = int((labelled[:, column] == 1).sum()), int((labelled[:, column] == 0).sum())
        unknown = len(labelled) - present - absent
        report.tags.append(TagCount(tag, present, absent, unknown, int((test[:, column] == 1).sum())))
        if present < MIN_POSITIVES:
            report.rare.append(tag)
    if report.rare:
        few = f"fewer than {MIN_POSITIVES} labelled images have: {', '.join(report.rare)}"
        report.warnings.append(few if len(labelled) else "no image is labelled; tags' names alone decide, unverified")


def _check_images(catalogue: Catalogue, report: Report, advance: Callable[[int, int], None] | None) -> None:
    test_names: dict[bytes, str] = {}
    # Test images first: training images are then looked up in the smaller table.
    rows = [*catalogue.rows(Role.TEST), *catalogue.rows(Role.LABELLED), *catalogue.rows(Role.UNLABELLED)]
    for done, row in enumerate(rows, 1):
        name = catalogue.names[int(row)]
        try:
            if getattr(catalogue.images, "has_pictures", True):
                image = catalogue.images.image(name)
                if catalogue.roles[row] == Role.LABELLED:
                    _remember(catalogue, name, image, report)
            fingerprint = catalogue.images.fingerprint(name)
        except BadImage as reason:
            report.bad.append((name, str(reason)))
        else:
            if catalogue.roles[row] == Role.TEST:
                test_names.setdefault(fingerprint, name)
            elif fingerprint in test_names:
                report.duplicates.append((name, test_names[fingerprint]))
        if advance:
            advance(done, len(rows))


def _remember(catalogue: Catalogue, name: str, image: Image.Image, report: Report) -> None:
    """What near-duplicates are found by before any feature is extracted."""
    small = image.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX, reducing_gap=2.0)
    values = np.asarray(small, np.float32).ravel()
    report.thumbnails[name] = values - values.mean()
    taken = getattr(catalogue.images, "taken", None)
    report.taken[name] = None if taken is None else taken(name)


def _section(title: str, entries: list[str], plural: str = "", shown: int = _SHOWN) -> list[str]:
    if not entries:
        return []
    name = title if len(entries) == 1 else plural or f"{title}s"
    more = [f"  … and {len(entries) - shown} more"] if len(entries) > shown else []
    return [f"{len(entries)} {name}:", *(f"  {entry}" for entry in entries[:shown]), *more]
