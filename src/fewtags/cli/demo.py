"""`fewtags demo`: few labels alone against few labels and many unlabelled images, on drawn scenes."""

from pathlib import Path
from typing import Any

from fewtags.utils.progress import say

DATA, SHARE = "scenes:1600", 0.1
LABELLED_ONLY = {"blocks": "choose", "learner": "regression", "share": 0}
RUNS: dict[str, dict[str, Any]] = {
    "labelled": {"method": "neighbours", "features": "evidence", "settings": LABELLED_ONLY},
    "all": {"words": "off"},  # the default, but for tags' names: of drawings they say little (results/voc/words.md)
}  # the same features and components for both: what differs is what is learned from


def run_demo(out: Path, seed: int) -> None:
    """Train both, show the gain, point at the files."""
    from fewtags.api import train, write_report
    from fewtags.utils.stopping import StopRequest

    say("Drawn scenes: a tenth of the training images carry tags, the rest none.")
    results: dict[str, dict[str, Any]] = {}
    for name, options in RUNS.items():
        folder = out / f"{name}-seed{seed}"
        with StopRequest().listening() as stop:
            run = train(DATA, out=folder, labelled=SHARE, seed=seed, tune="heads", resume=True, stop=stop, **options)
        results[name] = run.result
    report = write_report(out / f"all-seed{seed}")
    _print_table(results)
    print(f"\nTwelve of the images that came without tags, as they were tagged: {out / f'all-seed{seed}' / 'tags.png'}")
    print(f"A page about it, for any browser: {report}")
    print(f"Everything of the two runs: {out}/")
    print("\nYour own folder, with a labels.csv that tags a few of its images (image,tags / beach.jpg,sea|dog):")
    print("  fewtags check photos\n  fewtags train photos --out run\n  fewtags tag run more-photos --out more.csv")


def _print_table(results: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    images = results["all"]["images"]
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("learned from")
    for name in ("mAP", "CF1", "OF1"):
        table.add_column(name, justify="right")
    rows = {
        "labelled": f"{images['labelled']} labelled images (logistic regression)",
        "all": f"the same and {images['unlabelled']} unlabelled ones (the default, --words off)",
    }
    for name, words in rows.items():
        table.add_row(words, *(f"{100 * results[name][key]:.1f}" for key in ("map", "cf1", "of1")))
    gains = [100 * (results["all"][key] - results["labelled"][key]) for key in ("map", "cf1", "of1")]
    table.add_row("gain", *(f"{gain:+.1f}" for gain in gains))
    console = Console()
    console.print(f"\nOn {images['test']} scenes that neither has seen, in percent:", highlight=False)
    console.print(table)
