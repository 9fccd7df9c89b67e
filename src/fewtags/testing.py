"""One set of checks for every method, yours included: `check_method("my_package.my_method")`.

It runs a method through the real loop on a tiny made-up problem and raises AssertionError with what does not hold.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fewtags.encoders.base import EncoderSettings
from fewtags.encoders.vectors import Vectors
from fewtags.methods import Method, Pseudo, Step, UnlabelledBatch, make_method, method_name
from fewtags.model.network import Network
from fewtags.model.onnx_export import PACKAGES, to_onnx_file
from fewtags.model.saved import Model, ModelInfo, load_model, save_model
from fewtags.training.checkpoint import load_checkpoint, save_checkpoint
from fewtags.training.evaluator import Record
from fewtags.training.loop import Loop, Observer, Targets
from fewtags.training.plan import StepRows
from fewtags.training.recipe import Recipe
from fewtags.training.source import KIND_CODES, PART_CODES, Batch, Epoch, Kind, Part, Views
from fewtags.utils.extras import missing

LABELLED, UNLABELLED, TEST, WIDTH, HIDDEN = 12, 30, 10, 16, 8


def check_method(name: str, settings: dict[str, object] | None = None) -> None:
    """Run every check below on a method: the name of a built-in one, or an importable module."""

    def fresh() -> Method:
        return make_method(name, settings or {})

    for check in CHECKS:
        check(fresh)


def check_loss_and_gradients_are_finite(fresh: Callable[[], Method]) -> None:
    """Few and many tags, images without any tag, with every tag, and batches of one image."""
    for problem in (
        Problem(),
        Problem(tags=1),
        Problem(tags=300, unlabelled=8, labelled_batch=12, epochs=1),
        Problem(fill=0),
        Problem(fill=1),
        Problem(labelled_batch=1, unlabelled_batch=1, unlabelled=4),
    ):
        losses = [value for report in problem.run(fresh()).reports for value in report["losses"].values()]
        _require(bool(losses), "no step reported a loss")
        _require(all(bool(torch.isfinite(value)) for value in losses), f"a loss is not finite with {problem}")


def check_pseudo_labels_carry_no_gradient(fresh: Callable[[], Method]) -> None:
    """What is taught is a constant in 0..1, whatever it was made from; its weights are constants, and not negative."""
    method = fresh()
    if not method.uses_unlabelled:
        return
    taught: list[Pseudo] = []
    rule = type(method).pseudo_labels

    def listen(self: Method, batch: UnlabelledBatch) -> Pseudo:
        taught.append(rule(self, batch))
        return taught[-1]

    with patch.object(type(method), "pseudo_labels", listen):
        Problem().run(method)
    _require(bool(taught), "no step had pseudo-labels")
    for targets, mask in taught:
        _require(not targets.requires_grad, "pseudo-labels carry a gradient")
        _require(bool(((targets >= 0) & (targets <= 1)).all()), "pseudo-labels leave 0..1")
        if mask is not None:
            _require(not mask.requires_grad, "the mask carries a gradient")
            _require(bool((torch.isfinite(mask) & (mask >= 0)).all()), "a cell's weight is negative or not finite")


def check_unknown_cells_change_nothing(fresh: Callable[[], Method]) -> None:
    """No gradient reaches an unknown cell, no rule reads its score, and any negative number may mark it."""
    problem = Problem(unknown=0.3)
    loop = problem.loop(fresh())
    targets = problem.targets().labelled
    logits = {k: z.detach().requires_grad_(True) for k, z in loop.network(*problem.views("labelled")).items()}
    for update in loop.method.updates:
        terms = loop.method.loss(Step(logits, targets, rows=torch.arange(len(targets))), update)
        if not terms:
            continue
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        for name, z in logits.items():
            flow = 0 if z.grad is None else z.grad if z.dim() == 2 else z.grad.sum(1)
            _require(not bool(torch.as_tensor(flow * (targets < 0)).any()), f"an unknown cell moves {name}")
    other = replace(problem, unknown_code=-7)
    _require(_same(problem.run(fresh()), other.run(fresh())), "which negative number means unknown matters")
    if not loop.method.uses_unlabelled:
        return
    teacher = RandomTeacherView.random(4)
    hidden = torch.rand(teacher.targets.shape, generator=torch.Generator().manual_seed(6)) < 0.3
    scores, targets = teacher.labelled_scores, teacher.targets.masked_fill(hidden, -1)
    rows = torch.arange(len(teacher.unlabelled_scores))
    made = [
        _rule(
            fresh(),
            replace(teacher, targets=targets, labelled_scores=scores.masked_fill(hidden, value)),
            UnlabelledBatch(rows, teacher.unlabelled_scores, teacher.unlabelled_scores),
        )
        for value in (0.0, 1.0)
    ]
    _require(_same_pseudo(*made), "scores of unknown cells change the pseudo-labels")


def check_tags_are_equal(fresh: Callable[[], Method]) -> None:
    """With the tags in another order the rule gives the same pseudo-labels in that order."""
    if not fresh().uses_unlabelled:
        return
    order = torch.tensor([2, 0, 3, 1])
    teacher = RandomTeacherView.random(4)
    batch = UnlabelledBatch(torch.arange(8), teacher.unlabelled_scores[:8], teacher.unlabelled_scores[:8] * 0.9)
    plain = _rule(fresh(), teacher, batch)
    turned = _rule(
        fresh(), teacher.turned(order), UnlabelledBatch(batch.rows, batch.scores[:, order], batch.student[:, order])
    )
    expected = Pseudo(plain.targets[:, order], None if plain.mask is None else plain.mask[:, order])
    _require(_same_pseudo(expected, turned), "pseudo-labels or their mask depend on the order of tags")


def check_same_seed_same_bytes(fresh: Callable[[], Method]) -> None:
    """Two runs with one seed end with the same weights; another seed's differ."""
    problem = Problem()
    first = problem.run(fresh())
    _require(_same(first, problem.run(fresh())), "two runs with one seed differ")
    _require(not _same(first, replace(problem, seed=2).run(fresh())), "the seed changes nothing")


