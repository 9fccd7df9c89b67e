"""Small pictures inside the page, within a budget of bytes."""

import base64
from io import BytesIO
from pathlib import Path

from fewtags.data import ImageSource, read, split_spec
from fewtags.data.images import FolderImages
from fewtags.errors import BadImage, UserError
from fewtags.training.config import Config

BOX = (208, 160)  # pixels that a picture fits into
QUALITY = 72
SHARE = 14_000  # bytes of the page that a picture may cost in the mean; 636 of them: 9 MB


class Pictures:
    """Pictures of a run's images; where the data is gone, none."""

    def __init__(self, config: Config) -> None:
        self.missing = 0  # images that could not be read
        self.trouble = ""  # why there is no picture at all
        self._source: ImageSource | None = None
        try:
            self._source = image_source(config)
        except UserError as error:
            self.trouble = str(error).splitlines()[0]

    def address(self, name: str) -> str | None:
        """The picture of an image as a `data:` address; None if it cannot be read."""
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
    """Where the images of a run come from. Labels are not read again where they are not needed to find images."""
    kind, rest = split_spec(config.data)
    if kind == "scenes":
        from fewtags.scenes.draw import SceneImages

        return SceneImages()
    if kind == "folder":
        if not Path(rest).is_dir():
            raise UserError(f"{config.data}: there is no such folder any more")
        return FolderImages(Path(rest))
    return read(config.data).images
