"""Evidence features: windows by hand, the same by every engine, kept once, shrunk, and of the kind that suits."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.decomposition import PCA
from torch import nn
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d, normalize

import small_runs  # noqa: F401 - one thread
from fewtags.backbones.base import Backbone, build_backbone
from fewtags.data.catalogue import Catalogue, Names, Role
from fewtags.data.images import FolderImages
from fewtags.encoders import base as encoding
from fewtags.encoders import components
from fewtags.encoders import evidence as evidence_module
from fewtags.encoders.base import EncoderSettings, Images, run_extraction
from fewtags.encoders.components import fit_components
from fewtags.encoders.evidence import READILY, Choice, Evidence, coordinates
from fewtags.encoders.extract import fingerprints
from fewtags.encoders.runtime import OnnxEngine, OnnxFileEngine, TorchEngine, exported, make_engine
from fewtags.encoders.windows import WindowReader, make_readers, on_grid, pooled_parts, regions, square, window_maxima
from fewtags.errors import UserError
from fewtags.solvers.folds import FEW, MIN_CHOICE, REPEATS
from fewtags.training.prepare import Preparation, prepare
from fewtags.training.recipe import Recipe
from fewtags.training.source import Epoch
from fewtags.utils.stopping import StopRequest

CPU = torch.device("cpu")
ALONE = SimpleNamespace(device=CPU, global_rank=0, world_size=1, is_global_zero=True, barrier=lambda: None)


class Points(Backbone):
    """Every pixel by itself becomes a cell: the map of a cut-out is the cut-out of the map."""

    def __init__(self, classes=5, width=4, name="points", seed=0):
        super().__init__(name, width, 7)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv = nn.Conv2d(3, width, 1)
            nn.init.normal_(self.conv.weight)
            self.norm = nn.BatchNorm2d(width)
            nn.init.uniform_(self.norm.running_mean)
            if classes:
                self.fc = nn.Linear(width, classes)
                nn.init.normal_(self.fc.weight)
        self.set_scaling((127.0, 127.0, 127.0), (60.0, 60.0, 60.0))
        self.eval().requires_grad_(False)

    def _features(self, scaled):
        return torch.relu(self.norm(self.conv(scaled)))


class Pooled(Backbone):
    """Without a map."""

    def __init__(self, name="pooled"):
        super().__init__(name, 3, 7)

    def maps(self, pictures):
        raise UserError("there is none")

    def forward(self, pictures):
        return self._scaled(pictures).mean((2, 3))


class FromHalf(Points):
    """A map only of pictures of 14 pixels and more."""

    def maps(self, pictures):
        if pictures.shape[-1] < 14:
            raise UserError("too small")
        return super().maps(pictures)


def pixels(count=3, size=7, seed=0):
    made = torch.randint(0, 256, (count, 3, size, size), generator=torch.Generator().manual_seed(seed))
    return made.to(torch.uint8)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def best_windows(values, side, probabilities=False):
    """values [C, g, g] -> the largest value [C] of the windows of side × side, one after the other."""
    grid = values.shape[-1]
    side = min(side, grid)
    found = []
    for top in range(grid - side + 1):
        for left in range(grid - side + 1):
            window = values[:, top : top + side, left : left + side].reshape(len(values), -1).mean(1)
            if probabilities:
                window = torch.exp(window) / torch.exp(window).sum()
            found.append(window)
    return torch.stack(found).max(0).values


@pytest.mark.parametrize("probabilities", [True, False], ids=["softmax", "values"])
@pytest.mark.parametrize("patches", [1, 2, 3])
@pytest.mark.parametrize("grid", [7, 4, 3, 1])
def test_windows_are_those_of_a_loop_over_every_part(grid, patches, probabilities):
    values = 2 * normal(2, 5, grid, grid)
    found = window_maxima(values, patches, probabilities)
    assert len(found) == 4
    for side, of_side in zip((1, 2, 3, 4), found, strict=True):
        expected = [
            torch.stack(
                [
                    best_windows(one[:, top : top + extent, left : left + extent], side, probabilities)
                    for top, left, extent in regions(grid, patches)
                ]
            )
            for one in values
        ]
        torch.testing.assert_close(of_side, torch.stack(expected))


@pytest.mark.parametrize("grid", [1, 2, 3, 4, 6, 7])
@pytest.mark.parametrize("patches", [1, 2, 3, 5, 8])
def test_patches_are_equal_squares_that_cover_the_grid_and_mirror_each_other(grid, patches):
    whole, *squares = regions(grid, patches)
    assert whole == (0, 0, grid)
    assert len(squares) == (patches**2 if patches > 1 else 0)
    if squares:
        covered = np.zeros((grid, grid), bool)
        for top, left, extent in squares:
            assert extent == squares[0][2]
            assert 0 <= min(top, left) <= max(top, left) <= grid - extent
            covered[top : top + extent, left : left + extent] = True
        assert covered.all()
        assert [(left, top, extent) for top, left, extent in squares] == [
            squares[column * patches + row] for row in range(patches) for column in range(patches)
        ]


def test_a_part_is_pooled_over_its_cells():
    cells = normal(2, 5, 7, 7)
    found = pooled_parts(cells, 2)
    assert found.shape == (2, 5, 5)
    torch.testing.assert_close(found[:, 0], cells.mean((2, 3)))
    torch.testing.assert_close(found[:, 2], cells[:, :, :4, 3:].mean((2, 3)))  # right of the first
    torch.testing.assert_close(found[:, 3], cells[:, :, 3:, :4].mean((2, 3)))  # below it


def test_a_map_twice_as_large_is_averaged_two_by_two():
    maps = normal(2, 3, 14, 14)
    torch.testing.assert_close(on_grid(maps), avg_pool2d(maps, 2))


@pytest.mark.parametrize("side", [7, 14, 21, 28])
def test_equal_cells_keep_the_mean_of_the_map(side):
    maps = normal(2, 3, side, side)
    torch.testing.assert_close(on_grid(maps).mean((2, 3)), maps.mean((2, 3)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(8, 8), (10, 13), (16, 16), (5, 5), (1, 1), (3, 9)])
def test_a_map_of_any_size_comes_to_a_square_of_at_most_seven_cells_a_side(shape):
    maps = normal(2, 3, *shape)
    torch.testing.assert_close(on_grid(maps), adaptive_avg_pool2d(maps, min(7, *shape)))


def stretches(reader, features):
    """Name and numbers of every block."""
    ends = np.cumsum([block.width for block in reader.blocks])
    return [
        (block.kind, features[..., end - block.width : end]) for block, end in zip(reader.blocks, ends, strict=True)
    ]


def test_features_are_pooled_vectors_and_what_is_seen_in_windows_each_of_length_one():
    backbone, pictures = Points(), pixels(size=14)
    reader = WindowReader(backbone)
    assert [tuple(block) for block in reader.blocks] == [("pooled", 4), ("half", 4)] + 4 * [("evidence", 5)]
    found = reader(pictures)
    assert found.shape == (3, 1, reader.width) == (3, 1, 28)
    large, smaller = backbone.maps(pictures), backbone.maps(avg_pool2d(pictures.float(), 2))
    logits = backbone.classify(avg_pool2d(large, 2).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    expected = [large.mean((2, 3)), smaller.mean((2, 3))]
    expected += [torch.stack([best_windows(one, side, True) for one in logits]).sqrt() for side in (1, 2, 3, 4)]
    for (_, block), wanted in zip(stretches(reader, found), expected, strict=True):
        torch.testing.assert_close(block[:, 0], normalize(wanted, dim=1), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(block.norm(dim=-1), torch.ones(3, 1))


def test_columns_name_the_smaller_picture_as_pooled_where_there_is_one():
    reader, alone = WindowReader(Points()), WindowReader(Points(), half=False)
    windows = [(8, 13), (13, 18), (18, 23), (23, 28)]
    assert reader.columns("pooled") == [(4, 8)]
    assert reader.columns("evidence") == windows
    assert reader.columns("both") == [(4, 8), *windows]
    assert alone.columns("pooled") == [(0, 4)]
    assert alone.columns("both") == [(0, 4), *((start - 4, end - 4) for start, end in windows)]


@pytest.mark.parametrize("classes", [5, 0], ids=["classifier", "none"])
@pytest.mark.parametrize("patches", [2, 3])
def test_a_patch_is_read_like_a_picture_of_its_own(classes, patches):
    backbone, pictures = Points(classes), pixels()
    found = WindowReader(backbone, patches, half=False)(pictures)
    assert found.shape[1] == 1 + patches**2
    alone = WindowReader(backbone, half=False)
    for part, (top, left, extent) in enumerate(regions(7, patches)):
        cut = pictures[:, :, top : top + extent, left : left + extent]
        torch.testing.assert_close(found[:, part], alone(cut)[:, 0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[:, :1], WindowReader(backbone, patches, half=False).of_whole()(pictures))


def test_without_a_classifier_the_vectors_of_windows_take_its_place():
    backbone, pictures = Points(classes=0), pixels()
    reader = WindowReader(backbone, half=False)
    assert [tuple(block) for block in reader.blocks] == [("pooled", 4)] + 4 * [("evidence", 4)]
    found = stretches(reader, reader(pictures))
    for side, (_, block) in zip((1, 2, 3, 4), found[1:], strict=True):
        expected = torch.stack([best_windows(one, side) for one in backbone.maps(pictures)])
        torch.testing.assert_close(block[:, 0], normalize(expected, dim=1))


def test_a_backbone_without_a_map_gives_its_pooled_vector_alone():
    backbone, pictures = Pooled(), pixels()
    (reader,) = make_readers([backbone], 7, 1)
    assert (reader.mapped, reader.shrinks, reader.width) == (False, False, 3)
    torch.testing.assert_close(reader(pictures)[:, 0], normalize(backbone(pictures), dim=1))
    assert (reader.columns("pooled"), reader.columns("both"), reader.columns("evidence")) == ([(0, 3)], [(0, 3)], [])
    with pytest.raises(UserError, match=r"pooled has no map.*7 px.*--features crops"):
        make_readers([backbone], 7, 2)


def test_the_first_backbone_also_reads_the_smaller_picture_if_it_can():
    readers = make_readers([Points(), Points(), Pooled()], 14, 1)
    assert [reader.shrinks for reader in readers] == [True, False, False]
    assert [reader.mapped for reader in readers] == [True, True, False]
    (reader,) = make_readers([FromHalf()], 14, 2)
    assert (reader.mapped, reader.shrinks, reader.patches) == (True, False, 2)
    assert reader(pixels(size=14)).shape == (3, 5, 4 + 4 * 5)


def test_a_picture_is_squeezed_into_a_square():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 40, 3), dtype=np.uint8))
    found = square(image, 16)
    assert found.shape == (16, 16, 3)
    np.testing.assert_array_equal(found, np.asarray(image.resize((16, 16), Image.Resampling.BICUBIC)))


class Small(Points):
    """Cells of 4 × 4 pixels that look beyond their borders."""

    def __init__(self):
        super().__init__(classes=20, width=8, name="small")
        self.conv = nn.Conv2d(3, 8, 7, stride=4, padding=3, bias=False)
        nn.init.normal_(self.conv.weight, std=0.2)
        self.requires_grad_(False)


@pytest.fixture(scope="module")
def reader():
    torch.manual_seed(0)
    return WindowReader(Small(), patches=2).eval()


@pytest.fixture(scope="module")
def onnx_engine(reader):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    return OnnxEngine(reader)


def photographs(count, size):
    """Smooth random pictures as bytes [count, size, size, 3]."""
    small = torch.rand(count, 3, 6, 6, generator=torch.Generator().manual_seed(0)) * 255
    made = nn.functional.interpolate(small, size=size, mode="bicubic").clamp(0, 255).to(torch.uint8)
    return made.permute(0, 2, 3, 1).contiguous().numpy()


@pytest.mark.slow
def test_both_engines_give_the_same_evidence(reader, onnx_engine):
    pictures = photographs(6, 40)  # maps of 10 × 10 and 5 × 5 cells
    ours, theirs = onnx_engine(pictures), TorchEngine(reader, CPU)(pictures)
    assert ours.shape == (6, 5, 2 * 8 + 4 * 20)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    assert np.abs(ours[0] - ours[1]).max() > 0.05
    with torch.no_grad():
        plain = reader(torch.from_numpy(pictures).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(theirs, plain, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_evidence_does_not_depend_on_the_other_pictures_of_a_batch(onnx_engine):
    pictures = photographs(6, 40)
    apart = np.concatenate([onnx_engine(pictures[[row]]) for row in range(6)])
    np.testing.assert_array_equal(apart, onnx_engine(pictures))


def test_an_exported_engine_is_made_once_for_one_way_of_reading(tmp_path, monkeypatch):
    monkeypatch.setenv("FEWTAGS_CACHE", str(tmp_path))
    made = []
    monkeypatch.setattr("fewtags.encoders.runtime.to_onnx", lambda module, size: made.append(size) or b"engine")
    unit = Points()
    unit.set_scaling((1.0, 2.0, 3.0), (255.0, 255.0, 255.0))
    ways = [
        Points(),
        WindowReader(Points()),
        WindowReader(Points(), 2),
        WindowReader(Points(), half=False),
        WindowReader(unit),
    ]
    ways += [WindowReader(Points(seed=1)), WindowReader(Points(), mapped=False, half=False)]
    files = {exported(way, 16) for way in ways} | {exported(ways[1], 32)}
    assert len(files) == len(made) == len(ways) + 1
    assert exported(WindowReader(Points()), 16) in files
    assert len(made) == len(ways) + 1


@pytest.fixture
def encoder(tmp_path):
    """A backbone that comes as an ONNX file: one convolution."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    weight = normal(5, 3, 4, 4).numpy() / 4
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Conv", ["pictures", "weight"], ["map"], strides=[4, 4])],
        "encoder",
        [helper.make_tensor_value_info("pictures", kind, ("batch", 3, "height", "width"))],
        [helper.make_tensor_value_info("map", kind, None)],
        [onnx.numpy_helper.from_array(weight, "weight")],
    )
    file = tmp_path / "encoder.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return build_backbone(f"onnx:{file}")


