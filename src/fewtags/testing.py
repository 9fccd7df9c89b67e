"""One battery of checks for every method, yours included: `check_method("my_package.my_method")`.

It runs a method through the real loop on a tiny made-up problem and raises AssertionError with what does not hold.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fewtags.methods import Method, Step, UnlabelledBatch, make_method
from fewtags.models import Adapter, Heads, Network
from fewtags.training.checkpoint import load_checkpoint, save_checkpoint
from fewtags.training.judge import Record
from fewtags.training.loop import Loop, Observer, Targets
from fewtags.training.plan import StepRows
from fewtags.training.recipe import Recipe
from fewtags.training.source import Batch, Epoch, Kind, Part, Views

LABELLED, UNLABELLED, TEST, WIDTH = 12, 30, 10, 16


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
        Problem(tags=300, unlabelled=8, epochs=1),
        Problem(fill=0),
        Problem(fill=1),
        Problem(labelled_batch=1, unlabelled_batch=1, unlabelled=4),
    ):
        losses = [value for report in problem.run(fresh()).reports for value in report["losses"].values()]
        _require(bool(losses), "no step reported a loss")
        _require(all(bool(torch.isfinite(value)) for value in losses), f"a loss is not finite with {problem}")


def check_pseudo_labels_carry_no_gradient(fresh: Callable[[], Method]) -> None:
    """What is taught is a constant, whatever it was made from."""
    method = fresh()
    if not method.uses_unlabelled:
        return
    scores = torch.rand(5, 4, requires_grad=True)
    _prepare(method, Glimpse.random(4))
    made = method.pseudo_labels(UnlabelledBatch(torch.arange(5), scores.detach(), scores.detach()))
    _require(not made.targets.requires_grad, "pseudo-labels carry a gradient")
    _require(bool(((made.targets >= 0) & (made.targets <= 1)).all()), "pseudo-labels leave 0..1")


def check_unknown_cells_change_nothing(fresh: Callable[[], Method]) -> None:
    """The loss is that without the cell, and nothing flows back into its logits."""
    problem = Problem(unknown=0.3)
    loop = problem.loop(fresh())
    targets = problem.targets().labelled
    logits = {k: z.detach().requires_grad_(True) for k, z in loop.network(*problem.views("labelled")).items()}
    for update in loop.method.updates:
        terms = loop.method.loss(Step(logits, targets), update)
        if not terms:
            continue
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        for name, z in logits.items():
            flow = 0 if z.grad is None else z.grad if z.dim() == 2 else z.grad.sum(1)
            _require(not bool(torch.as_tensor(flow * (targets < 0)).any()), f"an unknown cell moves {name}")
    other = replace(problem, unknown_seed=problem.unknown_seed)
    _require(_same(problem.run(fresh()), other.run(fresh())), "the same unknown cells gave another model")


def check_tags_are_equal(fresh: Callable[[], Method]) -> None:
    """With the tags in another order the rule gives the same pseudo-labels in that order."""
    if not fresh().uses_unlabelled:
        return
    order = torch.tensor([2, 0, 3, 1])
    glimpse = Glimpse.random(4)
    batch = UnlabelledBatch(torch.arange(8), glimpse.unlabelled_scores[:8], glimpse.unlabelled_scores[:8] * 0.9)
    made = []
    for turn in (torch.arange(4), order):
        method = fresh()
        _prepare(method, glimpse.turned(turn))
        made.append(method.pseudo_labels(UnlabelledBatch(batch.rows, batch.scores[:, turn], batch.student[:, turn])))
    _require(torch.equal(made[0].targets[:, order], made[1].targets), "pseudo-labels depend on the order of tags")
    if made[0].mask is not None and made[1].mask is not None:
        _require(torch.allclose(made[0].mask[:, order], made[1].mask), "the mask depends on the order of tags")


def check_same_seed_same_bytes(fresh: Callable[[], Method]) -> None:
    """Two runs with one seed end with the same weights; another seed's differ."""
    problem = Problem()
    first = problem.run(fresh())
    _require(_same(first, problem.run(fresh())), "two runs with one seed differ")
    _require(not _same(first, replace(problem, seed=2).run(fresh())), "the seed changes nothing")


