"""Every number of a training run, with its default and the reason for it."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from fewtags.backbones.base import backbone_list
from fewtags.data import split_spec
from fewtags.encoders.base import EncoderSettings
from fewtags.encoders.kinds import EncoderKind
from fewtags.errors import UserError
from fewtags.metrics.decisions import Prefer


@dataclass(frozen=True)
class Stage:
    """One stretch of training with one learning-rate cycle."""

    name: Literal["warmup", "main"]
    epochs: int  # that are run
    planned_epochs: int  # that the learning-rate cycle is laid out for
    learning_rate: float
    labelled_batch: int
    unlabelled_batch: int  # 0: labelled images only
    body_learns: bool
    shuffle: bool
    cutout: bool  # in the strong view


WARMUP_STEPS = 700  # heads that saw fewer are not there yet: 57 VOC images, held-out mAP 54.5 in 160 steps, 58.8 in 700


PIXEL_OPTIONS = ("backbone", "features", "size", "weights")  # that vectors have no use for


class Recipe(BaseModel):
    """Settings of the loop that do not belong to a method."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    tune: Literal["heads", "all"] = "heads"
    """`heads` learns on stored features of a frozen backbone (minutes on a CPU); `all` trains every weight."""
    protocol: Literal["ours", "paper"] = "ours"
    """`paper` repeats the released schedule, batches and choice of the best epoch on the test split."""
    seed: int = Field(1, ge=0)
    """Order of images, draws of views, first weights, and the split where one is made."""
    warmup: int = Field(40, ge=0)
    """Epochs over the labelled images before pseudo-labels begin; more on few images, for 700 steps at least."""
    epochs: int = Field(10, ge=0)
    """Epochs over the unlabelled images after that."""
    size: int = Field(224, ge=16)
    """Side of the network's input in pixels; more finds smaller things and costs its square."""
    warmup_learning_rate: float = Field(1e-3, gt=0)
    """Peak of the warm-up's cycle."""
    learning_rate: float = Field(3e-4, gt=0)
    """Peak of the main stage's cycle; with 1e-3 frozen features drift."""
    weight_decay: float = Field(1e-2, ge=0)
    """AdamW, on every weight."""
    warmup_batch: int = Field(16, ge=1)
    """Labelled images per step of the warm-up."""
    labelled_batch: int = Field(24, ge=1)
    """Labelled images per step of the main stage; on images held out of VOC's train split 8 cost half a point."""
    unlabelled_batch: int = Field(56, ge=1)
    """Unlabelled images per step of the main stage."""
    ema_share: float = Field(0.65, gt=0, le=1)
    """The teacher averages over this share of the main stage's steps, as 0.9997 does in the released VOC runs; at 0.1
    it follows its own pseudo-labels so fast that fixed thresholds run away. (The warm-up has no teacher: 0.1 there.)"""
    ema_decay: float | None = Field(None, gt=0, lt=1)
    """The teacher's decay itself; none derives it from ema_share."""
    labelled_view: Literal["weak", "strong"] = "weak"
    """View of the labelled images in training; on stored features strong draws cost half a point."""
    strong_draws: int = Field(2, ge=1, le=100)
    """Strong draws kept of every unlabelled image (heads only); more cost time once and disk."""
    features: EncoderKind = "crops"
    """What a frozen backbone gives: pooled crops as in the paper, or what it sees in the windows of one larger map;
    `vectors` where the data are vectors already."""
    blocks: Literal["choose", "pooled", "evidence", "both"] = "both"
    """Of evidence features: pooled vectors, evidence of windows, or both; `choose` asks the labelled images."""
    components: int = Field(1000, ge=1)
    """Numbers an image that evidence features are shrunk to; 1,000 keep what 10,560 say."""
    folds: int = Field(5, ge=0)
    """Parts of the labelled images, each left out once to estimate quality and to set the thresholds for tagging
    (heads only); 0 leaves that out, and the thresholds come from images that were learned."""
    prefer: Prefer = "balance"
    """What the thresholds for tagging serve: few wrong tags (F_0.5), both (F1), or few missing ones (F_2)."""
    adapter: int = Field(512, ge=1)
    """Hidden width of what is learned between frozen features and heads (heads only)."""
    patch_source: Literal["resized", "original"] = "resized"
    """Cut patches from the resized image, as released, or before shrinking it."""
    patch_size: Literal["full", "native"] = "full"
    """Enlarge patches to the input size, as released, or feed them at their own."""
    scaling: Literal["own", "unit"] = "own"
    """Input values as the pretrained weights expect them, or 0..1 as released."""
    precision: Literal["32-true", "bf16-mixed", "64-true"] = "32-true"
    """Arithmetic of the forward; losses are always float32. `64-true` (tune all only) is for comparing runs on a CPU,
    where AdamW would turn the rounding of float32 into steps."""

    @field_validator("precision")
    @classmethod
    def _doubles_have_a_use(cls, value: str, others: ValidationInfo) -> str:
        if value == "64-true" and others.data.get("tune") == "heads":
            raise ValueError("only --tune all knows it; stored features are float16 anyway")
        return value

    def encoder_settings(self, patches: int) -> EncoderSettings:
        """What an encoder is told, for a method with so many patches per side."""
        return EncoderSettings(
            size=self.size,
            patches=patches,
            patch_source=self.patch_source,
            patch_size=self.patch_size,
            strong_draws=self.strong_draws,
            blocks=self.blocks,
            components=self.components,
            frozen=self.tune == "heads",
        )

    def meaningless_options(self) -> tuple[str, ...]:
        """Options of `train` that say nothing for these settings: kinds of features where pixels are read."""
        if self.features == "vectors":
            return PIXEL_OPTIONS
        return ("features",) if self.tune == "all" else ()

    @property
    def several_backbones(self) -> bool:
        """Whether backbones can stand side by side."""
        return self.tune == "heads" and self.features == "evidence"

    def stages(self, uses_unlabelled: bool) -> list[Stage]:
        """Warm-up and main stage; a labelled-only method spends all epochs on the labelled images."""
        paper = self.protocol == "paper"
        pixels = self.tune == "all"
        warmup_epochs = self.warmup if uses_unlabelled else self.warmup + self.epochs
        warmup = Stage(
            name="warmup",
            epochs=warmup_epochs,
            planned_epochs=warmup_epochs,
            learning_rate=self.warmup_learning_rate,
            labelled_batch=self.warmup_batch,
            unlabelled_batch=0,
            body_learns=pixels,  # an adapter that learns from few labels alone overfits them
            shuffle=not (paper and uses_unlabelled),
            cutout=not (paper and uses_unlabelled),
        )
        if not uses_unlabelled:
            return [warmup]
        main = Stage(
            name="main",
            epochs=self.epochs,
            # the released cycle is laid out for warm-up and main epochs together and cut short
            planned_epochs=self.epochs + (self.warmup if paper else 0),
            learning_rate=self.learning_rate,
            labelled_batch=self.labelled_batch,
            unlabelled_batch=self.unlabelled_batch,
            body_learns=True,
            shuffle=True,
            cutout=True,
        )
        return [stage for stage in (warmup, main) if stage.epochs > 0]

    def decay(self, stage: Stage, steps: int) -> float:
        """The decay of the averaged weights in a stage of so many steps."""
        if self.ema_decay is not None:
            return self.ema_decay
        share = self.ema_share if stage.unlabelled_batch else min(self.ema_share, 0.1)
        return 1 - 1 / max(2.0, share * steps)


