"""Edge cases of the rules: tags without positives, ties, nobody confident, empty pools; and checks that can fail."""

import numpy as np
import pytest
import torch

from fewtags.methods import Method, Pseudo, Step, UnlabelledBatch, make_method
from fewtags.methods.dicap import at_scores
from fewtags.testing import (
    RandomTeacherView,
    check_hidden_truth_changes_nothing,
    check_method,
    check_pseudo_labels_carry_no_gradient,
    check_tags_are_equal,
    check_unknown_cells_change_nothing,
)
from fewtags.thresholds import (
    class_proportion,
    confident,
    correctness,
    decide,
    largest,
    lowest,
    mid_ranges,
    selection_share,
    top_k,
)

INF = float("inf")
TEN = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05])[:, None]


def batch_of(scores, student=None):
    return UnlabelledBatch(torch.arange(len(scores)), scores, scores if student is None else student)


def random_teacher(**changes):
    """Four tags; nobody labelled the last one."""
    teacher = RandomTeacherView.random(4)
    targets = teacher.targets.clone()
    targets[:, 3] = 0
    return RandomTeacherView(**{**vars(teacher), "targets": targets, **changes})


def prepared(name, teacher, **settings):
    method = make_method(name, settings)
    method.build_heads(teacher.unlabelled_vectors.shape[1], teacher.targets.shape[1])
    method.begin_main(teacher)
    method.begin_epoch(teacher)
    return method


@pytest.mark.parametrize(
    ("name", "settings"),
    [("cap", {}), ("d2l", {}), ("d2l", {"thresholds": "proportion"}), ("d2l", {"metric": "recall"}), ("dicap", {})],
)
def test_a_tag_without_labelled_positives_is_neither_pseudo_labelled_nor_taught(name, settings):
    teacher = random_teacher()
    made = prepared(name, teacher, **settings).pseudo_labels(batch_of(teacher.unlabelled_scores))
    assert made.targets[:, 3].sum() == 0
    assert made.mask[:, 3].sum() == 0
    assert made.targets[:, :3].sum(0).min() > 0
    assert made.mask[:, :3].sum(0).min() > 0


@pytest.mark.parametrize(("name", "settings"), [("cap", {}), ("d2l", {"thresholds": "proportion"}), ("d2l", {})])
def test_the_released_behaviour_finds_such_a_tag_everywhere(name, settings):
    teacher = random_teacher()
    method = prepared(name, teacher, missing_class="reference", **settings)
    assert method.pseudo_labels(batch_of(teacher.unlabelled_scores)).targets[:, 3].min() == 1


@pytest.mark.parametrize(("share", "threshold", "positives", "left_out"), [(0.2, 0.8, 2, 0.7), (0.35, 0.7, 3, 0.6)])
def test_cap_worked_example(share, threshold, positives, left_out):
    found = class_proportion(TEN, np.array([share]))
    assert found.thresholds == threshold
    assert decide(TEN, found.thresholds).sum() == positives
    counts = (found.sure_positive <= TEN) | (found.sure_negative >= TEN)
    assert TEN[~counts].tolist() == [left_out]


def test_cap_keeps_all_tied_scores():
    scores = np.array([0.9, 0.8, 0.8, 0.8, 0.1])[:, None]
    assert decide(scores, class_proportion(scores, np.array([0.4])).thresholds).sum() == 4


def test_cap_gives_a_rare_tag_its_best_image_and_a_common_one_no_sure_negative():
    rare = class_proportion(TEN, np.array([0.04]))
    assert rare.thresholds == 0.9
    common = class_proportion(TEN, np.array([0.95]))
    assert common.sure_negative == -INF
    assert class_proportion(TEN, np.array([0.95]), missing_class="reference").sure_negative == 0.9


def test_top_k_breaks_ties_by_the_earlier_tag_and_gives_no_more_tags_than_there_are():
    scores = torch.tensor([[0.5, 0.7, 0.5, 0.5], [0.2, 0.2, 0.2, 0.2]])
    assert top_k(scores, 2).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0]]
    assert top_k(scores, 9).min() == 1
    assert prepared("top_k", random_teacher(), k=9).pseudo_labels(batch_of(scores)).targets.min() == 1


