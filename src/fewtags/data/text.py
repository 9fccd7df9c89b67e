"""Read small text files of benchmarks."""

from pathlib import Path

from fewtags.errors import UserError


def read_lines(file: Path) -> list[str]:
    """The lines of a file, without line ends and trailing empty lines. Raises UserError."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text; download it again") from error
    return text.rstrip().splitlines()
