"""The method `neighbours`: what it teaches, checked by another way to the same numbers."""

import inspect

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import binary_cross_entropy_with_logits

import small_runs  # noqa: F401 - one thread
from fewtags.methods import neighbours as module
from fewtags.methods.base import Pseudo, Step, UnlabelledBatch
from fewtags.methods.neighbours import MIN_LABELLED, SHARES, Neighbours, choose_strength, unit_scaled
from fewtags.methods.parts.student import Centred, Student
from fewtags.solvers.folds import MIN_CHOICE, STRENGTHS
from fewtags.solvers.soft_labels import SoftChoice, SoftLabeller
from small_teacher import HOW, LABELLED, TAGS, WIDTH, Shown, begun, shown


def first_by_hand(teacher, known, strength):
    """F0 [n, K]: scikit-learn tag by tag on centred vectors of mean square length one, labels in their places."""
    x = teacher.vectors.double().numpy()
    x = x - x.mean(0)
    x /= np.sqrt((x**2).sum(1).mean())
    first = np.empty((len(x), TAGS))
    for tag, column in enumerate(known.numpy().T):
        rows = np.flatnonzero(column >= 0)
        model = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=10_000).fit(x[rows], column[rows])
        first[:, tag] = model.predict_proba(x)[:, 1]
        first[rows, tag] = column[rows]
    return x, first


def soft_by_hand(teacher, known, strength=0.05, neighbours=5, share=0.5, rounds=8):
    """F [n, K] by a dense matrix of weights."""
    x, first = first_by_hand(teacher, known, strength)
    directions = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = directions @ directions.T
    np.fill_diagonal(cosines, -np.inf)
    weights = np.zeros_like(cosines)
    for row, alike in enumerate(cosines):
        nearest = np.argsort(-alike)[:neighbours]
        weights[row, nearest] = np.maximum(alike[nearest], 1e-6) ** 3
    weights /= weights.sum(1, keepdims=True)
    found = first
    for _ in range(rounds):
        found = share * weights @ found + (1 - share) * first
    return found


@pytest.mark.parametrize("how", [{}, {"share": 0.8}, {"rounds": 1}, {"neighbours": 200}])
def test_what_is_taught_is_the_smoothed_regression(how):
    teacher = shown()
    method = begun(teacher, **{**HOW, **how})
    expected = soft_by_hand(teacher, teacher.targets, **{**HOW, **how})
    np.testing.assert_allclose(method.state["soft_labelled"], expected[:LABELLED], atol=1e-3)
    np.testing.assert_allclose(method.state["soft"], expected[LABELLED:], atol=1e-3)


def test_without_the_graph_known_cells_are_their_labels_and_unknown_ones_the_regression():
    teacher = shown()
    assert bool((teacher.targets < 0).any())
    method = begun(teacher, strength=0.05, share=0)
    soft, known = method.state["soft_labelled"], teacher.targets >= 0
    assert torch.equal(soft[known], teacher.targets[known].float())
    _, first = first_by_hand(teacher, teacher.targets, 0.05)
    np.testing.assert_allclose(soft, first[:LABELLED], atol=1e-3)
    assert bool(((soft[~known] > 0) & (soft[~known] < 1)).all())


def asked_of(monkeypatch):
    """What `choose_smoothing` was asked, in the place of what it does."""
    asked = []

    def choose(labeller, targets, strength, shares, default, groups=None):
        asked.append((labeller, targets, strength, tuple(shares), default))
        return SoftChoice(0.25, True)

    monkeypatch.setattr(module, "choose_smoothing", choose)
    return asked


def test_the_share_is_the_one_that_labelled_images_choose(monkeypatch):
    asked, teacher = asked_of(monkeypatch), shown()
    method = begun(teacher, **HOW, share=None)
    ((labeller, targets, strength, shares, default),) = asked
    assert (strength, shares, default) == (0.05, SHARES, 0.5)
    assert torch.equal(targets, teacher.targets)
    torch.testing.assert_close(labeller.vectors, unit_scaled(teacher.vectors))
    assert method.chosen_settings()["share"] == 0.25
    expected = soft_by_hand(teacher, teacher.targets, **HOW, share=0.25)
    np.testing.assert_allclose(method.state["soft"], expected[LABELLED:], atol=1e-3)


def test_a_share_that_is_given_is_taken_unasked(monkeypatch):
    asked = asked_of(monkeypatch)
    assert begun(shown(), **HOW, share=0.4).chosen_settings()["share"] == 0.4
    assert not asked


