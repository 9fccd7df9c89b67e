"""The method `neighbours` where tags' names say something: word scores beside the features, with labels and without."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import small_runs  # noqa: F401 - one thread
from fewtags.encoders.base import EncoderSettings
from fewtags.encoders.components import Components
from fewtags.encoders.evidence import CLASSES, Evidence
from fewtags.encoders.runtime import traced
from fewtags.errors import UserError
from fewtags.methods import make_method
from fewtags.methods import neighbours as module
from fewtags.methods.base import shares
from fewtags.methods.neighbours import SHARES, Neighbours, choose_strength, unit_scaled
from fewtags.methods.parts.student import Bank, Centred, Student
from fewtags.metrics import average_precision
from fewtags.model.network import Network
from fewtags.model.saved import Model, ModelInfo, load_model, save_model
from fewtags.solvers.folds import MIN_CHOICE, balanced_folds, choose_paired, out_of_fold_scores, repeats
from fewtags.solvers.graph import clamp_known, find_neighbours, raised, smooth
from fewtags.solvers.regression import fit_folds, fit_regression, mask_folds, principal_basis
from fewtags.solvers.soft_labels import CLEARLY, SoftChoice
from fewtags.solvers.words import compete, fit_with_words, refine
from small_models import TinyBackbone
from small_teacher import HOW, LABELLED, TAGS, UNLABELLED, WIDTH, Shown, begun, shown

ALL = LABELLED + UNLABELLED
SILENT = 2  # the tag whose name says nothing


def with_words(labelled=LABELLED, unknown=0.15, silent=(SILENT,)):
    """As `shown`, and after every vector the scores of three names: two know something, the third says nothing."""
    plain = shown(unknown, labelled)
    count = labelled + UNLABELLED
    random = torch.Generator().manual_seed(7)
    scores = plain.vectors @ torch.randn(WIDTH, TAGS, generator=random) + torch.randn(count, TAGS, generator=random)
    scores = (scores - scores.mean(0)) / scores.std(0, correction=0)
    known = torch.tensor([tag not in silent for tag in range(TAGS)])
    words = compete(scores * known, known)
    every = torch.cat([plain.vectors, words], dim=1)
    return Shown(plain.targets, every[:labelled], every[labelled:])


def told(teacher, **settings):
    """The method after its main stage has begun, told that vectors end in words."""
    method = Neighbours(**{"raise_rare": False, "share": 0.5, **settings})
    method.expect_words(TAGS)
    method.begin_main(teacher)
    return method


def soft_of(method):
    return torch.cat([method.state["soft_labelled"], method.state["soft"]])


# --- the body and the student ----------------------------------------------------------------------------------


def test_a_method_reads_no_words_until_it_is_told_of_them():
    method = Neighbours(hidden=8)
    assert (method.words, make_method("d2l", {}).reads_words) == (0, False)
    assert method.build_body(9, 4).state_dict().keys() == {"centre", "factor"}
    assert "slope" not in method.build_heads(9, TAGS).state_dict()
    method.expect_words(TAGS)
    assert method.words == TAGS
    assert method.build_body(9, 4).per_word.shape == (TAGS,)
    heads = method.build_heads(9, TAGS).state_dict()
    assert heads["slope"].tolist() == [1.0] * TAGS
    assert heads["hidden.0.weight"].shape == (8, 9 - TAGS)
    method.expect_words(0)
    assert "slope" not in method.build_heads(9, TAGS).state_dict()


def test_words_are_for_the_student_alone():
    assert Neighbours().reads_words
    assert not Neighbours(learner="regression").reads_words


def test_the_body_standardises_words_lets_them_compete_and_scales_the_rest_as_before():
    features = torch.randn(50, WIDTH + TAGS, generator=torch.Generator().manual_seed(3)) * 5 + 2
    features[:, -1] = 7.0  # does not tell images apart
    spread = (features - features.mean(0)).square().mean(0)
    body, plain = Centred(WIDTH + TAGS, TAGS), Centred(WIDTH)
    body.fit(features.mean(0), spread)
    plain.fit(features[:, :WIDTH].mean(0), spread[:WIDTH])
    found = body(features)
    torch.testing.assert_close(found[:, :WIDTH], plain(features[:, :WIDTH]))
    assert float(found[:, :WIDTH].square().sum(1).mean()) == pytest.approx(100.0, rel=1e-3)
    scores = ((features - features.mean(0)) / spread.sqrt())[:, WIDTH : WIDTH + 2]
    rivals = scores.flip(1)  # of two names each is the other's only rival
    torch.testing.assert_close(found[:, WIDTH : WIDTH + 2], scores - 0.3 * rivals, atol=1e-4, rtol=1e-4)
    assert not found[:, -1].any()


@pytest.mark.parametrize("hidden", [8, 0])
def test_a_students_logit_has_the_score_of_its_own_name(hidden):
    torch.manual_seed(0)
    student, plain = Student(WIDTH + TAGS, hidden, TAGS, words=TAGS), Student(WIDTH, hidden, TAGS)
    nn.init.normal_(student.top.weight)
    plain.load_state_dict({key: value for key, value in student.state_dict().items() if key != "slope"})
    with torch.no_grad():
        student.slope.copy_(torch.tensor([1.0, 0.5, -2.0]))
    vectors = torch.randn(9, WIDTH + TAGS)
    expected = plain.eval()(vectors[:, :WIDTH], "whole")["whole_make"] + vectors[:, WIDTH:] * torch.tensor([1, 0.5, -2])
    torch.testing.assert_close(student.eval()(vectors, "whole")["whole_make"], expected)


def test_a_new_student_ranks_by_names_alone():
    vectors = torch.randn(4, WIDTH + TAGS)
    found = Student(WIDTH + TAGS, 8, TAGS, words=TAGS).eval()(vectors, "whole")["whole_make"]
    torch.testing.assert_close(found, vectors[:, WIDTH:] - 2.5)


# --- what is taught --------------------------------------------------------------------------------------------


def test_what_is_taught_is_the_smoothed_regression_on_features_and_refined_words():
    teacher = with_words()
    found = told(teacher, **HOW)
    vectors = unit_scaled(teacher.vectors[:, :WIDTH])
    graph = find_neighbours(vectors, 5)
    refined = refine(teacher.vectors[:, WIDTH:], vectors, graph)
    assert not refined[:, SILENT].any()
    first = fit_with_words(vectors[:LABELLED], teacher.targets, refined, 0.05).logits(vectors, refined).sigmoid()
    first[:LABELLED] = clamp_known(first[:LABELLED], teacher.targets)
    torch.testing.assert_close(soft_of(found), smooth(first.float(), graph, 0.5), atol=1e-4, rtol=0)
    assert soft_of(found).shape == (ALL, TAGS)


def test_words_change_what_is_taught_of_named_tags_and_nothing_of_the_silent_one():
    teacher = with_words()
    plain = begun(shown(), **HOW)
    found = told(teacher, **HOW)
    torch.testing.assert_close(soft_of(found)[:, SILENT], soft_of(plain)[:, SILENT], atol=1e-3, rtol=0)
    assert float((soft_of(found)[:, :SILENT] - soft_of(plain)[:, :SILENT]).abs().max()) > 0.05


def test_without_the_graph_known_cells_are_their_labels():
    teacher = with_words()
    soft, known = told(teacher, strength=0.05, share=0).state["soft_labelled"], teacher.targets >= 0
    assert torch.equal(soft[known], teacher.targets[known].float())
    assert bool(((soft[~known] > 0) & (soft[~known] < 1)).all())


def test_a_tag_that_nothing_tells_apart_is_not_raised():
    teacher = with_words(unknown=0.0)
    teacher.targets[:] = 0  # nobody found any of the tags
    low, high = (soft_of(told(teacher, **HOW, raise_rare=one)) for one in (False, True))
    assert torch.equal(high[:, SILENT], low[:, SILENT])
    assert float(high[:, SILENT].max()) < 0.2
    assert bool((high[:, :SILENT].amax(0) > 0.89).all())
    teacher.targets[:2, SILENT] = 1
    assert float(soft_of(told(teacher, **HOW, raise_rare=True))[:, SILENT].max()) > 0.89


def test_without_a_labelled_image_names_alone_teach():
    teacher = with_words(labelled=0)
    method = told(teacher, neighbours=5, share=None, raise_rare=True)
    assert method.state["soft_labelled"].shape == (0, TAGS)
    soft = method.state["soft"]
    assert soft.shape == (UNLABELLED, TAGS)
    assert bool(((soft >= 0) & (soft <= 1)).all())
    for tag in range(SILENT):
        assert np.corrcoef(soft[:, tag], teacher.vectors[:, WIDTH + tag])[0, 1] > 0.3
    assert float(soft[:, SILENT].std()) < 1e-6
    expected = {"strength": 0.003, "share": pytest.approx(0.5 * 50 / 550), "with_words": True}
    assert method.chosen_settings() == expected
    assert not method.state["bank"]


@pytest.mark.parametrize("labelled", [0, 5, MIN_CHOICE - 1])
def test_with_words_and_too_few_labels_to_choose_the_share_grows_with_the_images(labelled):
    images = labelled + UNLABELLED
    found = told(with_words(labelled), neighbours=5, share=None).chosen_settings()
    assert found["share"] == pytest.approx(0.5 * images / (images + 500))
    assert found["with_words"]


def asked_of(monkeypatch, answer):
    """What `choose_smoothing` was asked, in the place of what it does."""
    asked = []

    def choose(labeller, targets, strength, shares, default, groups=None):
        asked.append((tuple(shares), default, labeller.refined is not None))
        return answer

    monkeypatch.setattr(module, "choose_smoothing", choose)
    return asked


def test_with_enough_labels_share_and_words_are_what_the_labelled_images_choose(monkeypatch):
    asked = asked_of(monkeypatch, SoftChoice(0.25, False))
    found = told(with_words(), **HOW, share=None)
    assert asked == [(SHARES, 0.5, True)]
    assert found.chosen_settings() == {"strength": 0.05, "share": 0.25, "with_words": False}
    deaf = told(with_words(), **HOW, share=0.25, with_words=False)
    assert torch.equal(soft_of(found), soft_of(deaf))
    assert asked[1:] == []
    torch.testing.assert_close(soft_of(deaf), soft_of(begun(shown(), **HOW, share=0.25)), atol=1e-4, rtol=0)


def test_of_share_and_words_only_what_is_not_given_is_chosen(monkeypatch):
    asked = asked_of(monkeypatch, SoftChoice(0.4, False))
    found = told(with_words(), **HOW, share=0.4).chosen_settings()
    assert (found["share"], found["with_words"]) == (0.4, False)
    assert asked == [((0.4,), 0.4, True)]
    found = told(with_words(), **HOW, share=None, with_words=True).chosen_settings()
    assert (found["share"], found["with_words"]) == (0.4, True)
    assert len(asked) == 2
    told(with_words(), **HOW, share=0.4, with_words=True)
    assert len(asked) == 2


def test_where_names_lead_few_of_the_tags_choices_are_made_as_without_them():
    few = told(with_words(silent=(0, SILENT)), **HOW)
    assert few.state["bank"]
    for labelled in (5, MIN_CHOICE - 1):
        plain = told(with_words(labelled, silent=(0, SILENT)), **HOW, share=None)
        assert plain.chosen_settings()["share"] == 0.5


def test_what_was_chosen_is_kept_for_trainings_that_shall_not_choose_again():
    method = told(with_words(), **HOW, share=None)
    again = told(with_words(), neighbours=5, **method.chosen_settings())
    assert again.chosen_settings() == method.chosen_settings()
    torch.testing.assert_close(soft_of(again), soft_of(method))


# --- without words -----------------------------------------------------------------------------------------------


def step_by_step(teacher, neighbours, raise_rare=True):
    """What is taught without words, by the functions that it is made of."""
    vectors = unit_scaled(torch.cat([teacher.labelled_vectors, teacher.unlabelled_vectors]))
    targets, count = teacher.targets, len(teacher.targets)
    strength, graph = choose_strength(vectors[:count], targets), find_neighbours(vectors, neighbours)
    basis = principal_basis(vectors[:count])

    def first(model, known):
        found = model.logits(vectors).sigmoid().float()
        return torch.cat([clamp_known(found[:count], known), found[count:]])

    tried = {share: [] for share in SHARES}
    for repeat in range(repeats(count)):
        fold = torch.from_numpy(balanced_folds(targets.numpy(), seed=repeat))
        models = fit_folds(basis, targets, strength, fold)
        firsts = [first(model, known) for model, known in zip(models, mask_folds(targets, fold), strict=True)]
        for share in SHARES:
            held = [smooth(one, graph, share)[:count] if share else one[:count] for one in firsts]
            tried[share].append(average_precision(out_of_fold_scores(fold, held).numpy(), targets.numpy()))
    figures = {share: np.stack(values) for share, values in tried.items()}
    share = choose_paired(figures, max(SHARES), CLEARLY) if count >= MIN_CHOICE else max(SHARES)
    soft = first(fit_regression(basis, targets, strength), targets)
    soft = smooth(soft, graph, share) if share else soft
    return raised(soft, shares(targets)) if raise_rare else soft


@pytest.mark.parametrize("labelled", [30, 12])
def test_without_words_nothing_is_taught_that_words_have_a_part_in(labelled):
    teacher = shown(labelled=labelled)
    method = Neighbours(neighbours=5)
    method.begin_main(teacher)
    assert torch.equal(soft_of(method), step_by_step(teacher, 5))


# --- what is kept ------------------------------------------------------------------------------------------------


def test_with_words_the_training_images_are_kept_only_when_asked_for_or_chosen():
    def names(method, teacher):
        heads = method.build_heads(teacher.vectors.shape[1], TAGS)
        return list(method.variants(heads, teacher))

    kept, student = "student and neighbours", "student"
    assert names(told(with_words(20), **HOW), with_words(20)) == [student]
    assert names(begun(shown(labelled=20), **HOW), shown(labelled=20)) == [kept]
    # a regression would not know what to make of words
    assert names(told(with_words(), **HOW), with_words()) == [student, kept]
    assert names(told(with_words(), **HOW, bank=True), with_words()) == [kept]


def test_other_labels_are_tried_at_once_with_words_too():
    teacher = with_words(unknown=0.0)
    for heard in (True, False):
        method = told(teacher, **HOW, with_words=heard)
        torch.testing.assert_close(method.quick_scores(teacher)(teacher.targets), soft_of(method), atol=0.01, rtol=0)


def test_a_training_that_borrows_refined_words_is_taught_by_its_own_labels_alone():
    teacher = with_words(unknown=0.0)
    kept = torch.arange(LABELLED) % 5 != 2
    poisoned = torch.where(kept[:, None], teacher.targets, 1 - teacher.targets)
    found = []
    for labels in (teacher.targets, poisoned):
        whole = told(Shown(labels, teacher.labelled_vectors, teacher.unlabelled_vectors), **HOW, with_words=True)
        method = Neighbours(**{**HOW, "raise_rare": False, **whole.chosen_settings()})
        method.expect_words(TAGS)
        method.borrow(whole, kept)
        method.begin_main(Shown(labels[kept], teacher.labelled_vectors[kept], teacher.unlabelled_vectors))
        found.append(soft_of(method))
    assert torch.equal(*found)
    known = teacher.targets.masked_fill(~kept[:, None], -1)
    expected = told(Shown(known, teacher.labelled_vectors, teacher.unlabelled_vectors), **HOW, with_words=True)
    torch.testing.assert_close(found[0], soft_of(expected)[torch.cat([kept, torch.ones(UNLABELLED, dtype=bool)])])


def finished(method, teacher):
    torch.manual_seed(1)
    heads = method.build_heads(WIDTH + TAGS, TAGS)
    nn.init.normal_(heads.top.weight, std=0.3)
    return method.finished_heads(heads.eval(), teacher).eval()


def test_a_bank_looks_for_neighbours_by_features_without_words():
    teacher = with_words()
    method = told(teacher, **HOW, bank=True, hidden=8)
    heads = finished(method, teacher)
    assert isinstance(heads, Bank)
    assert heads.vectors.shape == (ALL, WIDTH)
    new = torch.randn(25, WIDTH + TAGS, generator=torch.Generator().manual_seed(9))
    of_others = find_neighbours(new[:, :WIDTH], 5, teacher.vectors[:, :WIDTH].half()).average(soft_of(method))
    with torch.no_grad():
        own = heads.heads(new, "whole")["whole_make"].sigmoid()
        found = heads(new, "whole")["whole_make"].sigmoid()
        torch.testing.assert_close(found, (own + of_others) / 2, atol=1e-5, rtol=1e-4)
        traceable = method.exportable_heads(heads)(new, "whole")["whole_make"].sigmoid()
        torch.testing.assert_close(traceable, found, atol=1e-4, rtol=0)


class Named(TinyBackbone):
    """Tells the classes of ImageNet apart, or would with other weights."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, CLASSES)


