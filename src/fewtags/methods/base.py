"""The contract between a method and the loop.

A method is a class with settings (its fields, each with a reason) and a few functions on tensors. It sees
scores, logits and targets; it never sees files, devices, logs or the targets of unlabelled images. The loop
calls, in this order:

    build_body, build_heads         before training
    start(body, heads, statistics)  before training on stored features: first weights that depend on them
    enter_main(heads)               once, after the warm-up: what heads take over from it
    begin_main(teacher)             once, at the start of the main stage
    begin_epoch(teacher)            at the start of every epoch of the main stage
    pseudo_labels(batch)            every step: what to teach on the unlabelled images, and where
    loss(step)                      every step, in the warm-up too: named sums whose total is minimised
    finished_heads(heads, teacher), variants(…)  after training: what predicts; kept_heads: what a model keeps of it;
                                    restore_heads builds the shape of that again

What a method must remember lives in `self.state`, a dict of tensors, so that a run resumes exactly.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from torch import Tensor, nn

from fewtags.losses import asymmetric_loss
from fewtags.methods.parts.heads import FIRST_BIAS, Adapter, Heads, Logits, mixed_scores, patch_logits


class TeacherView(Protocol):
    """What a method may read between steps: the teacher's scores on weak views, computed on demand."""

    @property
    def epoch(self) -> int:
        """0 for the first epoch of the main stage."""

    @property
    def targets(self) -> Tensor:
        """[N, K] of the labelled images: 1, 0 or negative for unknown."""

    @property
    def labelled_scores(self) -> Tensor:
        """[N, K] in 0..1."""

    @property
    def unlabelled_scores(self) -> Tensor:
        """[M, K] in 0..1."""

    @property
    def labelled_vectors(self) -> Tensor:
        """[N, width]: what the teacher's body makes of the whole image."""

    @property
    def unlabelled_vectors(self) -> Tensor:
        """[M, width]."""


class UnlabelledBatch(NamedTuple):
    """The unlabelled images of one step."""

    rows: Tensor  # [B] which of the M unlabelled images
    scores: Tensor  # [B, K] the teacher on weak views
    student: Tensor  # [B, K] the student on strong views, without gradient


class Pseudo(NamedTuple):
    """What to teach on the unlabelled images of one step."""

    targets: Tensor  # [B, K] in 0..1
    mask: Tensor | None = None  # [B, K] weight of every cell; None: all count


@dataclass(frozen=True)
class Step:
    """What a loss is made of. The unlabelled part is missing in the warm-up and for labelled-only methods."""

    labelled: Logits
    targets: Tensor
    unlabelled: Logits = field(default_factory=dict)
    pseudo: Pseudo | None = None
    rows: Tensor | None = None  # [B] which of the N labelled images these are


QuickScores = Callable[[Tensor], Tensor]  # targets [N, K] of the labelled images -> scores [N + M, K]


class Update(NamedTuple):
    """One optimiser of a training step."""

    parameters: tuple[str, ...] = ("",)  # prefixes of the names of the weights it moves
    learning_rate: float | None = None  # None: the recipe's cycle; a number: Adam at this rate, without decay


def shares(targets: Tensor) -> Tensor:
    """How often each tag is present among the images that know it: [N, K] -> [K]; 0 where none does."""
    known = targets >= 0
    return ((targets == 1) & known).sum(0) / known.sum(0).clamp(min=1)


