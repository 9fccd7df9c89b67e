"""Packages that only some features need, and the command that installs them."""

import importlib.util
import re
from importlib.metadata import PackageNotFoundError, requires


def missing(*packages: str) -> list[str]:
    """Which of these cannot be imported."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def install_command(extra: str) -> str:
    """`pip install …` for an extra of fewtags; works wherever fewtags itself was installed from."""
    try:
        found = [
            re.split(r"[\s;]", line)[0] for line in requires("fewtags") or () if f"extra == '{extra}'" in _quotes(line)
        ]
    except PackageNotFoundError:
        found = []
    return "pip install " + (" ".join(f"'{one}'" for one in found) or f"'fewtags[{extra}]'")


def _quotes(line: str) -> str:
    return line.replace('"', "'")
