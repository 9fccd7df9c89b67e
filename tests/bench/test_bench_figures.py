"""Figures of made-up records: every file, equal bytes for equal records, nothing for what is missing."""

from dataclasses import replace
from itertools import pairwise

import pytest
from PIL import Image

from fewtags.bench.figures import (
    MARKS,
    STYLE,
    _line,
    _spread_out,
    draw_pseudo,
    figures,
    save_figures,
    studied,
    value_of,
)
from fewtags.bench.grid import row_of
from fewtags.bench.tables import NAMES
from fewtags.cli import run
from small_grids import kept, made_up

SHARES = (0.05, 0.1)


def full():
    """Two shares, all named rows, and a study of every kind."""
    records = [made_up(name, share, 1, 60 + place) for place, name in enumerate(NAMES) for share in SHARES]
    studies = {"metric": ("f1", "precision"), "beta": ("0.25", "1"), "patches": ("1", "3"), "alpha": ("0.5", "2")}
    for setting, values in studies.items():
        records += [replace(made_up("d2l", share), settings={setting: value}) for value in values for share in SHARES]
    return records


def names(records):
    return [figure.name for figure in figures(records)]


@pytest.mark.slow
def test_everything_is_drawn_in_three_formats(tmp_path):
    records = [one for one in full() if one.row.name in ("asl", "d2l", "neighbours", "plc") or one.method == "d2l"]
    expected = ["pseudo-labels-0.05", "pseudo-labels-0.1", "study-metric", "study-beta", "study-patches", "study-alpha",
                "map-over-share", "cost"]  # fmt: skip
    assert names(records) == names(full()) == expected
    files = save_figures(records, tmp_path / "new" / "figures")
    assert [file.name for file in files] == [f"{name}.{kind}" for name in expected for kind in ("png", "svg", "pdf")]
    for file in files:
        start = file.read_bytes()[:5]
        assert start == {".png": b"\x89PNG\r", ".svg": b"<?xml", ".pdf": b"%PDF-"}[file.suffix]
    with Image.open(tmp_path / "new" / "figures" / "cost.png") as picture:
        assert picture.size[0] > 600
    drawing = (tmp_path / "new" / "figures" / "map-over-share.svg").read_text(encoding="utf-8")
    assert all(f">{NAMES[name]}<" in drawing for name in ("asl", "d2l", "neighbours", "plc"))
    assert "beta=" not in drawing  # rows of studies have figures of their own


@pytest.mark.slow
def test_equal_records_give_equal_drawings(tmp_path):
    records = [made_up("d2l", 0.05)]
    one, other = (save_figures(records, tmp_path / name) for name in "ab")
    assert len(one) == 6
    for ours, theirs in zip(one, other, strict=True):
        assert ours.read_bytes() == theirs.read_bytes(), ours.name


def test_nothing_is_drawn_for_what_is_missing():
    assert names([]) == []
    assert names([made_up("asl", pseudo=[])]) == ["cost"]
    assert names([made_up("asl", pseudo=[], figures={})]) == []  # no test images
    assert names([made_up("d2l", figures={})]) == ["pseudo-labels-0.05"]
    assert names([made_up("d2l", pseudo=[{"cf1": 50.0}])]) == ["cost"]  # one epoch is no curve
    assert names([made_up("d2l", None), made_up("d2l", 0.1)]) == ["pseudo-labels-0.1", "pseudo-labels-as-given", "cost"]


@pytest.mark.slow
def test_records_without_a_figure_do_not_stop_the_others(tmp_path):
    records = [made_up("asl", 0.05, figures={}), made_up("asl", 0.1), made_up("d2l", 0.05), made_up("cap", None)]
    records = [replace(one, pseudo=[]) for one in records]
    assert save_figures(records, tmp_path)


