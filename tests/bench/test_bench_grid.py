"""Rows, lists of settings, cells and the file that says what a grid is meant to hold."""

import pytest

from fewtags.bench.grid import (
    ABLATION,
    GROUPS,
    PAPER,
    VARIANTS,
    Cell,
    Row,
    load_grid,
    make_grid,
    row_of,
    rows_of,
    save_grid,
)  # fmt: skip
from fewtags.errors import UserError
from fewtags.methods import make_method, method_names
from small_grids import cell


def names(*words, **lists):
    return [row.name for row in rows_of(words, lists)]


def test_words_stand_for_groups_of_rows():
    assert names("paper") == PAPER
    assert names("ablation") == ABLATION
    assert names("all") == method_names()
    assert names("asl", "paper").count("asl") == 1
    assert set(GROUPS["paper"]) <= set(method_names())


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_a_method_with_settings_that_it_has(name):
    method, settings = VARIANTS[name]
    make_method(method, settings)
    assert names(name) == [name]


def test_a_list_of_values_makes_a_row_of_each():
    assert names("d2l", beta=["0.25", "1"], metric=["f1"]) == ["d2l beta=0.25 metric=f1", "d2l beta=1 metric=f1"]


def test_a_setting_goes_only_to_the_methods_that_have_it():
    assert names("asl", "d2l", beta=["1"]) == ["asl", "d2l beta=1"]
    assert names("asl", "d2l", adapter=["16"]) == ["asl adapter=16", "d2l adapter=16"]  # of training: everyone's


def test_the_order_of_settings_makes_no_other_row():
    one, other = (row_of("d2l", dict(pairs)) for pairs in ((("a", "1"), ("b", "2")), (("b", "2"), ("a", "1"))))
    assert one == other
    assert names("mat") + names("d2l", separate_heads=["false"], patches=["1"]) == ["mat", "mat"]
    assert rows_of(["mat"], {}) == rows_of(["d2l"], {"separate_heads": ["false"], "patches": ["1"]})


def test_an_importable_method_is_a_row(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "own.py").write_text("from fewtags.methods.asl import ASL\nclass Own(ASL):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert names("pack.own") == ["pack.own"]


@pytest.mark.parametrize(
    ("words", "lists", "message"),
    [
        (["d3l"], {}, "--methods d3l: unknown; did you mean 'd2l'"),
        (["mat+cd"], {}, "did you mean 'mat\\+cdd'"),
        (["no.such"], {}, "'no.such' cannot be imported"),
        (["d2l"], {"betta": ["1"]}, "--set betta: none of these methods has it; did you mean 'beta'"),
        (["asl"], {"beta": ["1"]}, "--set beta: none of these methods has it"),
        (["d2l"], {"beta": ["1", "many"]}, "setting beta='many'"),
        (["d2l"], {"patches": ["0"]}, "setting patches='0'"),
    ],
)
def test_wrong_rows_are_refused_with_the_nearest_name(words, lists, message):
    with pytest.raises(UserError, match=message):
        rows_of(words, lists)


@pytest.mark.parametrize("share", [1, -0.1, 5])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(UserError, match=f"--labelled {share}: must be between 0 and 1"):
        make_grid("scenes", rows_of(["asl"], {}), [share], [1], {})


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_that_no_generator_takes_is_refused(seed):
    with pytest.raises(UserError, match=f"--seeds {seed}: must be between 0"):
        make_grid("scenes", rows_of(["asl"], {}), [0.1], [seed], {})


def test_a_grid_has_every_combination_once_and_whole_tables_first():
    grid = make_grid("scenes", rows_of(["asl", "cap"], {}), [0.1, 0.2, 0.1], [1, 2, 2], {"size": 64, "split": None})
    assert len(grid.cells) == len(set(grid.cells)) == 2 * 2 * 2
    assert [one.seed for one in grid.cells] == [1] * 4 + [2] * 4
    assert grid.options == {"words": "off", "size": 64}


def test_every_cell_has_a_folder_of_its_own():
    cells = [
        cell(name, share, seed) for name in [*VARIANTS, *PAPER] for share in (None, 0.1, 0.1000001) for seed in (1, 2)
    ]
    cells += [cell("d2l", beta="0.5"), cell("d2l", beta="0.5", metric="f1"), cell("d2l", metric="f1")]
    folders = [one.folder for one in cells]
    assert len(set(folders)) == len(folders)
    assert all(folder.startswith("cells/") and ".." not in folder for folder in folders)
    assert Cell(Row("pack.own/../x"), None, 1).folder.count("/") == 3


def test_a_grid_grows_and_keeps_its_order():
    small = make_grid("scenes", rows_of(["asl"], {}), [0.1], [1], {})
    large = make_grid("scenes", rows_of(["cap", "asl"], {}), [0.1], [1, 2], {})
    assert [one.words for one in small.with_cells_of(large).cells] == [
        f"{name}, 0.1 labelled, seed {seed}" for name, seed in (("asl", 1), ("cap", 1), ("cap", 2), ("asl", 2))
    ]


def test_what_is_saved_is_loaded(tmp_path):
    grid = make_grid("voc:PATH", rows_of(["cap-views", "d2l"], {"adapter": ["8"]}), [None, 0.1], [1], {"size": 64})
    save_grid(tmp_path, grid)
    assert load_grid(tmp_path) == grid


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "{}", '{"data": "scenes", "options": {}, "cells": [{}]}', "[" * 100_000,
     '{"data": "scenes", "options": {}, "cells": [{"method": "d2l", "settings": 3, "labelled": null, "seed": 1}]}',
     '{"data": "scenes", "options": {}, "cells": [{"method": "d2l", "settings": {}, "labelled": "x", "seed": 1}]}'],
)  # fmt: skip
def test_a_damaged_grid_is_named(tmp_path, text):
    (tmp_path / "grid.json").write_text(text)
    with pytest.raises(UserError, match=r"grid\.json is damaged"):
        load_grid(tmp_path)


def test_a_folder_without_a_grid_is_named(tmp_path):
    with pytest.raises(UserError, match="is no grid of runs"):
        load_grid(tmp_path)
