"""What is kept of `neighbours` for tagging: the student, the regression, the training images beside them."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import small_runs  # noqa: F401 - one thread
from fewtags.backbones.base import build_backbone
from fewtags.encoders.base import EncoderSettings
from fewtags.encoders.components import Components
from fewtags.encoders.evidence import Evidence
from fewtags.methods import neighbours as module
from fewtags.methods.neighbours import Neighbours
from fewtags.methods.parts.student import Bank, Centred
from fewtags.model.network import Network
from fewtags.model.saved import Model, ModelInfo, load_model, save_model
from fewtags.solvers.graph import find_neighbours
from small_teacher import HOW, LABELLED, TAGS, UNLABELLED, WIDTH, begun, shown


def finished(method, teacher):
    """The heads after training, their student with some weights of its own."""
    torch.manual_seed(1)
    heads = method.build_heads(WIDTH, TAGS)
    torch.nn.init.normal_(heads.top.weight, std=0.3)
    return method.finished_heads(heads.eval(), teacher).eval()


def scores(heads, vectors):
    with torch.no_grad():
        return heads(vectors, "whole")["whole_make"].sigmoid()


NEW = torch.randn(25, WIDTH, generator=torch.Generator().manual_seed(9))


def test_the_regression_that_is_kept_reads_the_vectors_as_they_come():
    teacher = shown()
    heads = finished(begun(teacher, learner="regression", strength=0.05, bank=False), teacher)
    x = teacher.vectors.double().numpy()
    centre, length = x.mean(0), np.sqrt(((x - x.mean(0)) ** 2).sum(1).mean())
    for tag in range(TAGS):
        rows = np.flatnonzero(teacher.targets[:, tag] >= 0)
        model = LogisticRegression(C=1 / 0.05, tol=1e-10, max_iter=10_000)
        model.fit((x[rows] - centre) / length, teacher.targets[rows, tag])
        expected = model.predict_proba((NEW.double().numpy() - centre) / length)[:, 1]
        np.testing.assert_allclose(scores(heads, NEW)[:, tag], expected, atol=1e-3)


def test_with_a_bank_half_of_a_score_comes_from_the_neighbours():
    teacher = shown()
    method = begun(teacher, bank=True, **HOW)
    own = finished(Neighbours(**HOW, bank=False), teacher)
    soft = torch.cat([method.state["soft_labelled"], method.state["soft"]])
    of_others = find_neighbours(NEW, 5, teacher.vectors.half()).average(soft)
    expected = (scores(own, NEW) + of_others) / 2
    torch.testing.assert_close(scores(finished(method, teacher), NEW), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("labelled", "settings", "kept"),
    [
        (99, {}, True),
        (100, {}, False),
        (99, {"share": 0.0}, False),
        (99, {"bank": False}, False),
        (100, {"bank": True}, True),
    ],
)
def test_few_labels_with_a_graph_keep_the_training_images(labelled, settings, kept):
    teacher = shown(labelled=labelled)
    method = begun(teacher, **HOW, **settings)
    assert method.chosen_settings()["bank"] is kept
    assert isinstance(finished(method, teacher), Bank) == kept


def test_many_training_images_are_not_kept(monkeypatch):
    monkeypatch.setattr(module, "LARGE_BANK", LABELLED + UNLABELLED - 1)
    assert not begun(shown(), **HOW).chosen_settings()["bank"]


@pytest.mark.parametrize("how", [{"bank": True}, {"learner": "regression"}])
def test_without_any_epoch_what_is_kept_is_made_all_the_same(how):
    """With --warmup 1 --epochs 0 the main stage never begins; regression and bank need none."""
    teacher = shown()
    found = finished(Neighbours(**HOW, **how, raise_rare=False, share=0.5), teacher)
    torch.testing.assert_close(scores(found, NEW), scores(finished(begun(teacher, **HOW, **how), teacher), NEW))


@pytest.fixture(scope="module")
def backbone():
    return build_backbone("efficientnet_lite0", pretrained=False).eval()


@pytest.mark.parametrize("learner", ["student", "regression"])
@pytest.mark.parametrize("bank", [True, False], ids=["with a bank", "without"])
def test_a_saved_model_gives_the_same_scores(tmp_path, backbone, learner, bank):
    teacher = shown()
    method = begun(teacher, bank=bank, learner=learner, hidden=8, **HOW)
    body = Centred(WIDTH)
    body.fit(torch.randn(WIDTH), torch.full((WIDTH,), 9.0 / WIDTH))
    network = Network(body, finished(method, teacher)).eval()
    encoder = Evidence([backbone], EncoderSettings(size=64))
    numbers = backbone.width * 6 - backbone.width  # half the picture, and four sizes of windows without a classifier
    assert encoder.width == numbers
    encoder.components = Components(torch.randn(numbers), torch.randn(numbers, WIDTH).half())
    encoder.width = WIDTH
    info = ModelInfo(
        fewtags="0",
        method="neighbours",
        tags=["a", "b", "c"],
        thresholds=[0.5, 0.4, None],
        method_settings=method.model_dump(),
        adapter=None,
        features="evidence",
        learned_from=LABELLED + UNLABELLED,
        **encoder.state(),
    )
    assert (info.backbone, info.blocks, info.components, info.size) == (backbone.name, "both", WIDTH, 64)
    save_model(tmp_path / "model", Model(info, encoder, network, method))
    loaded = load_model(tmp_path)
    assert loaded.info == info
    assert torch.equal(loaded.encoder.components.mean, encoder.components.mean)
    assert torch.equal(loaded.encoder.components.axes, encoder.components.axes)
    with torch.no_grad():
        assert torch.equal(loaded.network(NEW)["whole_make"], network(NEW)["whole_make"])
    assert hasattr(loaded.network.heads, "soft") == bank
