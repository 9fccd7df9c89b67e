"""The built-in data set: drawn seas, streets, meadows and mountains with twelve tags, generated from a seed.

The layout is computed first and determines the tags; pixels are drawn on demand.
"""

import hashlib
import re

import numpy as np
from PIL import Image

from fewtags.errors import BadImage
from fewtags.scenes.backdrop import Stage
from fewtags.scenes.figures import PAINTERS
from fewtags.scenes.layout import TAGS, Scene, plan, tags_of
from fewtags.scenes.light import HOURS, SEASONS, Light
from fewtags.scenes.pen import Pen
from fewtags.scenes.things import Thing

__all__ = ["TAGS", "SceneImages", "draw", "scene_name"]

DRAWING = b"fewtags scenes 1"  # changes whenever the same seed and index give other pixels
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
    """The picture of a scene, drawn from back to front."""
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
    """An image source of drawn scenes of one world (seed); nothing is read from a disk."""

    def __init__(self, world: int = 1) -> None:
        self.world = world

    def image(self, name: str) -> Image.Image:
        """Draw the picture of a name such as `scene-00042.png`."""
        return draw(self.world, _index(name))[0]

    def fingerprint(self, name: str) -> bytes:
        """16 bytes from the drawing version, the world and the index, without drawing."""
        parts = b"%s %d %d" % (DRAWING, self.world, _index(name))
        return hashlib.blake2b(parts, digest_size=16).digest()


def scene_name(index: int) -> str:
    """The name of a scene: `scene-00042.png`."""
    return f"scene-{index:05d}.png"


def _index(name: str) -> int:
    found = re.fullmatch(r"scene-(\d{5,})\.png", name, re.ASCII)
    if found is None or name != scene_name(int(found[1])):
        raise BadImage(f"{name!r} is no drawn scene: their names are like scene-00042.png")
    return int(found[1])
