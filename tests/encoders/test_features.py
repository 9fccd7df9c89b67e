"""Features: kept whole whatever happens to the writer, computed once, the same by every engine."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import small_runs  # noqa: F401 - one thread
from fewtags.backbones.base import build_backbone
from fewtags.data import hide, read
from fewtags.data.catalogue import Catalogue, Names, Role
from fewtags.data.images import FolderImages
from fewtags.encoders import base as encoding
from fewtags.encoders import extract as extracting
from fewtags.encoders.base import EncoderSettings, run_extraction
from fewtags.encoders.crops import Crops
from fewtags.encoders.runtime import OnnxEngine, TorchEngine
from fewtags.encoders.store import FeatureStore, store_folder
from fewtags.errors import Fault
from fewtags.training import prepare as preparing
from fewtags.training.prepare import Preparation, prepare
from fewtags.training.recipe import Recipe
from fewtags.utils.stopping import StopRequest

SHAPE = (2, 3)
CPU = torch.device("cpu")


def key(number):
    return number.to_bytes(16, "big")


def rows(*numbers):
    return np.stack([np.full(SHAPE, number, np.float16) for number in numbers])


def store(folder):
    return FeatureStore(folder / "features", SHAPE, {"backbone": "none"})


def held(folder):
    """What a new reader finds: number -> its features."""
    found = store(folder)
    table = found.array()
    return {n: table[row].tolist() for n in range(10) if (row := found.rows([key(n)])[0]) >= 0}


def expected(*numbers):
    return {number: np.full(SHAPE, float(number)).tolist() for number in numbers}


def test_features_are_there_when_the_store_is_opened_again(tmp_path):
    assert held(tmp_path) == {}
    store(tmp_path).append([key(3), key(1)], rows(3, 1))
    assert held(tmp_path) == expected(3, 1)
    store(tmp_path).append([key(2)], rows(2))
    assert held(tmp_path) == expected(1, 2, 3)
    about = json.loads((tmp_path / "features" / "made-from.json").read_text())
    assert about == {"backbone": "none", "shape": list(SHAPE)}


def test_what_is_there_already_is_not_written_again(tmp_path):
    ours = store(tmp_path)
    ours.append([key(1), key(1)], rows(1, 1))
    ours.append([key(1), key(2)], rows(9, 2))
    assert held(tmp_path) == expected(1, 2)
    assert len(ours.array()) == 2


@pytest.mark.parametrize("file", ["keys.bin", "features.f16"])
@pytest.mark.parametrize("lost", [1, 5, 9])
def test_a_torn_tail_loses_its_row_and_nothing_else(tmp_path, file, lost):
    """Whichever of the files was cut, the next writer puts its rows where their keys are."""
    store(tmp_path).append([key(1), key(2)], rows(1, 2))
    torn = tmp_path / "features" / file
    torn.write_bytes(torn.read_bytes()[:-lost])
    assert held(tmp_path) == expected(1)
    store(tmp_path).append([key(3), key(4)], rows(3, 4))
    assert held(tmp_path) == expected(1, 3, 4)


@pytest.mark.parametrize("file", ["keys.bin", "features.f16"])
def test_what_a_killed_writer_left_behind_is_written_over(tmp_path, file):
    store(tmp_path).append([key(1)], rows(1))
    with (tmp_path / "features" / file).open("ab") as out:
        out.write(b"half a row")
    assert held(tmp_path) == expected(1)
    store(tmp_path).append([key(2)], rows(2))
    assert held(tmp_path) == expected(1, 2)


def test_a_key_that_lost_its_row_never_gets_the_row_of_another(tmp_path):
    ours = store(tmp_path)
    ours.append([key(1), key(2), key(3)], rows(1, 2, 3))
    data = tmp_path / "features" / "features.f16"
    row_bytes = len(data.read_bytes()) // 3
    data.write_bytes(data.read_bytes()[:row_bytes])
    store(tmp_path).append([key(4)], rows(4))
    with data.open("ab") as out:  # and the next writer was killed before it wrote its key
        out.write(rows(5).tobytes())
    assert held(tmp_path) == expected(1, 4)


def test_two_writers_add_to_one_store(tmp_path):
    one, other = store(tmp_path), store(tmp_path)
    one.append([key(1)], rows(1))
    other.append([key(2), key(1)], rows(2, 9))
    one.append([key(3)], rows(3))
    assert held(tmp_path) == expected(1, 2, 3)
    assert other.rows([key(3)]).tolist() == [-1]  # not yet seen
    other.refresh()
    assert other.array()[other.rows([key(3)])[0]].tolist() == expected(3)[3]


def test_a_full_disk_is_said_and_keeps_what_was_there(tmp_path, monkeypatch):
    ours = store(tmp_path)
    ours.append([key(1)], rows(1))

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Fault, match=r"No space left on device.*FEWTAGS_CACHE"):
        ours.append([key(2)], rows(2))
    monkeypatch.undo()
    assert held(tmp_path) == expected(1)
    ours.append([key(3)], rows(3))
    assert held(tmp_path) == expected(1, 3)


class Counting:
    """Stands for an engine: the mean of every channel is the feature; counts the pictures it was shown."""

    def __init__(self, in_threads):
        self.in_threads, self.pictures = in_threads, 0

    def __call__(self, pictures):
        self.pictures += len(pictures)
        return pictures.mean((1, 2), dtype=np.float32)


@pytest.fixture(params=[True, False], ids=["in threads", "for all threads"])
def engine(request, monkeypatch):
    engine = Counting(request.param)
    monkeypatch.setattr("fewtags.encoders.crops.make_engine", lambda backbone, device: engine)
    return engine


class TinyBackbone(torch.nn.Linear):
    """Enough of a backbone to be told apart from others; the engine that stands in does its work."""

    name, width = "tiny", 3

    def __init__(self):
        super().__init__(3, 3)
        torch.nn.init.ones_(self.weight)
        torch.nn.init.zeros_(self.bias)
        self.shift, self.scale = torch.zeros(3), torch.ones(3)

    @property
    def scaling(self):
        return [*self.shift.tolist(), *self.scale.tolist()]


def crops(backbone=None, **settings):
    return Crops([backbone or TinyBackbone()], EncoderSettings(**settings))


def paint(folder, count, bad=()):
    """Folder of pictures, each of one colour; a bad one is an empty file."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        file = folder / f"{number:02d}.png"
        if number in bad:
            file.write_bytes(b"")
        elif not file.exists():
            Image.new("RGB", (8, 8), (number, 2 * number, 0)).save(file)
    return folder


