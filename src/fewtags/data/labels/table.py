"""The common form of all label files: per image, the tags that are present, absent or unknown."""

from dataclasses import dataclass, field
from pathlib import Path

from fewtags.data.catalogue import UNKNOWN
from fewtags.data.labels.targets import merge
from fewtags.errors import UserError


@dataclass
class Table:
    """Images in the order of the file, with their known tags."""

    tags: list[str] = field(default_factory=list)
    images: dict[str, dict[str, int]] = field(default_factory=dict)  # image -> tag -> 1 or 0; others are unknown
    test: set[str] = field(default_factory=set)  # images of the test split

    def code(self, image: str, tag: str) -> int:
        """1, 0 or UNKNOWN."""
        return self.images[image].get(tag, UNKNOWN)

    def present(self, image: str) -> list[str]:
        """The tags that an image has."""
        return [tag for tag in self.tags if self.code(image, tag) == 1]

    def unknown(self, image: str) -> list[str]:
        """The unknown tags of an image."""
        return [tag for tag in self.tags if self.code(image, tag) == UNKNOWN]

    def add(self, image: str, known: dict[str, int], test: bool, where: str) -> None:
        """Add the known tags of an image; a second entry may extend the first, not contradict it."""
        before = self.images.get(image)
        if before is None:
            self.images[image] = dict(known)
            if test:
                self.test.add(image)
            return
        if test != (image in self.test):
            raise UserError(f"{where}: {image!r} occurs earlier in another split; keep one of the two")
        tags = list(known)
        merged, clash = merge([before.get(tag, UNKNOWN) for tag in tags], [known[tag] for tag in tags])
        if len(clash):
            tag = tags[clash[0]]
            raise UserError(f"{where}: {image!r} occurs earlier with another label for {tag!r}; keep one of the two")
        before.update(zip(tags, merged.tolist(), strict=True))

    def non_empty(self, path: Path) -> "Table":
        """Itself. Raises UserError if there are no images or no tags."""
        if not self.images or not self.tags:
            raise UserError(f"{path}: no image has a tag in it, so there is nothing to convert")
        return self


def partly_known_text(count: int) -> str:
    """`3 images are known in part only`."""
    return f"{count:,} image{' is' if count == 1 else 's are'} known in part only"