def test_top_k_rounds_the_mean_number_of_tags_up_but_not_a_whole_number():
    """Twelve tags on two of ten images each: 2.4 tags an image; with ten tags exactly 2, whatever floats make of it."""
    for tags, images, k in ((12, 10, 3), (10, 10, 2), (30, 30, 2)):
        targets = torch.zeros(images, tags, dtype=torch.int8)
        targets[:2] = 1
        scores = torch.rand(images, tags)
        vectors = torch.zeros(images, 6)
        assert prepared("top_k", RandomTeacherView(scores, scores, targets, vectors, vectors)).state["k"] == k


def test_an_image_without_any_score_above_the_threshold_is_taught_as_having_no_tag():
    made = make_method("iat", {}).pseudo_labels(batch_of(torch.full((1, 3), 0.4)))
    assert made.targets.sum() == 0
    assert made.mask is None


def test_cells_tied_at_the_limit_are_all_of_large_loss_and_none_is_strictly_above():
    losses = torch.tensor([[3.0, 2.0, 2.0], [2.0, 1.0, 0.5]])
    everywhere = torch.ones(2, 3, dtype=torch.bool)
    chosen, strictly = largest(losses, everywhere, 2)
    assert chosen.tolist() == [[True, True, True], [True, False, False]]
    assert strictly.tolist() == [[True, False, False], [False, False, False]]


def test_where_losses_run_out_only_candidates_are_of_large_loss():
    """Fewer candidates than asked for: the limit is 0, which every other cell reaches too."""
    candidates = torch.tensor([[True, False, False], [False, True, False]])
    chosen, strictly = largest(torch.tensor([[3.0, 2.0, 2.0], [2.0, 1.0, 0.5]]), candidates, 4)
    assert chosen.tolist() == candidates.tolist()
    assert strictly.tolist() == candidates.tolist()


def test_ll_cp_keeps_what_it_corrects_and_in_the_first_epoch_none_corrects():
    teacher = random_teacher()
    method = prepared("ll_cp", RandomTeacherView(**{**vars(teacher), "epoch": 0}), percent=10)
    batch = batch_of(teacher.unlabelled_scores)
    assert method.pseudo_labels(batch).targets.sum() == 0
    method.begin_epoch(RandomTeacherView(**{**vars(teacher), "epoch": 1}))
    method.pseudo_labels(batch)
    first = method.state["corrected"].clone()
    assert first.sum() == 12 - 1  # a tenth of 120 cells; the one at the limit is turned for this step alone
    made = method.pseudo_labels(batch)
    assert made.targets[first].min() == 1
    assert made.targets.sum() == 11 + 12
    assert method.state["corrected"].sum() == 11 + 11


def test_plc_teaches_nothing_where_nobody_is_confident():
    method = make_method("plc", {})
    made = method.pseudo_labels(batch_of(torch.full((2, 3), 0.5)))
    assert made.mask.sum() == 0
    logits = torch.randn(2, 3, requires_grad=True)
    step = Step({"whole_make": torch.randn(1, 3)}, torch.zeros(1, 3), {"whole_make": logits}, made)
    loss = method.loss(step)["unlabelled_whole"]
    loss.backward()
    assert loss == 0
    assert logits.grad.abs().max() == 0
    targets, mask = confident(torch.tensor([[0.6, 0.4, 0.39]]), 0.6)
    assert targets.tolist() == [[1, 0, 0]]
    assert mask.tolist() == [[1, 0, 1]]  # at the threshold sure, at its mirror not


