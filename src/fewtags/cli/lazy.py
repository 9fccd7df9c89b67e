"""Commands whose parameters are read from a module that is imported when the command is used, not for `--help`."""

import importlib
from typing import Any

import typer
from typer.core import TyperCommand


def lazy(module: str, name: str) -> type[TyperCommand]:
    """A command that stands for the one `module` defines under this name."""

    class Lazy(TyperCommand):
        def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(name=info_name)(getattr(importlib.import_module(module), name))
            real = typer.main.get_command(app)
            return real.make_context(info_name, args, parent, **extra)

    return Lazy
