"""`fewtags demo`: few labels alone against few labels and many unlabelled images, on drawn scenes."""

from pathlib import Path
from typing import Any

from fewtags.progress import say

DATA, SHARE = "scenes:1600", 0.1
RUNS = {
    "asl": {"patches": 2},
    "d2l": {},
}  # the same five views for both: what differs is the unlabelled images


def run_demo(out: Path, seed: int) -> None:
    """Train both, show the gain, point at the files."""
    from fewtags.api import train

    say("Drawn scenes: a tenth of the training images carry tags, the rest none.")
    results: dict[str, dict[str, Any]] = {}
    for method, settings in RUNS.items():
        folder = out / f"{method}-seed{seed}"
        run = train(DATA, out=folder, method=method, labelled=SHARE, seed=seed, settings=settings, resume=True)
        results[method] = run.result
    _print_table(results)
    sheet = out / f"d2l-seed{seed}" / "tags.png"
    print(f"\nTwelve of the images that came without tags, as D2L + MAT tagged them: {sheet}")
    print(f"Everything of the two runs: {out}/")
    print("\nYour own folder, with a labels.csv that tags a few of its images (image,tags / beach.jpg,sea|dog):")
    print("  fewtags check photos\n  fewtags train photos --out run\n  fewtags tag run more-photos --out more.csv")


def _print_table(results: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    images = results["d2l"]["images"]
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("learned from")
    for name in ("mAP", "CF1", "OF1"):
        table.add_column(name, justify="right")
    rows = {
        "asl": f"{images['labelled']} labelled images (ASL)",
        "d2l": f"the same and {images['unlabelled']} unlabelled ones (D2L + MAT)",
    }
    for method, words in rows.items():
        table.add_row(words, *(f"{100 * results[method][key]:.1f}" for key in ("map", "cf1", "of1")))
    gains = [100 * (results["d2l"][key] - results["asl"][key]) for key in ("map", "cf1", "of1")]
    table.add_row("gain", *(f"{gain:+.1f}" for gain in gains))
    console = Console()
    console.print(f"\nOn {images['test']} scenes that neither has seen, in percent:", highlight=False)
    console.print(table)