@pytest.mark.parametrize(
    ("majority", "expected"),
    [
        ([0.6, 0.7, 0.8], [0.95, 0.9]),  # none confident: the other tag keeps its best
        ([0.96, 0.97, 0.99], [0.95, 0.55]),  # all confident: it keeps all
        ([0.1, 0.2, 0.3], [0.8, 0.7]),  # none predicted: the old thresholds stay
    ],
)
def test_adsh_with_none_all_and_no_majority_prediction(majority, expected):
    scores = torch.tensor([majority, [0.9, 0.55, 0.2]]).T
    found = selection_share(scores, scores >= 0.5, torch.tensor([0.8, 0.7]), majority=0)
    assert found.tolist() == pytest.approx(expected)


def test_adsh_keeps_the_old_threshold_of_a_tag_that_is_never_predicted():
    scores = torch.tensor([[0.96, 0.1], [0.7, 0.2]])
    assert selection_share(scores, scores >= 0.5, torch.tensor([0.9, 0.65]), 0).tolist() == pytest.approx([0.95, 0.65])


def test_freematch_moves_its_state_before_it_decides():
    method = make_method("freematch", {"momentum": 0.5})
    method.state.update(mean=torch.tensor([1.0, 1.0]), confidence=torch.tensor(1.0), share=torch.tensor([0.5, 0.5]))
    made = method.pseudo_labels(batch_of(torch.tensor([[0.8, 0.5], [0.6, 0.5]])))
    # confidence (1 + 0.7) / 2, means (1 + 0.7) / 2 and (1 + 0.5) / 2; with the state before, nothing would reach 1
    assert method.state["thresholds"].tolist() == pytest.approx([0.85, 0.75])
    assert made.targets.tolist() == [[0, 0], [0, 0]]
    made = method.pseudo_labels(batch_of(torch.tensor([[0.8, 0.5], [0.6, 0.5]])))
    assert method.state["thresholds"].tolist() == pytest.approx([0.775, 0.625])
    assert made.targets.tolist() == [[1, 0], [0, 0]]


def test_freematch_with_two_outcomes_leaves_out_what_it_is_not_sure_of_and_then_has_no_fairness_term():
    method = make_method("freematch", {"reading": "B", "fairness": 0.01, "momentum": 0.999})
    method.state.update(mean=torch.tensor([0.5]), confidence=torch.tensor([0.99]), share=torch.tensor([0.5]))
    made = method.pseudo_labels(batch_of(torch.tensor([[0.6], [0.4]])))
    assert made.targets.tolist() == [[1], [0]]
    assert made.mask.sum() == 0
    logits = torch.randn(2, 1, requires_grad=True)
    terms = method.loss(Step({"whole_make": torch.randn(1, 1)}, torch.zeros(1, 1), {"whole_make": logits}, made))
    assert terms["unlabelled_whole"] == 0
    assert terms["fairness"] == 0
    sum(terms.values()).backward()
    assert logits.grad.abs().max() == 0


def test_the_lowest_are_finite_open_and_of_equal_ones_the_earlier():
    values = torch.tensor([0.3, 0.1, float("nan"), 0.1, INF, 0.0])
    every = torch.ones(6, dtype=torch.bool)
    assert lowest(values, every, 2).tolist() == [5, 1]
    assert lowest(values, every, 6).tolist() == [5, 1, 3, 0]
    assert lowest(values, ~every, 3).tolist() == []
    assert lowest(torch.full((3,), INF), every[:3], 2).tolist() == []


def test_drml_images_join_for_good_until_the_pool_is_exhausted():
    teacher = random_teacher()
    method = prepared("drml", RandomTeacherView(**{**vars(teacher), "epoch": 0}), share_per_epoch=0.4)
    assert not method.state["joined"].any()
    later = RandomTeacherView(**{**vars(teacher), "epoch": 1})
    for count in (12, 24, 30, 30):
        before = method.state["joined"].clone()
        method.begin_epoch(later)
        assert method.state["joined"].sum() == count
        assert method.state["joined"][before].all()
    made = method.pseudo_labels(batch_of(teacher.unlabelled_scores))
    torch.testing.assert_close(made.targets, teacher.unlabelled_scores)
    assert made.mask.min() == 1
    logits = {name: torch.randn(30, 4) for name in ("first", "second", "whole_make")}
    step = Step({name: z[:2] for name, z in logits.items()}, torch.zeros(2, 4), logits, made)
    assert [bool(method.loss(step, update)) for update in method.updates] == [True, False, False, True]


