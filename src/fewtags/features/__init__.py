"""Features of a frozen backbone: computed once by the fastest engine at hand, kept by the content they come from."""

from fewtags.features.forward import EvidenceForward, FrozenForward, Wanted
from fewtags.features.store import FeatureStore

__all__ = ["EvidenceForward", "FeatureStore", "FrozenForward", "Wanted"]
