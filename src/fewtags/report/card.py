"""The model card: what a model learned from, how, how good it is for each tag, and where it should not be trusted."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fewtags.data import split_spec
from fewtags.data.catalogue import MIN_POSITIVES
from fewtags.methods import find_method, method_names
from fewtags.model.saved import ModelInfo
from fewtags.training.config import Config
from fewtags.training.run_folder import RunFolder

PREFERRED = {"precision": "precision above recall", "balance": "F1", "recall": "recall above precision"}
FRONT = """---
library_name: fewtags
pipeline_tag: {task}
tags: [multi-label, {kind}-tagging, semi-supervised]
---
"""


def model_card(run: Path, info: ModelInfo) -> str:
    """README.md of a model, in Markdown; a model folder without its run can say less, and says so."""
    folder = RunFolder(run)
    config = folder.config() if folder.config_file.is_file() else None
    result = folder.result() if folder.result_file.is_file() else {}
    reads = "images" if info.backbone else "vectors"
    front = FRONT.format(task="image-classification" if info.backbone else "tabular-classification", kind=reads[:-1])
    sections = [
        f"# Tags {reads} with {len(info.tags)} tags",
        f"{_words(info.tags)}.\n\nA fewtags model: every tag is given whose score reaches the tag's threshold.",
        _use(),
        "## Data\n\n" + _data(config, result, info),
        "## Method\n\n" + _method(config, info),
        "## How good it is\n\n" + _quality(result, info),
        "## Limits\n\n" + _limits(config, result, info),
    ]
    return front + "\n" + "\n\n".join(sections) + "\n"


def _use() -> str:
    return (
        "## Use\n\nThis folder is the whole model: `model.json` (tags, thresholds, preprocessing) and "
        "`model.safetensors` (weights).\n\n```sh\nfewtags tag THIS-FOLDER IMAGES --out tags.csv\n```\n\n"
        '```python\nimport fewtags\n\nfewtags.load("THIS-FOLDER").tag(["a.jpg"])\n```'
    )


def _data(config: Config | None, result: dict[str, Any], info: ModelInfo) -> str:
    if config is None:
        return f"Learned from {_images(info.learned_from)}; nothing else is known without the run folder."
    kind, rest = split_spec(config.data)
    name = f"the folder `{_code(Path(rest).name)}`" if kind == "folder" else f"`{kind}`"
    images = result.get("images", {})
    told = [f"{images[part]:,} {word}" for part, word in _PARTS.items() if images.get(part)]
    lines = [f"From {name}: {', '.join(told) or _images(info.learned_from)}."]
    if config.labelled is not None:
        lines.append(
            f"All labels were known; those of all but a share of {config.labelled:g} were hidden from training "
            f"(split `{config.split}`, seed {config.recipe.seed})."
        )
    return "\n".join(lines)


_PARTS = {
    "labelled": "labelled images",
    "unlabelled": "unlabelled images that it learned from too",
    "test": "test images that it never saw",
}


def _method(config: Config | None, info: ModelInfo) -> str:
    first = ""
    if info.method in method_names():  # of another package: a file must not decide which code is imported
        first = f": {(find_method(info.method).__doc__ or '').splitlines()[0]}"
    rows: list[tuple[str, object]] = [
        ("fewtags", info.fewtags),
        ("method", f"{info.method}{first}"),
        ("what learned", "heads on frozen features" if info.frozen else "every weight"),
        ("features", info.features if info.frozen else "the network's own"),
    ]
    if info.backbone:
        rows += [("backbone", info.backbone), ("input", f"{info.size} × {info.size} px")]
        rows += [("views", "the whole image" + (f" and {info.patches**2} patches" if info.patches > 1 else ""))]
    if config is not None:
        recipe = config.recipe
        rows += [("epochs", f"{recipe.warmup} on labelled images, then {recipe.epochs} on all"), ("seed", recipe.seed)]
        rows += [("protocol", "paper: the test split chose the epoch")] if recipe.protocol == "paper" else []
    rows += [(f"setting `{_code(key)}`", value) for key, value in info.method_settings.items()]
    return _table(("", ""), rows)


def _quality(result: dict[str, Any], info: ModelInfo) -> str:
    parts = []
    estimate = result.get("estimate")
    if estimate:
        parts.append(
            f"Estimated from {estimate['how']} (in brackets 95 % intervals; thresholds "
            f"for {PREFERRED.get(estimate['prefer'], estimate['prefer'])}): mAP {_figure(estimate, 'map')}, "
            f"CF1 {_figure(estimate, 'cf1')}, OF1 {_figure(estimate, 'of1')}.\n\n"
            + _tag_table(estimate["per_tag"], "labelled images")
        )
    if result.get("map") is not None:
        chosen = " The test split chose the epoch, so these figures flatter." * ("chosen_on_the_test_split" in result)
        parts.append(
            f"On {_images(result['images']['test'])} of the test split: mAP {_figure(result, 'map')}, "
            f"CF1 {_figure(result, 'cf1')}, OF1 {_figure(result, 'of1')}.{chosen}\n\n"
            + _tag_table(result["per_tag"], "test images")
        )
    if parts:
        return "\n\n".join(["In percent.", *parts])
    limits = zip(info.tags, info.thresholds, strict=True)
    why = "no estimate from its labelled ones" if result.get("images", {}).get("labelled") else "no labelled ones"
    return f"Not measured: the run has no test images and {why}.\n\n" + _table(
        ("tag", "threshold"), [(_text(tag), _threshold(value)) for tag, value in limits]
    )


def _tag_table(rows: Sequence[dict[str, Any]], of: str) -> str:
    header = ("tag", of, "threshold", "precision", "recall", "F1", "AP")
    body = []
    for row in rows:
        figures = [_figure(row, name) for name in ("precision", "recall", "f1", "ap")]
        if not row.get("enough", row["support"] >= MIN_POSITIVES):
            figures = ["too few to say", "", "", ""]
        body.append((_text(row["tag"]), f"{row['support']:,}", _threshold(row["threshold"]), *figures))
    return _table(header, body)


def _limits(config: Config | None, result: dict[str, Any], info: ModelInfo) -> str:
    lines = [
        "It knows these tags and no others, and no image is refused: one unlike those it learned from is scored too.",
        "The figures hold for images like those it learned from; elsewhere, measure again "
        "(`fewtags evaluate RUN DATA`).",
        "A score is a probability, calibrated on labelled images: of tags given with 0.8, about eight of ten are right."
        if info.calibration
        else "A score says how an image compares with others; it is no calibrated probability.",
    ]
    never = [tag for tag, value in zip(info.tags, info.thresholds, strict=True) if value is None]
    if never:
        lines.append(f"Not given to any image, because too few labelled images show them: {_words(never)}.")
    if result.get("unverified"):
        lines.append(f"Given by their names alone, which no labelled image confirms: {_words(result['unverified'])}.")
    rows = (result.get("estimate") or {}).get("per_tag") or []
    few = [row["tag"] for row in rows if 0 < row["support"] < MIN_POSITIVES]
    if few:
        lines.append(f"Fewer than {MIN_POSITIVES} labelled images show {_words(few)}: check these by eye.")
    if config is not None and config.weights is None and info.frozen:
        lines.append("The backbone is frozen: what its training images did not teach it to see cannot be learned here.")
    lines.append("The weights of the backbone keep the licence they came with.")
    return "\n".join(f"- {line}" for line in lines)


def _figure(row: dict[str, Any], name: str) -> str:
    """`81.2`, with an interval where there is one: `81.2 (75.0–86.1)`."""
    value, interval = row.get(name), (row.get("intervals") or {}).get(name)
    if value is None:
        return "–"
    return f"{100 * value:.1f}" + (f" ({100 * interval[0]:.1f}–{100 * interval[1]:.1f})" if interval else "")


def _threshold(value: float | None) -> str:
    return "never given" if value is None else f"{value:.3f}"


def _images(count: int) -> str:
    return f"{count:,} image{'' if count == 1 else 's'}"


def _words(tags: Iterable[str]) -> str:
    return ", ".join(map(_text, tags))


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _text(word: str) -> str:
    """A name that someone else chose, as plain text in Markdown."""
    plain = " ".join(word.split()).replace("&", "&amp;").replace("<", "&lt;").replace("\\", "\\\\")
    for sign in "`*_[]#":
        plain = plain.replace(sign, f"\\{sign}")
    return plain


def _code(word: str) -> str:
    return " ".join(word.split()).replace("`", "'")