def test_drml_asks_for_agreement_only_where_images_have_not_joined_and_answers_for_an_empty_share():
    method = prepared("drml", random_teacher(), share_per_epoch=0.4)
    first, second = torch.randn(2, 4), torch.randn(2, 4)
    unlabelled = {"first": first, "second": second, "whole_make": torch.randn(2, 4)}
    mask = torch.tensor([[1.0], [0.0]]).expand(2, 4)
    labelled = {name: z[:1] for name, z in unlabelled.items()}
    made = Pseudo(torch.zeros(2, 4), mask)
    found = method.loss(Step(labelled, torch.zeros(1, 4), unlabelled, made), "agree")["agree"]
    assert found.item() == pytest.approx(1e-5 * (first[1].sigmoid() - second[1].sigmoid()).abs().sum().item())
    nothing = {name: z[:0] for name, z in unlabelled.items()}
    empty = Pseudo(torch.zeros(0, 4), torch.zeros(0, 4))
    terms = [method.loss(Step(labelled, torch.zeros(1, 4), nothing, empty), update) for update in method.updates]
    assert all(terms)  # another process has the rest of the batch and waits for the gradients
    warm_up = [method.loss(Step(labelled, torch.zeros(1, 4), nothing), update) for update in method.updates]
    assert [bool(terms) for terms in warm_up] == [True, False, False, True]


def brute_correctness(scores, labels, bins):
    curve = np.empty((bins, scores.shape[1]))
    for tag in range(scores.shape[1]):
        points = []
        for place in range(bins):
            inside = [
                label == 1
                for score, label in zip(scores[:, tag], labels[:, tag], strict=True)
                if label >= 0 and min(int(score * bins), bins - 1) == place
            ]
            if inside:
                points.append(((place + 0.5) / bins, sum(inside) / len(inside)))
        for place in range(bins):
            here = (place + 0.5) / bins
            left = [point for point in points if point[0] <= here][-1:]
            right = [point for point in points if point[0] >= here][:1]
            if not points:
                curve[place, tag] = here
            elif not left or not right or left == right:
                curve[place, tag] = (left or right)[0][1]
            else:
                (x0, y0), (x1, y1) = left[0], right[0]
                curve[place, tag] = y0 + (y1 - y0) * (here - x0) / (x1 - x0)
    return curve


@pytest.mark.parametrize("seed", range(4))
def test_correctness_and_mid_ranges_are_those_of_counting_by_hand(seed):
    rng = np.random.default_rng(seed)
    scores = rng.random((15, 5)).astype(np.float32)
    scores[0, 0], scores[1, 0] = 0.0, 1.0
    labels = rng.choice([-1, 0, 1], (15, 5))
    labels[:, 3], labels[:, 4] = -1, np.minimum(labels[:, 4], 0)
    given = torch.from_numpy(scores), torch.from_numpy(labels)
    np.testing.assert_allclose(correctness(*given, 8).numpy(), brute_correctness(scores, labels, 8), atol=1e-6)
    upper, lower = mid_ranges(*given)
    for tag in range(5):
        positive, negative = scores[labels[:, tag] == 1, tag], scores[labels[:, tag] == 0, tag]
        if not len(positive):
            assert (upper[tag], lower[tag]) == (INF, -INF)
            continue
        top = (positive.max() + positive.min()) / 2
        bottom = min(top, (negative.max() + negative.min()) / 2) if len(negative) else -INF
        assert upper[tag].item() == pytest.approx(top)
        assert lower[tag].item() == pytest.approx(bottom)


def test_a_tag_without_negatives_has_no_sure_absence():
    upper, lower = mid_ranges(torch.tensor([[0.2], [0.6]]), torch.tensor([[1], [1]]))
    assert upper.item() == pytest.approx(0.4)
    assert lower.item() == -INF


