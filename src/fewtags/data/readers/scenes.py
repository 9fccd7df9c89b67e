"""`scenes` and `scenes:N`: drawn pictures with twelve tags, generated from a seed."""

import re
from pathlib import Path

import numpy as np

from fewtags.data.catalogue import Catalogue, Names, Role
from fewtags.errors import UserError
from fewtags.scenes.draw import TAGS, SceneImages, scene_name
from fewtags.scenes.layout import plan, tags_of

DEFAULT = "2000"  # images drawn for a bare `scenes`
MIN_IMAGES = 8  # with fewer, too few are left for training
MAX_IMAGES = 1_000_000


def read(place: str = DEFAULT, labels: Path | None = None, seed: int = 1) -> Catalogue:
    """`place` drawn scenes, all labelled, the last quarter for testing."""
    count = int(place) if re.fullmatch(r"[0-9]{1,9}", place) else 0
    if not 1 <= count <= MAX_IMAGES:
        raise UserError(f"scenes:{place}: the number of images must be between 1 and {MAX_IMAGES}")
    return read_scenes(count, seed)


def read_scenes(count: int = 600, seed: int = 1) -> Catalogue:
    """`count` scenes drawn from `seed`, all labelled, the last quarter for testing."""
    if count < MIN_IMAGES:
        raise UserError(f"scenes:{count} is too small: ask for {MIN_IMAGES} images or more, such as scenes:600")
    if seed < 0:
        raise UserError(f"the seed of the scenes is {seed}: give 0 or more")
    targets = np.zeros((count, len(TAGS)), dtype=np.int8)
    for index in range(count):
        targets[index, [TAGS.index(tag) for tag in tags_of(plan(seed, index))]] = 1
    roles = np.full(count, Role.LABELLED, dtype=np.int8)
    roles[count - count // 4 :] = Role.TEST
    names = Names(scene_name(index) for index in range(count))
    return Catalogue(TAGS, names, targets, roles, SceneImages(seed))
