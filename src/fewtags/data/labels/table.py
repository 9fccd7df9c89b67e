"""The common form of all label files: per image, the tags that are present, absent or unknown."""

from dataclasses import dataclass, field
from pathlib import Path

from fewtags.data.catalogue import UNKNOWN
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
        clash = [tag for tag, code in known.items() if before.get(tag, code) != code]
        if clash:
            raise UserError(
                f"{where}: {image!r} occurs earlier with another label for {clash[0]!r}; keep one of the two"
            )
        before.update(known)

    def non_empty(self, path: Path) -> "Table":
        """Itself. Raises UserError if there are no images or no tags."""
        if not self.images or not self.tags:
            raise UserError(f"{path}: no image has a tag in it, so there is nothing to convert")
        return self


def partly_known_text(count: int) -> str:
    """`3 images are known in part only`."""
    return f"{count:,} image{' is' if count == 1 else 's are'} known in part only"
