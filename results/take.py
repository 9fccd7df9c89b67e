"""Keep what `make results` needs of a finished grid, without where its images lie on this machine.

python results/take.py GRID results/voc/crops
"""

import json
import shutil
import sys
from pathlib import Path


def take(grid: Path, into: Path) -> None:
    """Copy the list of cells and their records."""
    plan = json.loads((grid / "grid.json").read_text(encoding="utf-8"))
    plan["data"] = plan["data"].partition(":")[0] + ":PATH"
    into.mkdir(parents=True, exist_ok=True)
    (into / "grid.json").write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
    shutil.copyfile(grid / "records.jsonl", into / "records.jsonl")


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
