"""`fewtags bench`: grids of runs, their tables and figures, and the paper's own grid."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from fewtags.cli.options import Data, Features, Labels, Protocol, Split, Tune

bench = typer.Typer(help="Grids of runs, and the tables and figures made of them.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The --out of `fewtags bench run`.")]


class Engine(str, Enum):
    """Where cells run."""

    local = "local"
    ray = "ray"


class Format(str, Enum):
    """How a table is written."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"
    latex = "latex"


class Rule(str, Enum):
    """Who decides which score is high enough."""

    mat = "mat"
    own = "own"
    half = "half"
    top_k = "top_k"


class PaperData(str, Enum):
    """The data sets of the paper."""

    voc = "voc"
    coco = "coco"
    nus = "nus"


Methods = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME …", help="Methods, variants such as mat+cdd, or the words paper, ablation, all."),
]
Shares = Annotated[list[float] | None, typer.Option(metavar="SHARE …", help="Shares of labels that are kept.")]
Seeds = Annotated[list[int] | None, typer.Option(metavar="N …", help="Seeds.")]
Jobs = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Cells at a time; else one a core, or one on a GPU.")
]
EngineOption = Annotated[Engine, typer.Option(help="local, or ray: the same cells as Ray tasks, also on several GPUs.")]
Address = Annotated[str | None, typer.Option(help="Of a running Ray cluster; else one is started here.")]
Retry = Annotated[bool, typer.Option("--retry", help="Run cells that failed once more, from the start.")]


@bench.command("run")
def run(
    data: Data,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the grid; more cells may be added later.")],
    methods: Methods = None,
    labelled: Shares = None,
    seeds: Seeds = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=A,B,…", help="Settings; several values make several rows."),
    ] = None,
    labels: Labels = None,
    features: Annotated[Features | None, typer.Option(help="What a frozen backbone gives.")] = None,
    backbone: Annotated[str | None, typer.Option(help="As in train.")] = None,
    tune: Annotated[Tune | None, typer.Option(help="What learns.")] = None,
    size: Annotated[int | None, typer.Option(min=16, metavar="PX", help="Side of the network's input.")] = None,
    epochs: Annotated[int | None, typer.Option(min=0, help="Epochs of the main stage.")] = None,
    warmup: Annotated[int | None, typer.Option(min=0, help="Epochs on the labelled images before it.")] = None,
    weights: Annotated[Path | None, typer.Option(metavar="FILE", help="Backbone weights.")] = None,
    split: Annotated[Split | None, typer.Option(help="How --labelled chooses.")] = None,
    protocol: Annotated[Protocol | None, typer.Option(help="Whose schedule.")] = None,
    jobs: Jobs = None,
    engine: EngineOption = Engine.local,
    address: Address = None,
    retry: Retry = False,
) -> None:
    """Run a grid: methods × labelled shares × seeds. Killed at any moment, it goes on where it was."""
    from fewtags.cli.grids import run_bench

    options = {
        "labels": str(labels) if labels else None,
        "features": features.value if features else None,
        "backbone": backbone,
        "tune": tune.value if tune else None,
        "size": size,
        "epochs": epochs,
        "warmup": warmup,
        "weights": str(weights) if weights else None,
        "split": split.value if split else None,
        "protocol": protocol.value if protocol else None,
    }
    run_bench(data, out, methods, labelled, seeds, settings or [], options, jobs, engine.value, address, retry)


@bench.command("table")
def table(
    folder: Folder,
    kind: Annotated[
        Format | None, typer.Option("--format", help="How it is written; else as the name of --out ends.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="A file instead of the screen.")] = None,
    rule: Annotated[Rule, typer.Option(help="Decides for CF1 and OF1 over the shares.")] = Rule.mat,
    paper: Annotated[bool, typer.Option("--paper", help="Put the published figures beside.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 2 if cells are missing.")] = False,
) -> None:
    """The tables of a grid: quality, rules of decision, ablation, cost."""
    from fewtags.cli.grids import run_table

    run_table(folder, kind.value if kind else None, out, rule.value, paper, strict)


@bench.command("figures")
def figures(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where they go; else DIR/figures.")] = None,
) -> None:
    """The figures of a grid, each as PNG, SVG and PDF."""
    from fewtags.cli.grids import run_figures

    run_figures(folder, out)


@bench.command("paper")
def paper(
    name: Annotated[PaperData, typer.Argument(metavar="voc|coco|nus", help="Which of the paper's data sets.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Where it lies.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder of the grid; else paper-NAME.")] = None,
    methods: Methods = None,
    labelled: Shares = None,
    seeds: Seeds = None,
    backbone: Annotated[str, typer.Option(help="As in train.")] = "resnet50",
    weights: Annotated[Path | None, typer.Option(metavar="FILE", help="ImageNet weights of it.")] = None,
    size: Annotated[int, typer.Option(min=16, metavar="PX", help="Side of the network's input.")] = 224,
    epochs: Annotated[int, typer.Option(min=0, help="Epochs of the main stage.")] = 28,
    warmup: Annotated[int, typer.Option(min=0, help="Epochs on the labelled images before it.")] = 12,
    jobs: Jobs = None,
    engine: EngineOption = Engine.local,
    address: Address = None,
    retry: Retry = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan with its hours, run nothing.")] = False,
) -> None:
    """The paper's grid under the paper's protocol; for machines with GPUs. Prints the plan first."""
    from fewtags.cli.grids import run_paper

    options = {"backbone": backbone, "weights": str(weights) if weights else None, "size": size, "epochs": epochs}
    options |= {"warmup": warmup, "tune": "all", "protocol": "paper"}
    run_paper(name.value, path, out, methods, labelled, seeds, options, jobs, engine.value, address, retry, dry_run)
