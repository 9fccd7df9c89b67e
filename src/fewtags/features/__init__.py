"""Features of a frozen backbone: computed once by the fastest engine at hand, kept by the content they come from."""

from fewtags.features.forward import FrozenForward, Wanted
from fewtags.features.store import FeatureStore

__all__ = ["FeatureStore", "FrozenForward", "Wanted"]
