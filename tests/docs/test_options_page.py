"""docs/options.md is what docs/options.py writes."""

import runpy
from pathlib import Path

from fewtags.training.options import option_names

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_options_is_up_to_date():
    page = runpy.run_path(str(DOCS / "options.py"))["page"]()
    assert (DOCS / "options.md").read_text(encoding="utf-8") == page, "run: python docs/options.py"
    assert [name for name in option_names() if f"| `{name}` |" not in page] == []
