"""The verbs and their options."""

from pathlib import Path
from typing import Annotated

import typer

from fewtags.cli.bench import bench
from fewtags.cli.options import Data, Features, Form, Format, Labels, Prefer, Protocol, RunArgument, Split, Tune

app = typer.Typer(
    name="fewtags",
    help="Tag a few images, get them all tagged.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench, name="bench")


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from fewtags import __version__

        typer.echo(f"fewtags {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where its two runs go.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Which images are labelled.")] = 1,
) -> None:
    """The whole story on drawn scenes, in a few minutes.

    A few labelled images alone against the same and all the unlabelled ones; ends with a table and a picture.
    """
    from fewtags.cli.demo import run_demo

    run_demo(out, seed)


@app.command()
def check(data: Data, labels: Labels = None) -> None:
    """Everything wrong with a data set at once, with line numbers."""
    from fewtags.cli.verbs import run_check

    run_check(data, labels)


@app.command()
def train(
    data: Data,
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="A new folder for the run; else below runs/.")] = None,
    labels: Labels = None,
    method: Annotated[str, typer.Option(help="`fewtags methods` lists them; or an importable module.")] = "auto",
    backbone: Annotated[
        str | None,
        typer.Option(help="efficientnet_lite0…4, resnet18…101, hf:NAME, timm:NAME, onnx:FILE; several as A+B."),
    ] = None,
    features: Annotated[
        Features | None,
        typer.Option(help="What a frozen backbone gives: pooled crops, or evidence from windows (default of auto)."),
    ] = None,
    tune: Annotated[
        Tune | None,
        typer.Option(help="What learns: heads on frozen features (default on a CPU), or all (on a GPU)."),
    ] = None,
    labelled: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Hide labels until this share is left, as the papers do."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides everything random.")] = 1,
    epochs: Annotated[int | None, typer.Option(min=0, help="Epochs of the main stage.")] = None,
    warmup: Annotated[int | None, typer.Option(min=0, help="Epochs on the labelled images before it.")] = None,
    size: Annotated[int | None, typer.Option(metavar="PX", min=16, help="Side of the network's input.")] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Backbone weights: .safetensors or .pth.")
    ] = None,
    split: Annotated[Split, typer.Option(help="How --labelled chooses.")] = Split.paper,
    workers: Annotated[int | None, typer.Option(min=0, help="Processes that read pixels (--tune all).")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at images that cannot be used.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    protocol: Annotated[
        Protocol, typer.Option(help="paper: the released schedule; the test split chooses the epoch.")
    ] = Protocol.ours,
    prefer: Annotated[
        Prefer, typer.Option(help="What thresholds for tagging serve: few wrong tags, few missing ones, or both.")
    ] = Prefer.balance,
    validate: Annotated[
        bool, typer.Option("--validate", help="With --tune all: keep a fifth of the labels to judge by.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Settings of `fewtags methods NAME`."),
    ] = None,
    with_review: Annotated[
        bool, typer.Option("--with-review", help="DATA is a run: learn again with the decisions of its review.")
    ] = False,
) -> None:
    """Learn from labelled and unlabelled images; tag the unlabelled."""
    from fewtags.cli.verbs import parse_settings, run_train

    run_train(
        data,
        out=out,
        labels=labels,
        method=method,
        backbone=backbone,
        features=features.value if features else None,
        tune=tune.value if tune else None,
        labelled=labelled,
        seed=seed,
        epochs=epochs,
        warmup=warmup,
        size=size,
        weights=weights,
        split=split.value,
        workers=workers,
        strict=strict,
        resume=resume,
        protocol=protocol.value,
        prefer=prefer.value,
        validate=validate,
        settings=parse_settings(settings or []),
        with_review=with_review,
    )


@app.command()
def tag(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or what `fewtags export` wrote.")],
    images: Annotated[list[str], typer.Argument(metavar="IMAGES", help="Folders, files or patterns such as '*.jpg'.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="A CSV file, or - for standard output.")] = "-",
    scores: Annotated[bool, typer.Option("--scores", help="Add a column with the score of every tag.")] = False,
) -> None:
    """Tag images with a trained model."""
    from fewtags.cli.tag import run_tag

    run_tag(run, images, out, scores)


@app.command()
def evaluate(
    run: RunArgument,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help="Other labelled images.")] = None,
    labels: Labels = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """How good a model is, over all tags and for each."""
    from fewtags.cli.verbs import run_evaluate

    run_evaluate(run, data, labels, json)


@app.command()
def report(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="An HTML file, if not RUN/report.html.")] = None,
) -> None:
    """One HTML file about a run: how good it is, what to look at."""
    from fewtags.cli.report import run_report

    run_report(run, out)


@app.command()
def review(
    run: RunArgument,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Others than this machine need a password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its first line is asked for by the browser.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Correct the tags of a run on a local page."""
    from fewtags.cli.review import run_review

    run_review(run, host, port, password_file, browser)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="CSV, Label Studio JSON, FiftyOne JSON, review.jsonl.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="A .csv or .json file.")],
    to: Annotated[Form | None, typer.Option(help="What to write; a .csv is wide, a .json needs this.")] = None,
) -> None:
    """Labels from and for other tools."""
    from fewtags.cli.convert import run_convert

    run_convert(source, target, to.value if to else None)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method and its settings.")] = None,
) -> None:
    """The methods, a line each; with a name, all its settings."""
    from fewtags.cli.verbs import run_methods

    run_methods(name)


@app.command()
def export(
    run: RunArgument,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A new .onnx file; a folder for safetensors.")],
    form: Annotated[
        Format,
        typer.Option("--format", help="onnx: one file, pixels to scores; safetensors: a folder with a model card."),
    ] = Format.onnx,
) -> None:
    """Take a trained model away: one ONNX file, or a folder."""
    from fewtags.cli.export import run_export

    run_export(run, target, form.value)


@app.command()
def explain(
    run: RunArgument,
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="An image file.")],
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="A tag to explain; may be repeated. Else the given and near misses."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .png or .html file; else IMAGE-explain.png in this folder.")
    ] = None,
) -> None:
    """Why an image got its tags: heat maps, scores, what decided."""
    from fewtags.cli.explain import run_explain

    run_explain(run, image, tags or [], out)
