"""Write down what finished runs measured: a row a run with the command and the commit that made it, and a table.

python results/record.py results/voc/first.csv runs/voc-d2l-seed1 runs/voc-asl-seed1
"""

import argparse
import csv
import json
import os
import subprocess
from pathlib import Path

from fewtags.training.run_folder import RunFolder

FIGURES = ("map", "map_paper", "cf1", "of1", "cf1_nanmean")
PSEUDO = ("pseudo_cf1", "pseudo_cp", "pseudo_cr", "pseudo_positives")  # of the last epoch
COLUMNS = [
    "data", "labelled", "seed", "method", "features", "backbone", "size", "settings", *FIGURES, *PSEUDO,
    "seconds", "peak_memory_mb", "cores", "fewtags", "commit", "command",
]  # fmt: skip


def row(run: Path, commit: str) -> dict[str, object]:
    """What one run folder says of itself; figures in percent."""
    folder = RunFolder(run)
    config = folder.config()
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    default = type(config.build_method())()
    changed = [f"{k}={v}" for k, v in config.method_settings.items() if v != getattr(default, k)]
    pseudo = ([record for record in folder.records() if "pseudo_cf1" in record] or [{}])[-1]
    words = ["fewtags train", config.data, f"--method {config.method}", f"--seed {config.recipe.seed}"]
    words += [f"--labelled {config.labelled}"] * (config.labelled is not None)
    words += [f"--size {config.recipe.size}", f"--features {config.recipe.features}", f"--backbone {config.backbone}"]
    recipe = [f"blocks={config.recipe.blocks}"] * (config.recipe.features == "evidence")
    words += [f"--tune {config.recipe.tune}", *(f"--set {word}" for word in recipe + changed)]
    kind = result.get("features", {}).get("blocks", "crops")
    return {
        "data": config.data.split(":")[0] if config.data.startswith("voc") else config.data,
        "labelled": config.labelled,
        "seed": config.recipe.seed,
        "method": config.method,
        "features": kind,  # of evidence features the kind that was given or chosen
        "backbone": config.backbone,
        "size": config.recipe.size,
        "settings": " ".join(changed),
        **{name: round(100 * result[name], 2) for name in FIGURES},
        **{name: round(100 * pseudo[name], 1) if pseudo else "" for name in PSEUDO[:3]},
        PSEUDO[3]: int(pseudo[PSEUDO[3]]) if pseudo else "",
        "seconds": result["seconds"],
        "peak_memory_mb": result["peak_memory_mb"],
        "cores": os.cpu_count(),
        "fewtags": config.fewtags,
        "commit": commit,
        "command": " ".join(words).replace(config.data, "voc:PATH")
        if config.data.startswith("voc:")
        else " ".join(words),
    }


def markdown(rows: list[dict[str, object]]) -> str:
    """The figures as a table to read."""
    shown = ("method", "features", "settings", "labelled", "seed", "map", "cf1", "of1", *PSEUDO, "seconds")
    lines = ["| " + " | ".join(shown) + " |", "|" + "---|" * len(shown)]
    lines += ["| " + " | ".join(str(each[name]) for name in shown) + " |" for each in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Read the runs, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--commit", help="the commit that the runs were made with; the present one unless given")
    arguments = parser.parse_args()
    here = ["git", "rev-parse", "--short", "HEAD"]
    commit = arguments.commit or subprocess.run(here, capture_output=True, text=True, check=True).stdout.strip()
    rows = [row(run, commit) for run in arguments.runs]
    with arguments.table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    arguments.table.with_suffix(".md").write_text(markdown(rows), encoding="utf-8")
    for each in rows:
        print("{method:<8} {settings:<30} seed {seed}  mAP {map}  CF1 {cf1}  OF1 {of1}".format(**each))


if __name__ == "__main__":
    main()
