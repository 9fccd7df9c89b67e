"""What is kept of `neighbours` for tagging: the student, the regression, the training images beside them."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import small_runs  # noqa: F401 - one thread
from fewtags.backbones.base import build_backbone
from fewtags.encoders.base import EncoderSettings
from fewtags.encoders.components import Components
from fewtags.encoders.evidence import Evidence
from fewtags.methods import make_method
from fewtags.methods import neighbours as module
from fewtags.methods.neighbours import Neighbours
from fewtags.methods.parts.student import Bank, Centred
from fewtags.model.network import Network
from fewtags.model.saved import Model, ModelInfo, load_model, save_model
from fewtags.solvers.folds import MIN_CHOICE
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
def test_unless_labelled_images_say_otherwise_few_labels_with_a_graph_keep_the_training_images(
    labelled, settings, kept
):
    teacher = shown(labelled=labelled)
    assert isinstance(finished(begun(teacher, **HOW, **settings), teacher), Bank) == kept


def test_many_training_images_are_not_kept(monkeypatch):
    monkeypatch.setattr(module, "LARGE_BANK", LABELLED + UNLABELLED - 1)
    assert list(variants(begun(shown(), **HOW), shown())) == ["student"]


# --- variants ----------------------------------------------------------------------------------------------------


def variants(method, teacher, names=()):
    torch.manual_seed(1)
    heads = method.build_heads(WIDTH, TAGS)
    torch.nn.init.normal_(heads.top.weight, std=0.3)
    return {name: one.eval() for name, one in method.variants(heads.eval(), teacher, names).items()}


STUDENT, KEPT, REGRESSION = "student", "student and neighbours", "regression and neighbours"


@pytest.mark.parametrize(
    ("labelled", "settings", "names"),
    [
        (MIN_CHOICE, {}, [KEPT, STUDENT, REGRESSION]),
        (100, {}, [STUDENT, KEPT, REGRESSION]),
        (MIN_CHOICE - 1, {}, [KEPT]),  # too few labels to choose
        (60, {"share": 0.0}, [STUDENT]),  # without the graph neighbours are not asked
        (60, {"bank": False}, [STUDENT]),
        (60, {"bank": True}, [KEPT]),
        (60, {"learner": "regression"}, [REGRESSION]),
        (60, {"learner": "regression", "bank": False}, ["regression"]),
    ],
)
def test_what_is_not_decided_by_settings_is_open_to_choice_the_usual_one_first(labelled, settings, names):
    teacher = shown(labelled=labelled)
    assert list(variants(begun(teacher, **HOW, **settings), teacher)) == names


def test_every_variant_is_what_its_settings_would_give():
    teacher = shown(labelled=60)
    found = variants(begun(teacher, **HOW), teacher)
    for name, how in (
        (STUDENT, {"bank": False}),
        (KEPT, {"bank": True}),
        (REGRESSION, {"learner": "regression", "bank": True}),
    ):
        expected = finished(begun(teacher, **HOW, **how), teacher)
        torch.testing.assert_close(scores(found[name], NEW), scores(expected, NEW))
    different = [scores(one, NEW) for one in found.values()]
    assert all(float((one - other).abs().max()) > 0.01 for one, other in pairwise(different))


def test_variants_that_are_named_are_made_and_no_others():
    teacher = shown(labelled=60)
    method = begun(teacher, **HOW)
    assert list(variants(method, teacher, [REGRESSION, STUDENT])) == [REGRESSION, STUDENT]
    few = shown(labelled=12)  # as in a fold
    assert list(variants(begun(few, **HOW), few, [STUDENT, KEPT, REGRESSION])) == [STUDENT, KEPT, REGRESSION]


def test_what_training_returns_is_the_first_variant():
    teacher = shown(labelled=60)
    method = begun(teacher, **HOW)
    first = next(iter(variants(method, teacher).values()))
    torch.testing.assert_close(scores(finished(method, teacher), NEW), scores(first, NEW))


@pytest.mark.parametrize(
    ("name", "learner", "bank"),
    [(STUDENT, "student", False), (KEPT, "student", True), (REGRESSION, "regression", True)],
)
def test_the_variant_that_was_taken_is_among_the_settings_of_the_model(name, learner, bank):
    teacher = shown(labelled=60)
    method = begun(teacher, **HOW)
    assert method.chosen_settings().keys() == {"strength", "share", "with_words"}
    taken = variants(method, teacher)[name]
    method.take_variant(name)
    chosen = method.chosen_settings()
    assert (chosen["learner"], chosen["bank"]) == (learner, bank)
    again = Neighbours(**{**HOW, **chosen})
    restored = again.restore_heads(WIDTH, TAGS, 60 + UNLABELLED)
    restored.load_state_dict(taken.state_dict())
    torch.testing.assert_close(scores(restored.eval(), NEW), scores(taken, NEW))


def test_a_method_without_variants_has_the_one_that_training_returns():
    method = make_method("asl", {})
    heads = method.build_heads(WIDTH, TAGS)
    (found,) = method.variants(heads, shown()).items()
    method.take_variant("")
    assert found == ("", heads)


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
