"""The parts of a run: which images meet in a step, the cycle of the learning rate, the numbers of the recipe."""

import itertools
import math

import numpy as np
import pytest
import torch

from fewtags.data.catalogue import Catalogue, Names, Role
from fewtags.encoders.store import Stored
from fewtags.encoders.views import ViewSpec
from fewtags.errors import Fault, UserError
from fewtags.training.config import resolve_settings
from fewtags.training.plan import StepRows, plan_epoch
from fewtags.training.recipe import Recipe, default_settings
from fewtags.training.schedule import one_cycle
from fewtags.training.source import Epoch, FeatureSource, PixelSource
from fewtags.utils.files import atomic_write, csv_line, write_json, write_text


def rows_of(plan, part):
    return [getattr(step, part).tolist() for step in plan]


def test_every_unlabelled_image_is_met_once_an_epoch():
    for key in (None, (1, 1, 0)):
        plan = plan_epoch(5, 23, 2, 4, key)
        assert sorted(itertools.chain(*rows_of(plan, "unlabelled"))) == list(range(23))


def test_labelled_batches_start_over_when_they_are_used_up():
    assert rows_of(plan_epoch(5, 12, 2, 2, None), "labelled") == [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4]]
    shuffled = rows_of(plan_epoch(5, 12, 2, 2, (1, 1, 0)), "labelled")
    first, second = (list(itertools.chain(*part)) for part in (shuffled[:3], shuffled[3:]))
    assert sorted(first) == sorted(second) == [0, 1, 2, 3, 4]
    assert first != second  # every pass has an order of its own


def test_partial_last_batches_are_kept():
    assert [len(rows) for rows in rows_of(plan_epoch(5, 23, 2, 4, (1,)), "unlabelled")] == [4, 4, 4, 4, 4, 3]
    assert [len(rows) for rows in rows_of(plan_epoch(7, 0, 3, 0, (1,)), "labelled")] == [3, 3, 1]


def test_a_warm_up_epoch_is_one_pass_over_the_labelled_images():
    plan = plan_epoch(7, 100, 3, 0, None)
    assert rows_of(plan, "labelled") == [[0, 1, 2], [3, 4, 5], [6]]
    assert all(len(step.unlabelled) == 0 for step in plan)


@pytest.mark.parametrize("other", [(2, 1, 0), (1, 0, 0), (1, 1, 1)], ids=["seed", "stage", "epoch"])
def test_the_order_depends_on_seed_stage_and_epoch_alone(other):
    plan = plan_epoch(9, 40, 2, 4, (1, 1, 0))
    again, changed = plan_epoch(9, 40, 2, 4, (1, 1, 0)), plan_epoch(9, 40, 2, 4, other)
    for part in ("labelled", "unlabelled"):
        assert rows_of(plan, part) == rows_of(again, part)
        assert rows_of(plan, part) != rows_of(changed, part)


@pytest.mark.parametrize("processes", [2, 3, 7])
def test_the_shares_of_the_processes_are_the_batch(processes):
    step = StepRows(np.array([5, 1, 3]), np.array([9, 8, 7, 6, 5]))
    shares = [step.share(rank, processes) for rank in range(processes)]
    for part in ("labelled", "unlabelled"):
        held = [list(getattr(share, part)) for share in shares]
        assert sorted(itertools.chain(*held)) == sorted(getattr(step, part))
        assert max(map(len, held)) - min(map(len, held)) <= 1


@pytest.mark.parametrize("total", [1, 2, 3, 4, 6, 7, 12, 13, 40, 101])
def test_the_cycle_is_that_of_torch(total):
    """0.2 · total - 1, the step of the peak, is a whole number for none of these but 40."""
    optimiser = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1.0, betas=(0.9, 0.999))
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-4, total_steps=total, pct_start=0.2)
    for step in range(total):
        rate, beta1 = one_cycle(step, total, 3e-4)
        group = optimiser.param_groups[0]
        assert rate == pytest.approx(group["lr"], rel=1e-12)
        assert beta1 == pytest.approx(group["betas"][0], rel=1e-12)
        optimiser.step()
        if step + 1 < total:
            theirs.step()


def test_the_cycle_of_five_steps_starts_at_its_peak():
    """torch divides by zero here."""
    assert one_cycle(0, 5, 1e-3) == (1e-3, 0.85)