def test_an_encoder_that_runs_by_itself_is_read_by_an_engine_for_threads(encoder):
    reader = WindowReader(encoder.eval(), patches=2).eval()
    engine = make_engine(reader, CPU)
    assert isinstance(engine, OnnxFileEngine)
    assert isinstance(make_engine(encoder, CPU), OnnxFileEngine)
    assert engine.in_threads
    pictures = photographs(24, 28)
    expected = reader(torch.from_numpy(pictures).permute(0, 3, 1, 2)).numpy()
    assert expected.shape == (24, 5, 2 * 5 + 4 * 5)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda row: engine(pictures[[row]])[0], range(24)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def spread(count, width, seed=0):
    """Features whose directions differ clearly in how much they tell images apart."""
    turn, _ = torch.linalg.qr(normal(width, width, seed=seed + 1))
    return ((normal(count, width, seed=seed) * 0.7 ** torch.arange(width)) @ turn + 0.5).half().numpy()


@pytest.mark.parametrize(("count", "width"), [(60, 12), (9, 40)], ids=["more images", "more numbers"])
def test_components_are_those_of_scikit_learn(count, width):
    features = spread(count, width)
    ours = fit_components(features, 5)
    theirs = PCA(5, svd_solver="full").fit(features.astype(np.float64))
    found, expected = ours.project(features), theirs.transform(features.astype(np.float64))
    assert found.dtype == np.float32
    assert ours.axes.dtype == torch.float16
    # turned: distances and angles are those of the components
    np.testing.assert_allclose(found.astype(np.float64) @ found.T, expected @ expected.T, atol=2e-2)


