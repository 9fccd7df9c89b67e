"""One short file per method; the name of the file is the name of the method, and nothing else is registered."""

import importlib
import pkgutil
from collections.abc import Mapping

from fewtags.errors import UserError, nearest
from fewtags.methods.base import Method, Pseudo, Step, TeacherView, UnlabelledBatch, Update
from fewtags.methods.parts.heads import Adapter, Heads, Logits

__all__ = [
    "Adapter",
    "Heads",
    "Logits",
    "Method",
    "Pseudo",
    "Step",
    "TeacherView",
    "UnlabelledBatch",
    "Update",
    "find_method",
    "make_method",
    "method_name",
    "method_names",
]


def method_names() -> list[str]:
    """The methods that come with fewtags."""
    names = (module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    return sorted(name for name in names if name != "base" and not name.startswith("_"))


def find_method(name: str) -> type[Method]:
    """The class of a method: a file of this folder, or an importable module such as `my_package.my_method`."""
    if name in method_names():
        path = f"{__name__}.{name}"
    elif "." in name and all(name.split(".")):
        path = name
    else:
        raise UserError(f"unknown method {name!r}{nearest(name, method_names())} (`fewtags methods` lists them)")
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        raise UserError(f"method {name!r} cannot be imported: {error}") from error
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Method) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise UserError(f"{path} defines {len(found)} subclasses of fewtags.methods.Method; a method file has one")
    return found[0]


def method_name(kind: type[Method]) -> str:
    """The name by which `find_method` finds a class."""
    return kind.__module__.removeprefix(f"{__name__}.")


def make_method(name: str, settings: Mapping[str, object]) -> Method:
    """The method with these settings; values may be strings, as from the command line."""
    from pydantic import ValidationError

    kind = find_method(name)
    try:
        return kind(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise UserError(f"unknown setting {key!r}{nearest(key, list(kind.model_fields))}") from error
        raise UserError(f"setting {key}={first['input']!r}: {first['msg']}") from error