def test_the_released_cycle_is_laid_out_for_forty_epochs_and_cut_at_twenty_eight():
    recipe = Recipe(**default_settings("all", "paper", 0.05, small_batches=True), tune="all", protocol="paper")
    main = recipe.stages(uses_unlabelled=True)[1]
    assert (main.epochs, main.planned_epochs) == (28, 40)
    steps = len(plan_epoch(285, 5432, main.labelled_batch, main.unlabelled_batch, None))
    rates = {e: one_cycle(e * steps, main.planned_epochs * steps, main.learning_rate)[0] for e in range(29)}
    expected = {0: 4.0e-6, 1: 7.7e-6, 4: 5.2e-5, 8: 1.0e-4, 12: 9.6e-5, 16: 8.5e-5, 20: 6.9e-5, 24: 5.0e-5, 28: 3.1e-5}
    for epoch, rate in expected.items():
        assert rates[epoch] == pytest.approx(rate, abs=0.05 * 10 ** math.floor(math.log10(rate))), epoch


def test_without_the_papers_protocol_the_cycle_ends_with_the_run():
    for stage in Recipe(warmup=3, epochs=5).stages(uses_unlabelled=True):
        assert stage.planned_epochs == stage.epochs


PAPER_BATCHES = [(0.01, 16, 4, 60), (0.05, 16, 4, 60), (0.1, 32, 8, 56), (0.15, 48, 12, 52), (0.2, 64, 16, 48)]