@pytest.mark.parametrize(("count", "width", "expected"), [(5, 40, 4), (40, 6, 6), (2, 40, 1), (1, 40, 1), (1, 1, 1)])
def test_no_more_components_than_images_can_tell(count, width, expected):
    features = spread(count, width)
    found = fit_components(features, 30)
    assert found.axes.shape == (width, expected)
    projected = found.project(features).astype(np.float64)
    assert np.isfinite(projected).all()
    centred = features.astype(np.float64) - features.astype(np.float64).mean(0)
    np.testing.assert_allclose(projected @ projected.T, centred @ centred.T, atol=2e-2)  # nothing is lost


@pytest.mark.parametrize(("count", "width"), [(9, 4), (4, 9)])
def test_features_that_do_not_differ_become_nothing(count, width):
    found = fit_components(np.full((count, width), 0.3, np.float16), 3)
    assert bool(torch.isfinite(found.axes).all())
    np.testing.assert_allclose(found.project(np.full((count, width), 0.3, np.float16)), 0, atol=1e-3)


def test_copies_among_few_images_leave_the_components_finite():
    features = np.repeat(spread(3, 40), 4, axis=0)
    found = fit_components(features, 11)
    projected = found.project(features).astype(np.float64)
    assert np.isfinite(projected).all()
    assert float(found.axes.float().norm(dim=0).max()) < 1.01