def check_hidden_truth_changes_nothing(fresh: Callable[[], Method]) -> None:
    """The targets of unlabelled images are for measuring; poisoned ones leave the weights as they are."""
    first, poisoned = Problem(), Problem(truth_seed=9)
    _require(_same(first.run(fresh()), poisoned.run(fresh())), "the truth of unlabelled images leaks into training")


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


CHECKS = (
    check_loss_and_gradients_are_finite,
    check_pseudo_labels_carry_no_gradient,
    check_unknown_cells_change_nothing,
    check_tags_are_equal,
    check_same_seed_same_bytes,
    check_hidden_truth_changes_nothing,
    check_resume_is_exact,
    check_every_weight_may_learn,
)


@dataclass(frozen=True)
class Problem:
    """A made-up task that takes a fraction of a second."""

    tags: int = 4
    fill: float = 0.4  # share of cells that are present
    unknown: float = 0.0  # share of labelled cells that nobody knows
    unlabelled: int = UNLABELLED
    labelled_batch: int = 4
    unlabelled_batch: int = 8
    tune: str = "heads"
    epochs: int = 2
    seed: int = 1
    truth_seed: int = 1
    unknown_seed: int = 1

    def targets(self) -> Targets:
        """Made of random cells."""
        rng = np.random.default_rng(5)
        cells = {part: rng.random((size, self.tags)) < self.fill for part, size in self._sizes().items()}
        labelled = torch.from_numpy(cells["labelled"].astype(np.int8))
        hidden = np.random.default_rng(self.unknown_seed).random(labelled.shape) < self.unknown
        labelled[torch.from_numpy(hidden)] = -1
        truth = np.random.default_rng(self.truth_seed).random((self.unlabelled, self.tags)) < self.fill
        as_bytes = {
            name: torch.from_numpy(array.astype(np.int8)) for name, array in (("truth", truth), ("test", cells["test"]))
        }
        return Targets(labelled, self.unlabelled, as_bytes["truth"], as_bytes["test"] if self.fill else None)

    def loop(self, method: Method, observer: Observer | None = None) -> Loop:
        """The real loop on this problem."""
        torch.manual_seed(3)
        heads = method.build_heads(WIDTH, self.tags)
        body: nn.Module = Adapter(WIDTH, 8)
        if self.tune == "all":
            body = nn.Sequential(nn.Conv2d(3, WIDTH, 3, stride=2), nn.BatchNorm2d(WIDTH), nn.ReLU(), _Pool())
        elif isinstance(heads, Heads):
            heads.start_at(-2.5)
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
class Glimpse:
    """Made-up scores in the place of what the loop would show a method."""

    labelled_scores: Tensor
    unlabelled_scores: Tensor
    targets: Tensor
    labelled_vectors: Tensor
    unlabelled_vectors: Tensor
    epoch: int = 3

    @classmethod
    def random(cls, tags: int) -> "Glimpse":
        """Scores that know something of the targets; no two tags are equally common."""
        rng = torch.Generator().manual_seed(4)
        limits = torch.linspace(0.2, 0.6, tags)
        targets = (torch.rand(40, tags, generator=rng) < limits).to(torch.int8)
        scores = (0.6 * torch.rand(40, tags, generator=rng) + 0.4 * targets).float()
        return cls(scores, torch.rand(30, tags, generator=rng), targets, torch.randn(40, 6), torch.randn(30, 6))

    def turned(self, order: Tensor) -> "Glimpse":
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


def _prepare(method: Method, glimpse: Glimpse) -> None:
    method.begin_main(glimpse)
    method.begin_epoch(glimpse)


def _code(part: Part, kind: Kind, row: int) -> int:
    places = ("labelled", "unlabelled", "test").index(part), ("plain", "weak", "strong").index(kind)
    return 10_000 * places[0] + 1_000 * min(places[1], 1 + places[1]) + row


def _same(one: "_Watched | Loop", other: "_Watched | Loop") -> bool:
    first, second = (run.average.network.state_dict() for run in (one, other))  # type: ignore[attr-defined]
    return all(torch.equal(value, second[name]) for name, value in first.items())


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