def check_hidden_truth_changes_nothing(fresh: Callable[[], Method]) -> None:
    """What unlabelled and test images truly show is for measuring; poisoned, it leaves the weights as they are."""
    first, poisoned = Problem(), Problem(truth_seed=9)
    _require(_same(first.run(fresh()), poisoned.run(fresh())), "the truth of unlabelled or test images leaks")


def check_resume_is_exact(fresh: Callable[[], Method]) -> None:
    """Saved in the middle of any stage's epoch and loaded again, a run ends with the same weights."""
    problem = Problem()
    whole = problem.run(fresh())
    with TemporaryDirectory() as folder:
        for stop_after in (1, len(whole.reports) - 2):
            file = Path(folder) / f"{stop_after}.safetensors"
            problem.run(fresh(), stop_after=stop_after, file=file)
            again = problem.loop(fresh())
            load_checkpoint(again, file, "check")
            again.run()
            _require(_same(whole, again), f"resumed after {stop_after} steps, the weights differ")


def check_every_weight_may_learn(fresh: Callable[[], Method]) -> None:
    """On pixels, with a body that learns, losses are finite and the body moves."""
    problem = Problem(tune="all")
    loop = problem.loop(fresh())
    before = loop.network.body[0].weight.clone()  # type: ignore[index]
    loop.run()
    moves = any(not update.parameters[0].startswith("heads") for update in loop.method.updates.values())
    _require(torch.equal(before, loop.network.body[0].weight) != moves, "the body does not learn")  # type: ignore[index]