def test_parts_and_blocks_are_projected_alike(monkeypatch):
    features = spread(35, 8).reshape(7, 5, 8)
    found = fit_components(features[:, 0], 3)
    whole = found.project(features)
    assert whole.shape == (7, 5, 3)
    expected = (features.astype(np.float64) - found.mean.numpy()) @ found.axes.double().numpy()
    np.testing.assert_allclose(whole, expected, atol=2e-3)
    monkeypatch.setattr(components, "BLOCK", 2)
    np.testing.assert_allclose(found.project(features), whole, atol=1e-3)
    assert found.project(features[:0]).shape == (0, 5, 3)


def test_coordinates_keep_the_distances_of_images_in_few_numbers():
    for count, width in ((6, 40), (40, 6)):
        x = normal(count, width).double() * 3 + 5
        found = coordinates(x)
        assert found.shape == (count, min(count, width))
        torch.testing.assert_close(found.mean(0), torch.zeros(min(count, width)).double(), atol=1e-9, rtol=0)
        assert float(found.square().sum(1).mean()) == pytest.approx(1.0)
        ratio = torch.pdist(found) / torch.pdist(x)
        torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))
    assert bool(torch.isfinite(coordinates(torch.ones(5, 3).double())).all())


class Counting(TorchEngine):
    """Notes how many pictures each reader was shown, in the order of the calls."""

    def __init__(self, reader, seen, in_threads):
        super().__init__(reader, CPU)
        self.in_threads, self._name, self._seen = in_threads, reader.name, seen

    def __call__(self, pictures):
        self._seen[self._name] = self._seen.get(self._name, 0) + len(pictures)
        return super().__call__(pictures)


