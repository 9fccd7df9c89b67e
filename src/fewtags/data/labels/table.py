"""What all forms of labels come down to: of each image, which tags it has, has not, or nobody knows."""

from dataclasses import dataclass, field
from pathlib import Path

from fewtags.data.catalogue import UNKNOWN
from fewtags.errors import UserError


@dataclass
class Table:
    """Images in the order of the file, with what is known of their tags."""

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
        """The tags of which nobody knows whether the image has them."""
        return [tag for tag in self.tags if self.code(image, tag) == UNKNOWN]

    def enter(self, image: str, known: dict[str, int], test: bool, where: str) -> None:
        """Add what is known of an image; a second entry may add to the first, never contradict it."""
        before = self.images.get(image)
        if before is None:
            self.images[image] = dict(known)
            if test:
                self.test.add(image)
            return
        if test != (image in self.test):
            raise UserError(f"{where}: {image!r} stands in another split before; keep one of them")
        clash = [tag for tag, code in known.items() if before.get(tag, code) != code]
        if clash:
            raise UserError(f"{where}: {image!r} stands before with another answer for {clash[0]!r}; keep one of them")
        before.update(known)

    def named(self, path: Path) -> "Table":
        """Itself, if it has anything. Raises UserError for a file without a single tag."""
        if not self.images or not self.tags:
            raise UserError(f"{path}: no image has a tag in it, so there is nothing to convert")
        return self


def in_part_words(count: int) -> str:
    """How many images are known in part, in words."""
    return f"{count:,} image{' is' if count == 1 else 's are'} known in part only"