def check_model_is_saved_and_loaded(fresh: Callable[[], Method]) -> None:
    """A trained model gives the same scores after it was saved and loaded, and as an ONNX file where that is installed.

    Loading needs to be told the module of a method that is not part of fewtags: no file decides what is imported.
    """
    problem, method = Problem(), fresh()
    loop = problem.loop(method)
    trained = loop.run()
    method.take_variant(next(iter(loop.variants())))
    network = Network(trained.body, method.kept_heads(trained.heads))
    name = method_name(type(method))
    info = ModelInfo(
        fewtags=version("fewtags"),
        method=name,
        method_settings={**method.model_dump(), **method.chosen_settings()},
        tags=[f"tag {place}" for place in range(problem.tags)],
        thresholds=[0.5] * problem.tags,
        learned_from=LABELLED + problem.unlabelled,
        adapter=HIDDEN,
        features="vectors",
        numbers=WIDTH,
    )
    vectors = problem.views("test").whole
    model = Model(info, Vectors(WIDTH, EncoderSettings()), network, method)
    with TemporaryDirectory() as folder, torch.inference_mode():
        save_model(Path(folder), model)
        loaded = load_model(Path(folder), methods=[name])
        expected = model(vectors)
        _require(
            torch.equal(loaded(vectors), expected), "a loaded model gives other scores than the one that was saved"
        )
        if not missing(*PACKAGES):
            content, _ = to_onnx_file(loaded)  # compares with torch's scores
            _require(bool(content), "the ONNX file is empty")


CHECKS = (
    check_loss_and_gradients_are_finite,
    check_pseudo_labels_carry_no_gradient,
    check_unknown_cells_change_nothing,
    check_tags_are_equal,
    check_same_seed_same_bytes,
    check_hidden_truth_changes_nothing,
    check_resume_is_exact,
    check_every_weight_may_learn,
    check_model_is_saved_and_loaded,
)


@dataclass(frozen=True)
class Problem:
    """A made-up task that takes a fraction of a second."""

    tags: int = 4
    fill: float = 0.4  # share of cells that are present
    unknown: float = 0.0  # share of labelled cells that are unknown
    unlabelled: int = UNLABELLED
    labelled_batch: int = 4
    unlabelled_batch: int = 8
    tune: str = "heads"
    epochs: int = 2
    seed: int = 1
    truth_seed: int = 1
    unknown_code: int = -1

    def targets(self) -> Targets:
        """Made of random cells."""
        sizes = self._sizes()

        def cells(part: Part, seed: int) -> Tensor:
            present = np.random.default_rng([seed, sizes[part]]).random((sizes[part], self.tags)) < self.fill
            return torch.from_numpy(present.astype(np.int8))

        labelled = cells("labelled", 5)
        hidden = np.random.default_rng(1).random(labelled.shape) < self.unknown
        labelled[torch.from_numpy(hidden)] = self.unknown_code
        test = cells("test", self.truth_seed) if self.fill else None
        return Targets(labelled, self.unlabelled, cells("unlabelled", self.truth_seed), test)

    def loop(self, method: Method, observer: Observer | None = None) -> Loop:
        """The real loop on this problem."""
        torch.manual_seed(3)
        heads = method.build_heads(WIDTH, self.tags)
        if self.tune == "all":
            body: nn.Module = nn.Sequential(nn.Conv2d(3, WIDTH, 3, stride=2), nn.BatchNorm2d(WIDTH), nn.ReLU(), _Pool())
        else:
            body = method.build_body(WIDTH, HIDDEN)
            method.start(body, heads, lambda: (torch.zeros(WIDTH), torch.ones(WIDTH)))
        recipe = Recipe(
            tune=self.tune,
            seed=self.seed,
            warmup=self.epochs,
            epochs=self.epochs,
            warmup_batch=self.labelled_batch,
            labelled_batch=self.labelled_batch,
            unlabelled_batch=self.unlabelled_batch,
        )
        return Loop(
            Network(body, heads), _RandomSource(self, method.patches), method, recipe, self.targets(), None, observer
        )

    def run(self, method: Method, stop_after: int = 0, file: Path | None = None) -> "_Watched":
        """Train to the end, or stop after so many steps with a checkpoint in `file`."""
        watch = _Watched(stop_after, file)
        watch.loop = self.loop(method, watch)
        try:
            watch.loop.run()
        except _Stop:
            return watch
        return watch

    def views(self, part: Part) -> Views:
        """All images of a part."""
        size = self._sizes()[part]
        return _RandomSource(self, 2).take(part, np.arange(size), "weak")

    def _sizes(self) -> dict[Part, int]:
        return {"labelled": LABELLED, "unlabelled": self.unlabelled, "test": TEST}


