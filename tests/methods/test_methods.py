"""Methods: what learns from what, what is never pseudo-labelled, and how settings and other packages come in."""

import textwrap
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from fewtags.errors import UserError
from fewtags.methods import Method, Pseudo, Step, UnlabelledBatch, find_method, make_method, method_names
from fewtags.methods.asl import ASL
from fewtags.methods.base import Update
from fewtags.methods.bce import BCE
from fewtags.methods.d2l import D2L
from fewtags.methods.parts.heads import Heads
from fewtags.model.network import Network
from fewtags.training.loop import Observer
from small_runs import same, tiny_loop, weights


class SeenByHand:
    """What the teacher says of four labelled images; nobody labelled the last tag, the first is on two of them."""

    epoch = 0
    targets = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
    labelled_scores = torch.tensor([[0.9, 0.2, 0.9], [0.8, 0.7, 0.8], [0.3, 0.6, 0.7], [0.1, 0.1, 0.6]])


SCORES = torch.tensor([[0.95, 0.65, 0.99], [0.25, 0.15, 0.0]])


def pseudo_of(**settings):
    method = D2L(**settings)
    method.begin_epoch(SeenByHand())
    return method, method.pseudo_labels(UnlabelledBatch(torch.arange(2), SCORES, SCORES))


def step_of(method, network, pseudo=True):
    """A step of three labelled and two unlabelled images through a network."""
    torch.manual_seed(1)
    logits = network(torch.randn(5, 6), torch.randn(5, 4, 6) if method.patches > 1 else None)
    targets = torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 0]])
    return Step(
        labelled={name: z[:3] for name, z in logits.items()},
        targets=targets,
        unlabelled={name: z[3:] for name, z in logits.items()},
        pseudo=Pseudo(torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])) if pseudo else None,
    )