@pytest.mark.parametrize("labelled", [MIN_CHOICE - 1, MIN_CHOICE])
def test_with_few_labels_the_graph_is_trusted(labelled, monkeypatch):
    tried = []
    out_of_fold = SoftLabeller.out_of_fold
    monkeypatch.setattr(
        SoftLabeller, "out_of_fold", lambda *given, **named: tried.append(1) or out_of_fold(*given, **named)
    )
    method = begun(shown(labelled=labelled), **HOW, share=None)
    assert bool(tried) == (labelled >= MIN_CHOICE)
    assert tried or method.chosen_settings()["share"] == max(SHARES)


def test_what_was_chosen_is_kept_for_trainings_that_shall_not_choose_again():
    method = begun(shown(), **HOW, share=None)
    again = begun(shown(), neighbours=5, **method.chosen_settings())
    assert again.chosen_settings() == method.chosen_settings()
    assert again.chosen_settings()["strength"] == HOW["strength"]
    torch.testing.assert_close(again.state["soft"], method.state["soft"])


def default_strength():
    return inspect.signature(choose_strength).parameters["otherwise"].default


def test_the_strength_is_the_one_given_or_chosen_or_with_few_labels_the_default(monkeypatch):
    assert float(begun(shown(), strength=7.0).state["strength"]) == 7.0
    assert float(begun(shown()).state["strength"]) in [pytest.approx(one) for one in STRENGTHS]
    teacher = shown()
    asked = []
    monkeypatch.setattr(module, "select_strength", lambda *given: asked.append(1) or module_tried(0.04))
    assert (
        choose_strength(teacher.labelled_vectors[: MIN_LABELLED - 1], teacher.targets[: MIN_LABELLED - 1])
        == default_strength()
    )
    assert choose_strength(teacher.labelled_vectors, torch.zeros_like(teacher.targets)) == default_strength()
    assert choose_strength(teacher.labelled_vectors, torch.ones_like(teacher.targets)) == default_strength()
    assert choose_strength(teacher.labelled_vectors, teacher.targets.clamp(max=0)) == default_strength()
    assert not asked
    assert choose_strength(teacher.labelled_vectors[:MIN_LABELLED], teacher.targets[:MIN_LABELLED]) == 0.04


def module_tried(strength):
    from fewtags.solvers.folds import StrengthScore

    return StrengthScore(strength, 0.5)


def test_the_length_and_place_of_the_vectors_play_no_part():
    teacher = shown()
    moved = Shown(teacher.targets, 50 * teacher.labelled_vectors + 7, 50 * teacher.unlabelled_vectors + 7)
    torch.testing.assert_close(
        begun(moved, **HOW).state["soft"], begun(teacher, **HOW).state["soft"], atol=1e-3, rtol=0
    )
    scaled = unit_scaled(moved.vectors)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(WIDTH), atol=1e-5, rtol=0)
    assert float(scaled.square().sum(1).mean()) == pytest.approx(1.0, abs=1e-4)
    assert not unit_scaled(torch.ones(4, 3)).any()


def test_images_are_taught_their_own_row():
    method = begun(shown(), **HOW)
    rows = torch.tensor([4, 0, 33])
    made = method.pseudo_labels(UnlabelledBatch(rows, torch.zeros(3, TAGS), torch.zeros(3, TAGS)))
    assert torch.equal(made.targets, method.state["soft"][rows])
    assert made.mask is None


def batch_of_five(method, mixed):
    """Two labelled and three unlabelled images, and what each of them is taught."""
    random = torch.Generator().manual_seed(5)
    logits = torch.randn(5, TAGS, generator=random)
    mix = torch.tensor([[0.3, 4.0], [0.3, 0.0], [0.3, 2.0], [0.3, 1.0], [0.3, 3.0]])
    of = {"whole_make": logits, "mix": mix} if mixed else {"whole_make": logits}
    rows, unlabelled = torch.tensor([7, 2]), torch.tensor([3, 40, 11])
    step = Step(
        {name: value[:2] for name, value in of.items()},
        shown().targets[rows],
        {name: value[2:] for name, value in of.items()},
        Pseudo(method.state["soft"][unlabelled]),
        rows,
    )
    taught = torch.cat([method.state["soft_labelled"][rows], method.state["soft"][unlabelled]])
    return step, logits.double(), taught.double(), mix


def entropy(logit, wanted):
    """-(t log p + (1 - t) log(1 - p))."""
    chance = 1 / (1 + np.exp(-float(logit)))
    return -(float(wanted) * np.log(chance) + (1 - float(wanted)) * np.log(1 - chance))


