"""Neighbours: what looks alike is tagged alike; generation and use of pseudo-labels apart, as in D2L.

Make: L2 logistic regression on the labelled images; its probabilities on all training images, the labelled ones
clamped to their labels, smoothed over the graph of the k nearest neighbours (Zhou et al., NeurIPS 2003):
F <- a · W F + (1 - a) · F0.
Where tags' names say something (`words`), their scores are refined on the same graph without labels and enter the
regression, which learns per tag how much they count; see fewtags.solvers.words.
Use: a student with one hidden layer learns F with mixup; it alone tags new images, unless labels are few: then, or with
`bank=true`, the training images are kept, and a new image gets half of its score from its neighbours among them.
`share=0` leaves out the graph; `learner=regression` leaves out the student.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fewtags.methods.base import Method, Pseudo, QuickScores, Step, TeacherView, UnlabelledBatch, shares
from fewtags.methods.parts.student import Bank, Centred, Student, TraceableBank
from fewtags.solvers.bursts import find_bursts
from fewtags.solvers.folds import MIN_CHOICE, MIN_LABELLED, select_strength
from fewtags.solvers.graph import raised
from fewtags.solvers.regression import fit_regression
from fewtags.solvers.soft_labels import SoftLabeller, choose_smoothing

SHARES = (0.0, 0.25, 0.5)  # tried by the labelled images
CHOSEN = ("strength", "share", "with_words")
AND_NEIGHBOURS = " and neighbours"  # the training images are kept
FEW_LABELS = 100  # on images held out of VOC's train split a bank gained 0.6 mAP with 57 labels and cost 0.3 with 285
LARGE_BANK = 20_000  # images; a model file of 40 MB for a thousand numbers each
FEW_IMAGES = 500  # with words and too few labels to choose, so many images halve the share: 30 of 60 are not neighbours


class Neighbours(Method):
    """Logistic regression, smoothed over a graph of neighbours, teaches a small student."""

    year: ClassVar[int] = 2026
    draws_views: ClassVar[bool] = False

    strength: float | None = Field(None, gt=0)
    """L2 penalty of the regression, for vectors of mean square length one; none tries a few by cross-fitting."""
    neighbours: int = Field(30, ge=1)
    """Neighbours of an image in the graph; 8 to 60 make no difference on VOC."""
    share: float | None = Field(None, ge=0, lt=1)
    """a: how much an image listens to its neighbours in each round; 0 leaves out the graph, none asks the labelled
    images: where what looks alike is not tagged alike, the graph does harm."""
    rounds: int = Field(8, ge=1)
    """Rounds of smoothing; what is left to come after eight is less than half a percent."""
    raise_rare: bool = True
    """Scale every tag until its surest images are taught near 1: from 57 labels the regression gives a rare tag no more
    than a few percent anywhere, and the student would not notice it. The order of images stays."""
    learner: Literal["student", "regression"] = "student"
    """What tags new images: the student, or the regression itself."""
    with_words: bool | None = None
    """Whether the regression hears what tags' names say, where they are read; none asks the labelled images."""
    bank: bool | None = None
    """Keep the training images: half of a new image's score then comes from its neighbours among them; none asks the
    labelled images if all are at most 20,000 and the graph is used. With fewer than 30 labels they are kept unless
    names say something of most tags."""
    hidden: int = Field(1024, ge=1)
    """Width of the student's hidden layer."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Of the hidden layer."""
    mixup: float = Field(0.5, ge=0)
    """Images are mixed in pairs, in shares drawn from Beta(mixup, mixup); 0 mixes none."""

    _made: SoftLabeller | None = PrivateAttr(None)  # made again where a run goes on
    _borrowed: tuple[SoftLabeller, Tensor] | None = PrivateAttr(None)

    @property
    def uses_unlabelled(self) -> bool:  # type: ignore[override]
        """The student needs unlabelled images; the regression does not."""
        return self.learner == "student"

    @property
    def learns_by_steps(self) -> bool:  # type: ignore[override]
        """The regression is fitted at once."""
        return self.learner == "student"

    @property
    def reads_words(self) -> bool:  # type: ignore[override]
        """The student does; a regression on few labels alone would not know what to make of them."""
        return self.learner == "student"

    @classmethod
    def training(cls, labelled: int, unlabelled: int) -> dict[str, object]:
        """One stage, batches of 128 in which a labelled image comes three times as often as an unlabelled one."""
        batch = 128
        of_labelled = min(batch - 1, max(1, round(batch * 3 * labelled / (3 * labelled + max(1, unlabelled)))))
        steps = -(-max(1, unlabelled) // (batch - of_labelled))
        return {
            "warmup": 0,
            "epochs": max(40, -(-1500 // steps)),
            "learning_rate": 1e-3,
            "labelled_batch": of_labelled,
            "unlabelled_batch": batch - of_labelled,
            "ema_share": 0.02,  # the cycle ends at rate zero: there is nothing left to average away
        }

    def build_body(self, width: int, hidden: int) -> nn.Module:
        """The features themselves, brought to a common length."""
        return Centred(width, self.words)

    def build_heads(self, width: int, tags: int) -> nn.Module:
        """The student."""
        return Student(width, self.hidden, tags, self.dropout, self.mixup, self.words)

    def start(self, body: nn.Module, heads: nn.Module, statistics: Callable[[], tuple[Tensor, Tensor]]) -> None:
        """The body takes the mean and variance of the training images' numbers."""
        assert isinstance(body, Centred)  # noqa: S101 - for the type checker
        body.fit(*statistics())

    def begin_main(self, teacher: TeacherView) -> None:
        """The probabilities that the student learns."""
        if self._borrowed is not None:
            self._begin_borrowed(teacher.targets, *self._borrowed)
            return
        labeller, targets = self._labeller(teacher), teacher.targets
        count = len(targets)
        strength = self.strength or choose_strength(labeller.vectors[:count], targets)
        # by names: what is chosen is chosen for most tags
        led = bool(2 * labeller.named.sum() > len(labeller.named))
        share, with_words = self.share, self.with_words
        if share is None or (with_words is None and labeller.refined is not None):
            halved = max(SHARES) * len(labeller.vectors) / (len(labeller.vectors) + FEW_IMAGES)
            default = halved if (led or not count) and count < MIN_CHOICE else max(SHARES)
            tried = SHARES if share is None else (share,)
            groups = find_bursts(labeller.vectors[:count])
            usual = default if share is None else share
            chosen = choose_smoothing(labeller, targets, strength, tried, usual, groups)
            share, with_words = chosen.share, chosen.with_words if with_words is None else with_words
        soft = self._soft(labeller, targets, strength, share, with_words is not False)
        self.state["soft_labelled"], self.state["soft"] = soft[:count], soft[count:]
        bank = self.bank
        if bank is None:
            bank = share > 0 and count < FEW_LABELS and len(labeller.vectors) <= LARGE_BANK and not led
        # doubles, so that model.json shows the numbers that were chosen
        self.state["strength"] = torch.tensor(strength, dtype=torch.float64)
        self.state["share"] = torch.tensor(share, dtype=torch.float64)
        self.state["bank"] = torch.tensor(bank)
        self.state["with_words"] = torch.tensor(with_words is not False)

    def borrow(self, other: Method, kept: Tensor) -> None:
        """See Method: graph and refined word scores; images that are left out stay in the graph, without labels."""
        if isinstance(other, Neighbours) and other._made is not None and {"strength", "share"} <= other.state.keys():
            self._borrowed = other._made, kept

    def _begin_borrowed(self, targets: Tensor, labeller: SoftLabeller, kept: Tensor) -> None:
        every = targets.new_full((len(kept), targets.shape[1]), -1)
        every[kept] = targets
        if self.strength is None or self.share is None:
            raise RuntimeError("a training that borrows has been told what was chosen")
        soft = self._soft(labeller, every, self.strength, self.share, self.with_words is not False)
        self.state["soft_labelled"], self.state["soft"] = soft[: len(kept)][kept], soft[len(kept) :]
        self.state["strength"] = torch.tensor(self.strength, dtype=torch.float64)
        self.state["share"] = torch.tensor(self.share, dtype=torch.float64)
        self.state["bank"] = torch.tensor(bool(self.bank))

    def _soft(self, labeller: SoftLabeller, targets: Tensor, strength: float, share: float, with_words: bool) -> Tensor:
        """What is taught of all images."""
        soft = labeller.smooth(labeller.fit(targets, strength, with_words), share)
        if not self.raise_rare:
            return soft
        higher = raised(soft, shares(targets))
        # nothing tells images apart by a tag that no label shows and whose name says nothing
        return torch.where(labeller.named | (shares(targets) > 0), higher, soft) if self.words else higher

    def _labeller(self, teacher: TeacherView) -> SoftLabeller:
        if self._made is None:
            every = torch.cat([teacher.labelled_vectors, teacher.unlabelled_vectors])
            plain = every.shape[1] - self.words
            vectors, words = unit_scaled(every[:, :plain]), every[:, plain:]
            self._made = SoftLabeller(vectors, words, len(teacher.targets), self.neighbours, self.rounds)
        return self._made

    def quick_scores(self, teacher: TeacherView) -> QuickScores:
        """See Method: the soft labels, without the student."""
        labeller = self._labeller(teacher)
        strength, share = float(self.state["strength"]), float(self.state["share"])
        heard = bool(self.state.get("with_words", torch.tensor(True)))  # older checkpoints do not say

        def scores(targets: Tensor) -> Tensor:
            return labeller.smooth(labeller.fit(targets, strength, heard, tolerance=1e-3), share)

        return scores

    def chosen_settings(self) -> dict[str, object]:
        """Strength of the regression, share of the graph, whether names are heard, and what tags new images."""
        chosen: dict[str, object] = {name: self.state[name].item() for name in CHOSEN if name in self.state}
        if "regression" in self.state:  # what tags new images was chosen too
            chosen["bank"] = bool(self.state["bank"])
            chosen["learner"] = "regression" if self.state["regression"] else "student"
        return chosen

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """The smoothed probabilities, as they are."""
        return Pseudo(self.recall("soft", batch.scores, batch.rows))

    def loss(self, step: Step, update: str = "all") -> dict[str, Tensor]:
        """Cross-entropy with what the images of a pair show, in the shares they were mixed in."""
        logits, targets = step.labelled["whole_make"], step.targets.to(step.labelled["whole_make"].dtype)
        mix = step.labelled.get("mix")
        if step.pseudo is not None:
            targets = torch.cat([self.recall("soft_labelled", logits, step.rows), step.pseudo.targets.to(logits)])
            logits = torch.cat([logits, step.unlabelled["whole_make"]])
            mix = None if mix is None else torch.cat([mix, step.unlabelled["mix"]])
        known = targets >= 0
        if mix is not None:
            share, partner = mix[:, :1].detach(), mix[:, 1].long()
            known = known & known[partner]
            targets = share * targets + (1 - share) * targets[partner]
        cells = binary_cross_entropy_with_logits(logits.float(), targets.float().clamp(0, 1), reduction="none")
        return {"soft": (cells * known).sum()}

    def finished_heads(self, heads: nn.Module, teacher: TeacherView) -> nn.Module:
        """The student, or the regression; with a bank, the training images beside it."""
        return next(iter(self.variants(heads, teacher).values()))

    def variants(self, heads: nn.Module, teacher: TeacherView, names: Sequence[str] = ()) -> dict[str, nn.Module]:
        """See Method: a student alone or with neighbours; without words, the regression with neighbours."""
        if not self.state:  # a run without a main stage never began it
            self.begin_main(teacher)
        usual = self.learner + (AND_NEIGHBOURS if self.state["bank"] else "")
        if not names:
            names = [usual]
            images = len(self.state["soft_labelled"]) + len(self.state["soft"])
            open_ = self.learner == "student" and self.bank is None and images <= LARGE_BANK
            if open_ and float(self.state["share"]) > 0 and len(teacher.targets) >= MIN_CHOICE:
                others = ["student", "student" + AND_NEIGHBOURS]
                others += [] if self.words else ["regression" + AND_NEIGHBOURS]
                names += [name for name in others if name != usual]
        vectors = torch.cat([teacher.labelled_vectors, teacher.unlabelled_vectors])
        found: dict[str, nn.Module] = {}
        for name in names:
            plain = self._regression(vectors, teacher.targets) if name.startswith("regression") else heads
            found[name] = self._with_bank(plain, vectors) if name.endswith(AND_NEIGHBOURS) else plain
        return found

    def take_variant(self, name: str) -> None:
        """See Method."""
        self.state["bank"] = torch.tensor(name.endswith(AND_NEIGHBOURS))
        self.state["regression"] = torch.tensor(name.startswith("regression"))

    def _with_bank(self, heads: nn.Module, vectors: Tensor) -> Bank:
        width = vectors.shape[1] - self.words
        soft = torch.cat([self.state["soft_labelled"], self.state["soft"]])
        bank = Bank(heads, len(vectors), width, soft.shape[1], self.neighbours)
        bank.vectors.copy_(vectors[:, :width])
        bank.soft.copy_(soft)
        return bank

    def restore_heads(self, width: int, tags: int, images: int) -> nn.Module:
        """Of the shape that `finished_heads` gives, to be filled from a file."""
        heads = self.build_heads(width, tags) if self.learner == "student" else Student(width, 0, tags)
        return Bank(heads, images, width - self.words, tags, self.neighbours) if self.bank else heads

    def exportable_heads(self, heads: nn.Module) -> nn.Module:
        """A bank computes every similarity at once."""
        return TraceableBank(heads) if isinstance(heads, Bank) else heads

    def _regression(self, vectors: Tensor, targets: Tensor) -> Student:
        """The regression on the body's own vectors, centre and scale folded into it."""
        centre, length = vectors.mean(0), _length(vectors)
        fitted = fit_regression(unit_scaled(vectors)[: len(targets)], targets, float(self.state["strength"]))
        heads = Student(vectors.shape[1], 0, targets.shape[1])
        weight = (fitted.weight / length).float()
        with torch.no_grad():
            heads.top.weight.copy_(weight)
            heads.top.bias.copy_(fitted.bias.float() - weight @ centre)
        return heads.eval()


def unit_scaled(vectors: Tensor) -> Tensor:
    """Vectors [n, d] moved to mean zero and brought to mean square length one."""
    return (vectors - vectors.mean(0)) / _length(vectors)


def choose_strength(vectors: Tensor, targets: Tensor, otherwise: float = 0.003) -> float:
    """By cross-fitting, or the default where the labelled images are too few or all alike."""
    known = targets >= 0
    mixed = ((targets == 1) & known).any(0) & ((targets == 0) & known).any(0)
    if len(targets) < MIN_LABELLED or not bool(mixed.any()):
        return otherwise
    return select_strength(vectors, targets).strength


def _length(vectors: Tensor) -> Tensor:
    return (vectors - vectors.mean(0)).square().sum(1).mean().sqrt().clamp(min=1e-12)