def gradients(method, of):
    """Which heads, and whether the body, learn from the labelled or the unlabelled losses."""
    torch.manual_seed(0)
    network = Network(nn.Linear(6, 5), Heads(5, 3, method.head_names))
    terms = method.loss(step_of(method, network))
    torch.stack([value for name, value in terms.items() if name.startswith(of)]).sum().backward()
    moved = {name for name, p in network.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    return {name.removeprefix("heads.").split(".")[0] for name in moved}


def test_labels_train_the_heads_that_make_pseudo_labels_and_pseudo_labels_the_others():
    assert gradients(D2L(), "labelled") == {"body", "whole_make", "patch_make"}
    assert gradients(D2L(), "unlabelled") == {"body", "whole_use", "patch_use"}


def test_without_separate_heads_both_train_the_same():
    method = D2L(separate_heads=False)
    assert gradients(method, "labelled") == gradients(method, "unlabelled") == {"body", "whole_make", "patch_make"}


@pytest.mark.parametrize(
    ("settings", "heads"),
    [
        ({}, {"whole_make", "patch_make", "whole_use", "patch_use"}),
        ({"separate_heads": False}, {"whole_make", "patch_make"}),  # MAT + CDD
        ({"separate_heads": False, "patches": 1}, {"whole_make"}),  # MAT alone
        ({"patches": 1}, {"whole_make", "whole_use"}),
    ],
)
def test_every_row_of_the_ablation_is_a_setting_and_runs(settings, heads):
    loop = tiny_loop(D2L(**settings), warmup=1, epochs=1)
    assert {name for name, _ in loop.network.heads.named_children()} == heads
    if settings.get("patches") == 1:  # the source draws patches all the same: no head may read them
        assert "patch_make" not in loop.network(torch.zeros(1, 3, 6, 6))
    before = weights(loop.network)
    loop.run()
    assert not same(before, loop.network.state_dict())


def test_the_heads_that_use_pseudo_labels_start_the_main_stage_where_the_others_are():
    class Look(Observer):
        stages = ()

        def stage(self, stage, steps, done):
            heads = dict(self.loop.network.heads.named_children())
            equal = [
                torch.equal(heads[f"{part}_make"].weight, heads[f"{part}_use"].weight) for part in ("whole", "patch")
            ]
            teacher = same(weights(self.loop.network), weights(self.loop.average.network))
            self.stages = (*self.stages, (stage.name, all(equal), teacher))

    look = Look()
    look.loop = tiny_loop(observer=look)
    look.loop.run()
    assert look.stages == (("warmup", False, True), ("main", True, True))


def test_pseudo_labels_are_the_scores_that_reach_the_threshold_of_their_tag():
    method, pseudo = pseudo_of()
    first, second, _ = method.state["thresholds"].tolist()
    assert 0.3 < first <= 0.8  # above the best image without the tag, not above the worst with it
    assert 0.2 < second <= 0.6
    assert pseudo.targets[:, :2].tolist() == [[1, 1], [0, 0]]


def test_a_tag_without_labelled_positives_is_never_pseudo_labelled_nor_taught():
    method, pseudo = pseudo_of()
    assert method.state["thresholds"][2] == float("inf")
    assert pseudo.targets[:, 2].tolist() == [0, 0]
    assert pseudo.mask.tolist() == [[1, 1, 0], [1, 1, 0]]
    network = Network(nn.Linear(6, 5), Heads(5, 3, method.head_names))
    step = step_of(method, network)
    terms = method.loss(Step(step.labelled, step.targets, step.unlabelled, pseudo))
    (terms["unlabelled_whole"] + terms["unlabelled_patch"]).backward()
    for head in (network.heads.whole_use, network.heads.patch_use):
        assert head.bias.grad[:2].abs().min() > 0
        assert head.bias.grad[2] == 0


def test_the_released_behaviour_finds_a_tag_without_positives_everywhere():
    method, pseudo = pseudo_of(missing_class="reference")
    assert method.state["thresholds"][2] == 0
    assert pseudo.targets[:, 2].tolist() == [1, 1]
    assert pseudo.mask.min() == 1


def test_the_grid_of_the_released_search_is_a_setting():
    assert pseudo_of(grid=0.01)[0].state["thresholds"][:2].tolist() == pytest.approx([0.31, 0.21])


@pytest.mark.parametrize("name", ["d2l", "asl", "bce"])
def test_an_unknown_cell_changes_neither_loss_nor_gradient(name):
    method = make_method(name, {"patches": 2})
    hidden = torch.tensor([[True, False, False], [False, True, False], [False, False, False]])
    found = []
    for noise in (0.0, 7.0):
        torch.manual_seed(0)
        network = Network(nn.Linear(6, 5), Heads(5, 3, method.head_names))
        step = step_of(method, network, pseudo=method.uses_unlabelled)
        for z in step.labelled.values():
            z.retain_grad()
        labelled = {key: z + noise * (hidden if z.dim() == 2 else hidden[:, None]) for key, z in step.labelled.items()}
        targets = torch.where(hidden, -1, step.targets)
        terms = method.loss(Step(labelled, targets, step.unlabelled, step.pseudo))
        torch.stack(list(terms.values())).sum().backward()
        found.append(([value.item() for value in terms.values()], [p.grad for p in network.parameters()]))
        of_hidden = step.labelled["whole_make"].grad[hidden]
        assert of_hidden.abs().max() == 0
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


def test_the_loss_without_unknown_cells_is_the_sum_over_the_known_ones():
    method = ASL()
    network = Network(nn.Linear(6, 5), Heads(5, 3, method.head_names))
    step = step_of(method, network, pseudo=False)
    targets = step.targets.clone()
    targets[:, 1] = -1
    alone = {"whole_make": step.labelled["whole_make"][:, [0, 2]]}
    ours = method.loss(Step(step.labelled, targets))["labelled_whole"]
    torch.testing.assert_close(ours, method.loss(Step(alone, targets[:, [0, 2]]))["labelled_whole"])


def test_bce_and_asl_differ_in_their_loss_alone():
    logits, targets = torch.tensor([[2.0, -2.0]]), torch.tensor([[0, 1]])
    assert BCE().cell_loss(logits, targets).tolist()[0] == pytest.approx([2.1269, 2.1269], abs=1e-4)
    present, absent = torch.sigmoid(torch.tensor(-2.0)), 1 - torch.sigmoid(torch.tensor(2.0)) + 0.05
    expected = [(-((1 - absent) ** 4) * absent.log()).item(), -present.log().item()]
    assert ASL().cell_loss(logits, targets).tolist()[0] == pytest.approx(expected, abs=1e-6)
    assert not ASL.uses_unlabelled
    assert not BCE.uses_unlabelled


def test_what_unlabelled_images_truly_show_changes_nothing_that_is_learned():
    one, other = tiny_loop(), tiny_loop(truth=1 - tiny_loop().targets.truth)
    assert not torch.equal(one.targets.truth, other.targets.truth)
    kept, kept_too = one.run(), other.run()
    assert same(weights(one.network), weights(other.network))
    assert same(weights(kept), weights(kept_too))


def test_what_test_images_show_changes_nothing_that_is_learned():
    one, other = tiny_loop(), tiny_loop(test=1 - tiny_loop().targets.test)
    kept, kept_too = one.run(), other.run()
    assert same(weights(kept), weights(kept_too))


class Soft(Method):
    """Teaches soft targets, which depend on the student and on a tensor that would learn."""

    def begin_main(self, teacher):
        self.state["shift"] = torch.zeros(3, requires_grad=True)
        self.state["epochs"] = torch.zeros(1)
        assert teacher.unlabelled_scores.shape == (11, 3)
        assert teacher.labelled_vectors.shape == (5, 4)
        assert teacher.unlabelled_vectors.shape == (11, 4)

    def begin_epoch(self, teacher):
        self.state["epochs"] = self.state["epochs"] + 1
        assert teacher.epoch == self.state["epochs"].item() - 1

    def pseudo_labels(self, batch):
        assert not batch.scores.requires_grad
        assert not batch.student.requires_grad
        return Pseudo(self.state["shift"] + (batch.scores + batch.student) / 2)

    def loss(self, step, update="all"):
        assert step.pseudo is None or not step.pseudo.targets.requires_grad
        return super().loss(step, update)


def test_pseudo_labels_carry_no_gradient():
    method = Soft()
    tiny_loop(method).run()
    assert method.state["shift"].grad is None
    assert method.state["epochs"].item() == 2


class Turns(Method):
    """Moves body and heads in turn, each with an optimiser of its own; the body rests in a frozen warm-up."""

    updates: ClassVar = {"body": Update(("body.",)), "heads": Update(("heads.",), learning_rate=0.01)}

    def pseudo_labels(self, batch):
        return Pseudo((batch.scores > 0.5).float())


@pytest.mark.parametrize("tune", ["all", "heads"])
def test_a_method_may_move_parts_of_the_network_in_turn(tune):
    method = Turns()
    loop = tiny_loop(method, tune=tune, warmup=1, epochs=0)
    before = weights(loop.network)
    loop.run()
    moved = {
        name.split(".")[0] for name, value in loop.network.named_parameters() if not torch.equal(value, before[name])
    }
    assert moved == ({"body", "heads"} if tune == "all" else {"heads"})
    loop = tiny_loop(method, tune=tune)
    loop.run()
    assert set(loop.optimisers) == {"body", "heads"}


def test_a_method_that_uses_unlabelled_images_must_say_how():
    class Lazy(Method):
        pass

    with pytest.raises(TypeError, match="Lazy uses unlabelled images but has no rule"):
        tiny_loop(Lazy()).run()


def write_method(folder, name, text):
    package = folder / "their_package"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    (package / f"{name}.py").write_text(textwrap.dedent(text))
    return f"their_package.{name}"


FIXED = '''
    """Confident predictions become pseudo-labels."""

    from fewtags.methods.base import Method, Pseudo


    class Fixed(Method):
        """One threshold for every tag."""

        threshold: float = 0.5
        """On the safe side."""

        def pseudo_labels(self, batch):
            return Pseudo((batch.scores >= self.threshold).float())
'''


@pytest.fixture
def their_package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_method_of_another_package_is_found_and_runs(their_package):
    method = make_method(write_method(their_package, "fixed", FIXED), {"threshold": "0.4"})
    assert method.threshold == 0.4
    tiny_loop(method, warmup=1, epochs=1).run()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("from fewtags.methods.d2l import D2L\n", 0),  # imported, not defined there
        ("from fewtags.methods import Method\nclass A(Method): pass\nclass B(Method): pass\n", 2),
    ],
)
def test_a_module_with_no_method_or_two_is_refused(their_package, text, count):
    with pytest.raises(UserError, match=f"their_package.odd defines {count} subclasses"):
        find_method(write_method(their_package, "odd", text))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("d2", "unknown method 'd2'; did you mean 'd2l'"),
        ("base", "unknown method 'base'"),  # the contract itself is no method
        ("no_such_package.method", "cannot be imported: No module named 'no_such_package'"),
        (".d2l", "unknown method '.d2l'"),
        ("..", "unknown method '..'"),
        ("", "unknown method ''"),
    ],
)
def test_a_method_that_is_not_there_is_refused(name, said):
    with pytest.raises(UserError) as error:
        find_method(name)
    assert said in str(error.value)


def test_an_unknown_setting_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="unknown setting 'bta'; did you mean 'beta'"):
        make_method("d2l", {"bta": 1})


def test_every_setting_of_every_method_says_why_it_is_there():
    for name in method_names():
        for key, field in find_method(name).model_fields.items():
            assert field.description, f"{name}: {key}"


def test_quality_of_pseudo_labels_is_measured_against_the_truth():
    """Two steps by hand: the counts of an epoch give precision and recall of each tag, then their means."""
    from fewtags.training.evaluator import pseudo_quality

    tally = {"pseudo_right": [3.0, 0.0], "pseudo_made": [4.0, 0.0], "pseudo_true": [6.0, 2.0]}
    found = pseudo_quality({name: torch.tensor(values) for name, values in tally.items()})
    precision, recall = np.mean([0.75, 0]), np.mean([0.5, 0])
    assert found["pseudo_cp"] == pytest.approx(precision)
    assert found["pseudo_cr"] == pytest.approx(recall)
    assert found["pseudo_cf1"] == pytest.approx(2 * precision * recall / (precision + recall))
    assert found["pseudo_positives"] == 4
