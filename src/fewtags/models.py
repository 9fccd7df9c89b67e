"""Names of the documented interface that live elsewhere now: `from fewtags.models import merge_patches`."""

from fewtags.backbones.base import Backbone, backbone_names, build_backbone
from fewtags.methods.parts.heads import Adapter, Heads, Logits, merge_patches, mixed_scores

__all__ = [
    "Adapter",
    "Backbone",
    "Heads",
    "Logits",
    "backbone_names",
    "build_backbone",
    "merge_patches",
    "mixed_scores",
]