@pytest.mark.parametrize("mixed", [True, False])
def test_the_loss_is_the_cross_entropy_with_what_was_mixed(mixed):
    method = begun(shown(), **HOW)
    step, logits, taught, mix = batch_of_five(method, mixed)
    expected = 0.0
    for image in range(5):
        other = int(mix[image, 1])
        for tag in range(TAGS):
            wanted = 0.3 * taught[image, tag] + 0.7 * taught[other, tag] if mixed else taught[image, tag]
            expected += entropy(logits[image, tag], wanted)
    (found,) = method.loss(step).values()
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_before_the_main_stage_a_pair_learns_what_both_know():
    logits = torch.ones(3, 2)
    targets = torch.tensor([[1, -1], [0, 1], [1, 0]], dtype=torch.int8)
    mix = torch.tensor([[0.3, 1.0], [0.3, 2.0], [0.3, 0.0]])
    alone = Neighbours().loss(Step({"whole_make": logits}, targets))["soft"]
    assert float(alone) == pytest.approx(sum(entropy(1.0, target) for target in (1, 0, 1, 1, 0)), rel=1e-5)
    pairs = Neighbours().loss(Step({"whole_make": logits, "mix": mix}, targets))["soft"]
    first_tag, second_tag = (0.3, 0.7, 1.0), (0.3,)  # of the second tag, the first image knows nothing
    assert float(pairs) == pytest.approx(sum(entropy(1.0, target) for target in first_tag + second_tag), rel=1e-5)


def test_a_student_mixes_whole_images_while_it_learns_and_only_then():
    torch.manual_seed(0)
    student, vectors = Student(WIDTH, 8, TAGS, mixup=0.5), torch.randn(9, WIDTH)
    torch.nn.init.normal_(student.top.weight)
    assert student.eval()(vectors, "whole").keys() == {"whole_make"}
    plain = student.eval()(vectors, "whole")["whole_make"]
    student.train()
    assert student(vectors, "patch").keys() == {"patch_make"}
    found = student(vectors, "whole")
    share, partner = found["mix"][:, :1], found["mix"][:, 1].long()
    assert sorted(partner.tolist()) == list(range(9))
    assert len(share.unique()) == 1
    assert 0 < float(share[0]) < 1
    mixed = student.eval()(share * vectors + (1 - share) * vectors[partner], "whole")["whole_make"]
    torch.testing.assert_close(found["whole_make"], mixed)
    unmixed = Student(WIDTH, 8, TAGS, mixup=0.0).train()
    unmixed.load_state_dict(student.state_dict())
    assert unmixed(vectors, "whole").keys() == {"whole_make"}
    torch.testing.assert_close(unmixed(vectors, "whole")["whole_make"], plain)


def test_a_student_starts_with_rare_tags_whatever_it_sees():
    found = Student(WIDTH, 8, TAGS)(torch.randn(4, WIDTH), "whole")["whole_make"]
    torch.testing.assert_close(found, torch.full((4, TAGS), -2.5))


def test_the_body_brings_training_images_to_a_common_length():
    teacher, body = shown(), Centred(WIDTH)
    away = teacher.vectors - teacher.vectors.mean(0)
    body.fit(teacher.vectors.mean(0), away.square().mean(0))
    found = body(teacher.vectors.half())
    torch.testing.assert_close(found.mean(0), torch.zeros(WIDTH), atol=1e-2, rtol=0)
    assert float(found.square().sum(1).mean()) == pytest.approx(100.0, rel=1e-3)


def test_of_voc_a_batch_holds_17_labelled_and_111_unlabelled_images():
    numbers = Neighbours.training(285, 5432)
    assert (numbers["labelled_batch"], numbers["unlabelled_batch"]) == (17, 111)
    assert numbers["warmup"] == 0