@pytest.fixture(params=[True, False], ids=["in threads", "for all threads"])
def shown(request, monkeypatch):
    """Reader -> pictures it was shown."""
    seen = {}
    monkeypatch.setattr(
        "fewtags.encoders.evidence.make_engine", lambda reader, device: Counting(reader, seen, request.param)
    )
    return seen


@pytest.fixture(autouse=True)
def own_cache(request, tmp_path, monkeypatch):
    """Nothing is kept from one test to another, but for the engine that they share."""
    if "onnx_engine" not in request.fixturenames:
        monkeypatch.setenv("FEWTAGS_CACHE", str(tmp_path / "cache"))


def paint(folder, count, bad=()):
    """A folder of small pictures, no two alike."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        file = folder / f"{number:02d}.png"
        if number in bad:
            file.write_bytes(b"")
        elif not file.exists():
            noise = np.random.default_rng(number).integers(0, 255, (3, 4, 3), dtype=np.uint8)
            Image.fromarray(noise).resize((20, 18), Image.Resampling.BILINEAR).save(file)
    return folder


def catalogue_of(folder, labelled=3, test=0):
    names = sorted(file.name for file in folder.glob("*.png"))
    roles = np.full(len(names), Role.UNLABELLED, np.int8)
    roles[:labelled] = Role.LABELLED
    roles[len(names) - test :] = Role.TEST
    present = np.arange(len(names))[:, None] % [2, 3] == 0
    targets = np.where(roles[:, None] == Role.UNLABELLED, -1, present).astype(np.int8)
    return Catalogue(("a", "b"), Names(names), targets, roles, FolderImages(folder))


def preparation(patches=1, **recipe):
    made = Recipe(size=16, features="evidence", **{"components": 4, **recipe})
    return Preparation(
        encoder=Evidence([Points(), Points(classes=6, name="second", seed=1)], made.encoder_settings(patches)),
        recipe=made,
        uses_unlabelled=True,
        draws_views=True,
        workers=0,
        fabric=ALONE,
        stop=StopRequest(),
    )


def encoder_of(patches=1):
    return preparation(patches).encoder


def stores_of(encoder):
    return encoder.feature_stores("plain")


def read(encoder, keys, blocks):
    return encoder.read(keys, blocks)


def test_every_picture_is_shown_to_every_backbone_once_and_then_only_new_ones(tmp_path, shown):
    folder = paint(tmp_path / "pictures", 9)
    prepare(catalogue_of(folder), preparation())
    assert shown == {"points": 9, "second": 9}
    shown.clear()
    prepare(catalogue_of(folder), preparation())
    assert shown == {}
    prepare(catalogue_of(paint(folder, 12)), preparation())
    assert shown == {"points": 3, "second": 3}


def test_patches_and_wholes_are_kept_in_one_pass_and_wholes_serve_runs_without_patches(tmp_path, shown):
    catalogue = catalogue_of(paint(tmp_path / "pictures", 9))
    prepared = prepare(catalogue, preparation(patches=2))
    assert shown == {"points": 9, "second": 9}
    rows = prepared.source.sweep("unlabelled", np.arange(6), "plain", Epoch(1, 0, 0, "weak", True))
    assert [views.patches.shape for views in rows] == [(6, 4, 4)]
    shown.clear()
    prepare(catalogue, preparation(patches=1))
    assert shown == {}


def test_a_run_with_patches_adds_them_to_the_wholes_of_one_without(tmp_path, shown):
    catalogue = catalogue_of(paint(tmp_path / "pictures", 9))
    keys = fingerprints(catalogue, {})
    prepare(catalogue, preparation(patches=1))
    before = [(store.folder / "features.f16").read_bytes() for store in stores_of(encoder_of())]
    shown.clear()
    prepare(catalogue, preparation(patches=2))
    assert shown == {"points": 9, "second": 9}  # patches come from the same forward as the whole
    encoder = encoder_of(patches=2)
    stores = stores_of(encoder)
    assert [store.shape for store in stores] == [(1, 1, 28), (1, 1, 28), (1, 4, 28), (1, 4, 28)]
    assert [(store.folder / "features.f16").read_bytes() for store in stores[:2]] == before
    np.testing.assert_array_equal(read(encoder, keys, "both")[:, :1], read(encoder_of(), keys, "both"))


def test_what_is_kept_is_what_the_readers_see(tmp_path, shown):
    catalogue = catalogue_of(paint(tmp_path / "pictures", 6))
    prepare(catalogue, preparation(patches=2))
    keys = fingerprints(catalogue, {})
    encoder, order = encoder_of(patches=2), [4, 0, 3]
    pictures = np.stack([square(catalogue.images.image(catalogue.names[row]), 16) for row in order])
    first, second = (reader(torch.from_numpy(pictures).permute(0, 3, 1, 2)).numpy() for reader in encoder.readers)
    for blocks in ("pooled", "evidence", "both"):
        columns = [first[..., slice(*one)] for one in encoder.readers[0].columns(blocks)]
        columns += [second[..., slice(*one)] for one in encoder.readers[1].columns(blocks)]
        found = read(encoder, [keys[row] for row in order], blocks)
        np.testing.assert_allclose(found, np.concatenate(columns, axis=-1), atol=1e-3)


def test_results_come_in_the_order_of_the_images_and_bad_ones_in_their_place(tmp_path, shown, monkeypatch):
    monkeypatch.setattr(encoding, "cores", lambda: 3)
    folder = paint(tmp_path / "pictures", 15, bad=(0, 7, 14))
    encoder = encoder_of(patches=2)
    wanted = [(f"{number:02d}.png", bytes([number])) for number in range(15)]
    results = list(run_extraction(encoder.extraction("plain", CPU), FolderImages(folder), iter(wanted)))
    assert [one.name for one in results] == [name for name, _ in wanted]
    for number, one in enumerate(results):
        if number in (0, 7, 14):
            assert (one.value, one.problem) == (None, "the file is empty")
            continue
        with Image.open(folder / f"{number:02d}.png") as image:
            picture = torch.from_numpy(square(image.convert("RGB"), 16).copy()).permute(2, 0, 1)[None]
        assert len(one.value) == 4  # a row of each store: wholes of both backbones, then their patches
        for place, reader in enumerate(encoder.readers):
            found = np.concatenate([row[0] for row in one.value[place::2]])
            np.testing.assert_allclose(found, reader(picture)[0], atol=1e-5)


def test_one_image_after_the_other_becomes_what_was_stored_of_it(tmp_path, shown):
    """Tagging reads what training learned from: blocks, rounding and components are the same."""
    catalogue = catalogue_of(paint(tmp_path / "pictures", 9, bad=(7,)))
    prepared = prepare(catalogue, preparation(patches=2))
    encoder, names = prepared.encoder, [f"0{number}.png" for number in range(9)]
    (found,) = encoder.encode(catalogue.images, names, CPU)
    assert [one.name for one in found] == names
    assert (found[7].value, found[7].problem) == (None, "the file is empty")
    good = [one.value for one in found if one.value is not None]
    stored = encoder.stored("plain", Images(catalogue.images, names, prepared.keys))
    np.testing.assert_allclose(np.stack(good), stored.features[stored.rows, 0], atol=1e-5)
    pictures = np.stack([encoder.pictures(catalogue.images.image(name))[0] for name in prepared.catalogue.names])
    np.testing.assert_allclose(np.stack(good), encoder(torch.from_numpy(pictures)), atol=2e-3)


def test_a_bad_picture_is_left_out_and_named(tmp_path, shown):
    prepared = prepare(catalogue_of(paint(tmp_path / "pictures", 8, bad=(5,))), preparation())
    assert prepared.bad == [("05.png", "the file is empty")]
    assert len(prepared.catalogue) == 7
    assert prepared.encoder.width == 4


def test_evidence_read_in_another_way_is_kept_apart():
    def folders(backbone=None, size=16, patches=1):
        encoder = Evidence([backbone or Points()], EncoderSettings(size=size, patches=patches))
        return [store.folder for store in stores_of(encoder)]

    scaled = Points()
    scaled.set_scaling((1.0, 2.0, 3.0), (255.0, 255.0, 255.0))
    different = [folders(), folders(size=32), folders(Points(seed=1)), folders(scaled), folders(Points(name="other"))]
    assert len({one for some in different for one in some}) == 5
    assert folders() == different[0]
    whole, two = folders(patches=2)
    assert whole == folders()[0]
    assert len({whole, two, folders(patches=3)[1]}) == 3


def filled(count=12, patches=1, **settings):
    """An encoder with made-up rows of one backbone, and their keys."""
    encoder = Evidence([Points()], EncoderSettings(size=16, patches=patches, **settings))
    keys = [bytes([7 * number % 256, *15 * [number]]) for number in range(count)]
    for seed, store in enumerate(stores_of(encoder)):
        store.append(keys, normal(count, *store.shape, seed=seed).half().numpy())
    return encoder, keys


def images(keys):
    return Images(None, [key.hex() for key in keys], keys)


def fitted(keys, blocks="both", count=5, patches=1):
    """The encoder after it has learned from images that are in the stores: the first three are labelled."""
    encoder = Evidence([Points()], EncoderSettings(size=16, patches=patches, blocks=blocks, components=count))
    encoder.fit(images(keys[:3]), images(keys[3:]), torch.zeros(3, 2), ALONE)
    return encoder


def test_components_are_fitted_once_whatever_the_order_of_images(monkeypatch, tmp_path):
    _, keys = filled()
    first = fitted(keys).components
    (file,) = (tmp_path / "cache" / "components").iterdir()
    file.unlink()
    again = fitted([*reversed(keys), keys[0]]).components
    assert torch.equal(first.axes, again.axes)
    assert torch.equal(first.mean, again.mean)
    assert file.exists()
    monkeypatch.setattr(components, "fit_components", None)
    kept = fitted(keys).components
    assert torch.equal(kept.axes, first.axes)
    assert torch.equal(kept.mean, first.mean)
    for other in ((keys[1:], "both", 5), (keys, "pooled", 5), (keys, "both", 4)):
        with pytest.raises(TypeError):  # nothing of another kind is taken for them
            fitted(*other)


def test_components_are_those_of_the_whole_views(monkeypatch):
    monkeypatch.setattr(evidence_module, "ROWS", 5)
    _, keys = filled(patches=2)
    encoder = fitted(keys, "evidence", 3, patches=2)
    found = encoder.components
    wholes = read(encoder, keys, "evidence")[:, 0]
    torch.testing.assert_close(found.mean, torch.from_numpy(wholes).float().mean(0), atol=1e-5, rtol=0)
    projected = encoder.stored("plain", images(keys))
    assert projected.features.shape == (12, 1, 5, 3)
    assert projected.rows.tolist() == list(range(12))
    np.testing.assert_allclose(projected.features[:, 0], found.project(read(encoder, keys, "evidence")), atol=1e-3)


def test_images_for_testing_play_no_part_in_the_components(tmp_path, shown):
    catalogue = catalogue_of(paint(tmp_path / "pictures", 12), test=4)
    found = prepare(catalogue, preparation()).encoder.components
    keys = fingerprints(catalogue, {})
    wholes = read(encoder_of(), keys[:8], "both")[:, 0].astype(np.float32)
    np.testing.assert_allclose(found.mean, wholes.mean(0), atol=1e-5)


def told_by(*blocks, count=60):
    """An encoder in whose store these kinds of blocks tell the tags and the others are loud noise; keys and targets."""
    encoder = Evidence([Points()], EncoderSettings(size=16))
    keys = [bytes([number, *15 * [1]]) for number in range(count)]
    targets = (normal(count, 2, seed=1) > 0).to(torch.int8)
    rows = 300 * normal(count, 1, 1, encoder.readers[0].width)
    for kind in blocks:
        for start, end in encoder.readers[0].columns(kind):
            rows[..., start:end] = 0.3 * normal(count, 1, 1, end - start, seed=2)
            rows[:, 0, 0, start : start + 2] += 2.0 * targets - 1
    stores_of(encoder)[0].append(keys, rows.half().numpy())
    return encoder, keys, targets


@pytest.mark.parametrize("kind", ["evidence", "pooled"])
def test_the_kind_that_tells_the_tags_is_chosen(kind):
    encoder, keys, targets = told_by(kind)
    choice = encoder.choose(keys, targets)
    assert choice.blocks == kind
    assert choice.tried.keys() == {"both", "evidence", "pooled"}
    assert choice.tried[kind] == max(choice.tried.values()) > 0.95
    assert min(choice.tried.values()) < 0.8


def test_where_both_kinds_tell_the_tags_both_are_taken():
    encoder, keys, targets = told_by("evidence", "pooled")
    choice = encoder.choose(keys, targets)
    assert choice.blocks == "both"
    assert max(choice.tried.values()) - choice.tried["both"] <= 0.005


def answered(monkeypatch, **leads):
    """The kinds' average precisions, as cross-validation would find them, in the order in which they are asked for."""
    asked = []
    answers = iter([leads.get(kind, 0.0) + np.array([[0.5, 0.6, 0.7]]) for kind in ("both", "evidence", "pooled")])

    def cross_validated(basis, targets, strength, groups):
        asked.append(groups)
        return next(answers)

    monkeypatch.setattr(evidence_module, "cross_validated", cross_validated)
    return asked


