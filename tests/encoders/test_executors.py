"""Executors: whoever computes the features, the same bytes are kept and the same images are found bad."""

import json
import multiprocessing
import pickle
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

import small_runs  # noqa: F401 - one thread
from fewtags.backbones.base import build_backbone
from fewtags.data.catalogue import Catalogue, ImageResult, Names, Role
from fewtags.data.images import FolderImages, ImageFiles
from fewtags.data.readers.scenes import read_scenes
from fewtags.data.vectors import VectorSource
from fewtags.encoders.base import GROUP, EncoderSettings, extract_group, make_encoder, run_extraction
from fewtags.encoders.components import Components
from fewtags.encoders.evidence import Choice
from fewtags.encoders.executors import in_threads
from fewtags.encoders.extract import extract, fingerprints
from fewtags.encoders.packed import pack_encoder, unpack_encoder
from fewtags.encoders.runtime import TorchEngine
from fewtags.encoders.vectors import Vectors
from fewtags.errors import Interrupted, UserError
from fewtags.training.prepare import Preparation, extract_features
from fewtags.training.recipe import Recipe
from fewtags.utils.files import cache_folder
from fewtags.utils.stopping import StopRequest
from fewtags.utils.threads import batched
from small_models import noise

CPU = torch.device("cpu")
ALONE = SimpleNamespace(device=CPU, global_rank=0, world_size=1, is_global_zero=True)
BAD = {3: "the file is empty", 7: "not an image of a known format, whatever its name says"}
COUNT = 11


# --- an executor of another kind, as a person would write it: all of it is here -------------------------------

opened = {}  # of a worker: what it computes, and of which images


def open_encoder(packed, view, images, device):
    torch.set_num_threads(1)
    opened.update(extraction=unpack_encoder(packed).extraction(view, device), images=images)


def rows_of(group):
    return extract_group(opened["extraction"], opened["images"], group)


def in_processes(encoder, view, images, wanted, device):
    """Two processes; only a few groups are under way at a time."""
    context, told = multiprocessing.get_context("spawn"), (pack_encoder(encoder), view, images, device)
    with ProcessPoolExecutor(2, context, initializer=open_encoder, initargs=told) as pool:
        waiting = deque()
        try:
            for group in batched(wanted, GROUP):
                waiting.append(pool.submit(rows_of, group))
                if len(waiting) > 4:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


# --- encoders and images ------------------------------------------------------------------------------------