def catalogue_of(folder, labelled=3):
    names = sorted(file.name for file in folder.glob("*.png"))
    roles = np.full(len(names), Role.UNLABELLED, np.int8)
    roles[:labelled] = Role.LABELLED
    targets = np.where(roles[:, None] == Role.LABELLED, 1, -1).astype(np.int8)
    return Catalogue(("a",), Names(names), targets, roles, FolderImages(folder))


def preparation(rank=0, processes=1, **recipe):
    here = SimpleNamespace(
        device=torch.device("cpu"),
        global_rank=rank,
        world_size=processes,
        is_global_zero=rank == 0,
        barrier=lambda: None,
    )
    made = Recipe(size=16, **recipe)
    return Preparation(
        encoder=Crops([TinyBackbone()], made.encoder_settings(1)),
        recipe=made,
        uses_unlabelled=True,
        draws_views=True,
        workers=0,
        fabric=here,
        stop=StopRequest(),
    )


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEWTAGS_CACHE", str(tmp_path / "cache"))


def plain_of(prepared, part):
    from fewtags.training.source import Epoch

    size = len(prepared.catalogue.rows(preparing.ROLES[part]))
    (views,) = prepared.source.sweep(part, np.arange(size), "plain", Epoch(1, 0, 0, "weak", True))
    return views.whole


def test_features_are_computed_once_and_then_only_those_of_new_images(tmp_path, engine, own_cache):
    folder = paint(tmp_path / "pictures", 10)
    prepare(catalogue_of(folder), preparation(strong_draws=2))
    assert engine.pictures == 10 + 2 * 7  # plain views of all, strong draws of the unlabelled
    engine.pictures = 0
    prepare(catalogue_of(folder), preparation(strong_draws=2))
    assert engine.pictures == 0
    again = prepare(catalogue_of(paint(folder, 13)), preparation(strong_draws=2))
    assert engine.pictures == 3 + 2 * 3
    found = plain_of(again, "unlabelled")[:, 0].tolist()
    assert found == [float(number) for number in range(3, 13)]


