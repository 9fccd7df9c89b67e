"""Views: the table of operations, the grid of patches, and randomness that depends on its key alone."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from fewtags.encoders import augment, views
from fewtags.encoders.augment import GRIDS, OPERATIONS, cutout, rand_augment
from fewtags.encoders.views import ViewSpec, generator, make_views
from fewtags.errors import UserError

SIGNED = ["ShearX", "ShearY", "TranslateX", "TranslateY", "Color", "Contrast", "Sharpness", "Brightness"]


def picture(width: int, height: int) -> Image.Image:
    """Noise in 30..239, so that no two rows are alike and every operation has something to do."""
    return Image.fromarray(generator(7).integers(30, 240, (height, width, 3), dtype=np.uint8))


def plane(width: int, height: int, *colour: int) -> Image.Image:
    return Image.new("RGB", (width, height), colour)


def apply(name: str, magnitude: int, image: Image.Image, key: int = 0) -> np.ndarray:
    return np.asarray(OPERATIONS[name](image, GRIDS[name][magnitude], generator(key)))


def outcomes(name: str, magnitude: int, image: Image.Image) -> list[np.ndarray]:
    """The distinct results over twenty draws."""
    distinct = {array.tobytes(): array for array in (apply(name, magnitude, image, key) for key in range(20))}
    return list(distinct.values())


def covered_box(image: Image.Image, plain: Image.Image) -> tuple[np.ndarray, np.ndarray]:
    """Where two images differ: mask [H, W] and the colours there [n, 3]."""
    mask = (np.asarray(image) != np.asarray(plain)).any(axis=2)
    return mask, np.asarray(image)[mask]


def test_the_grids_are_those_of_the_table() -> None:
    assert list(GRIDS) == list(OPERATIONS)
    assert len(OPERATIONS) == 15
    ends = {name: (grid[0], grid[-1]) for name, grid in GRIDS.items()}
    assert ends["ShearX"] == ends["ShearY"] == (0, 0.3)
    assert ends["TranslateX"] == ends["TranslateY"] == (0, 150 / 331)
    assert ends["Rotate"] == (0, 30)
    assert {ends[name] for name in ("Color", "Contrast", "Sharpness", "Brightness")} == {(0, 0.9)}
    assert ends["Solarize"] == (256, 0)
    assert GRIDS["Posterize"] == (8, 8, 7, 7, 6, 6, 5, 5, 4, 4)
    assert GRIDS["Cutout"] == (0, 2, 4, 7, 9, 11, 13, 16, 18, 20)
    for grid in GRIDS.values():
        assert len(grid) == 10
    for name in ("ShearX", "TranslateX", "Rotate", "Color", "Solarize"):
        steps = [after - before for before, after in pairwise(GRIDS[name])]
        assert np.allclose(steps, steps[0])


def test_none_one_or_two_operations_are_applied_in_25_50_25_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[float] = []

    def record(image: Image.Image, value: float, rng: np.random.Generator) -> Image.Image:
        applied.append(value)
        return image

    monkeypatch.setattr(augment, "_CHOICES", [(record, float(code)) for code in range(len(augment._CHOICES))])
    image, rng, trials = plane(2, 2, 0, 0, 0), generator(1), 8000
    counts = np.zeros(3)
    for _ in range(trials):
        before = len(applied)
        rand_augment(image, rng)
        counts[len(applied) - before] += 1
    assert np.allclose(counts / trials, (0.25, 0.5, 0.25), atol=0.02)
    each = np.bincount(np.array(applied, dtype=int), minlength=135)
    assert len(each) == 135
    assert each.min() > 25  # 59 expected, so every pair of operation and magnitude is drawn
    assert each.max() < 100


def test_magnitudes_1_to_9_are_drawn_and_0_never() -> None:
    expected = {(OPERATIONS[name], GRIDS[name][i]) for name in OPERATIONS for i in range(1, 10)}
    assert set(augment._CHOICES) == expected


@pytest.mark.parametrize("magnitude", [1, 9])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_keeps_size_and_mode_and_changes_a_copy(name: str, magnitude: int) -> None:
    image = picture(48, 40)
    before = image.tobytes()
    after = OPERATIONS[name](image, GRIDS[name][magnitude], generator(3))
    assert (after.size, after.mode) == ((48, 40), "RGB")
    assert image.tobytes() == before
    unchanged = name == "Posterize" and magnitude == 1  # all eight bits are kept
    assert (after.tobytes() == before) is unchanged


@pytest.mark.parametrize("size", [(2, 2), (2, 5), (5, 3)])
def test_every_operation_and_cutout_work_on_the_smallest_images(size: tuple[int, int]) -> None:
    for name in OPERATIONS:
        for magnitude in range(1, 10):
            assert apply(name, magnitude, picture(*size)).shape == (size[1], size[0], 3)
    for key in range(20):
        assert cutout(picture(*size), generator(key)).size == size


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "Cutout"])
def test_only_the_signed_operations_have_two_directions(name: str) -> None:
    assert len(outcomes(name, 9, picture(24, 20))) == (2 if name in SIGNED else 1)


def test_rotate_turns_counter_clockwise_and_fills_with_grey() -> None:
    image = plane(101, 101, 0, 0, 0)
    image.paste((255, 255, 255), (90, 48, 97, 53))  # right of the centre, 43 px away
    (turned,) = outcomes("Rotate", 9, image)
    rows, columns = np.nonzero((turned == 255).all(axis=2))
    assert abs(rows.mean() - (50 - 43 * np.sin(np.pi / 6))) < 1.5
    assert abs(columns.mean() - (50 + 43 * np.cos(np.pi / 6))) < 1.5
    assert turned[0, 0].tolist() == [128, 128, 128]


@pytest.mark.parametrize("magnitude", [1, 4, 9])
def test_rotate_equals_compositing_through_an_alpha_channel(magnitude: int) -> None:
    image = picture(41, 30)
    turned = image.convert("RGBA").rotate(GRIDS["Rotate"][magnitude])
    expected = Image.composite(turned, Image.new("RGBA", image.size, (128,) * 4), turned).convert("RGB")
    assert np.array_equal(apply("Rotate", magnitude, image), np.asarray(expected))


@pytest.mark.parametrize("name", ["TranslateX", "TranslateY"])
def test_translate_shifts_by_a_share_of_the_side_and_fills_with_grey(name: str) -> None:
    image = picture(331, 331)
    along_x = name == "TranslateX"
    before = np.asarray(image).swapaxes(0, 1) if along_x else np.asarray(image)  # the shifted axis first
    seen = set()
    for moved in outcomes(name, 9, image):
        after = moved.swapaxes(0, 1) if along_x else moved
        if np.array_equal(after[:181], before[150:]) and (after[181:] == 128).all():
            seen.add(-1)
        if np.array_equal(after[150:], before[:181]) and (after[:150] == 128).all():
            seen.add(1)
    assert seen == {-1, 1}


@pytest.mark.parametrize("name", ["ShearX", "ShearY"])
def test_shear_slants_about_the_first_row_or_column(name: str) -> None:
    filled = set()
    for slanted in outcomes(name, 9, plane(100, 100, 255, 255, 255)):
        rows = slanted if name == "ShearX" else slanted.swapaxes(0, 1)
        grey = (rows == 128).all(axis=2).sum(axis=1)
        assert grey[0] <= 1
        assert abs(int(grey[-1]) - 30) <= 1
        filled.add("start" if rows[-1, 0, 0] == 128 else "end")
    assert filled == {"start", "end"}


def test_shear_is_bicubic() -> None:
    image = plane(40, 40, 50, 50, 50)
    image.paste((200, 200, 200), (20, 0, 40, 40))
    values = apply("ShearX", 5, image)
    assert ((values > 50) & (values < 200) & (values != 128)).any()  # not nearest
    assert (values < 50).any()  # not bilinear: only the bicubic kernel goes below what is there


@pytest.mark.parametrize(
    ("name", "magnitude", "left", "right", "expected"),
    [
        ("Brightness", 3, (100, 100, 100), (140, 140, 140), {70, 130}),
        ("Contrast", 5, (100, 100, 100), (140, 140, 140), {110, 90}),  # about the mean 120
        ("Color", 5, (200, 100, 100), (200, 100, 100), {165, 235}),  # about the grey 130
        ("Sharpness", 9, (100, 100, 100), (100, 100, 100), {100}),  # a plane has no edges
    ],
)
def test_enhancements_multiply_by_one_plus_or_minus_the_value(
    name: str, magnitude: int, left: tuple[int, ...], right: tuple[int, ...], expected: set[int]
) -> None:
    image = plane(4, 2, *left)
    image.paste(right, (2, 0, 4, 2))
    reds = sorted(int(array[0, 0, 0]) for array in outcomes(name, magnitude, image))
    assert np.allclose(reds, sorted(expected), atol=1)


def test_sharpness_raises_or_lowers_an_edge() -> None:
    image = picture(20, 20)
    spread = sorted(float(array.std()) for array in outcomes("Sharpness", 9, image))
    assert spread[0] < float(np.asarray(image).std()) < spread[1]


def test_posterize_solarize_and_invert_do_what_they_say() -> None:
    image = picture(20, 20)
    pixels = np.asarray(image)
    assert np.array_equal(apply("Posterize", 9, image), pixels & 0b11110000)
    assert np.array_equal(apply("Invert", 1, image), 255 - pixels)
    assert np.array_equal(apply("Solarize", 9, image), 255 - pixels)
    for magnitude in (1, 5):
        expected = np.where(pixels >= GRIDS["Solarize"][magnitude], 255 - pixels, pixels)
        assert np.array_equal(apply("Solarize", magnitude, image), expected)


@pytest.mark.parametrize("name", ["AutoContrast", "Equalize"])
def test_autocontrast_and_equalize_use_the_full_range(name: str) -> None:
    after = apply(name, 5, picture(40, 40))
    assert after.min(axis=(0, 1)).tolist() == [0, 0, 0]
    assert after.max(axis=(0, 1)).tolist() == [255, 255, 255]


@pytest.mark.parametrize(("magnitude", "side"), [(1, 2), (3, 6), (9, 20)])
def test_the_small_cutout_is_a_square_of_fixed_colour(magnitude: int, side: int) -> None:
    image = plane(60, 50, 9, 9, 9)
    sides = set()
    for key in range(60):
        mask, colours = covered_box(Image.fromarray(apply("Cutout", magnitude, image, key)), image)
        assert (colours == (125, 122, 113)).all()
        assert mask.any()
        sides |= {int(mask.any(axis=0).sum()), int(mask.any(axis=1).sum())}
    assert max(sides) == side


def test_cutout_covers_one_box_of_up_to_113_px_with_one_colour() -> None:
    image = plane(224, 224, 1, 2, 3)
    sides, colours_seen = set(), set()
    for key in range(60):
        mask, colours = covered_box(cutout(image, generator(key)), image)
        rows, columns = mask.any(axis=1), mask.any(axis=0)
        assert np.array_equal(mask, np.outer(rows, columns))
        assert (colours == colours[0]).all()
        colours_seen.add(tuple(colours[0].tolist()))
        for line in (rows, columns):
            inside = np.flatnonzero(line)
            assert inside[-1] - inside[0] + 1 == line.sum()
            touches_border = line[0] or line[-1]
            assert line.sum() == 113 or (touches_border and 57 <= line.sum() < 113)
            sides.add(int(line.sum()))
    assert 113 in sides
    assert len(sides) > 10  # clipped at the borders
    assert len(colours_seen) == 60


def test_plain_views_are_the_papers_test_transform() -> None:
    image = picture(50, 37)
    whole, patches = make_views(image, "plain", ViewSpec(size=32), None)
    assert np.array_equal(whole, np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR)))
    cut_from = image.resize((32, 32), Image.Resampling.BICUBIC)
    for patch, (left, top) in zip(patches, [(0, 0), (16, 0), (0, 16), (16, 16)], strict=True):
        crop = cut_from.crop((left, top, left + 16, top + 16))
        assert np.array_equal(patch, np.asarray(crop.resize((32, 32), Image.Resampling.BILINEAR)))


def test_plain_views_ignore_the_generator() -> None:
    image = picture(50, 37)
    for without, given in zip(
        make_views(image, "plain", ViewSpec(size=32), None),
        make_views(image, "plain", ViewSpec(size=32), generator(1)),
        strict=True,
    ):
        assert np.array_equal(without, given)


@pytest.mark.parametrize(("grid", "side"), [(2, 112), (3, 74), (4, 56)])
def test_native_patches_put_together_are_the_resized_image(grid: int, side: int) -> None:
    image = picture(250, 230)
    _, patches = make_views(image, "plain", ViewSpec(patches=grid, patch_size="native"), None)
    assert patches.shape == (grid * grid, side, side, 3)
    together = patches.reshape(grid, grid, side, side, 3).swapaxes(1, 2).reshape(grid * side, grid * side, 3)
    kept = grid * side  # 222 for a grid of 3: the last two pixels are lost
    assert np.array_equal(together, np.asarray(image.resize((224, 224), Image.Resampling.BICUBIC))[:kept, :kept])


def test_patches_of_the_original_keep_detail_that_shrinking_loses() -> None:
    board = Image.fromarray((np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)).convert("RGB")
    _, shrunk = make_views(board, "plain", ViewSpec(size=32), None)
    _, detailed = make_views(board, "plain", ViewSpec(size=32, patch_source="original"), None)
    assert shrunk.std() < 10
    assert set(np.unique(detailed)) == {0, 255}
    assert detailed.shape == shrunk.shape == (4, 32, 32, 3)


@pytest.mark.parametrize(("patch_size", "side"), [("full", 32), ("native", 10)])
def test_the_grid_of_the_original_is_cut_by_floor_division(patch_size: views.PatchSize, side: int) -> None:
    image = picture(65, 44)
    spec = ViewSpec(size=32, patches=3, patch_source="original", patch_size=patch_size)
    _, patches = make_views(image, "plain", spec, None)
    last = image.crop((42, 28, 63, 42)).resize((side, side), Image.Resampling.BILINEAR)
    assert np.array_equal(patches[-1], np.asarray(last))


@pytest.mark.parametrize("patch_source", ["resized", "original"])
@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 9)])
def test_images_smaller_than_the_grid_have_views_too(size: tuple[int, int], patch_source: views.PatchSource) -> None:
    spec = ViewSpec(size=12, patches=3, patch_source=patch_source)
    whole, patches = make_views(plane(*size, 90, 90, 90), "plain", spec, None)
    assert (whole == 90).all()
    assert patches.shape == (9, 12, 12, 3)
    assert (patches == 90).all()  # Pillow makes black of an empty crop without a word


def test_a_grid_of_one_has_no_patches() -> None:
    for kind in ("plain", "weak", "strong"):
        whole, patches = make_views(picture(9, 9), kind, ViewSpec(size=8, patches=1), generator(1))
        assert whole.shape == (8, 8, 3)
        assert patches.shape == (0, 8, 8, 3)


def test_a_weak_view_flips_the_whole_and_every_patch_independently() -> None:
    image, spec = picture(8, 8), ViewSpec(size=8, patch_size="native")
    plain_whole, plain_patches = make_views(image, "plain", spec, None)
    plain = [plain_whole, *plain_patches]
    seen = set()
    for key in range(400):
        whole, patches = make_views(image, "weak", spec, generator(key))
        flips = []
        for view, before in zip([whole, *patches], plain, strict=True):
            flipped = np.array_equal(view, before[:, ::-1])
            assert flipped or np.array_equal(view, before)
            flips.append(flipped)
        seen.add(tuple(flips))
    assert len(seen) == 2**5


@pytest.mark.parametrize("with_cutout", [True, False])
def test_a_strong_view_is_resized_cut_out_and_then_augmented(
    with_cutout: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, tuple[int, int]]] = []

    def recorder(name: str) -> Callable[[Image.Image, np.random.Generator], Image.Image]:
        def record(image: Image.Image, rng: np.random.Generator) -> Image.Image:
            calls.append((name, image.size))
            return image

        return record

    monkeypatch.setattr(views, "cutout", recorder("cutout"))
    monkeypatch.setattr(views, "rand_augment", recorder("rand_augment"))
    make_views(picture(20, 30), "strong", ViewSpec(size=16, cutout=with_cutout), generator(1))
    one_view = [("cutout", (16, 16)), ("rand_augment", (16, 16))][0 if with_cutout else 1 :]
    assert calls == one_view * 5


@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_the_same_key_gives_the_same_bytes_and_other_keys_others(kind: views.Kind) -> None:
    image, spec = picture(20, 30), ViewSpec(size=16)

    def view_bytes(*key: int) -> bytes:
        return b"".join(array.tobytes() for array in make_views(image, kind, spec, generator(*key)))

    assert view_bytes(1, 2, 3) == view_bytes(1, 2, 3)
    assert len({view_bytes(1, 2, draw) for draw in range(10)}) > 5


@pytest.mark.parametrize("kind", ["plain", "weak", "strong"])
def test_the_image_given_is_never_changed_and_the_arrays_are_the_callers(kind: views.Kind) -> None:
    image = picture(16, 16)  # already the size asked for, so nothing needs to be resized
    before = image.tobytes()
    for key in range(20):
        for array in make_views(image, kind, ViewSpec(size=16), generator(key)):
            array[...] = 0
    assert image.tobytes() == before


def test_random_views_without_a_generator_and_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="generator"):
        make_views(picture(8, 8), "weak", ViewSpec(size=8), None)
    with pytest.raises(UserError, match="did you mean 'strong'"):
        make_views(picture(8, 8), "storng", ViewSpec(size=8), generator(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patches": 0}, "at least 1"),
        ({"size": 5, "patches": 3}, "too small"),
        ({"patch_source": "orginal"}, "did you mean 'original'"),
        ({"patch_size": "small"}, "full, native"),
    ],
)
def test_an_impossible_spec_is_refused_with_a_remedy(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ViewSpec(**settings)


def test_a_generator_depends_on_every_part_of_its_key() -> None:
    keys = [
        (1,),
        (1, 0),
        (0, 1),
        (1, 23),
        (12, 3),
        (-1,),
        (2**70,),
        (b"1",),
        (b"1, 0",),
        (b"\0" * 16, 3),
        (b"\0" * 16, 4),
    ]
    assert len({generator(*key).random() for key in keys}) == len(keys)
    assert generator(np.int64(5), 1).random() == generator(5, 1).random()
    with pytest.raises(TypeError):
        generator(0.5)  # type: ignore[arg-type]


def test_generators_of_neighbouring_keys_are_uniform_and_uncorrelated() -> None:
    first = np.array([generator(1, key).random(2) for key in range(4000)])
    counts = np.histogram(first[:, 0], bins=10, range=(0, 1))[0]
    assert counts.min() > 320
    assert counts.max() < 480
    assert abs(np.corrcoef(first[1:, 0], first[:-1, 0])[0, 1]) < 0.06
    assert abs(np.corrcoef(first[:, 0], first[:, 1])[0, 1]) < 0.06
