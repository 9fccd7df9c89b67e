"""The one loop: warm-up stage, main stage, evaluation, checkpoint. It knows no method by name and no file."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from fewtags.errors import Fault
from fewtags.methods.base import Method, Pseudo, QuickScores, Step, UnlabelledBatch
from fewtags.methods.parts.heads import Logits
from fewtags.model.network import Network
from fewtags.training.average import Average
from fewtags.training.evaluator import EpochEvaluator, Record
from fewtags.training.plan import StepRows, plan_epoch
from fewtags.training.recipe import Recipe, Stage
from fewtags.training.schedule import one_cycle
from fewtags.training.source import Batch, Epoch, Kind, Part, Source, Views


@dataclass(frozen=True)
class Targets:
    """What is known of the images of a split: 1, 0, negative for unknown."""

    labelled: Tensor  # [N, K]
    unlabelled: int  # how many there are; their targets are not available to training
    truth: Tensor | None = None  # [M, K] of unlabelled images in benchmarks: measures pseudo-labels, nothing else
    test: Tensor | None = None  # [T, K]
    held_out: Tensor | None = None  # [H, K] labelled images that nothing is learned from


class Observer:
    """Is notified of progress and may ask to stop; the base class does nothing."""

    def begin(self, loop: "Loop") -> None:
        """Before the first step: may put the loop where an earlier run stopped."""

    def end(self, loop: "Loop") -> None:
        """After the last step."""

    def stage(self, stage: Stage, steps: int, done: int) -> None:
        """A stage begins or goes on: `done` of `steps` steps lie behind."""

    def step(self, report: Record) -> None:
        """A step is done: stage, epoch, step, losses, learning_rate, beta1, scores, pseudo."""

    def epoch(self, record: Record) -> None:
        """An epoch is done: everything that was measured."""

    def save(self, loop: "Loop") -> None:
        """Between two steps, where a checkpoint may be written; raises Interrupted to stop here."""


@dataclass
class Position:
    """The next step to be done."""

    stage: int = 0
    epoch: int = 0
    step: int = 0


class Stopwatch:
    """What a run has cost, whatever was spent before it was stopped and went on included."""

    def __init__(self) -> None:
        self._clock, self._cpu = time.monotonic(), time.process_time()
        self.earlier = (0.0, 0.0)

    def read(self) -> tuple[float, float]:
        """Seconds by the clock, and of the processor however busy the machine was."""
        clock, cpu = self.earlier
        return round(clock + time.monotonic() - self._clock, 1), round(cpu + time.process_time() - self._cpu, 1)


class Loop:
    """One training run; start reading at `run()`."""

    def __init__(
        self,
        network: Network,
        source: Source,
        method: Method,
        recipe: Recipe,
        targets: Targets,
        fabric: Fabric | None = None,
        observer: Observer | None = None,
        spent: Stopwatch | None = None,
    ) -> None:
        self.spent = spent or Stopwatch()
        self.fabric = fabric or Fabric(accelerator="cpu", devices=1)
        self.network = network.to(self.fabric.device)
        self.source, self.method, self.recipe, self.targets = source, method, recipe, targets
        self.observer = observer or Observer()
        self.stages = recipe.stages(method.uses_unlabelled) if method.learns_by_steps else []
        self.position = Position()
        self.steps_done = 0  # by this process, what a checkpoint had done left out
        self.average = Average(self.network, 0.0)
        self.optimisers: dict[str, torch.optim.AdamW] = {}
        self.tally: dict[str, Tensor] = {}  # sums over the steps of the running epoch
        self.evaluator = EpochEvaluator(recipe.protocol == "paper")
        self.labelled_targets = targets.labelled.to(self.fabric.device)

    def run(self) -> Network:
        """Train to the end, from wherever `position` stands, and return the network to keep."""
        self.observer.begin(self)
        while self.position.stage < len(self.stages):
            stage = self.stages[self.position.stage]
            self._begin_stage(stage)
            while self.position.epoch < stage.epochs:
                self._run_epoch(stage)
                record = self.evaluator.measure(self, stage)
                self.observer.epoch(record)
                self.tally = {}
                done = stage.epochs if self.evaluator.stalled(record) else self.position.epoch + 1
                self.position = Position(self.position.stage, done)
                self.observer.save(self)
            self.position = Position(self.position.stage + 1)
        self.observer.end(self)
        if self.evaluator.best_weights:
            self.average.network.load_state_dict(self.evaluator.best_weights)
        network = self.average.network
        heads = self.method.finished_heads(network.heads, LoopTeacherView(self, 0))
        return Network(network.body, heads).to(self.fabric.device).eval()

    def variants(self, names: Sequence[str] = ()) -> dict[str, Network]:
        """After `run`: networks that the labelled images may choose between, the one that `run` returned first."""
        network = self.average.network
        found = self.method.variants(network.heads, LoopTeacherView(self, 0), names)
        return {name: Network(network.body, heads).to(self.fabric.device).eval() for name, heads in found.items()}

    def quick_scores(self) -> QuickScores | None:
        """See Method."""
        return self.method.quick_scores(LoopTeacherView(self, 0))

    def _run_epoch(self, stage: Stage) -> None:
        epoch = self._views_of(stage, self.position.epoch)
        plan = self.plan(stage, self.position.epoch)
        if stage.unlabelled_batch and self.position.step == 0:
            teacher = LoopTeacherView(self, self.position.epoch)
            if self.position.epoch == 0:
                self.method.begin_main(teacher)
            self.method.begin_epoch(teacher)
        rank, processes = self.fabric.global_rank, self.fabric.world_size
        rest = plan[self.position.step :]
        batches = self.source.steps([rows.share(rank, processes) for rows in rest], epoch)
        for rows, batch in zip(rest, batches, strict=True):
            number = self.position.epoch * len(plan) + self.position.step
            seed_all(_mix(self.recipe.seed, self.position.stage, number))
            rate, beta1 = one_cycle(number, stage.planned_epochs * len(plan), stage.learning_rate)
            report = self._step(rows, batch, rate, beta1)
            self.position.step += 1
            self.steps_done += 1
            self.observer.step({"stage": stage.name, "epoch": self.position.epoch, **report})
            if self.position.step < len(plan):
                self.observer.save(self)

    def _step(self, rows: StepRows, batch: Batch, rate: float, beta1: float) -> Record:
        report: Record = {"learning_rate": rate, "beta1": beta1}
        labelled = batch.labelled.to(self.fabric.device)
        mine = self._mine(torch.from_numpy(rows.labelled)).to(self.fabric.device)
        targets = self.labelled_targets[mine]
        views, pseudo, scores = labelled, None, None
        if batch.weak is not None and batch.strong is not None:
            views = labelled.followed_by(batch.strong.to(self.fabric.device))
            scores = self._gather(self._teach(batch.weak), len(rows.unlabelled))
        for update, optimiser in self.optimisers.items():
            logits = self.student(*views)
            of_labelled, of_unlabelled = _split(logits, len(targets))
            if scores is not None and pseudo is None:
                pseudo = self._pseudo_labels(rows, scores, of_unlabelled, report)
            step = Step(of_labelled, targets, of_unlabelled, pseudo, mine)
            terms = self.method.loss(step, update)
            if terms:  # an update may have nothing to learn from in the warm-up
                self._optimise(optimiser, terms, *own_pace(self.method, update, rate, beta1))
            report.setdefault("losses", {}).update(terms)
        self.average.follow(self.network)
        report["losses"] = {name: self._sum(value.detach()) for name, value in report["losses"].items()}
        for name, value in report["losses"].items():
            self._count(f"loss_{name}", value.double())
        return report

    def _optimise(self, optimiser: torch.optim.AdamW, terms: dict[str, Tensor], rate: float, beta1: float) -> None:
        """One update of the weights, or a Fault before they are touched."""
        loss = torch.stack(list(terms.values())).sum()
        self._require_finite(loss, "loss", terms)
        group = optimiser.param_groups[0]
        group["lr"], group["betas"] = rate, (beta1, 0.999)
        optimiser.zero_grad(set_to_none=True)
        # an update needs the gradients of its own weights only; several processes wait for all of them
        mine = {"inputs": group["params"]} if self.fabric.world_size == 1 else {}
        # processes average their gradients; losses are sums
        self.fabric.backward(loss * self.fabric.world_size, **mine)
        gradients = [p.grad for p in group["params"] if p.grad is not None]
        if gradients:
            self._require_finite(torch.stack(torch._foreach_norm(gradients)).sum(), "gradient", terms)
        optimiser.step()

    def _pseudo_labels(self, rows: StepRows, scores: Tensor, logits: Logits, report: Record) -> Pseudo:
        """Ask the method once for the images of all processes, so that its state is the same everywhere."""
        student = self._gather(self.method.score({k: z.detach() for k, z in logits.items()}), len(scores))
        where = torch.from_numpy(rows.unlabelled)
        with torch.no_grad():
            pseudo = self.method.pseudo_labels(UnlabelledBatch(where.to(scores.device), scores, student))
        report |= {"scores": scores, "pseudo": pseudo.targets}
        if self.targets.truth is not None:
            truth, made = self.targets.truth[where], (pseudo.targets >= 0.5).cpu()
            known = truth >= 0
            self._count("pseudo_right", (made & (truth == 1)).sum(0).double())
            self._count("pseudo_made", (made & known).sum(0).double())
            self._count("pseudo_true", (truth == 1).sum(0).double())
        mask = None if pseudo.mask is None else self._mine(pseudo.mask).detach()
        return Pseudo(self._mine(pseudo.targets).detach(), mask)

    def _begin_stage(self, stage: Stage) -> None:
        steps = len(self.plan(stage, 0))
        self.network.requires_grad_(True).body.requires_grad_(stage.body_learns)
        fresh = self.position.epoch == 0 and self.position.step == 0
        if fresh:
            if stage.name == "main":
                self.method.enter_main(self.network.heads)
            self.average = Average(self.network, 0.0)
        self.average.decay = self.recipe.decay(stage, stage.epochs * steps)
        if fresh or not self.optimisers:
            self.optimisers = make_optimisers(self.network, self.method, self.recipe.weight_decay)
        self.student = self.fabric.setup_module(self.network, move_to_device=False).train()
        if not stage.body_learns:
            self.network.body.eval()
        self.observer.stage(stage, stage.epochs * steps, self.position.epoch * steps + self.position.step)

    @property
    def parts(self) -> list[Part]:
        """The parts of the split that have images."""
        every: tuple[Part, ...] = ("labelled", "unlabelled", "test", "held_out")
        return [part for part in every if self._size(part)]

    def scores(self, part: Part, kind: Kind, network: Network | None = None) -> Tensor:
        """Scores [n, K] of all images of a part, by the teacher unless another network is given.

        On plain views they are predictions; on others they are what pseudo-labels are made of.
        """
        score = self.method.predict if kind == "plain" else self.method.score
        return self.sweep(part, kind, network, lambda logits: {"": score(logits)})[""]

    def vectors(self, part: Part) -> Tensor:
        """What the teacher's body makes of the weak whole view of every image of a part [n, width]."""
        body = self.average.network.body
        found = [body(views.to(self.fabric.device).whole).cpu() for views in self._all_views(part, "weak")]
        return self._gather(torch.cat(found), self._size(part))

    def features(self, part: Part) -> Tensor:
        """What the network reads of the whole image, unchanged [n, width]."""
        found = [views.whole for views in self._all_views(part, "plain")]
        return self._gather(torch.cat(found), self._size(part))

    def sweep(
        self, part: Part, kind: Kind, network: Network | None, read: Callable[[Logits], dict[str, Tensor]]
    ) -> dict[str, Tensor]:
        """What `read` finds in the logits of all images of a part, by name [n, …]."""
        network = network or self.average.network
        was_training = network.training
        network.eval()
        found: dict[str, list[Tensor]] = {}
        with torch.no_grad():
            for views in self._all_views(part, kind):
                for name, value in read(network(*views.to(self.fabric.device))).items():
                    found.setdefault(name, []).append(value)
        if was_training:
            self.student.train()
            if not self.stages[self.position.stage].body_learns:
                self.network.body.eval()
        return {name: self._gather(torch.cat(rows), self._size(part)).cpu() for name, rows in found.items()}

    def _all_views(self, part: Part, kind: Kind) -> Iterator[Views]:
        stage = self.stages[min(self.position.stage, len(self.stages) - 1)] if self.stages else None
        rows = np.arange(self._size(part))[self.fabric.global_rank :: self.fabric.world_size]
        return self.source.sweep(part, rows, kind, self._views_of(stage, self.position.epoch))

    def _size(self, part: Part) -> int:
        if part == "unlabelled":
            return self.targets.unlabelled
        targets = self.targets
        known = {"labelled": targets.labelled, "test": targets.test, "held_out": targets.held_out}[part]
        return 0 if known is None else len(known)

    def _teach(self, weak: Views) -> Tensor:
        with torch.no_grad():
            return self.method.score(self.average.network(*weak.to(self.fabric.device)))

    def plan(self, stage: Stage, epoch: int) -> list[StepRows]:
        """The steps of an epoch."""
        key = (self.recipe.seed, self.stages.index(stage), epoch) if stage.shuffle else None
        n, m = len(self.targets.labelled), self.targets.unlabelled
        return plan_epoch(n, m, stage.labelled_batch, stage.unlabelled_batch, key)

    def _views_of(self, stage: Stage | None, epoch: int) -> Epoch:
        if stage is None:  # a method that learns without steps reads plain views
            return Epoch(self.recipe.seed, 0, 0, self.recipe.labelled_view, cutout=False)
        number = self.stages.index(stage)
        return Epoch(
            self.recipe.seed, number, epoch, self.recipe.labelled_view, stage.cutout, stage.unlabelled_batch > 0
        )

    def _mine(self, rows: Tensor) -> Tensor:
        """This process's share of rows that all processes know."""
        return rows[self.fabric.global_rank :: self.fabric.world_size]

    def _gather(self, rows: Tensor, total: int) -> Tensor:
        """The rows of all processes in the order of the plan; each holds every world_size-th of `total`."""
        processes = self.fabric.world_size
        if processes == 1:
            return rows
        padded = rows.new_zeros((-(-total // processes), *rows.shape[1:]))
        padded[: len(rows)] = rows
        everyone: Tensor = self.fabric.all_gather(padded)  # type: ignore[assignment]
        return everyone.transpose(0, 1).flatten(0, 1)[:total]

    def _sum(self, value: Tensor) -> Tensor:
        if self.fabric.world_size == 1:
            return value
        total: Tensor = self.fabric.all_reduce(value, reduce_op="sum")  # type: ignore[assignment]
        return total

    def any_process(self, wish: bool) -> bool:
        """Whether one of the processes has this wish; all get the same answer, and so stop at the same step."""
        return bool(self._sum(torch.tensor(float(wish), device=self.fabric.device)) > 0)

    def _count(self, name: str, value: Tensor) -> None:
        value = value.cpu()
        self.tally[name] = self.tally[name] + value if name in self.tally else value

    def _require_finite(self, value: Tensor, what: str, terms: dict[str, Tensor]) -> None:
        if bool(torch.isfinite(self._sum(value.detach()))):
            return
        parts = ", ".join(f"{name} {term.item():.4g}" for name, term in terms.items())
        raise Fault(
            f"the {what} is not finite in epoch {self.position.epoch}, step {self.position.step} ({parts}); "
            "the weights were not touched. A smaller learning rate often helps: --set learning_rate=1e-4"
        )


class LoopTeacherView:
    """What a method may read between steps, on the training device; see fewtags.methods.base.TeacherView."""

    def __init__(self, loop: Loop, epoch: int) -> None:
        self._loop = loop
        self.epoch = epoch
        self.targets = loop.labelled_targets

    @cached_property
    def labelled_scores(self) -> Tensor:
        """[N, K] in 0..1."""
        return self._loop.scores("labelled", "weak").to(self.targets.device)

    @cached_property
    def unlabelled_scores(self) -> Tensor:
        """[M, K] in 0..1."""
        return self._loop.scores("unlabelled", "weak").to(self.targets.device)

    @cached_property
    def labelled_vectors(self) -> Tensor:
        """[N, width]."""
        return self._loop.vectors("labelled").to(self.targets.device)

    @cached_property
    def unlabelled_vectors(self) -> Tensor:
        """[M, width]."""
        return self._loop.vectors("unlabelled").to(self.targets.device)


def make_optimisers(network: Network, method: Method, weight_decay: float) -> dict[str, torch.optim.AdamW]:
    """One optimiser for every update of the method, over the parameters that its prefixes name."""
    made = {}
    for name, update in method.updates.items():
        named = network.named_parameters()
        chosen = [p for weight, p in named if weight.startswith(update.parameters) and p.requires_grad]
        decay = weight_decay if update.learning_rate is None else 0.0
        if chosen:  # a frozen body has no parameters to update
            # one kernel for all weights, several times faster; it pairs weights and moments by their place in memory,
            # which a checkpoint does not keep where weights lie channels-last
            fused = all(p.is_contiguous() for p in chosen)
            made[name] = torch.optim.AdamW(chosen, lr=0.0, weight_decay=decay, eps=1e-8, fused=fused)
    return made


def own_pace(method: Method, update: str, rate: float, beta1: float) -> tuple[float, float]:
    """Learning rate and beta1 of an update: those of the cycle, unless it has a rate of its own."""
    fixed = method.updates[update].learning_rate
    return (rate, beta1) if fixed is None else (fixed, 0.9)


def _split(logits: Logits, labelled: int) -> tuple[Logits, Logits]:
    return {k: z[:labelled] for k, z in logits.items()}, {k: z[labelled:] for k, z in logits.items()}


def seed_all(seed: int) -> None:
    """What torch.manual_seed does, without the stack trace that it formats at every call where there is no GPU."""
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def _mix(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
