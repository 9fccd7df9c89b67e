"""Tables of made-up records: the best, ties, missing seeds, and the output formats."""

import csv
import io
import json
import os
import re
import subprocess
import sys

import pytest

from fewtags.bench.formats import as_csv, as_latex, as_markdown, as_text
from fewtags.bench.published import published
from fewtags.bench.records import read_records, refresh_records
from fewtags.bench.tables import NAMES, Entry, Table, missing_cells, tables
from fewtags.cli import run
from fewtags.errors import UserError
from small_grids import cell, kept, made_up


def made(records, cells=None, **options):
    return tables(records, cells or [one.cell for one in records], **options)


def first(records, cells=None, **options):
    """The lines of the first table, mAP."""
    return dict(made(records, cells, **options)[0].lines)


def texts(lines):
    return {name: [entry.text() for entry in line] for name, line in lines.items()}


def test_mean_and_sample_deviation_over_seeds_of_every_share():
    records = [
        made_up("asl", 0.05, 1, 70),
        made_up("asl", 0.05, 2, 72),
        made_up("asl", 0.1, 1, 80),
        made_up("asl", 0.1, 2, 80),
    ]
    table = made(records)[0]
    assert table.columns == ["5 %", "10 %"]
    assert texts(dict(table.lines)) == {"ASL": ["71.0 ± 1.4", "80.0 ± 0.0"]}
    assert "mean ± standard deviation over 2 seeds" in table.notes


def test_one_seed_has_no_deviation():
    table = made([made_up("asl", value=70)])[0]
    assert texts(dict(table.lines)) == {"ASL": ["70.0"]}
    assert "one seed" in table.notes


def test_the_best_is_marked_and_so_are_ties_with_it():
    records = [made_up(name, seed=seed, value=value)
               for name, value in (("asl", 60), ("cap", 69.9), ("d2l", 70)) for seed in (1, 2)]  # fmt: skip
    near = [x + step for x, step in zip(records[4].draws["map"], 25 * [-0.4, 0.6], strict=True)]  # around 70 + 0.1
    records[2] = made_up("cap", seed=1, value=69.9, draws={"map": near})
    records[3] = made_up("cap", seed=2, value=69.9, draws={"map": near})
    (best,), (tied,), (clear,) = (first(records)[name] for name in ("D2L + MAT", "CAP", "ASL"))
    assert (best.best, best.tied) == (True, False)
    assert (tied.best, tied.tied) == (False, True)
    assert (clear.best, clear.tied) == (False, False)
    assert tied.text() == "69.9 ± 0.0 ~"


def test_ties_are_both_best():
    lines = first([made_up("asl", value=70), made_up("cap", value=70), made_up("d2l", value=69)])
    assert [lines[name][0].best for name in ("ASL", "CAP", "D2L + MAT")] == [True, True, False]


def test_no_paired_test_is_claimed_without_bootstrap_samples():
    bare = [made_up(name, value=value, draws={}) for name, value in (("asl", 70), ("cap", 69.9))]
    assert not any(entry.tied for line in first(bare).values() for entry in line)
    drawn = [made_up("asl", value=70), made_up("cap", value=70.0001)]
    drawn[0] = made_up("asl", value=70, draws=drawn[1].draws)

    def noisy(rule):
        table = next(one for one in made(drawn, rule=rule) if one.title.startswith("CF1, %"))
        return any(entry.tied for _, line in table.lines for entry in line)

    # the draws are of CF1 under the rule `mat`
    assert noisy("mat")
    assert not noisy("half")
    untested = [one.title for one in made(drawn, rule="half") if "no paired test" in one.notes]
    assert [title.partition(",")[0] for title in untested] == ["CF1", "OF1", "CF1 of the last pseudo-labels"]
    under_rules = next(one for one in made(drawn) if "same rules" in one.title)
    assert "own, half, top_k: no paired test" in under_rules.notes


def test_missing_cells_are_shown_as_missing():
    records = [made_up("asl", 0.05, 1), made_up("asl", 0.05, 2), made_up("d2l", 0.05, 1)]
    cells = [cell(name, share, seed) for name in ("asl", "d2l", "cap") for share in (0.05, 0.1) for seed in (1, 2)]
    lines = texts(first(records, cells))
    assert lines == {"ASL": ["70.0 ± 0.0", "–"], "D2L + MAT": ["70.0 (1 of 2)", "–"], "CAP": ["–", "–"]}
    assert len(missing_cells(records, cells)) == 12 - 3
    assert "seeds that are missing" in made(records, cells)[0].notes[-1]