@dataclass(frozen=True)
class RandomTeacherView:
    """Made-up scores instead of those of a real loop."""

    labelled_scores: Tensor
    unlabelled_scores: Tensor
    targets: Tensor
    labelled_vectors: Tensor
    unlabelled_vectors: Tensor
    epoch: int = 3

    @classmethod
    def random(cls, tags: int) -> "RandomTeacherView":
        """Scores that know something of the targets; no two tags are equally common."""
        rng = torch.Generator().manual_seed(4)
        limits = torch.linspace(0.2, 0.6, tags)
        targets = (torch.rand(40, tags, generator=rng) < limits).to(torch.int8)
        scores = (0.6 * torch.rand(40, tags, generator=rng) + 0.4 * targets).float()
        return cls(scores, torch.rand(30, tags, generator=rng), targets, torch.randn(40, 6), torch.randn(30, 6))

    def turned(self, order: Tensor) -> "RandomTeacherView":
        """The same with the tags in another order."""
        changed = {name: getattr(self, name)[:, order] for name in ("labelled_scores", "unlabelled_scores", "targets")}
        return replace(self, **changed)


class _RandomSource:
    """Random features, or pictures for `tune all`; the same for the same image."""

    def __init__(self, problem: Problem, patches: int) -> None:
        self._shape = (3, 6, 6) if problem.tune == "all" else (WIDTH,)
        self._parts = patches**2 if patches > 1 else 0

    def take(self, part: Part, rows: NDArray[np.int64], kind: Kind) -> Views:
        """Views of these images."""
        made = [
            torch.randn(
                1 + self._parts, *self._shape, generator=torch.Generator().manual_seed(_code(part, kind, int(row)))
            )
            for row in rows
        ]
        stacked = torch.stack(made) if made else torch.empty(0, 1 + self._parts, *self._shape)
        return Views(stacked[:, 0], stacked[:, 1:] if self._parts else None)

    def steps(self, plan: Sequence[StepRows], epoch: Epoch) -> Iterator[Batch]:
        """See fewtags.training.source.Source."""
        for step in plan:
            labelled = self.take("labelled", step.labelled, "weak")
            if not epoch.unlabelled:
                yield Batch(labelled, None, None)
                continue
            views = (self.take("unlabelled", step.unlabelled, kind) for kind in ("weak", "strong"))
            yield Batch(labelled, *views)

    def sweep(self, part: Part, rows: NDArray[np.int64], kind: Kind, epoch: Epoch) -> Iterator[Views]:
        """See fewtags.training.source.Source."""
        yield self.take(part, rows, kind)


class _Stop(Exception):
    pass


class _Watched(Observer):
    """Keeps what the steps report; stops where it is told to."""

    loop: Loop

    def __init__(self, stop_after: int, file: Path | None) -> None:
        self._stop_after, self._file = stop_after, file
        self.reports: list[Record] = []

    def step(self, report: Record) -> None:
        """Keep it."""
        self.reports.append(report)

    def save(self, loop: Loop) -> None:
        """Save and stop where that is wanted."""
        if self._file is not None and len(self.reports) >= self._stop_after:
            save_checkpoint(loop, self._file, "check")
            raise _Stop

    @property
    def average(self) -> object:
        """The teacher, as in a loop."""
        return self.loop.average


class _Pool(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def _rule(method: Method, teacher: RandomTeacherView, batch: UnlabelledBatch) -> Pseudo:
    """The pseudo-labels of a batch by a method that has seen only this."""
    torch.manual_seed(3)
    method.build_heads(teacher.unlabelled_vectors.shape[1], teacher.targets.shape[1])
    method.begin_main(teacher)
    method.begin_epoch(teacher)
    return method.pseudo_labels(batch)


def _same_pseudo(one: Pseudo, other: Pseudo) -> bool:
    if (one.mask is None) != (other.mask is None) or not torch.allclose(one.targets, other.targets, atol=1e-4):
        return False
    return one.mask is None or other.mask is None or torch.allclose(one.mask, other.mask)


def _code(part: Part, kind: Kind, row: int) -> int:
    return 10_000 * PART_CODES[part] + 1_000 * KIND_CODES[kind] + row


def _same(one: "_Watched | Loop", other: "_Watched | Loop") -> bool:
    first, second = (run.average.network.state_dict() for run in (one, other))  # type: ignore[attr-defined]
    return all(torch.equal(value, second[name]) for name, value in first.items())


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