def test_the_correctness_of_a_score_lies_on_the_line_between_the_middles_of_bins():
    curve = torch.tensor([[0.0], [0.4], [1.0]])
    scores = torch.tensor([[0.0], [1 / 6], [2 / 6], [0.5], [1.0]])
    assert at_scores(curve, scores)[:, 0].tolist() == pytest.approx([0, 0, 0.2, 0.4, 1.0], abs=1e-6)


def test_dicap_never_teaches_the_labels_of_held_out_images():
    method = prepared("dicap", random_teacher())
    rows, targets = torch.arange(10), torch.ones(10, 4)
    pseudo = Pseudo(torch.zeros(2, 4))
    for made in (None, pseudo):  # warm-up and main stage
        found = []
        for changed in (targets, torch.where((rows % 5 == 4)[:, None], 0.0, targets)):
            torch.manual_seed(0)
            logits = {"whole_make": torch.randn(12, 4)}
            step = Step({"whole_make": logits["whole_make"][:10]}, changed, {"whole_make": logits["whole_make"][10:]})
            step = Step(step.labelled, changed, step.unlabelled, made, rows)
            found.append({name: value.item() for name, value in method.loss(step).items()})
        assert found[0] == found[1]
        assert ("held_out" in found[0]) == (made is not None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("freematch", {"reading": "B", "fairness": 0.01}),
        ("cap", {"patches": 2, "patch_heads": False}),
        ("d2l", {"patches": 1, "separate_heads": False}),
        ("d2l", {"separate_heads": False}),
        ("d2l", {"thresholds": "proportion"}),
        ("d2l", {"merge": "probs"}),
        ("adsh", {"drop_uncertain": True}),
        ("dicap", {"patches": 2}),
    ],
)
def test_readings_and_ablations_pass_the_battery_too(name, settings):
    check_method(name, settings)


@pytest.mark.parametrize("name", ["adsh", "d2l", "freematch", "iat", "plc"])
def test_pseudo_labels_are_made_where_the_scores_are(name):
    """Pretended tensors on a GPU that need none: a state left on the CPU would be refused."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    method = prepared(name, random_teacher())
    with FakeTensorMode(allow_non_fake_inputs=True):
        scores = torch.rand(8, 4, device="cuda")
        made = method.pseudo_labels(UnlabelledBatch(torch.zeros(8, device="cuda"), scores, scores))
    assert made.targets.device.type == "cuda"


class Leaks(Method):
    """What unlabelled images show, got from behind."""

    def begin_epoch(self, teacher):
        self.state["truth"] = getattr(teacher, "_loop").targets.truth.float()  # noqa: B009 - it is wrong, and meant to be

    def pseudo_labels(self, batch):
        return Pseudo(self.state["truth"][batch.rows])


class LooksAtUnknown(Method):
    """A threshold from all labelled scores, known or not."""

    def begin_epoch(self, teacher):
        self.state["thresholds"] = teacher.labelled_scores.mean(0)

    def pseudo_labels(self, batch):
        return Pseudo((batch.scores >= self.state["thresholds"]).float())


class Learns(Method):
    """A mask that would be learned."""

    def begin_main(self, teacher):
        self.state["weight"] = torch.ones(4, requires_grad=True)

    def pseudo_labels(self, batch):
        with torch.enable_grad():
            return Pseudo((batch.scores >= 0.5).float(), self.state["weight"] * torch.ones_like(batch.scores))


class FirstTag(Method):
    """The first tag is special."""

    def pseudo_labels(self, batch):
        return Pseudo((batch.scores >= torch.tensor([0.9, 0.5, 0.5, 0.5])[: batch.scores.shape[1]]).float())


@pytest.mark.parametrize(
    ("method", "check"),
    [
        (Leaks, check_hidden_truth_changes_nothing),
        (LooksAtUnknown, check_unknown_cells_change_nothing),
        (Learns, check_pseudo_labels_carry_no_gradient),
        (FirstTag, check_tags_are_equal),
    ],
)
def test_the_battery_catches(method, check):
    with pytest.raises(AssertionError):
        check(method)