def test_rows_are_compared_over_the_seeds_that_most_of_them_have():
    values = {"asl": [70, 72], "cap": [71, 73], "d2l": [72, 74, 90]}  # the third seed is an easy one
    records = [made_up(name, 0.05, seed, value) for name, some in values.items() for seed, value in enumerate(some)]
    found = made(records)
    assert texts(dict(found[0].lines))["D2L + MAT"] == ["73.0 ± 1.4"]
    over_all = next(table for table in found if "more seeds" in table.title)
    assert texts(dict(over_all.lines)) == {"D2L + MAT": ["78.7 ± 9.9"]}


def test_where_as_many_rows_have_more_seeds_the_fewer_are_compared_and_nothing_is_called_missing():
    counts = {"asl": 2, "bce": 2, "cap": 3, "d2l": 3}
    records = [made_up(name, 0.05, seed, 70 + 9 * seed) for name, count in counts.items() for seed in range(count)]
    found = made(records)
    assert set(map(tuple, texts(dict(found[0].lines)).values())) == {("74.5 ± 6.4",)}
    assert not any("missing" in note for table in found for note in table.notes)


def test_a_row_stands_among_those_with_more_seeds_only_where_it_has_more():
    counts = {("asl", 0.05): 2, ("asl", 0.1): 2, ("cap", 0.05): 2, ("cap", 0.1): 2, ("d2l", 0.05): 3, ("d2l", 0.1): 2,
              ("mat", 0.05): 2, ("mat", 0.1): 3}  # fmt: skip
    records = [made_up(*where, seed) for where, count in counts.items() for seed in range(count)]
    over_all = next(table for table in made(records) if "more seeds" in table.title)
    assert texts(dict(over_all.lines)) == {"D2L + MAT": ["70.0 ± 0.0", ""], "MAT": ["", "70.0 ± 0.0"]}


def test_a_row_with_fewer_seeds_than_the_others_says_so():
    records = [made_up(name, 0.05, seed) for name in ("asl", "cap") for seed in (1, 2)] + [made_up("d2l", 0.05, 7, 90)]
    assert texts(first(records))["D2L + MAT"] == ["90.0 (1 of 2)"]


def test_families_show_the_best_of_their_members_in_every_column_after_the_last_of_them():
    values = {"ll_r": (1, 9), "ll_ct": (5, 6), "ll_cp": (3, 7), "top_1": (2, 2), "top_k": (4, 1), "asl": (0, 0)}
    records = [
        made_up(name, share, 1, value)
        for name, pair in values.items()
        for share, value in zip((0.05, 0.1), pair, strict=True)
    ]
    lines = first(records)
    assert list(lines) == [
        "ASL",
        "LL-R",
        "LL-Ct",
        "LL-Cp",
        "LL-* (best of these 3)",
        "Top-1",
        "Top-k",
        "Top-* (best of these 2)",
    ]
    assert [entry.mean for entry in lines["LL-* (best of these 3)"]] == [5, 9]
    assert [entry.mean for entry in lines["Top-* (best of these 2)"]] == [4, 2]
    assert "LL-* (best of these 1)" not in first([made_up("ll_r")])
    cost = next(one for one in made(records) if one.title.startswith("seconds"))
    assert not any("best of" in name for name, _ in cost.lines)


def test_a_family_without_one_member_takes_the_others():
    cells = [cell("ll_r"), cell("ll_ct")]
    assert first([made_up("ll_ct", value=5)], cells)["LL-* (best of these 2)"][0].mean == 5


def test_rows_that_cannot_have_a_figure_are_no_missing_cells():
    records = [made_up("asl", pseudo=[]), made_up("d2l")]
    pseudo = next(one for one in made(records, [*(one.cell for one in records), cell("cap")]) if "pseudo" in one.title)
    assert texts(dict(pseudo.lines)) == {"CAP": ["–"], "D2L + MAT": ["43.0"]}


def test_rules_stand_side_by_side_and_a_method_without_thresholds_of_its_own_has_a_blank():
    rules = {rule: {"cf1": 50.0, "of1": 60.0} for rule in ("mat", "own", "half", "top_k")}
    own = made_up("d2l", rules=rules, draws={})
    table = next(one for one in made([own, made_up("asl")]) if "same rules" in one.title)
    assert table.columns == [
        f"{figure} {rule}" for figure in ("CF1", "OF1") for rule in ("mat", "own", "half", "top_k")
    ]
    lines = texts(dict(table.lines))
    assert lines["D2L + MAT"][:2] == ["50.0", "50.0"]
    assert lines["ASL"][1] == ""