@pytest.mark.parametrize(("share", "warmup", "labelled", "unlabelled"), PAPER_BATCHES)
def test_batch_sizes_are_those_of_the_paper_and_half_for_voc(share, warmup, labelled, unlabelled):
    for halves, small in ((1, False), (2, True)):
        found = Recipe(**default_settings("all", "paper", share, small_batches=small))
        assert found.warmup_batch == warmup
        assert (found.labelled_batch, found.unlabelled_batch) == (labelled // halves, unlabelled // halves)


# labelled and unlabelled images of the papers' VOC splits, steps of a main epoch, steps of the whole warm-up
VOC_STEPS = [(57, 5660, 189, 48), (285, 5432, 182, 216), (571, 5146, 184, 216), (857, 4860, 187, 216)]


@pytest.mark.parametrize(("labelled", "unlabelled", "steps", "warmup_steps"), [*VOC_STEPS, (1143, 4574, 191, 216)])
def test_steps_on_voc_are_those_of_the_released_code(labelled, unlabelled, steps, warmup_steps):
    share = labelled / (labelled + unlabelled)
    recipe = Recipe(**default_settings("all", "paper", share, small_batches=True), tune="all", protocol="paper")
    warmup, main = recipe.stages(uses_unlabelled=True)
    assert len(plan_epoch(labelled, unlabelled, main.labelled_batch, main.unlabelled_batch, None)) == steps
    assert warmup.epochs * len(plan_epoch(labelled, unlabelled, warmup.labelled_batch, 0, None)) == warmup_steps


def test_the_papers_protocol_sets_all_that_differs_from_ours():
    recipe = Recipe(**default_settings("all", "paper", 0.05, False), tune="all", protocol="paper")
    assert (recipe.warmup, recipe.epochs) == (12, 28)
    assert recipe.warmup_learning_rate == recipe.learning_rate == recipe.weight_decay == 1e-4
    assert (recipe.ema_decay, recipe.scaling, recipe.labelled_view) == (0.9997, "unit", "strong")
    warmup, main = recipe.stages(uses_unlabelled=True)
    assert (warmup.shuffle, warmup.cutout) == (False, False)
    assert (main.shuffle, main.cutout) == (True, True)
    ours = Recipe(**default_settings("all", "ours", 0.05, False), tune="all")
    assert all(stage.shuffle and stage.cutout for stage in ours.stages(uses_unlabelled=True))
    assert (ours.ema_decay, ours.scaling) == (None, "own")


def test_the_teacher_averages_over_a_share_of_the_stage_unless_told_its_decay():
    recipe = Recipe(ema_share=0.5)
    warmup, main = recipe.stages(uses_unlabelled=True)
    assert recipe.decay(main, 1000) == pytest.approx(1 - 1 / 500)
    assert recipe.decay(warmup, 1000) == pytest.approx(1 - 1 / 100)
    assert recipe.decay(main, 3) == 0.5  # never less than two steps
    assert Recipe(ema_decay=0.9997).decay(main, 3) == 0.9997


def test_a_labelled_only_method_spends_all_epochs_on_the_labelled_images():
    (only,) = Recipe(warmup=3, epochs=5).stages(uses_unlabelled=False)
    assert (only.epochs, only.unlabelled_batch) == (8, 0)


def test_the_adapter_rests_in_the_warm_up_and_a_network_on_pixels_learns_from_the_start():
    assert [stage.body_learns for stage in Recipe(tune="heads").stages(True)] == [False, True]
    assert [stage.body_learns for stage in Recipe(tune="all").stages(True)] == [True, True]


def resolved(**settings):
    return resolve_settings("d2l", "heads", "ours", 0.05, False, {"seed": 1}, settings)


def test_settings_go_to_the_method_or_to_the_recipe():
    method, recipe = resolved(grid="none", beta="0.7", learning_rate="1e-3", ema_decay="null")
    assert (method.grid, method.beta) == (None, 0.7)
    assert (recipe.learning_rate, recipe.ema_decay) == (1e-3, None)
    assert resolved(grid="0.01")[0].grid == 0.01


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("learning_rat", "1", "'learning_rate'"),  # the nearest name, of the recipe
        ("separate_head", "1", "'separate_heads'"),  # and of the method
        ("patches", "two", "patches='two'"),
        ("separate_heads", "maybe", "separate_heads='maybe'"),
        ("merge", "none", "merge=None"),
        ("warmup_batch", "0", "warmup_batch='0'"),
        ("learning_rate", "inf", "learning_rate='inf'"),
        ("alpha", "nan", "alpha='nan'"),
        ("beta", "inf", "beta='inf'"),
        ("strong_draws", "1000", "strong_draws='1000'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(key, value, named):
    with pytest.raises(UserError, match=named):
        resolved(**{key: value})


def test_features_come_from_the_drawn_row_of_every_image_and_anew_in_each_epoch():
    rng = np.random.default_rng(0)
    stored = rng.normal(size=(6, 3, 5, 2)).astype(np.float16)  # six contents, three draws, whole and four patches
    where = np.array([4, 1, 5])
    source = FeatureSource({"unlabelled": Stored(stored[:, :1], where)}, {"unlabelled": Stored(stored, where)})

    def strong(number, rows):
        (views,) = source.sweep("unlabelled", np.array(rows), "strong", Epoch(1, 1, number, "weak", True))
        return torch.cat([views.whole[:, None], views.patches], dim=1).numpy()

    first, second = strong(0, [0, 1, 2]), strong(1, [0, 1, 2])
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(strong(0, [2, 0]), first[[2, 0]])  # whatever is read beside them
    for image, row in enumerate(where):
        for part in range(5):
            assert first[image, part].tolist() in stored[row, :, part].astype(np.float32).tolist()
    (plain,) = source.sweep("unlabelled", np.array([2, 1]), "weak", Epoch(1, 1, 0, "weak", True))
    np.testing.assert_array_equal(plain.whole, stored[[5, 1], 0, 0].astype(np.float32))


@pytest.mark.parametrize("patch_size", ["full", "native"])
def test_a_process_without_a_share_gets_empty_views_of_the_right_shape(patch_size):
    """With fewer images than processes some process holds none, and must still take part in what all do."""
    none = np.empty(0, np.int64)
    epoch = Epoch(1, 0, 0, "weak", True)
    stored = {"labelled": Stored(np.zeros((1, 1, 5, 7), np.float16), np.array([0]))}
    (views,) = FeatureSource(stored, {}).sweep("labelled", none, "weak", epoch)
    assert views.whole.shape == (0, 7)
    assert views.patches.shape == (0, 4, 7)
    catalogue = Catalogue(("a",), Names(["x"]), np.ones((1, 1), np.int8), np.array([Role.LABELLED], np.int8), None)
    pixels = PixelSource(catalogue, {"labelled": np.array([0])}, ViewSpec(size=32, patch_size=patch_size))
    (views,) = pixels.sweep("labelled", none, "weak", epoch)
    side = 32 if patch_size == "full" else 16
    assert views.whole.shape == (0, 3, 32, 32)
    assert views.patches.shape == (0, 4, 3, side, side)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "new" / "state"
    write_text(file, "first")
    assert file.read_text() == "first"

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Fault, match=r"state could not be written \(No space left on device\)"):
        write_text(file, "second")
    assert file.read_text() == "first"
    assert list(file.parent.iterdir()) == [file]


def test_an_error_while_a_file_is_made_leaves_the_old_one_and_no_temporary(tmp_path):
    file = tmp_path / "state"
    write_json(file, {"a": 1})
    before = file.read_bytes()

    def fail(error):
        with atomic_write(file) as out:
            out.write(b"half")
            raise error

    with pytest.raises(KeyError):
        fail(KeyError("the maker failed"))
    with pytest.raises(Fault, match="a reason without a number"):
        fail(OSError("a reason without a number"))
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("text", "cell"),
    [("plain.jpg", "plain.jpg"), ("a,b", '"a,b"'), ('say "x"', '"say ""x"""'), ("two\nlines", '"two\nlines"')],
)
def test_a_cell_is_quoted_where_it_must_be(text, cell):
    assert csv_line([text, "last"]) == f"{cell},last\n"