AWAY = np.array([0.02, -0.02, 0.02])


@pytest.mark.parametrize(("leads", "expected"), [
    ({}, "both"),
    ({"evidence": 0.01}, "evidence"),
    ({"evidence": 0.01, "pooled": 0.02}, "pooled"),
    ({"evidence": -0.01, "pooled": -0.02}, "both"),
    ({"evidence": AWAY + 1.1 * READILY * AWAY.std(ddof=1) / 3**0.5 - AWAY.mean()}, "evidence"),
    ({"evidence": AWAY + 0.9 * READILY * AWAY.std(ddof=1) / 3**0.5 - AWAY.mean()}, "both"),
])  # fmt: skip
def test_both_kinds_are_taken_unless_another_leads_by_more_than_chance(monkeypatch, leads, expected):
    encoder, keys, targets = told_by("pooled")
    answered(monkeypatch, **leads)
    found = encoder.choose(keys, targets)
    assert found.blocks == expected
    means = {kind: 0.6 + np.mean(leads.get(kind, 0.0)) for kind in ("both", "evidence", "pooled")}
    assert found.tried == pytest.approx(means)


def test_near_duplicates_are_found_once_and_share_a_fold_for_every_kind(monkeypatch):
    encoder, keys, targets = told_by(count=50)
    store = stores_of(encoder)[0]
    near = torch.from_numpy(store.array()[store.rows_of_all(keys[3:4])].astype(np.float32))
    twin = bytes(16 * [255])
    store.append([twin], (near + 0.01 * normal(*near.shape, seed=5)).half().numpy())
    asked = answered(monkeypatch)
    encoder.choose([*keys, twin], torch.cat([targets, targets[3:4]]))
    assert [len(np.unique(groups)) for groups in asked] == 3 * [50]
    assert len({tuple(groups) for groups in asked}) == 1