def test_the_ablation_adds_part_after_part():
    records = [
        made_up(name, value=value) for name, value in (("d2l", 4), ("cap", 1), ("mat+cdd", 3), ("mat", 2), ("asl", 9))
    ]
    table = next(one for one in made(records) if one.title.startswith("Ablation"))
    assert [(name, entry.mean) for name, (entry,) in table.lines] == [
        ("none of the three (CAP)", 1), ("MAT", 2), ("MAT + CDD", 3), ("MAT + CDD + GUD (D2L + MAT)", 4),
    ]  # fmt: skip
    assert not any(one.title.startswith("Ablation") for one in made(records[:1]))


def test_published_figures_stand_beside_with_the_difference_in_words():
    records = [made_up(name) for name in ("d2l", "ll_r", "ll_ct", "mat", "dicap", "cap-views")]
    paper = published("voc:somewhere", "ours")
    found = made(records, paper=paper)
    assert found[0].columns == ["5 %", "5 %, paper"]
    theirs = {name: line[1].text(2) for name, line in found[0].lines}
    assert theirs == {
        "D2L + MAT": "79.26", "LL-R": "", "LL-Ct": "", "LL-* (best of these 2)": "75.79", "MAT": "76.87",
        "DiCaP": "83.53", "CAP, five views at test": "",
    }  # fmt: skip
    assert any("test split" in note and note.endswith("here: ours") for note in found[0].notes)
    assert not any("ResNet-50" in note for one in found if one.title.startswith("seconds") for note in one.notes)
    assert published("scenes:200", "ours") is None
    assert made([made_up("d2l", 0.07)], paper=paper)[0].columns == ["7 %"]  # nothing published there


