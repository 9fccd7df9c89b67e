"""Image-text models (CLIP, SigLIP and their kind): a tag's name, read by the text tower, scores images without labels.

What a tag's name says is computed once and kept as a frozen classifier; the text tower itself is not kept. The score
of an image follows PIAA (Wang et al., ICML 2026) as far as it needs no other images: every patch is read by itself,
with the attention of the last layer between like patches (SCLIP, Wang et al., ECCV 2024); a tag takes its best patch,
and the vector of the whole image has a small share.
"""

import inspect
import re
from collections.abc import Sequence
from math import log
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, normalize

from fewtags.backbones.base import tokens_to_map
from fewtags.backbones.external import HuggingFaceBackbone, import_extra, no_map
from fewtags.backbones.weights import first_line
from fewtags.errors import UserError

PROMPTS = (  # several wordings: a single one is right for some tags only
    "a photo of a {}.",
    "a photo of the {}.",
    "a photo with {} in it.",
    "a {} in the scene.",
    "a close-up of a {}.",
    "a picture of {}.",
)
BACKGROUND = (  # what a patch may show that is no tag: without it, a single tag would win every softmax
    "a photo.",
    "a blurry background.",
    "an empty scene.",
    "a plain texture.",
    "something else.",
)
PATCH_SHARE = 0.9  # of the best patch in the score of an image, the rest is that of the whole; as in PIAA's code
_TOGETHER = 64  # prompts in one forward
_VOCABULARIES = (
    "tokenizer.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+|\s+")


class Look(NamedTuple):
    """All that one forward of the image tower gives."""

    maps: Tensor  # [B, D, h, w], see Backbone
    dense: Tensor  # [B, D, h, w]: the same places, to be compared with words
    pooled: Tensor  # [B, D], see Backbone


class Texts(NamedTuple):
    """Texts as a text tower reads them, and how the model compares them with images: scale · cosine + bias."""

    vectors: Tensor  # [n, D], of length one
    scale: float
    bias: float


