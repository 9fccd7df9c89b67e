"""A damaged result.json gets one message, not a traceback."""

from pathlib import Path

import pytest

from fewtags.errors import UserError
from fewtags.report.facts import _check_outlook

STEP = {"labels": 20, "map": 0.01, "per_tag": {"sea": 0.02}}
CURVE = {"labels": [10, 20, 24], "map": [0.5, 0.6, 0.6], "next": [STEP]}


@pytest.mark.parametrize(
    "result",
    [
        {"learning_curve": {"next": "x"}},
        {"learning_curve": {**CURVE, "next": []}},
        {"learning_curve": {**CURVE, "next": [{**STEP, "per_tag": None}]}},
        {"learning_curve": {**CURVE, "labels": ["many"]}},
        {"learning_curve": 3},
        {"not_given": [{"tag": "sea"}]},
        {"not_given": 7},
        {"compared": {"text": ""}},
        {"compared": "better"},
    ],
)
def test_a_damaged_outlook_is_refused_with_the_files_name(result):
    with pytest.raises(UserError, match=r"result\.json is damaged .*train again"):
        _check_outlook(result, Path("result.json"))


def test_a_whole_outlook_and_one_of_an_older_run_are_taken():
    compared = {"text": "what the corrections brought"}
    _check_outlook({"learning_curve": CURVE, "not_given": [{"tag": "sea", "more_labels": 20}], "compared": compared},
                   Path("result.json"))  # fmt: skip
    _check_outlook({}, Path("result.json"))