def backbone(name="resnet18", seed=0):
    """Random weights, also in the norms, and a scaling that has to be sent along."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = build_backbone(name, pretrained=False, scaling="unit" if seed else "own")
        for buffer in made.buffers():
            if buffer.is_floating_point() and buffer.ndim == 1:
                buffer.add_(0.1 * torch.rand_like(buffer))
    return made.eval().requires_grad_(False)


def crops(**settings):
    return make_encoder("crops", [backbone()], EncoderSettings(**{"size": 64, "strong_draws": 3, **settings}))


def evidence(names=("resnet18", "efficientnet_lite0"), **settings):
    many = [backbone(name, seed) for seed, name in enumerate(names)]
    return make_encoder("evidence", many, EncoderSettings(**{"size": 64, "blocks": "choose", **settings}))


def fitted(encoder):
    """As `fit` leaves it, without images to learn from."""
    encoder.choice = Choice("evidence", {"evidence": 0.9})
    width = sum(end - start for reader in encoder.readers for start, end in reader.columns("evidence"))
    rng = torch.Generator().manual_seed(0)
    mean, axes = torch.randn(width, generator=rng), torch.randn(width, 5, generator=rng)
    encoder.components, encoder.width = Components(mean, axes.half()), 5
    return encoder


@pytest.fixture
def catalogue(tmp_path):
    """Pictures of noise, two bad files among them."""
    folder = tmp_path / "pictures"
    names = [Path(name).name for name in noise(folder, COUNT)]
    (folder / names[3]).write_bytes(b"")
    (folder / names[7]).write_bytes(b"no picture")
    roles = np.full(COUNT, Role.UNLABELLED, np.int8)
    return Catalogue(("a",), Names(names), np.full((COUNT, 1), -1, np.int8), roles, FolderImages(folder))


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """A cache whose engines are built once."""
    return tmp_path_factory.mktemp("executors")


@pytest.fixture
def torch_alone(monkeypatch):
    """No engine is built."""
    for kind in ("crops", "evidence"):
        monkeypatch.setattr(f"fewtags.encoders.{kind}.make_engine", TorchEngine)


def filled(encoder, view, catalogue, executor, kept):
    """The files of the stores that `extract` fills, by name, moved to `kept`; and the bad images."""
    bad = {}
    keys = fingerprints(catalogue, bad)
    extract(encoder, view, catalogue, keys, np.arange(len(catalogue)), bad, ALONE, StopRequest(), executor)
    (cache_folder() / "features").rename(kept)
    return {str(file.relative_to(kept)): file.read_bytes() for file in kept.rglob("*") if file.is_file()}, bad


def rows(encoder, view, catalogue):
    """All that is extracted, as bytes."""
    wanted = [(name, name.encode()) for name in catalogue.names]
    found = run_extraction(encoder.extraction(view, CPU), catalogue.images, wanted)
    return [(one.name, one.problem, [row.tobytes() for row in one.value or ()]) for one in found]


# --- the same bytes -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "view"),
    [
        (lambda: crops(patches=2), "plain"),
        (lambda: crops(patches=2, cutout=False), "strong"),
        (lambda: evidence(patches=2), "plain"),
    ],
    ids=["crops, plain", "crops, strong", "evidence"],
)
def test_two_processes_fill_the_stores_with_the_bytes_of_threads(made, view, catalogue, engines, tmp_path, monkeypatch):
    monkeypatch.setenv("FEWTAGS_CACHE", str(engines))
    here, bad_here = filled(made(), view, catalogue, in_threads, tmp_path / "here")
    there, bad_there = filled(made(), view, catalogue, in_processes, tmp_path / "there")
    assert {Path(name).name for name in here} == {"features.f16", "keys.bin", "made-from.json", "lock"}
    assert all(content for name, content in here.items() if not name.endswith("lock"))
    assert there == here
    assert bad_there == bad_here == BAD


@pytest.mark.parametrize("view", ["plain", "strong"])
@pytest.mark.parametrize(
    "settings",
    [
        {"patches": 2, "patch_source": "original", "patch_size": "native"},
        {"patches": 1, "cutout": False, "strong_draws": 1},
    ],
    ids=["patches", "none"],
)
def test_crops_that_were_sent_extract_the_same(view, settings, catalogue, torch_alone):
    encoder = crops(**settings)
    sent = unpack_encoder(pack_encoder(encoder))
    assert sent.settings == encoder.settings
    assert sent.made_from(view) == encoder.made_from(view)
    assert rows(sent, view, catalogue) == rows(encoder, view, catalogue)


@pytest.mark.parametrize("fit", [lambda encoder: encoder, fitted], ids=["before fit", "after fit"])
@pytest.mark.parametrize("names", [("resnet18",), ("resnet18", "efficientnet_lite0")], ids=["one", "two"])
def test_evidence_that_was_sent_extracts_and_encodes_the_same(fit, names, catalogue, torch_alone):
    encoder = fit(evidence(names, patches=2))
    sent = unpack_encoder(pack_encoder(encoder))
    assert (sent.settings, sent.width, sent.identity()) == (encoder.settings, encoder.width, encoder.identity())
    for reader, other in zip(sent.readers, encoder.readers, strict=True):
        assert sent.made_from(reader, "windows") == encoder.made_from(other, "windows")
    assert rows(sent, "plain", catalogue) == rows(encoder, "plain", catalogue)
    features = [
        [
            one.value.tobytes()
            for one in next(each.encode(catalogue.images, catalogue.names, CPU))
            if one.value is not None
        ]
        for each in (sent, encoder)
    ]
    assert features[0] == features[1]


def test_a_classifier_and_the_scaling_of_the_input_are_sent_along(catalogue, torch_alone):
    with_classes = backbone(seed=1)
    with_classes.fc = torch.nn.Linear(with_classes.width, 7).requires_grad_(False)
    with_classes.set_scaling((1 / 3, 20.0, 30.0), (100.1, 110.0, 120.0))
    encoder = make_encoder("evidence", [with_classes], EncoderSettings(size=64))
    sent = unpack_encoder(pack_encoder(encoder))
    assert sent.backbones[0].classifier.out_features == 7
    assert rows(sent, "plain", catalogue) == rows(encoder, "plain", catalogue)


def test_vectors_can_be_sent_too():
    encoder = Vectors(6, EncoderSettings(components=2))
    encoder.components, encoder.width = Components(torch.randn(6), torch.randn(6, 2).half()), 2
    sent = unpack_encoder(pack_encoder(encoder))
    assert (sent.settings, sent.numbers, sent.width) == (encoder.settings, 6, 2)
    vectors = torch.randn(3, 6)
    assert torch.equal(sent(vectors), encoder(vectors))
    assert unpack_encoder(pack_encoder(Vectors(6, EncoderSettings()))).components is None


def test_a_packed_encoder_is_a_safetensors_file(tmp_path):
    file = tmp_path / "encoder.safetensors"
    file.write_bytes(pack_encoder(crops()))
    with safe_open(file, framework="pt") as found:
        about = json.loads(found.metadata()["encoder"])
    assert (about["kind"], about["settings"]["strong_draws"]) == ("crops", 3)


def test_packed_bytes_do_not_decide_what_is_imported():
    about = json.dumps({"kind": "store", "state": {}, "settings": {}})
    with pytest.raises(UserError, match="unknown kind 'store'"):
        unpack_encoder(save({}, {"encoder": about}))


# --- images -------------------------------------------------------------------------------------------------


def test_the_sources_of_images_can_be_sent(catalogue):
    name = catalogue.names[0]
    path = str(catalogue.images.root / name)
    sources = [
        (catalogue.images, name),
        (ImageFiles(), path),
        (read_scenes(8).images, "scene-00001.png"),
        (VectorSource(np.eye(3), ["a", "b", "c"], {"b": Path(path)}), "b"),
    ]
    for source, known in sources:
        sent = pickle.loads(pickle.dumps(source))
        assert sent.fingerprint(known) == source.fingerprint(known)
        assert sent.image(known).tobytes() == source.image(known).tobytes()


# --- what `extract` asks of an executor -----------------------------------------------------------------------


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEWTAGS_CACHE", str(tmp_path / "cache"))


def zeros(encoder, view, images, wanted, device):
    """Rows without a network."""
    for name, _ in wanted:
        yield ImageResult(name, [np.zeros(store.shape, np.float32) for store in encoder.feature_stores(view)])


def test_a_run_is_prepared_by_the_executor_it_is_given(catalogue, own_cache):
    how = Preparation(
        encoder=crops(),
        recipe=Recipe(size=64),
        uses_unlabelled=True,
        draws_views=True,
        workers=0,
        fabric=ALONE,
        stop=StopRequest(),
        executor=zeros,
    )
    keys, bad = extract_features(catalogue, how)
    assert bad == {}
    for view in ("plain", "strong"):
        (store,) = how.encoder.feature_stores(view)
        assert not store.array()[store.rows_of_all(keys)].any()


def extract_with(executor, catalogue, stop=None):
    encoder, keys = crops(), fingerprints(catalogue, {})
    extract(encoder, "plain", catalogue, keys, np.arange(len(catalogue)), {}, ALONE, stop or StopRequest(), executor)
    return encoder


def test_rows_in_another_order_are_refused_before_they_are_kept(catalogue, own_cache):
    def hasty(*given):
        yield from reversed(list(zeros(*given)))

    with pytest.raises(RuntimeError, match="in the place of"):
        extract_with(hasty, catalogue)
    assert not list(cache_folder().rglob("keys.bin"))


def test_rows_that_are_missing_are_noticed(catalogue, own_cache):
    def lazy(*given):
        yield from islice(zeros(*given), 4)

    with pytest.raises(ValueError, match="shorter"):
        extract_with(lazy, catalogue)


def test_an_executor_is_closed_when_a_run_is_stopped_and_not_started_for_nothing(catalogue, own_cache, monkeypatch):
    seen = []

    def watched(*given):
        seen.append("started")
        try:
            yield from zeros(*given)
        finally:
            seen.append("ended")

    monkeypatch.setattr("fewtags.encoders.extract.KEEP_EVERY", 4)
    stop = StopRequest()
    stop.requested = True
    with pytest.raises(Interrupted) as stopped:
        extract_with(watched, catalogue, stop)
    assert seen == ["started", "ended"]
    assert stopped.value  # held until here: it is not the end of the traceback that closes the executor
    extract_with(watched, catalogue)
    extract_with(watched, catalogue)  # everything is there
    assert seen == ["started", "ended"] * 2
