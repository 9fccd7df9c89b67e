"""List the image files of a folder, and decode them safely."""

import os
import re
import struct
import time
import warnings
from datetime import datetime, timezone
from hashlib import blake2b
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fewtags.errors import BadImage

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
MAX_PIXELS = 100_000_000  # 300 MB as RGB; larger images are refused before they are decoded
MAX_BYTES = 1 << 29  # 512 MB: no picture within MAX_PIXELS needs a larger file

RECENT_NANOSECONDS = 2_000_000_000  # a file changed this recently may change again without a new timestamp

_FINGERPRINTS: dict[tuple[str, str, int, int], bytes] = {}  # cache of this process, shared by several runs
# Only the formats of IMAGE_SUFFIXES: others of Pillow start programs or are less well tested.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
_ORIENTATION = 0x0112  # the EXIF tag
_EXIF_DETAILS, _TAKEN, _TAKEN_FRACTION = 0x8769, 0x9003, 0x9291
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_RANGES = (1.0, 255.0, 65535.0, 2.0**31 - 1)  # usual white levels, for modes that do not define one


def decode(data: bytes) -> Image.Image:
    """The first frame of an image file, upright, RGB, with a white background if it is transparent.

    Raises BadImage with a readable reason, whatever the bytes are.
    """
    if not data:
        raise BadImage("the file is empty")
    try:
        with warnings.catch_warnings():
            # Pillow's warnings about size and metadata: the size is checked below, metadata is harmless.
            warnings.filterwarnings("ignore", module=r"PIL\.")
            with Image.open(BytesIO(data), formats=_FORMATS) as image:
                _check_size(image)
                image.load()
                return _rgb(_upright(image))
    except BadImage:
        raise
    except Image.DecompressionBombError as error:
        raise BadImage(_too_large("far too many pixels")) from error
    except UnidentifiedImageError as error:
        raise BadImage("not an image of a known format, whatever its name says") from error
    except MemoryError as error:
        raise BadImage("too large for the available memory") from error
    except Exception as error:  # decoders of hostile bytes may raise anything
        raise BadImage(_reason(error)) from error


def _check_size(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise BadImage(_too_large(f"{image.width} × {image.height} pixels"))


def _too_large(size: str) -> str:
    return f"{size}: more than {MAX_PIXELS // 10**6} million pixels are refused, shrink the image first"


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    cut = isinstance(error, EOFError) or "truncated" in text or "Truncated" in text
    return "the file is cut off before its end" if cut else f"damaged: {text}"


def _upright(image: Image.Image) -> Image.Image:
    """The image rotated by its EXIF orientation."""
    try:
        turn = _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
    except (SyntaxError, OSError, ValueError, TypeError, KeyError, IndexError, EOFError, struct.error):
        return image  # unreadable metadata does not make the picture unusable
    return image if turn is None else image.transpose(turn)


def _rgb(image: Image.Image) -> Image.Image:
    """RGB from any mode, without metadata, so that it is not rotated twice."""
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
    """[H, W] of 16 or 32 bits -> [H, W] of 0..255. The white level is guessed if the mode does not define it."""
    numbers = np.nan_to_num(values.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    white = 65535.0
    if not mode.startswith("I;16"):
        usual = _RANGES if mode == "F" else _RANGES[1:]
        white = next((white for white in usual if numbers.max() <= white), float(numbers.max()))
    shades: NDArray[np.uint8] = np.rint(np.clip(numbers / np.float32(white), 0, 1) * 255).astype(np.uint8)
    return shades


def list_images(root: Path) -> list[str]:
    """Sorted paths, relative to root and with `/`, of the image files in root and its sub-folders.

    Hidden files and folders, links to folders and links out of root are left out.
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
    except (OSError, RuntimeError):  # a circular link
        return False


def path_within(root: Path, name: str) -> Path:
    """The path of a name below root. Raises BadImage if the name leads elsewhere."""
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
        """The picture, upright and RGB. Raises BadImage with a reason if it cannot be used."""
        return decode(self._read(name))

    def fingerprint(self, name: str) -> bytes:
        """16 bytes that change with the content of the file. Raises BadImage if it cannot be read."""
        try:
            there = path_within(self.root, name).stat()
        except OSError:
            return blake2b(self._read(name), digest_size=16).digest()
        key = (str(self.root), name, there.st_size, there.st_mtime_ns)
        if key not in _FINGERPRINTS:
            found = blake2b(self._read(name), digest_size=16).digest()
            if time.time_ns() - there.st_mtime_ns < RECENT_NANOSECONDS:
                return found  # not cached: it may change again without a new timestamp
            _FINGERPRINTS[key] = found
        return _FINGERPRINTS[key]

    def taken(self, name: str) -> float | None:
        """When the photo was taken, in seconds since an arbitrary day; None where its file does not say."""
        try:
            return time_taken(path_within(self.root, name))
        except BadImage:
            return None

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


def time_taken(path: Path) -> float | None:
    """What the EXIF data of a photo says of its time, without decoding the photo."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL\.")
            with Image.open(path, formats=_FORMATS) as image:
                exif = image.getexif().get_ifd(_EXIF_DETAILS)
        text, fraction = str(exif.get(_TAKEN, "")), str(exif.get(_TAKEN_FRACTION, "")).strip()
        whole = datetime.strptime(text.strip("\0 "), "%Y:%m:%d %H:%M:%S")
        return whole.replace(tzinfo=timezone.utc).timestamp() + (float(f"0.{fraction}") if fraction.isdigit() else 0.0)
    except Exception:  # noqa: BLE001 - metadata may be damaged in any way, and a photo is a photo without it
        return None


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