@pytest.mark.parametrize(("count", "times"), [(FEW - 1, REPEATS), (FEW, 1)])
def test_with_few_labels_each_kind_is_tried_several_times(monkeypatch, count, times):
    encoder, keys, targets = told_by("pooled", count=count)
    tried, of_folds = [], evidence_module.cross_validated

    def cross_validated(*given):
        tried.append(len(of_folds(*given)))
        return of_folds(*given)

    monkeypatch.setattr(evidence_module, "cross_validated", cross_validated)
    encoder.choose(keys, targets)
    assert tried == [times] * 3


def test_where_no_image_shows_a_tag_both_kinds_are_taken():
    encoder, keys, targets = told_by("pooled")
    assert encoder.choose(keys, targets * 0) == Choice("both", {})


def test_copies_of_an_image_are_asked_once(monkeypatch):
    encoder, keys, targets = told_by("pooled")
    asked = answered(monkeypatch)
    encoder.choose([*keys, *keys], torch.cat([targets, targets]))
    assert [len(groups) for groups in asked] == [60, 60, 60]


def test_without_any_map_there_is_nothing_to_choose():
    encoder = Evidence([Pooled()], EncoderSettings(size=16))
    assert encoder.choose([], torch.zeros(0, 2)) == Choice("pooled", {})


