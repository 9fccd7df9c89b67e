"""What all forms of labels come down to: of each image, which tags it has, has not, or nobody knows."""

from dataclasses import dataclass, field
from pathlib import Path

from fewtags.data.catalogue import UNKNOWN
from fewtags.data.labels.targets import merge
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
        tags = list(known)
        merged, clash = merge([before.get(tag, UNKNOWN) for tag in tags], [known[tag] for tag in tags])
        if len(clash):
            tag = tags[clash[0]]
            raise UserError(f"{where}: {image!r} stands before with another answer for {tag!r}; keep one of them")
        before.update(zip(tags, merged.tolist(), strict=True))

    def named(self, path: Path) -> "Table":
        """Itself, if it has anything. Raises UserError for a file without a single tag."""
        if not self.images or not self.tags:
            raise UserError(f"{path}: no image has a tag in it, so there is nothing to convert")
        return self


def in_part_words(count: int) -> str:
    """How many images are known in part, in words."""
    return f"{count:,} image{' is' if count == 1 else 's are'} known in part only"