@pytest.mark.parametrize(("labelled", "unlabelled"), [(5, 20), (1, 1), (300, 1), (3, 4000), (57, 5660), (285, 0)])
def test_small_data_is_seen_often_enough(labelled, unlabelled):
    numbers = Neighbours.training(labelled, unlabelled)
    of_labelled, of_unlabelled = numbers["labelled_batch"], numbers["unlabelled_batch"]
    assert of_labelled >= 1
    assert of_unlabelled >= 1
    assert of_labelled + of_unlabelled == 128
    steps = -(-max(1, unlabelled) // of_unlabelled)
    assert numbers["epochs"] * steps >= 700
    assert numbers["epochs"] >= 15


def test_a_labelled_image_is_seen_three_times_as_often():
    numbers = Neighbours.training(1000, 9000)
    often = (numbers["labelled_batch"] / 1000) / (numbers["unlabelled_batch"] / 9000)
    assert often == pytest.approx(3.0, rel=0.05)


def test_the_cross_entropy_by_hand_is_that_of_torch():
    logit, wanted = torch.tensor(0.7), torch.tensor(0.2)
    assert entropy(logit, wanted) == pytest.approx(float(binary_cross_entropy_with_logits(logit, wanted)))


def test_a_rare_tag_is_raised_until_its_surest_images_are_taught_near_one_in_the_same_order():
    random = torch.Generator().manual_seed(3)
    soft = torch.rand(400, 3, generator=random) * torch.tensor([0.04, 1.0, 0.04])
    found = module.raised(soft, torch.tensor([0.2, 0.2, 0.0]))
    fourth = soft[:, 0].sort(descending=True).values[3]  # one percent of 400
    torch.testing.assert_close(found[:, 0], (soft[:, 0] * 0.9 / fourth).clamp(max=1))
    assert torch.equal(found[:, 1], soft[:, 1])  # sure enough
    torch.testing.assert_close(found[:, 2].sort().values[-4], torch.tensor(0.9))  # shown by no labelled image
    rarer = module.raised(soft, torch.tensor([0.005, 0.2, 0.0]))  # a single image of 400 should show it
    torch.testing.assert_close(rarer[:, 0].max(), torch.tensor(0.9))


@pytest.mark.parametrize("count", range(2, 120))
def test_any_number_of_images_can_be_raised(count):
    soft = torch.linspace(0.001, 0.03, count)[:, None]
    found = module.raised(soft, torch.tensor([1 / count]))
    torch.testing.assert_close(found.max(), torch.tensor(0.9))
    assert (found.diff(dim=0) > 0).all()


# --- other labels tried at once, and what trainings lend to each other -------------------------------------------


def test_other_labels_are_tried_without_the_student():
    """What is taught if other labels are known, by what was chosen with all of them."""
    teacher = shown()
    method = begun(teacher, **HOW, share=0.25)
    scores = method.quick_scores(teacher)
    torch.testing.assert_close(scores(teacher.targets), soft_of(method), atol=0.01, rtol=0)
    fewer = teacher.targets.clone()
    fewer[20:] = -1
    expected = soft_by_hand(teacher, fewer, **HOW, share=0.25)
    np.testing.assert_allclose(scores(fewer), expected, atol=0.01)
    assert float((scores(fewer) - scores(teacher.targets)).abs().max()) > 0.1


def test_other_methods_cannot_be_tried_so_quickly():
    from fewtags.methods import make_method

    assert make_method("asl", {}).quick_scores(shown()) is None


def soft_of(method):
    return torch.cat([method.state["soft_labelled"], method.state["soft"]])


def borrowed(teacher, kept, **settings):
    """A training on some of the labelled images, which takes over graph and choices from one on all of them."""
    whole = begun(teacher, **HOW)
    method = Neighbours(**{**HOW, "raise_rare": False, **whole.chosen_settings(), **settings})
    method.borrow(whole, kept)
    rest = Shown(teacher.targets[kept], teacher.labelled_vectors[kept], teacher.unlabelled_vectors)
    method.begin_main(rest)
    return method, rest


KEPT = torch.arange(LABELLED) % 5 != 2


def test_a_training_that_borrows_is_taught_by_the_labels_it_was_given_alone():
    teacher = shown(unknown=0.0)
    method, _ = borrowed(teacher, KEPT)
    known = teacher.targets.masked_fill(~KEPT[:, None], -1)
    expected = soft_by_hand(teacher, known, **HOW)
    assert method.state["soft_labelled"].shape == (int(KEPT.sum()), TAGS)
    np.testing.assert_allclose(method.state["soft_labelled"], expected[:LABELLED][KEPT], atol=1e-3)
    np.testing.assert_allclose(method.state["soft"], expected[LABELLED:], atol=1e-3)


def test_what_is_borrowed_holds_nothing_of_the_labels_that_were_left_out():
    teacher = shown(unknown=0.0)
    poisoned = torch.where(KEPT[:, None], teacher.targets, 1 - teacher.targets)
    other = Shown(poisoned, teacher.labelled_vectors, teacher.unlabelled_vectors)
    clean, dirty = (soft_of(borrowed(one, KEPT)[0]) for one in (teacher, other))
    assert torch.equal(clean, dirty)


def test_what_was_chosen_is_not_chosen_again_by_a_training_that_borrows(monkeypatch):
    asked = asked_of(monkeypatch)
    method, _ = borrowed(shown(), KEPT)
    assert not asked
    assert method.chosen_settings()["strength"] == HOW["strength"]
    assert method.chosen_settings()["share"] == 0.5


def test_of_a_training_that_never_began_nothing_is_borrowed():
    teacher = shown()
    method = Neighbours(**HOW, raise_rare=False, share=0.5)
    method.borrow(Neighbours(**HOW), KEPT)
    rest = Shown(teacher.targets[KEPT], teacher.labelled_vectors[KEPT], teacher.unlabelled_vectors)
    method.begin_main(rest)
    torch.testing.assert_close(soft_of(method), soft_of(begun(rest, **HOW)))