def small_batches(data: str) -> bool:
    """Whether batches are halved, as the released code does for VOC."""
    return split_spec(data)[0] == "voc"


def default_settings(
    tune: str, protocol: str, labelled_share: float, small_batches: bool, labelled_count: int | None = None
) -> dict[str, object]:
    """What differs from the class's defaults: for `tune all`, and for the released protocol.

    labelled_share: labelled images among all training images; small_batches: the halved ones used for VOC.
    """
    if tune == "heads" and protocol == "ours":
        steps = -(-(labelled_count or WARMUP_STEPS) // Recipe.model_fields["warmup_batch"].default)
        return {"warmup": max(Recipe.model_fields["warmup"].default, -(-WARMUP_STEPS // steps))}
    labelled = 4 if labelled_share <= 0.05 else max(4, round(80 * labelled_share))
    labelled = min(labelled, 32)
    halves = 2 if small_batches else 1
    pixels: dict[str, object] = {
        "warmup": 12,
        "epochs": 28,
        "warmup_batch": min(64, 16 if labelled_share <= 0.05 else max(16, round(320 * labelled_share))),
        "labelled_batch": labelled // halves,
        "unlabelled_batch": (64 - labelled) // halves,
    }
    pixels |= {
        "warmup_learning_rate": 1e-4,
        "learning_rate": 1e-4,
        "weight_decay": 1e-4,
        "labelled_view": "strong",
    }
    if protocol == "paper":
        pixels |= {"ema_decay": 0.9997, "scaling": "unit"}
    return pixels


class Plan(NamedTuple):
    """What is used where the user did not say."""

    method: str
    backbone: str
    features: str
    blocks: str | None  # None: the recipe's own default
    size: int | None  # None: the recipe's, or that of a backbone from elsewhere


def choose(
    method: str, tune: str, features: str | None, backbone: str | None, unlabelled: bool, vectors: bool = False
) -> Plan:
    """Defaults that hang together: `auto` is the method that measured best (results/voc/recipe.md).

    On stored features that is `neighbours` on evidence, of the kind that the labelled images prefer; where the
    whole network learns, D2L + MAT. Without unlabelled images nothing can be pseudo-labelled: the labels alone then.
    """
    if tune == "all" and features == "evidence":
        raise UserError("--features evidence: features are stored with --tune heads only; add it, or leave this out")
    auto = method == "auto"
    if auto:
        method = "d2l" if tune == "all" else "neighbours"
        method = method if unlabelled else "asl"
    if vectors:
        return Plan(method, backbone or "none", "vectors", None, None)
    features = features or ("evidence" if auto and tune == "heads" else "crops")
    evidence = features == "evidence" and tune == "heads"
    return Plan(
        method,
        backbone or ("efficientnet_lite0+efficientnet_lite2" if evidence else "efficientnet_lite0"),
        features,
        "choose" if auto and evidence else None,
        448 if evidence and (backbone is None or any(":" not in one for one in backbone_list(backbone))) else None,
    )
