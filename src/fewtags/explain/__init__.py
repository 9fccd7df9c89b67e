"""Why an image got its tags: where the evidence lies, what the whole image and the patches say, what decided."""

from fewtags.explain.reasons import Explained, explain

__all__ = ["Explained", "explain"]
