"""Options of the command line, made from the one list of options of a training."""

import inspect
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from fewtags.training.options import TrainOptions, choices


def derived(names: Sequence[str], **defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options of a training beside its own parameters; it gets them as `given`, by name.

    Only what the person wrote is handed over, and the options to which this command gives another default.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [one for one in inspect.signature(command).parameters.values() if one.name != "given"]

        def run(context: typer.Context, **values: Any) -> None:
            written = [name for name in names if getattr(context.get_parameter_source(name), "name", "") != "DEFAULT"]
            given = {name: _plain(values[name]) for name in names if name in written or name in defaults}
            command(**{one.name: values[one.name] for one in own}, given=given)

        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [*own, *(_parameter(name, defaults.get(name)) for name in names)]
        parameters.sort(key=lambda one: one.default is not inspect.Parameter.empty)  # arguments first
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in (context, *parameters)}
        return run

    return decorate


def _parameter(name: str, changed: Any = None) -> inspect.Parameter:
    """One option, or the argument DATA."""
    info = TrainOptions.model_fields["validate_" if name == "validate" else name]
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    settings: dict[str, Any] = {"help": (info.description or "").replace("\n", " "), "metavar": extra.get("metavar")}
    if name == "data":
        return _made(name, Annotated[str, typer.Argument(**settings)], inspect.Parameter.empty)
    lowest = [bound.ge for bound in info.metadata if hasattr(bound, "ge")]
    settings |= {"min": lowest[0]} if lowest else {}
    default = info.get_default() if changed is None else changed
    if name == "settings":
        return _made(name, Annotated[list[str] | None, typer.Option("--set", **settings)], None)
    if isinstance(default, bool):
        del settings["metavar"]
        return _made(name, Annotated[bool, typer.Option(f"--{name.replace('_', '-')}", **settings)], default)
    words = choices(name)
    if words:
        kind: Any = Enum(name.title(), {word: word for word in words}, type=str)  # type: ignore[misc]
        default = None if default is None else kind(default)
        return _made(name, Annotated[kind if default else kind | None, typer.Option(**settings)], default)
    return _made(name, Annotated[info.annotation, typer.Option(**settings)], default)


def _made(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value
