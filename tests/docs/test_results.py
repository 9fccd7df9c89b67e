"""What is written below results/ is what the records beside it say."""

from pathlib import Path

import pytest

from fewtags.cli import run

RESULTS = Path(__file__).parents[2] / "results"
GRIDS = sorted(file.parent for file in RESULTS.rglob("grid.json"))


def test_there_are_grids():
    assert {grid.name for grid in GRIDS} >= {"crops", "evidence", "study", "tuned"}


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.name)
def test_make_results_would_change_nothing(grid, tmp_path):
    file = tmp_path / "table.md"
    assert run(["bench", "table", str(grid), "--paper", "--strict", "--out", str(file)]) == 0
    assert file.read_bytes() == (grid / "table.md").read_bytes()
