"""The verbs and their options."""

from pathlib import Path
from typing import Annotated

import typer

from fewtags.cli.bench import bench
from fewtags.cli.lazy import lazy
from fewtags.cli.options import Data, Form, Format, Labels, Method, RunArgument

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
def check(
    data: Data,
    labels: Labels = None,
    tags: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Names of tags, for a folder without labels or beside them.")
    ] = None,
) -> None:
    """Everything wrong with a data set at once, with line numbers."""
    from fewtags.cli.verbs import run_check

    run_check(data, labels, tags)


@app.command()
def words(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names of tags.")],
    own: Annotated[
        str | None,
        typer.Option("--words", metavar="TEXT", help="A CSV file, or 'sofa=couch|settee; crane=-crane (wading bird)'."),
    ] = None,
) -> None:
    """What fewtags knows about a tag from its name alone."""
    from fewtags.cli.words import run_words

    run_words(names, own)


@app.command(cls=lazy("fewtags.cli.train", "train"))
def train() -> None:
    """Learn from labelled and unlabelled images; tag the unlabelled."""


@app.command()
def tag(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or what `fewtags export` wrote.")],
    images: Annotated[
        list[str], typer.Argument(metavar="IMAGES", help="Folders, files, patterns such as '*.jpg', or vectors:FILE.")
    ],
    out: Annotated[str, typer.Option(metavar="FILE", help="A CSV file, or - for standard output.")] = "-",
    scores: Annotated[bool, typer.Option("--scores", help="Add one column per tag with its score.")] = False,
    method: Method = None,
) -> None:
    """Tag images with a trained model."""
    from fewtags.cli.tag import run_tag

    run_tag(run, images, out, scores, method)


@app.command()
def evaluate(
    run: RunArgument,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help="Other labelled images.")] = None,
    labels: Labels = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    method: Method = None,
) -> None:
    """How good a model is, over all tags and for each."""
    from fewtags.cli.verbs import run_evaluate

    run_evaluate(run, data, labels, json, method)


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
    """The methods, one per line; with a name, all its settings."""
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
    method: Method = None,
) -> None:
    """Take a trained model away: one ONNX file, or a folder."""
    from fewtags.cli.export import run_export

    run_export(run, target, form.value, method)


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
    method: Method = None,
) -> None:
    """Why an image got its tags: heat maps, scores, what decided."""
    from fewtags.cli.explain import run_explain

    run_explain(run, image, tags or [], out, method)
