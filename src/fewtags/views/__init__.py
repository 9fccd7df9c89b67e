"""Views: what a network is shown of an image, the whole and its patches, plain, weak or strong."""

from fewtags.views.augment import GRIDS, OPERATIONS, cutout, rand_augment
from fewtags.views.views import Kind, PatchSize, PatchSource, ViewSpec, generator, make_views

__all__ = [
    "GRIDS",
    "OPERATIONS",
    "Kind",
    "PatchSize",
    "PatchSource",
    "ViewSpec",
    "cutout",
    "generator",
    "make_views",
    "rand_augment",
]
