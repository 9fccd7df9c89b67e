"""A saved model in use: load it, tag images with it, lay out a sheet to glance at."""

from fewtags.scoring import Tagging
from fewtags.tagging.model import Model, ModelInfo, load_model, save_model
from fewtags.tagging.tagger import Tagger

__all__ = ["Model", "ModelInfo", "Tagger", "Tagging", "load_model", "save_model"]
