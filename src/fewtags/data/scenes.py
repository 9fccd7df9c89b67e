"""The embedded data set: drawn seas, streets, meadows and mountains with twelve tags, made from a seed.

What stands where is planned first, cheaply, and the tags follow from the plan; pixels are painted on demand.
"""

import hashlib
import re

import numpy as np
from PIL import Image

from fewtags.data.catalogue import Catalogue, Names, Role
from fewtags.data.drawing.backdrop import Stage
from fewtags.data.drawing.figures import PAINTERS
from fewtags.data.drawing.light import HOURS, SEASONS, Light
from fewtags.data.drawing.pen import Pen
from fewtags.data.drawing.plan import TAGS, Scene, plan, tags_of
from fewtags.data.drawing.things import Thing
from fewtags.errors import BadImage, UserError

__all__ = ["TAGS", "SceneImages", "draw", "read_scenes"]

DRAWING = b"fewtags scenes 1"  # changes whenever the same seed and index give other pixels
FEWEST = 8  # below this a quarter for testing leaves nothing to learn from
HILLS = {
    "meadow": (104, 150, 96),
    "street": (120, 150, 130),
    "sea": (92, 128, 120),
    "mountain": (98, 112, 140),
}


def draw(seed: int, index: int) -> tuple[Image.Image, tuple[str, ...]]:
    """The picture (256 x 256, RGB) and its tags, in the order of TAGS."""
    scene = plan(seed, index)
    return paint(scene), tags_of(scene)


def paint(scene: Scene) -> Image.Image:
    """The picture of a plan, from the sky to the front."""
    sun = next((thing for thing in scene.sky if thing.kind in ("sun", "moon")), None)
    side = scene.look % 2 * 2 - 1 if sun is None else (1 if sun.x > 0.5 else -1)
    season = SEASONS[scene.season]
    stage = Stage(Light(HOURS[scene.hour], side), season, np.random.default_rng(scene.look))
    if stage.light.hour.dark:
        stage.stars()
    _place(stage, scene.sky)
    for ridge in scene.ridges:
        stage.ridge(ridge, HILLS[scene.setting] if ridge.jagged else season.grass[1])
    if scene.setting == "street":
        stage.street(scene.horizon, scene.road)
    elif scene.water:
        shore = stage.light.tone((236, 212, 168) if scene.setting == "sea" else season.grass[0])
        top, bottom = scene.water
        stage.water(top, bottom, shore if bottom < 1 else None, sun.x if sun else None)
        if scene.setting == "mountain":
            stage.grass(bottom + 0.025)
    else:
        stage.grass(scene.horizon)
    _place(stage, scene.things)
    return stage.finish()


def _place(stage: Stage, things: list[Thing]) -> None:
    for thing in things:
        PAINTERS[thing.kind](Pen(stage, thing.x, thing.y, thing.size, thing.far, thing.look))


class SceneImages:
    """The pixels of the drawn scenes of one world; nothing is read from a disk."""

    def __init__(self, world: int = 1) -> None:
        self.world = world

    def image(self, name: str) -> Image.Image:
        """The picture of a name such as `scene-00042.png`, drawn now."""
        return draw(self.world, _index(name))[0]

    def fingerprint(self, name: str) -> bytes:
        """16 bytes from the version of the drawing, the world and the index, without drawing."""
        parts = b"%s %d %d" % (DRAWING, self.world, _index(name))
        return hashlib.blake2b(parts, digest_size=16).digest()


def _name(index: int) -> str:
    return f"scene-{index:05d}.png"


def _index(name: str) -> int:
    found = re.fullmatch(r"scene-(\d{5,})\.png", name, re.ASCII)
    if found is None or name != _name(int(found[1])):
        raise BadImage(f"{name!r} is no drawn scene: their names are like scene-00042.png")
    return int(found[1])


def read_scenes(count: int = 600, seed: int = 1) -> Catalogue:
    """`count` drawn scenes of the world `seed`, all labelled, the last quarter for testing."""
    if count < FEWEST:
        raise UserError(f"scenes:{count} is too small: ask for {FEWEST} images or more, such as scenes:600")
    if seed < 0:
        raise UserError(f"the seed of the scenes is {seed}: give 0 or more")
    targets = np.zeros((count, len(TAGS)), dtype=np.int8)
    for index in range(count):
        targets[index, [TAGS.index(tag) for tag in tags_of(plan(seed, index))]] = 1
    roles = np.full(count, Role.LABELLED, dtype=np.int8)
    roles[count - count // 4 :] = Role.TEST
    names = Names(_name(index) for index in range(count))
    return Catalogue(TAGS, names, targets, roles, SceneImages(seed))
