"""One list of options: the command line, Python and grids of runs have what TrainOptions has, with its defaults."""

import enum
import inspect
from pathlib import Path
from typing import get_args

import pytest
import typer

import fewtags
from fewtags.bench.grid import Cell, Grid, row_of
from fewtags.bench.task import _how, job_of
from fewtags.cli import grids
from fewtags.cli.train import train
from fewtags.errors import UserError
from fewtags.training.options import TrainOptions, choices, option_names

# what a front door has beside the options of a training
OF_PYTHON = {"vectors", "ids", "progress", "stop"}
OF_BENCH_RUN = {"data", "out", "methods", "labelled", "seeds", "settings", "jobs", "engine", "address", "retry"}
OF_BENCH_PAPER = {"name", "path", "dry_run", *OF_BENCH_RUN} - {"data", "settings"}
SHARED = option_names(unmarked=("axis", "running"))  # by all runs of a grid


def parameters(command) -> dict:
    """The parameters of a command of the command line, by name, without --help."""
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return {one.name: one for one in typer.main.get_command(app).params if one.name != "help"}


def plain(value):
    """A default as TrainOptions has it."""
    return value.value if isinstance(value, enum.Enum) else value


def same_default(name: str, given) -> bool:
    default = TrainOptions.defaults()[name]
    return plain(given) == default or (name == "settings" and given is None and default == {})


def test_the_command_line_has_every_option_and_no_other():
    found = parameters(train)
    assert set(found) == set(option_names())
    assert found["data"].required
    assert [name for name, one in found.items() if name != "data" and not same_default(name, one.default)] == []


@pytest.mark.parametrize("name", [name for name in option_names() if name != "data"])
def test_an_option_is_typed_as_it_is_named_and_explained_as_in_the_list(name):
    found = parameters(train)[name]
    assert found.opts == ["--set" if name == "settings" else f"--{name.replace('_', '-')}"]
    info = TrainOptions.model_fields["validate_" if name == "validate" else name]
    assert found.help == " ".join(info.description.split())
    kind = get_args(inspect.signature(train).parameters[name].annotation)[0]
    kinds = get_args(kind) or (kind,)  # `Tune | None`, or `Prefer` alone
    words = [one.value for each in kinds if isinstance(each, enum.EnumMeta) for one in each]
    assert tuple(words) == choices(name)


def test_python_has_every_option_and_no_other():
    found = inspect.signature(fewtags.train).parameters
    assert set(found) == {*option_names(), *OF_PYTHON}
    named = [name for name in option_names() if name != "data"]
    assert [name for name in named if found[name].default != TrainOptions.defaults()[name]] == []
    assert {found[name].kind for name in named} == {inspect.Parameter.KEYWORD_ONLY}


def test_a_grid_has_every_option_that_its_runs_share_and_no_other():
    found = parameters(grids.run)
    assert set(found) == {*SHARED, *OF_BENCH_RUN}
    # tables compare methods by what they learn from labels, unless a grid is told otherwise
    assert [name for name in SHARED if not same_default(name, found[name].default)] == ["words"]
    assert found["words"].default == "off"


def test_every_option_reaches_a_grid_as_shared_as_an_axis_or_is_about_carrying_it_out():
    axes, running = option_names("axis"), option_names("running")
    assert sorted([*SHARED, *axes, *running]) == sorted(option_names())
    assert {"data", *_how(Cell(row_of("asl", {}), 0.1, 1))} == set(axes)


def test_the_grid_of_the_paper_adds_nothing_but_its_own_defaults():
    found = parameters(grids.paper)
    assert set(found) == {*(set(found) & set(SHARED)), *OF_BENCH_PAPER}
    assert {name: found[name].default for name in ("backbone", "size", "epochs", "warmup")} == {
        "backbone": "resnet50",
        "size": 224,
        "epochs": 28,
        "warmup": 12,
    }


def test_what_a_grid_was_given_reaches_its_runs():
    options = {"tune": "heads", "size": 64, "epochs": 3, "prefer": "recall", "split": "balanced"}
    cell = Cell(row_of("cap", {}), 0.3, 7)
    config = job_of(Grid("scenes:40", options, (cell,)), cell).config
    recipe = config.recipe
    assert (recipe.tune, recipe.size, recipe.epochs, recipe.prefer) == ("heads", 64, 3, "recall")
    assert (config.method, config.labelled, config.split, recipe.seed) == ("cap", 0.3, "balanced", 7)


def test_a_name_that_does_not_exist_is_refused_with_the_nearest():
    with pytest.raises(TypeError, match="'epoch'; did you mean 'epochs'"):
        fewtags.train("photos", epoch=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prefer": "both"}, "--prefer both: there is only precision and balance and recall"),
        ({"seed": -1}, "--seed -1: must be between 0 and"),
        ({"size": 3}, "--size 3: "),
        ({"epochs": "many"}, "--epochs many: "),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_name_of_its_option(given, message):
    with pytest.raises(UserError, match=message):
        TrainOptions.of({"data": "photos", **given})


def test_paths_may_be_paths_or_texts():
    one, other = (TrainOptions.of({"data": kind("photos"), "out": kind("run")}) for kind in (str, Path))
    assert one == other
    assert one.out == Path("run")
