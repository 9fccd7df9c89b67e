"""Thumbnails embedded in the page."""

import base64
from io import BytesIO
from pathlib import Path

from fewtags.data import ImageSource, read, split_spec
from fewtags.data.images import FolderImages
from fewtags.errors import BadImage, UserError
from fewtags.training.config import Config

BOX = (208, 160)  # maximum width and height, pixels
QUALITY = 72
MEAN_BYTES = 14_000  # budget per thumbnail, on average; 636 of them: 9 MB


class Thumbnails:
    """Thumbnails of a run's images; none if the data is gone."""

    def __init__(self, config: Config) -> None:
        self.missing = 0  # images that could not be read
        self.error = ""  # why there are no thumbnails at all
        self._source: ImageSource | None = None
        try:
            self._source = image_source(config)
        except UserError as error:
            self.error = str(error).splitlines()[0]

    def data_url(self, name: str) -> str | None:
        """The thumbnail of an image as a `data:` URL; None if it cannot be read."""
        if self._source is None:
            return None
        try:
            image = self._source.image(name)
        except BadImage:
            self.missing += 1
            return None
        image.thumbnail(BOX)
        file = BytesIO()
        image.save(file, "JPEG", quality=QUALITY, optimize=True)
        return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def image_source(config: Config) -> ImageSource:
    """The source of a run's images. Labels are read again only if they are needed to find the images."""
    kind, rest = split_spec(config.data)
    if kind == "scenes":
        from fewtags.scenes.draw import SceneImages

        return SceneImages()
    if kind == "folder":
        if not Path(rest).is_dir():
            raise UserError(f"{config.data}: there is no such folder any more")
        return FolderImages(Path(rest))
    return read(config.data).images