class Method(BaseModel):
    """Labelled and pseudo-labelled images under one loss; a method overrides what it does differently."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    paper: ClassVar[str] = "–"  # whose idea it is
    year: ClassVar[int | None] = None
    uses_unlabelled: ClassVar[bool] = True  # may be a setting; False: one stage on the labelled images, no main stage
    learns_by_steps: ClassVar[bool] = True  # may be a setting; False: `finished_heads` does all the learning
    separates_heads: ClassVar[bool] = False  # may be a setting: pseudo-labels train other heads than make them
    draws_views: ClassVar[bool] = True  # False: on stored features the student reads the plain view, no strong draws
    reads_words: ClassVar[bool] = False  # may be a setting: vectors may end in what tags' names say, see `words`
    updates: ClassVar[dict[str, Update]] = {"all": Update()}  # in this order, each with its own forward pass

    patches: int = Field(1, ge=1, le=8)
    """Patches per side that are seen beside the whole image; 1 means the whole image only."""
    merge: Literal["logits", "probs"] = "logits"
    """How patches become one prediction: by logits as released, or by probabilities as in Eq. 4 of D2L."""
    alpha: float = Field(1.0, gt=0)
    """Temperature of that merge: small values follow the best patch, large ones the mean of all."""
    patch_heads: bool = True
    """False: no head learns from patches; the head of the whole image reads them too when images are tagged."""

    _state: dict[str, Tensor] = PrivateAttr(default_factory=dict)
    _words: int = PrivateAttr(0)

    @property
    def state(self) -> dict[str, Tensor]:
        """Everything that must survive from step to step."""
        return self._state

    @property
    def words(self) -> int:
        """How many of the last numbers of a vector say what tags' names say, one per tag; `reads_words` allows them."""
        return self._words

    def expect_words(self, count: int) -> None:
        """Told before bodies and heads are built, in training and when a model is loaded."""
        self._words = count

    def recall(self, name: str, like: Tensor, rows: Tensor | None = None) -> Tensor:
        """What the state holds under a name, or some rows of it, on the device of `like`."""
        kept = self._state[name]
        return (kept if rows is None else kept[rows.to(kept.device)]).to(like.device)

    @classmethod
    def training(cls, labelled: int, unlabelled: int) -> dict[str, object]:
        """Settings of the training on stored features that the method wants otherwise than the recipe has them."""
        return {}

    @property
    def head_names(self) -> tuple[str, ...]:
        """The heads this method trains."""
        ends = ("make", "use") if self.separates_heads else ("make",)
        return tuple(f"{part}_{end}" for end in ends for part in self._parts)

    def build_body(self, width: int, hidden: int) -> nn.Module:
        """What stands between stored features and heads: [B, width] -> [B, width]."""
        return Adapter(width, hidden)

    def build_heads(self, width: int, tags: int) -> nn.Module:
        """A module (vectors [B, width], part) -> logits by name."""
        return Heads(width, tags, self.head_names)

    def start(self, body: nn.Module, heads: nn.Module, statistics: Callable[[], tuple[Tensor, Tensor]]) -> None:
        """First weights for training on stored features; `statistics` gives their mean and variance [width]."""
        if isinstance(heads, Heads):
            heads.start_at(FIRST_BIAS)

    def enter_main(self, heads: nn.Module) -> None:
        """Between warm-up and main stage: heads that use pseudo-labels start where those that make them are."""
        if isinstance(heads, Heads):
            heads.copy_make_to_use()

    def chosen_settings(self) -> dict[str, object]:
        """Settings that this training chose by itself, for trainings that must not choose again."""
        return {}

    def finished_heads(self, heads: nn.Module, teacher: TeacherView) -> nn.Module:
        """The heads that predict after training."""
        return heads

    def variants(self, heads: nn.Module, teacher: TeacherView, names: Sequence[str] = ()) -> dict[str, nn.Module]:
        """Finished heads that the labelled images may choose between, the usual one first; or those of these names."""
        return {"": self.finished_heads(heads, teacher)}

    def take_variant(self, name: str) -> None:
        """Told which of the variants predicts."""

    def borrow(self, other: "Method", kept: Tensor) -> None:
        """Told by cross-fitting, before training: what another training of the method made without labels may be used.

        kept [N]: which of its labelled images this training has; the unlabelled ones are the same.
        """

    def quick_scores(self, teacher: TeacherView) -> QuickScores | None:
        """How training images would be scored if other labels were known, in a fraction of a second; None: not at all.

        Learning curves are made with it. Called when training has ended.
        """
        return None

    def kept_heads(self, heads: nn.Module) -> nn.Module:
        """The part of the finished heads that a model keeps."""
        if isinstance(heads, Heads):  # those that only learn from pseudo-labels are no longer needed
            return heads.without([name for name in self.head_names if not name.endswith("make")])
        return heads

    def restore_heads(self, width: int, tags: int, images: int) -> nn.Module:
        """A module of the shape of the kept heads, for a model that learned from so many images."""
        return self.kept_heads(self.build_heads(width, tags))

    def exportable_heads(self, heads: nn.Module) -> nn.Module:
        """The finished heads in steps that can be traced for ONNX."""
        return heads

    def begin_main(self, teacher: TeacherView) -> None:
        """Once, between warm-up and main stage."""

    def begin_epoch(self, teacher: TeacherView) -> None:
        """At the start of every epoch of the main stage."""

    def score(self, logits: Logits) -> Tensor:
        """What the teacher thinks [B, K], in 0..1: pseudo-labels are made of it."""
        learned = {name: z for name, z in logits.items() if self.patch_heads or name != "patch_make"}
        return mixed_scores(learned, self.merge, self.alpha)

    def predict(self, logits: Logits) -> Tensor:
        """What is measured and tags images [B, K], in 0..1."""
        return mixed_scores(logits, self.merge, self.alpha)

    def pseudo_labels(self, batch: UnlabelledBatch) -> Pseudo:
        """What to teach on unlabelled images; required of methods that use them."""
        raise TypeError(f"{type(self).__name__} uses unlabelled images but has no rule for pseudo-labels")

    def cell_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss [B, K] of single cells; 0 where the target is unknown."""
        return asymmetric_loss(logits, targets)

    def pseudo_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss [B, K] of single cells on pseudo-labels."""
        return self.cell_loss(logits, targets)

    def loss(self, step: Step, update: str = "all") -> dict[str, Tensor]:
        """Named sums over images and tags: each part of the image on labels, and on pseudo-labels."""
        terms = {}
        for part in self._parts:
            make = self._part(step.labelled[f"{part}_make"])
            terms[f"labelled_{part}"] = self.cell_loss(make, step.targets).sum()
            if step.pseudo is not None:
                end = "use" if self.separates_heads else "make"
                cells = self.pseudo_loss(self._part(step.unlabelled[f"{part}_{end}"]), step.pseudo.targets)
                if step.pseudo.mask is not None:
                    cells = cells * step.pseudo.mask
                terms[f"unlabelled_{part}"] = cells.sum()
        return terms

    @property
    def _parts(self) -> tuple[str, ...]:
        """The parts of an image that heads of their own learn from."""
        return ("whole", "patch") if self.patches > 1 and self.patch_heads else ("whole",)

    def _part(self, logits: Tensor) -> Tensor:
        """Logits [B, K] of a part of the image; those of patches [B, n, K] are merged first."""
        logits = logits.float()
        return logits if logits.dim() == 2 else patch_logits(logits, self.merge, self.alpha)