def test_a_study_compares_the_same_seeds_and_counts_the_default_once():
    base = [made_up("d2l", 0.05, seed) for seed in (1, 2, 3)]
    given = [
        replace(made_up("d2l", 0.05, seed), settings={"beta": value}) for seed in (1, 2) for value in ("0.50", "1")
    ]
    other = [replace(made_up("d2l", 0.05, 1), settings={"beta": "1", "metric": "f1"}), made_up("asl")]
    mine = studied([*base, *given, *other], "beta")
    assert sorted((value_of(one, "beta"), one.seed) for one in mine) == [("0.5", 1), ("0.5", 2), ("1", 1), ("1", 2)]
    assert value_of(base[0], "patches") == "2"


def test_rows_can_be_told_apart_in_grey():
    rows = [made_up(name).row for name in NAMES]
    rows += [row_of("cap", {"warmup": str(number)}) for number in range(8)]  # as many without a name
    shapes = {(look["marker"], look.get("markerfacecolor", "")) for look in (_line(row, rows) for row in rows)}
    assert len(shapes) == len(rows)
    assert not {("P", "none"), ("X", "none")} & shapes  # open crosses of this size look filled
    assert STYLE["svg.hashsalt"]


def test_rows_without_a_name_that_belong_to_no_study_stand_beside_the_named_ones():
    longer = replace(made_up("cap", value=80), settings={"warmup": "48"})
    axes = next(one for one in figures([*full(), longer]) if one.name == "cost").draw().axes[0]
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(names) == len(NAMES) + 1
    assert {"cap warmup=48", "CAP"} <= set(names)


def test_rows_without_a_name_keep_the_order_of_the_records():
    values = [str(number) for number in range(7)]
    records = [
        replace(made_up("cap", value=70 - number), settings={"warmup": value}) for number, value in enumerate(values)
    ]
    axes = next(one for one in figures(records) if one.name == "cost").draw().axes[0]
    marks = [line.get_marker() for line in axes.get_lines()]
    assert marks == [mark for mark, _ in MARKS[16 : 16 + 7]]


def test_one_seed_has_no_band():
    records = [made_up("d2l", share, seed, 70 + seed) for share in (0.01, 0.05, 0.1) for seed in (1, 2)]
    for given, bands, words in (
        (records, 1, "mAP, %; mean over 2 seeds"),
        ([one for one in records if one.seed == 1], 0, "mAP, %; one seed"),
    ):
        axes = next(one for one in figures(given) if one.name == "map-over-share").draw().axes[0]
        assert axes.get_ylabel() == words
        assert sum(len(one.get_paths()) for one in axes.collections) == bands


@pytest.mark.parametrize("heights", [[0.5] * 6, [0.0, 0.01, 0.02, 0.99, 1.0], [0.1, 0.5, 0.9], [0.9] * 12])
def test_names_stand_apart_in_their_order_and_within_the_axes(heights):
    apart = 0.09
    placed = _spread_out(heights, apart)
    assert all(high - low >= apart - 1e-9 for low, high in pairwise(placed))
    assert placed[0] >= -1e-9
    assert placed[-1] <= 1 + 1e-9
    assert _spread_out([0.1, 0.5, 0.9], apart) == [0.1, 0.5, 0.9]


def test_the_command_prints_the_files(tmp_path, capsys):
    folder = kept(tmp_path / "grid", [made_up("asl", pseudo=[])])
    assert run(["bench", "figures", str(folder)]) == 0
    assert capsys.readouterr().out.split() == [
        str(folder / "figures" / f"cost.{kind}") for kind in ("png", "svg", "pdf")
    ]


def test_methods_with_unequal_epochs_share_the_axis_of_pseudo_labels():
    few, many = (made_up(name, pseudo=[{"cf1": 50.0}] * count) for name, count in (("cap", 4), ("neighbours", 40)))
    assert draw_pseudo([few], 0.05).axes[0].get_xlabel() == "epoch of the main stage"
    axes = draw_pseudo([few, many], 0.05).axes[0]
    assert axes.get_xlabel() == "part of the main stage, %"
    assert [line.get_xdata()[-1] for line in axes.get_lines()[:2]] == [100, 100]
