"""Networks: a body that turns a view into a vector, named heads on it, an averaged copy."""

from fewtags.models.backbone import Backbone, backbone_names, build_backbone
from fewtags.models.ema import Average
from fewtags.models.heads import Heads, Logits, merge_patches, mixed_scores
from fewtags.models.network import Adapter, Network
from fewtags.models.student import Centred

__all__ = [
    "Adapter",
    "Average",
    "Backbone",
    "Centred",
    "Heads",
    "Logits",
    "Network",
    "backbone_names",
    "build_backbone",
    "merge_patches",
    "mixed_scores",
]