def test_a_renamed_image_keeps_its_features_and_a_changed_one_does_not(tmp_path, engine, own_cache):
    folder = paint(tmp_path / "pictures", 6)
    prepare(catalogue_of(folder), preparation())
    engine.pictures = 0
    (folder / "05.png").rename(folder / "20.png")
    Image.new("RGB", (8, 8), (200, 0, 0)).save(folder / "04.png")
    again = prepare(catalogue_of(folder), preparation(strong_draws=2))
    assert engine.pictures == 1 + 2
    assert plain_of(again, "unlabelled")[:, 0].tolist() == [3.0, 200.0, 5.0]


def test_two_copies_of_a_picture_are_computed_once(tmp_path, engine, own_cache):
    folder = paint(tmp_path / "pictures", 5)
    (folder / "06.png").write_bytes((folder / "04.png").read_bytes())
    prepared = prepare(catalogue_of(folder), preparation(strong_draws=1))
    assert engine.pictures == 5 + 2
    assert plain_of(prepared, "unlabelled")[:, 0].tolist() == [3.0, 4.0, 4.0]


def test_every_copy_of_a_bad_picture_is_left_out(tmp_path, engine, own_cache):
    """Empty files have one content: the first that is tried must not stand for the others."""
    folder = paint(tmp_path / "pictures", 9, bad=(4, 6, 8))
    prepared = prepare(catalogue_of(folder), preparation())
    assert prepared.bad == [(f"0{number}.png", "the file is empty") for number in (4, 6, 8)]
    assert plain_of(prepared, "unlabelled")[:, 0].tolist() == [3.0, 5.0, 7.0]


def test_what_one_process_has_computed_already_stays_its_own_part(tmp_path, engine, own_cache, monkeypatch):
    """A process that is late sees rows of the others; it must still compute all that is left to it."""
    monkeypatch.setattr(extracting, "share_bad", lambda bad, fabric: None)
    catalogue = catalogue_of(paint(tmp_path / "pictures", 12))
    how = [preparation(rank, 2) for rank in (0, 1)]
    keys = extracting.fingerprints(catalogue, {})
    for one in how:  # one after the other, as if the second had slept
        extracting.extract(one.encoder, "plain", catalogue, keys, np.arange(12), {}, one.fabric, one.stop)
    assert engine.pictures == 12
    (store,) = how[0].encoder.feature_stores("plain")
    store.refresh()  # as `extract` does where several processes share the work
    assert store.rows(keys).min() >= 0


def test_features_that_another_machine_kept_elsewhere_are_missed_aloud(tmp_path, engine, own_cache, monkeypatch):
    monkeypatch.setattr(extracting, "share_bad", lambda bad, fabric: None)
    with pytest.raises(Fault, match="FEWTAGS_CACHE"):
        prepare(catalogue_of(paint(tmp_path / "pictures", 12)), preparation(rank=0, processes=2))


def test_results_come_in_the_order_of_the_images_and_bad_ones_in_their_place(tmp_path, engine, monkeypatch):
    monkeypatch.setattr(encoding, "cores", lambda: 3)
    folder = paint(tmp_path / "pictures", 40, bad=(0, 7, 39))
    wanted = [(f"{number:02d}.png", key(number)) for number in range(40)]
    plain = crops(size=16, patches=2).extraction("plain", CPU)
    found = list(run_extraction(plain, FolderImages(folder), iter(wanted)))
    assert [one.name for one in found] == [name for name, _ in wanted]
    for number, one in enumerate(found):
        if number in (0, 7, 39):
            assert (one.value, one.problem) == (None, "the file is empty")
        else:
            (row,) = one.value
            assert row.shape == (1, 5, 3)
            np.testing.assert_array_equal(row[0, :, 0], number)