def test_our_own_protocol_is_said_beside_the_papers(tmp_path, capsys):
    for protocol, words in (("paper", "the test split chooses the epoch"), ("ours", "the test split chooses nothing")):
        folder = kept(tmp_path / protocol, [made_up("d2l", protocol=protocol, tune="all", features="pixels")])
        assert run(["bench", "table", str(folder), "--paper"]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert f"here: efficientnet_lite0 at 224 px, every weight learns; {words}" in printed
    longer = made_up("asl", settings={"epochs": "48"})
    for others, words in (([], "(12 + 3 epochs)"), ([longer], "(12 + 3 epochs where a row names none)")):
        folder = kept(tmp_path / str(len(others)), [made_up("d2l", tune="all", features="pixels"), *others])
        plan = json.loads((folder / "grid.json").read_text())
        (folder / "grid.json").write_text(json.dumps(plan | {"options": {"warmup": 12, "epochs": 3}}))
        assert run(["bench", "table", str(folder), "--paper"]) == 0
        assert f"every weight learns {words}; the test split" in " ".join(capsys.readouterr().out.split())


def test_labels_as_given_have_a_column_at_the_end():
    assert made([made_up("asl", None), made_up("asl", 0.1)])[0].columns == ["10 %", "labels as given"]


ODD = [
    Table(
        "A_1 & b",
        ["5 %", "a|b"],
        [
            ("x_y|z*", [Entry(70.04, 1.26, 2, 2, best=True), Entry(3.0, 0.1, 2, 3, tied=True)]),
            (r"\n^~", [Entry(wanted=2), Entry()]),
        ],
        ["bold: best"],
    )
]


def test_markdown_is_escaped_and_bold():
    text = as_markdown(ODD)
    assert "## A\\_1 & b" in text
    assert r"| | 5 % | a\|b |" in text
    assert r"| x\_y\|z\* | **70.0 ± 1.3** | 3.0 ± 0.1 ~ (2 of 3) |" in text
    assert r"| \\n^~ | – |  |" in text


def test_latex_is_escaped_and_bold():
    text = as_latex(ODD)
    assert r"5 \% & a|b \\" in text
    assert r"x\_y|z* & \textbf{70.0 $\pm$ 1.3} & 3.0 $\pm$ 0.1 (2 of 3)$^{\sim}$ \\" in text
    assert r"\textbackslash{}n\textasciicircum{}\textasciitilde{} & -- &  \\" in text
    assert text.count(r"\begin{tabular}{lrr}") == text.count(r"\end{tabular}") == 1
    assert r"\caption{A\_1 \& b. Bold: best.}" in text
    assert not re.search(r"(?<!\\)[&]\s*b", text)


def test_csv_has_one_line_per_number():
    rows = list(csv.DictReader(io.StringIO(as_csv(ODD))))
    assert len(rows) == 4 + 1
    assert (rows[-1]["row"], rows[-1]["column"], rows[-1]["mean"]) == ("note", "bold: best", "")
    assert list(rows[0].values()) == ["A_1 & b", "x_y|z*", "5 %", "70.040", "1.260", "2", "2", "1", "0"]
    assert (rows[2]["mean"], rows[2]["wanted"]) == ("", "2")


@pytest.mark.slow
def test_a_terminal_of_a_hundred_columns_shows_every_number_whole():
    shares = (0.01, 0.05, 0.1, 0.15, 0.2)
    rules = {rule: {"cf1": 71.23, "of1": 68.77} for rule in ("mat", "own", "half", "top_k")}
    records = [
        made_up(name, share, seed, 60 + place / 10 + 100 * share + seed * 9, rules=rules)
        for place, name in enumerate(NAMES)
        for share in shares
        for seed in (1, 2, 3)
    ]
    found = made(records, paper=published("voc:PATH", "ours"))
    text = as_text(found)
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    for table in found:
        assert all(entry.text(table.digits) in text for _, line in table.lines for entry in line)
    quality = text.split("\n\n")[0].splitlines()
    assert sum(line.startswith("D2L + MAT ") for line in quality) == 2  # ten columns in two parts, the names in both
    assert f"*{78 + (len(NAMES) - 1) / 10 + 1:.1f}" in text
    assert "*: best" in text


def test_the_command_writes_what_the_name_of_the_file_says(tmp_path, capsys):
    folder = kept(tmp_path / "grid", [made_up("asl"), made_up("d2l", value=75)])
    for name, mark in (("t.md", "| ASL |"), ("t.csv", "table,row"), ("t.tex", r"\toprule"), ("t.txt", "*75.0")):
        assert run(["bench", "table", str(folder), "--out", str(tmp_path / name)]) == 0
        assert mark in (tmp_path / name).read_text(encoding="utf-8")
    assert run(["bench", "table", str(folder), "--out", str(tmp_path / "t.md"), "--format", "csv"]) == 0
    assert (tmp_path / "t.md").read_text().startswith("table,row")
    capsys.readouterr()
    for kind, mark in (("terminal", "*75.0"), ("markdown", "| ASL |"), ("csv", "table,row"), ("latex", r"\toprule")):
        assert run(["bench", "table", str(folder), "--format", kind, "--paper"]) == 0
        printed = capsys.readouterr()
        assert mark in printed.out
        assert printed.err == ""


@pytest.mark.slow
def test_a_terminal_that_knows_no_such_signs_gets_the_numbers(tmp_path):
    folder = kept(tmp_path, [made_up("asl", seed=seed, value=70 + seed) for seed in (1, 2)])
    command = [sys.executable, "-m", "fewtags", "bench", "table", str(folder)]
    printed = subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert "*71.5 ? 0.7" in printed.stdout


def test_missing_cells_are_said_and_strict_refuses_them(tmp_path, capsys):
    records = [made_up("asl")]
    folder = kept(tmp_path, records, [cell("asl"), cell("d2l"), cell("d2l", seed=2)])
    assert run(["bench", "table", str(folder)]) == 0
    assert "missing: 2 of 3 cells, such as d2l, 0.05 labelled, seed 1" in capsys.readouterr().err
    assert run(["bench", "table", str(folder), "--strict"]) == 2
    whole = kept(tmp_path / "whole", records)
    assert run(["bench", "table", str(whole), "--strict"]) == 0


def test_records_without_run_folders_are_enough_and_stay_as_they_are(tmp_path):
    records = [made_up("asl"), made_up("cap-views", settings={"patches": "2", "patch_heads": "false"})]
    folder = kept(tmp_path, records)
    before = (folder / "records.jsonl").read_bytes()
    assert refresh_records(folder, [one.cell for one in records]) == records
    assert (folder / "records.jsonl").read_bytes() == before


def test_a_damaged_record_is_named_with_its_line(tmp_path):
    folder = kept(tmp_path, [made_up("asl")])
    with (folder / "records.jsonl").open("a") as file:
        file.write('\n{"method": "asl"}\n')
    with pytest.raises(UserError, match=r"records\.jsonl, line 3: not a record.*remove this line"):
        read_records(folder)