@pytest.mark.parametrize(("labelled", "asked"), [(MIN_CHOICE - 1, False), (MIN_CHOICE, True)])
def test_with_few_labelled_images_both_kinds_are_taken_unasked(tmp_path, shown, monkeypatch, labelled, asked):
    calls = []

    def choose(self, keys, targets, tick):
        calls.append((len(keys), len(targets)))
        return Choice("evidence", {"evidence": 0.5})

    monkeypatch.setattr(Evidence, "choose", choose)
    catalogue = catalogue_of(paint(tmp_path / "pictures", MIN_CHOICE + 4), labelled)
    choice = prepare(catalogue, preparation(blocks="choose")).encoder.choice
    assert choice == (Choice("evidence", {"evidence": 0.5}) if asked else Choice("both", {}))
    assert calls == ([(MIN_CHOICE, MIN_CHOICE)] if asked else [])


def test_a_kind_that_is_named_is_taken_unasked(tmp_path, shown, monkeypatch):
    monkeypatch.setattr(Evidence, "choose", None)
    pictures = paint(tmp_path / "pictures", MIN_CHOICE + 4)
    prepared = prepare(catalogue_of(pictures, MIN_CHOICE + 2), preparation(blocks="pooled"))
    assert prepared.encoder.choice == Choice("pooled", {})
    assert prepared.encoder.components.axes.shape == (4 + 4, 4)