@pytest.fixture
def _tiny(monkeypatch):
    monkeypatch.setattr("fewtags.encoders.saved.build_backbone", lambda name, pretrained: Named())


def model_with_words(bank):
    teacher = with_words()
    method = told(teacher, **HOW, bank=bank, hidden=8)
    body = Centred(WIDTH + TAGS, TAGS)
    body.fit(torch.randn(WIDTH + TAGS), torch.rand(WIDTH + TAGS) + 1)
    network = Network(body, finished(method, teacher)).eval().requires_grad_(False)
    torch.manual_seed(2)
    encoder = Evidence([Named().eval().requires_grad_(False)], EncoderSettings(size=64))
    encoder.components = Components(torch.zeros(encoder.width), 0.01 * torch.randn(encoder.width, WIDTH).half())
    encoder.width = WIDTH
    weights = torch.zeros(CLASSES, TAGS)
    weights[:40, 0], weights[30:90, 1] = 1.0, 0.5
    assert encoder.read_words(weights)
    info = ModelInfo(
        fewtags="0",
        method="neighbours",
        tags=["a", "b", "c"],
        thresholds=[0.5, 0.4, None],
        method_settings=method.model_dump(),
        adapter=None,
        features="evidence",
        learned_from=ALL,
        **encoder.state(),
    )
    return Model(info, encoder, network, method)


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize("bank", [True, False], ids=["with a bank", "without"])
def test_a_saved_model_with_words_gives_the_same_scores(tmp_path, bank):
    model = model_with_words(bank)
    assert (model.info.components, model.info.words, model.encoder.width) == (WIDTH, TAGS, WIDTH + TAGS)
    save_model(tmp_path / "model", model)
    loaded = load_model(tmp_path)
    assert loaded.info == model.info
    assert (loaded.encoder.words, loaded.method.words) == (TAGS, TAGS)
    pictures = torch.randint(0, 256, (5, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        found = loaded(pictures)
        assert torch.equal(found, model(pictures))
    assert float(found.std(0).min()) > 0


def without_words(tensors):
    return {name: value for name, value in tensors.items() if name != "words.weights"}


def of_other_tags(tensors):
    return tensors | {"words.weights": tensors["words.weights"][:, :2].contiguous()}


def of_other_classes(tensors):
    return tensors | {"words.weights": tensors["words.weights"][:999].contiguous()}


def without_slope(tensors):
    return {name: value for name, value in tensors.items() if not name.endswith("slope")}


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize("damage", [without_words, of_other_tags, of_other_classes, without_slope])
def test_a_damaged_model_of_words_is_one_message(tmp_path, damage):
    save_model(tmp_path, model_with_words(bank=False))
    file = tmp_path / "model.safetensors"
    save_file(damage(load_file(file)), file)
    with pytest.raises(UserError, match=r"model\.safetensors does not fit .*copy the model folder again") as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("tags", [1, TAGS])
def test_body_and_student_become_onnx_with_any_number_of_images(tags):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    body, student = Centred(WIDTH + tags, tags), Student(WIDTH + tags, 8, tags, words=tags)
    nn.init.normal_(student.top.weight)
    spread = torch.rand(WIDTH + tags) + 0.1
    spread[-1] = 0.0 if tags > 1 else 1.0
    body.fit(torch.randn(WIDTH + tags), spread)

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.student = body, student

        def forward(self, features):
            return self.student(self.body(features), "whole")["whole_make"]

    whole = Whole().eval().requires_grad_(False)
    content = traced(whole, {"features": torch.randn(2, WIDTH + tags)}, "logits").SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for count in (1, 7):
        features = torch.randn(count, WIDTH + tags)
        (found,) = session.run(None, {"features": features.numpy()})
        np.testing.assert_allclose(found, whole(features), atol=1e-5)


def test_statistics_are_of_every_number_by_itself():
    from fewtags.encoders.store import Stored
    from fewtags.training.source import FeatureSource

    features = np.random.default_rng(0).normal(3, 2, (30, 1, 2, 5)).astype(np.float32)
    parts = {
        "labelled": Stored(features, np.arange(4)),
        "unlabelled": Stored(features, np.arange(10, 25)),
        "test": Stored(features, np.arange(25, 30)),
    }
    source = FeatureSource(parts, parts)
    seen = features[[*range(4), *range(10, 25)], 0, 0].astype(np.float64)
    for batch in (3, 1024):
        centre, spread = source.statistics(batch)
        np.testing.assert_allclose(centre, seen.mean(0), rtol=1e-5)
        np.testing.assert_allclose(spread, seen.var(0), rtol=1e-6)
    np.testing.assert_array_equal(source.last("unlabelled", 2), features[10:25, 0, 0, -2:])
    body = Centred(5, 2)
    Neighbours().start(body, SimpleNamespace(), source.statistics)
    np.testing.assert_allclose(body.per_word, 1 / seen.std(0)[-2:], rtol=1e-5)