def test_one_image_after_the_other_becomes_what_was_stored_of_it(tmp_path, engine, own_cache):
    """Tagging reads what training learned from, rounded alike."""
    catalogue = catalogue_of(paint(tmp_path / "pictures", 6, bad=(4,)))
    prepared = prepare(catalogue, preparation())
    (found,) = prepared.encoder.encode(catalogue.images, catalogue.names, CPU)
    assert [one.name for one in found] == list(catalogue.names)
    assert (found[4].value, found[4].problem) == (None, "the file is empty")
    whole = [one.value[0].tolist() for one in found if one.value is not None]
    stored = [plain_of(prepared, part).tolist() for part in ("labelled", "unlabelled")]
    assert whole == [*stored[0], *stored[1]]


def test_a_draw_depends_on_the_content_alone(tmp_path, engine):
    folder = paint(tmp_path / "pictures", 1)
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8))
    for name in ("a.png", "b.png"):
        noise.save(folder / name)
    strong = crops(size=16, patches=2, strong_draws=4).extraction("strong", CPU)
    wanted = [("a.png", key(1)), ("00.png", key(2)), ("b.png", key(1)), ("b.png", key(3))]
    results = run_extraction(strong, FolderImages(folder), wanted)
    first, _, copy, other = (one.value[0] for one in results)
    np.testing.assert_array_equal(first, copy)
    assert not np.array_equal(first, other)
    assert len({draw.tobytes() for draw in first}) > 1


def test_features_made_in_another_way_are_kept_apart(tmp_path):
    def folder(backbone=None, kind="strong", draws=2, **spec):
        encoder = crops(backbone, **{"size": 32, "patches": 2, "strong_draws": draws, **spec})
        return store_folder(tmp_path, encoder.made_from(kind))

    trained, scaled = TinyBackbone(), TinyBackbone()
    with torch.no_grad():
        trained.bias[1] += 1e-6
        scaled.scale[0] = 255
    folders = [
        folder(),
        folder(size=64),
        folder(patches=3),
        folder(patch_source="original"),
        folder(patch_size="native"),
        folder(cutout=False),
        folder(kind="plain"),
        folder(draws=3),
        folder(trained),
        folder(scaled),
    ]
    assert len(set(folders)) == len(folders)
    assert folder() == folders[0]
    assert folder(kind="plain", cutout=False) == folder(kind="plain")  # it plays no part there


@pytest.fixture(scope="module")
def engines(cache):
    backbone = build_backbone("efficientnet_lite0")
    return {"onnx": OnnxEngine(backbone), "torch": TorchEngine(backbone, torch.device("cpu"))}


@pytest.fixture(scope="module")
def pictures():
    catalogue = read("scenes:8")
    return np.stack([np.asarray(catalogue.images.image(name).resize((64, 64))) for name in catalogue.names])


@pytest.mark.slow
def test_both_engines_give_the_same_features(engines, pictures):
    found = {name: engine(pictures) for name, engine in engines.items()}
    assert found["onnx"].shape == (8, 1280)
    assert found["onnx"].std() > 0.1
    np.testing.assert_allclose(found["onnx"], found["torch"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["onnx", "torch"])
def test_features_do_not_depend_on_the_neighbours_in_a_batch(engines, pictures, name):
    """To the last bit: a run that is killed and resumed groups its images anew."""
    together = engines[name](pictures)
    for size in (1, 2, 3):
        apart = np.concatenate([engines[name](pictures[start : start + size]) for start in range(0, 8, size)])
        np.testing.assert_array_equal(apart, together)


def test_hidden_truth_reaches_the_loop_for_measuring_only(engine, own_cache):
    catalogue = hide(read("scenes:16"), 0.5, 1)
    targets = preparing.targets_of(catalogue)
    assert (len(targets.labelled), targets.unlabelled, len(targets.test)) == (6, 6, 4)
    assert len(targets.truth) == 6
    nobody_knows = np.where(catalogue.roles[:, None] == Role.UNLABELLED, -1, catalogue.targets).astype(np.int8)
    blind = Catalogue(catalogue.tags, catalogue.names, nobody_knows, catalogue.roles, catalogue.images)
    assert preparing.targets_of(blind).truth is None