class ImageTower(nn.Module):
    """The image tower of an image-text model; vectors and tokens are in the space it shares with text."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.tower: Any = model.vision_model
        self.projection: Any = getattr(model, "visual_projection", None)
        self.config = self.tower.config
        self.float()  # some files hold sixteen bits

    def forward(self, pictures: Tensor, **options: Any) -> "_Outputs":
        """Scaled pictures [B, 3, H, W] -> outputs with the names that all vision models of the library use."""
        return _Outputs(self, self.tower(pictures, **options))

    def tokens(self, last: Tensor) -> Tensor:
        """The last tokens [B, n, C] -> each by itself in the shared space [B, n, D]."""
        if self.projection is not None:
            projected: Tensor = self.projection(self.tower.post_layernorm(last))
            return projected
        # SigLIP pools by attention, and only what leaves the pooling can be compared with text. Attention over one
        # token alone is its value path, which is where MaskCLIP (Zhou et al., ECCV 2022) found CLIP's places intact.
        alone: Tensor = self.tower.head(last.reshape(-1, 1, last.shape[-1]))
        return alone.reshape(*last.shape[:2], -1)

    def dense_tokens(self, before: Tensor) -> Tensor:
        """The tokens [B, n, C] before CLIP's last layer -> tokens [B, n, D] that say what is at their place.

        Its own attention gathers the scene in every token; attention between like tokens leaves them what they are.
        """
        return self.tokens(attend_to_alike(self.tower.encoder.layers[-1], before))


class _Outputs:
    """What ImageTower gives; the tokens are computed when asked for."""

    def __init__(self, tower: ImageTower, outputs: Any) -> None:
        self._tower, self.plain = tower, outputs
        pooled = outputs.pooler_output
        self.pooler_output: Tensor = pooled if tower.projection is None else tower.projection(pooled)

    @property
    def last_hidden_state(self) -> Tensor:
        return self._tower.tokens(self.plain.last_hidden_state)


class ImageTextBackbone(HuggingFaceBackbone):
    """The image tower of CLIP, SigLIP and the like; after `set_tags` also a score for every tag by its name.

    `forward` is the library's image embedding, `maps` the patch tokens in the same space. The weights of `classifier`
    are embeddings of prompts times the logit scale: vectors of length one give the library's logits.
    """

    reads_text: ClassVar[bool] = True
    background: Tensor | None

    def __init__(self, name: str, model: Any, settings: dict[str, Any]) -> None:
        super().__init__(name, ImageTower(model), settings)
        self.any_size = "interpolate_pos_encoding" in inspect.signature(self.model.tower.forward).parameters
        self.independent = hasattr(model, "logit_bias")  # SigLIP: each tag by itself; CLIP: one text among others
        self.register_buffer("background", None)  # [N, D]; of CLIP only

    @property
    def tag_count(self) -> int:
        """See Backbone."""
        return 0 if self.classifier is None else self.classifier.out_features

    @torch.no_grad()
    def set_tags(self, tags: Sequence[str], prompts: Sequence[str] = PROMPTS) -> None:
        """Read the tags' names with the text tower on disk; {} in a prompt is where the name goes."""
        if not tags:
            raise UserError(f"{self.name}: no tags to read; give at least one")
        asked = [prompt.format(spelled(tag)) for tag in tags for prompt in prompts]
        vectors, scale, bias = embed_texts(self.name.removeprefix("hf:"), [*asked, *BACKGROUND])
        means = vectors[: len(asked)].view(len(tags), len(prompts), -1).mean(1)
        # Created on `meta`, so that the global random state does not change.
        linear = nn.Linear(self.width, len(tags), device="meta").to_empty(device=self.shift.device)
        linear.weight.copy_(scale * normalize(means, dim=-1))
        linear.bias.fill_(bias)
        self._modules[self.classifier_name] = linear.requires_grad_(False)
        self.background = None if self.independent else (scale * vectors[len(asked) :]).to(self.shift.device)

    def classify(self, pooled: Tensor) -> Tensor:
        """Vectors [..., width] of any length -> the library's logits [..., K] of the tags."""
        if self.classifier is None:
            raise UserError(f"{self.name} has not been told the tags yet")
        logits: Tensor = self.classifier(normalize(pooled, dim=-1))
        return logits

    def tag_scores(self, vectors: Tensor) -> Tensor:
        """Vectors [..., width] of images or patches -> log-probabilities [..., K] of the tags."""
        others = None if self.background is None else normalize(vectors, dim=-1) @ self.background.T
        return log_probabilities(self.classify(vectors), others)

    def look(self, pictures: Tensor) -> Look:
        """Pictures [B, 3, H, W], 0..255 -> all that one forward gives."""
        pools = self.model.projection is None  # SigLIP: `maps` are dense already, see ImageTower.tokens
        outputs = self._outputs(pictures, **({} if pools else {"output_hidden_states": True}))
        tokens, side = outputs.last_hidden_state, self._patches_per_side(pictures)
        if side**2 + self.leading != tokens.shape[1]:
            raise no_map(self.name)
        maps = tokens_to_map(tokens, self.leading, side)
        if pools:
            return Look(maps, maps, outputs.pooler_output)
        dense = self.model.dense_tokens(outputs.plain.hidden_states[-2])
        return Look(maps, tokens_to_map(dense, self.leading, side), outputs.pooler_output)

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures [B, 3, H, W], 0..255 -> image embeddings [B, width], not of length one."""
        pooled: Tensor = self._outputs(pictures).pooler_output
        return pooled

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        found = state_dict.get(f"{prefix}background")
        self.background = None if found is None else torch.empty_like(found, device=self.shift.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def is_image_text(model: Any) -> bool:
    """Whether a model of transformers compares images with text in a way that is known here."""
    config, tower = model.config, getattr(model, "vision_model", None)
    if not (hasattr(config, "text_config") and hasattr(config, "vision_config")):
        return False
    if tower is None or not (hasattr(model, "get_text_features") and hasattr(model, "logit_scale")):
        return False
    if "spatial_shapes" in inspect.signature(tower.forward).parameters:
        raise UserError(
            f"hf:{config.name_or_path} reads pictures of any shape, which fewtags does not give; take a model of a "
            "fixed size, such as google/siglip2-base-patch16-224"
        )
    if hasattr(model, "visual_projection"):
        layers = getattr(getattr(tower, "encoder", None), "layers", None)
        return hasattr(tower, "post_layernorm") and layers is not None and hasattr(layers[-1].self_attn, "q_proj")
    return hasattr(tower, "head") and hasattr(tower.head, "probe")


@torch.no_grad()
def embed_texts(name: str, texts: Sequence[str]) -> Texts:
    """Texts as the text tower of a model on this machine reads them; it stays in memory no longer than that."""
    transformers = import_extra("transformers", "hf")
    tokenizer, model = _tokenizer(transformers, name), _text_model(transformers, name)
    padded = hasattr(model, "logit_bias")  # SigLIP reads the last place, padding included, and knows no mask
    found = []
    for start in range(0, len(texts), _TOGETHER):
        tokens = tokenizer(
            list(texts[start : start + _TOGETHER]),
            padding="max_length" if padded else True,
            truncation=True,
            max_length=model.config.text_config.max_position_embeddings,
            return_tensors="pt",
        )
        wanted = ("input_ids",) if padded else ("input_ids", "attention_mask")
        features = model.get_text_features(**{key: tokens[key] for key in wanted if key in tokens})
        found.append(features if isinstance(features, Tensor) else features.pooler_output)  # transformers 4 and 5
    bias = model.logit_bias.item() if padded else 0.0
    return Texts(normalize(torch.cat(found), dim=-1), model.logit_scale.exp().item(), bias)


def spelled(tag: str) -> str:
    """A tag as it would be written in a sentence; in lower case, as SigLIP 2 was trained on nothing else.

    >>> spelled("potted_plant"), spelled("TVMonitor"), spelled("diningTable")
    ('potted plant', 'tv monitor', 'dining table')
    """
    return " ".join(part for part in _CAMEL.split(tag) if part).lower() or tag


def log_probabilities(logits: Tensor, background: Tensor | None) -> Tensor:
    """Logits [..., K] -> log-probabilities [..., K]: by softmax over tags and background [..., N], else by sigmoid."""
    if background is None:
        return logsigmoid(logits)
    return torch.cat([logits, background], dim=-1).log_softmax(-1)[..., : logits.shape[-1]]


def aggregate(patches: Tensor, whole: Tensor, share: float = PATCH_SHARE) -> Tensor:
    """Log-probabilities of patches [B, n, K] and of the whole [B, K] -> of the image [B, K].

    log(share · max over patches of p + (1 - share) · p of the whole): each tag chooses the patch that shows it best.
    """
    return torch.stack([patches.amax(1) + log(share), whole + log(1 - share)]).logsumexp(0)


def attend_to_alike(layer: Any, tokens: Tensor) -> Tensor:
    """Tokens [B, n, C] through a layer of CLIP, with attention softmax(q qᵀ) + softmax(k kᵀ) for softmax(q kᵀ)."""
    count, length, width = tokens.shape
    attention = layer.self_attn
    normed = layer.layer_norm1(tokens)
    queries, keys, values = (
        project(normed).view(count, length, attention.num_heads, -1).transpose(1, 2)
        for project in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    scale = queries.shape[-1] ** -0.5
    alike = [(scale * one @ one.transpose(2, 3)).softmax(-1) for one in (queries, keys)]
    mixed = ((alike[0] + alike[1]) @ values).transpose(1, 2).reshape(count, length, width)
    tokens = tokens + attention.out_proj(mixed)
    out: Tensor = tokens + layer.mlp(layer.layer_norm2(tokens))
    return out


def _tokenizer(transformers: Any, name: str) -> Any:
    # Looked for by name: where there is no such file, the library makes a tokenizer that knows no words.
    if not any(_is_here(transformers, name, file) for file in _VOCABULARIES):
        raise _incomplete(name, "tokenizer", "there is no tokenizer.json")
    try:
        return transformers.AutoTokenizer.from_pretrained(name, local_files_only=True)
    except Exception as error:  # third-party tokenizers may fail in any way
        raise _incomplete(name, "tokenizer", first_line(error)) from error


def _text_model(transformers: Any, name: str) -> Any:
    try:
        with torch.random.fork_rng(devices=[]):  # what is missing is drawn
            model, report = transformers.AutoModel.from_pretrained(
                name, local_files_only=True, output_loading_info=True
            )
    except Exception as error:  # third-party models may fail in any way
        raise _incomplete(name, "text tower", first_line(error)) from error
    missing = sorted(key for key in report["missing_keys"] if key.startswith(("text_", "logit_")))
    if missing:
        raise _incomplete(name, "text tower", f"{missing[0]} is missing")
    return model.float().eval()


def _is_here(transformers: Any, name: str, file: str) -> bool:
    try:
        return transformers.utils.cached_file(name, file, local_files_only=True) is not None
    except OSError:
        return False


def _incomplete(name: str, what: str, reason: str) -> UserError:
    return UserError(
        f"hf:{name}: without its {what} tags cannot be read as words; fetch all files of the model with: "
        f"hf download {name} ({reason})"
    )
