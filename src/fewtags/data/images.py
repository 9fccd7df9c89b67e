"""Image files: which there are in a folder, and how one becomes a picture without harm."""

import os
import re
import struct
import time
import warnings
from hashlib import blake2b
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fewtags.errors import BadImage

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
MAX_PIXELS = 100_000_000  # 300 MB as RGB; anything larger is refused from its header alone
MAX_BYTES = 1 << 29  # half a gigabyte: no picture within MAX_PIXELS needs a larger file

SETTLED_NANOSECONDS = 2_000_000_000  # a file that was not touched for so long shows every later change by its time

_FINGERPRINTS: dict[tuple[str, str, int, int], bytes] = {}  # of files this process has read: several runs share them
# The formats of IMAGE_SUFFIXES only: Pillow knows others that start programs or have seen fewer eyes.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
_ORIENTATION = 0x0112  # the EXIF tag
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_RANGES = (1.0, 255.0, 65535.0, 2.0**31 - 1)  # the usual white of pictures whose mode does not say it


def decode(data: bytes) -> Image.Image:
    """The first frame of an image file, upright, RGB, on white where it is transparent.

    Raises BadImage with a reason a person understands, whatever the bytes are.
    """
    if not data:
        raise BadImage("the file is empty")
    try:
        with warnings.catch_warnings():
            # Pillow's own warnings about size and metadata: the size is judged below, metadata does no harm.
            warnings.filterwarnings("ignore", module=r"PIL\.")
            with Image.open(BytesIO(data), formats=_FORMATS) as image:
                _refuse_bombs(image)
                image.load()
                return _rgb(_upright(image))
    except BadImage:
        raise
    except Image.DecompressionBombError as error:
        raise BadImage(_too_large("far too many pixels")) from error
    except UnidentifiedImageError as error:
        raise BadImage("not an image of a known format, whatever its name says") from error
    except MemoryError as error:
        raise BadImage("too large for the memory at hand") from error
    except Exception as error:  # decoders meet hostile bytes: any exception of theirs means a bad file
        raise BadImage(_reason(error)) from error


def _refuse_bombs(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise BadImage(_too_large(f"{image.width} × {image.height} pixels"))


def _too_large(size: str) -> str:
    return f"{size}: more than {MAX_PIXELS // 10**6} million pixels are refused, shrink the image first"


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    cut = isinstance(error, EOFError) or "truncated" in text or "Truncated" in text
    return "the file is cut off before its end" if cut else f"damaged: {text}"


def _upright(image: Image.Image) -> Image.Image:
    """The image as the camera was held."""
    try:
        turn = _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
    except (SyntaxError, OSError, ValueError, TypeError, KeyError, IndexError, EOFError, struct.error):
        return image  # unreadable metadata is no reason to lose a readable picture
    return image if turn is None else image.transpose(turn)


def _rgb(image: Image.Image) -> Image.Image:
    """RGB from any mode, without metadata, so that nobody turns it a second time."""
    if image.mode.startswith(("I", "F")):
        image = Image.fromarray(_eight_bit(np.asarray(image), image.mode))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    image = image.convert("RGB")
    image.info = {}
    return image


def _eight_bit(values: NDArray[np.generic], mode: str) -> NDArray[np.uint8]:
    """[H, W] of 16 or 32 bits -> [H, W] of 0..255. A mode that does not tell its white gets a usual one."""
    numbers = np.nan_to_num(values.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    white = 65535.0
    if not mode.startswith("I;16"):
        usual = _RANGES if mode == "F" else _RANGES[1:]
        white = next((white for white in usual if numbers.max() <= white), float(numbers.max()))
    shades: NDArray[np.uint8] = np.rint(np.clip(numbers / np.float32(white), 0, 1) * 255).astype(np.uint8)
    return shades


def list_images(root: Path) -> list[str]:
    """Sorted paths relative to root, with `/`, of the image files in it and its sub-folders.

    Hidden files and folders, links to folders and links that lead out of root are left out.
    """
    home = root.resolve()
    found: list[str] = []
    folders = [""]
    while folders:
        prefix = folders.pop()
        with os.scandir(root / prefix) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{prefix}{entry.name}/")
                elif entry.name.lower().endswith(IMAGE_SUFFIXES) and _is_file_within(entry, home):
                    found.append(prefix + entry.name)
    found.sort()
    return found


def _is_file_within(entry: "os.DirEntry[str]", home: Path) -> bool:
    try:
        return entry.is_file() and (not entry.is_symlink() or Path(entry).resolve().is_relative_to(home))
    except (OSError, RuntimeError):  # a link that leads to itself
        return False


def path_within(root: Path, name: str) -> Path:
    """The path of a name below root. Raises BadImage when the name leads anywhere else."""
    parts = re.split(r"[/\\]", name)
    absolute = not parts[0] or re.match(r"[A-Za-z]:[/\\]", name)
    if not name or "\0" in name or absolute or ".." in parts:
        raise BadImage("leads outside the folder: a name is relative to it, without '..'")
    try:
        path = (root / name).resolve()
        within = path.is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise BadImage("no such file") from error
    if not within:
        raise BadImage("leads outside the folder through a link")
    return path


class FolderImages:
    """Images below one folder; no name reaches a file outside it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def image(self, name: str) -> Image.Image:
        """The picture, upright and RGB. Raises BadImage with a reason when it cannot be used."""
        return decode(self._read(name))

    def fingerprint(self, name: str) -> bytes:
        """16 bytes that change when the file's content does. Raises BadImage when it cannot be read."""
        try:
            there = path_within(self.root, name).stat()
        except OSError:
            return blake2b(self._read(name), digest_size=16).digest()
        key = (str(self.root), name, there.st_size, there.st_mtime_ns)
        if key not in _FINGERPRINTS:
            found = blake2b(self._read(name), digest_size=16).digest()
            if time.time_ns() - there.st_mtime_ns < SETTLED_NANOSECONDS:
                return found  # it may change again without a later time of change
            _FINGERPRINTS[key] = found
        return _FINGERPRINTS[key]

    def _read(self, name: str) -> bytes:
        return read_file(path_within(self.root, name))


class ImageFiles:
    """Image files anywhere on the disk, named by their paths."""

    def image(self, name: str) -> Image.Image:
        """The picture, upright and RGB. Raises BadImage with a reason when it cannot be used."""
        return decode(read_file(Path(name)))

    def fingerprint(self, name: str) -> bytes:
        """16 bytes that change when the file's content does. Raises BadImage when it cannot be read."""
        return blake2b(read_file(Path(name)), digest_size=16).digest()


def read_file(path: Path) -> bytes:
    """The content of an image file. Raises BadImage where it is none, or too large to be one."""
    try:
        if not path.is_file():  # also keeps pipes and devices, which may never end, from being opened
            raise BadImage("no such file")
        if path.stat().st_size > MAX_BYTES:
            raise BadImage(f"larger than {MAX_BYTES >> 20} MB")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise BadImage(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
