"""The layout of a drawn scene: its things, their positions, the light, and the resulting tags. No pixels."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fewtags.scenes.backdrop import Ridge
from fewtags.scenes.things import KINDS, Thing, visible_part

TAGS = ("sun", "cloud", "water", "boat", "tree", "house", "car", "bird", "flower", "dog", "ball", "person")
FAIR_PART = 0.5  # less visible things are left out, so that tags are unambiguous
HOUR_SHARES = {"morning": 0.2, "noon": 0.3, "evening": 0.14, "sunset": 0.12, "overcast": 0.11, "night": 0.13}


@dataclass
class Scene:
    """Everything that determines the picture. Things are listed from back to front."""

    rng: np.random.Generator
    setting: str
    hour: str
    season: str
    horizon: float
    water: tuple[float, float] | None = None  # where water begins and ends
    road: tuple[float, float] = (0.0, 0.0)
    ridges: list[Ridge] = field(default_factory=list)
    sky: list[Thing] = field(default_factory=list)  # behind the ridges
    things: list[Thing] = field(default_factory=list)
    look: int = 0

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < probability)

    def between(self, low: float, high: float) -> float:
        """A number between the two."""
        return float(self.rng.uniform(low, high))

    def stand(self, kind: str, top: float, bottom: float, x: float | None = None) -> Thing:
        """Place a thing on the ground, its foot between two heights; lower is nearer and larger."""
        y = self.between(top, max(top, bottom))
        depth = (y - self.horizon) / (1 - self.horizon)
        size = KINDS[kind].height * (0.3 + 0.7 * depth) * self.between(0.85, 1.15)
        where = self.between(0.04, 0.96) if x is None else min(max(x, 0.03), 0.97)
        thing = Thing(kind, where, y, size, 0.8 * (1 - depth) ** 2, int(self.rng.integers(2**31)))
        self.things.append(thing)
        return thing

    def hang(self, kind: str, top: float, bottom: float, x: float | None = None) -> Thing:
        """Place a thing in the sky, its foot between two heights."""
        size = KINDS[kind].height * self.between(0.65, 1.35)
        where = self.between(0.06, 0.94) if x is None else x
        return Thing(kind, where, self.between(top, bottom), size, 0.15, int(self.rng.integers(2**31)))

    def maybe(self, probability: float, kind: str, top: float, bottom: float, x: float | None = None) -> bool:
        """Place a thing with this probability."""
        happens = self.chance(probability)
        if happens:
            self.stand(kind, top, bottom, x)
        return happens


def plan(seed: int, index: int) -> Scene:
    """The layout of picture `index` in the world `seed`; the same on every machine."""
    rng = np.random.default_rng([seed, index])
    setting = str(rng.choice(list(SETTINGS), p=[share for share, _ in SETTINGS.values()]))
    hour = str(rng.choice(list(HOUR_SHARES), p=list(HOUR_SHARES.values())))
    season = str(rng.choice(["spring", "summer", "autumn", "winter"], p=[0.28, 0.4, 0.2, 0.12]))
    scene = Scene(rng, setting, hour, season, float(rng.uniform(0.42, 0.6)), look=int(rng.integers(2**31)))
    _hang_sky(scene)
    SETTINGS[setting][1](scene)
    _leave_out_hidden(scene)
    return scene


def _hang_sky(scene: Scene) -> None:
    low = scene.horizon
    if scene.hour == "night":
        if scene.chance(0.6):
            scene.sky.append(scene.hang("moon", 0.15, low * 0.7))
    elif scene.hour != "overcast" and scene.chance(0.5):
        late = scene.hour in ("evening", "sunset")
        scene.sky.append(scene.hang("sun", low * 0.6 if late else 0.15, low + 0.02 if late else low * 0.7))
    if scene.chance(0.6 if scene.hour == "overcast" else 0.35):
        scene.sky += [scene.hang("cloud", 0.12, low * 0.75) for _ in range(int(scene.rng.integers(1, 4)))]
    for kind, probability in (("balloon", 0.07), ("kite", 0.07)):
        if scene.chance(probability):
            scene.things.append(scene.hang(kind, 0.2, low * 0.85))
    if scene.chance(0.2):
        x, y = scene.between(0.1, 0.9), scene.between(0.12, low * 0.9)
        for step in range(int(scene.rng.integers(1, 5))):
            across, down = 0.1 * step + scene.between(-0.02, 0.04), scene.between(-0.07, 0.07)
            scene.things.append(scene.hang("bird", y + down, y + down, x + across))


def _hills(scene: Scene, count: int, rise: float, jagged: bool = False) -> None:
    for step in range(count):
        far = 1 - step / (count + 1)
        base = scene.horizon + 0.02
        height = rise * (0.4 + 0.6 * far) * scene.between(0.8, 1.2)
        waves, phase = scene.between(4, 9), scene.between(0, 6.3)
        scene.ridges.append(Ridge(base, height, waves, phase, far, jagged and step < 2))


def _company(scene: Scene, top: float, bottom: float, outdoors: float) -> None:
    """People with dogs and balls, which are mostly, but not always, near a person."""
    x = scene.between(0.1, 0.9)
    people = scene.maybe(0.3 * outdoors, "person", top, bottom, x)
    if people:
        scene.maybe(0.3, "person", top, bottom)
    beside = x + (0.13 if scene.chance(0.5) else -0.13)
    scene.maybe(0.32 if people else 0.12 * outdoors, "dog", top, bottom, beside)
    scene.maybe(0.3 if people else 0.12 * outdoors, "ball", top, bottom)
    scene.maybe(0.06, "sparrow", top, bottom)


def _meadow(scene: Scene) -> None:
    top = scene.horizon
    _hills(scene, int(scene.rng.integers(1, 4)), 0.16)
    scene.maybe(0.25, "cottage", top + 0.04, top + 0.15)
    if scene.chance(0.5):
        for _ in range(int(scene.rng.integers(1, 4))):
            scene.stand("pine" if scene.chance(0.2) else "tree", top + 0.03, top + 0.28)
    for kind, probability in (("fence", 0.35), ("rock", 0.25), ("bush", 0.35), ("bench", 0.12)):
        scene.maybe(probability, kind, top + 0.08, 0.9)
    if scene.season != "winter" and scene.chance(0.5):
        x = scene.between(0.1, 0.9)
        for _ in range(int(scene.rng.integers(1, 8))):
            scene.stand("flower", top + 0.14, 0.99, x + scene.between(-0.3, 0.3))
    _company(scene, top + 0.08, 0.95, 1.0)


def _street(scene: Scene) -> None:
    scene.horizon = top = scene.between(0.48, 0.58)
    scene.road = (top + 0.12, top + 0.12 + scene.between(0.16, 0.2))
    _hills(scene, 1, 0.12)
    if scene.chance(0.75):
        x = scene.between(-0.05, 0.3)
        for _ in range(int(scene.rng.integers(1, 4))):
            scene.stand("house", top + 0.02, top + 0.04, x)
            x += scene.between(0.3, 0.42)
    else:
        scene.stand("fence", top + 0.02, top + 0.03, 0.3)
        scene.maybe(0.6, "fence", top + 0.02, top + 0.03, 0.75)
    if scene.chance(0.36):
        for _ in range(int(scene.rng.integers(1, 3))):
            scene.stand("tree", top + 0.06, top + 0.09)
    for kind, probability in (("lamp", 0.6), ("bench", 0.3), ("bush", 0.4)):
        scene.maybe(probability, kind, top + 0.06, top + 0.1)
    if scene.chance(0.6):
        first, second = scene.road[0] + 0.05, scene.road[1]
        scene.stand("car", first, first + 0.01)
        scene.maybe(0.3, "car", second - 0.015, second)
    if scene.season != "winter":
        scene.maybe(0.14, "flower", scene.road[1] + 0.06, 0.97)
    if scene.chance(0.5):
        _company(scene, top + 0.07, top + 0.1, 1.1)
    else:
        _company(scene, scene.road[1] + 0.05, 0.97, 1.1)


def _sea(scene: Scene) -> None:
    top, shore = scene.horizon, scene.between(0.68, 0.86)
    beach = scene.chance(0.7)
    scene.water = (top, shore if beach else 1.0)
    if scene.chance(0.5):
        _hills(scene, int(scene.rng.integers(1, 3)), 0.1)
    if scene.chance(0.6):
        x, count = scene.between(0.1, 0.9), int(scene.rng.integers(1, 4))
        for step in range(count):
            kind = "boat" if scene.chance(0.65) else "steamer"
            scene.stand(kind, top + 0.02, scene.water[1] - 0.07, (x + step / count) % 1)
    scene.maybe(0.25, "buoy", top + 0.05, scene.water[1] - 0.06)
    scene.maybe(0.3, "rock", scene.water[1] - 0.06, scene.water[1])
    if beach:
        if scene.season != "winter":
            scene.maybe(0.35, "palm", shore + 0.05, 0.97, 0.15 if scene.chance(0.5) else 0.85)
            scene.maybe(0.35, "umbrella", shore + 0.05, 0.95)
        scene.maybe(0.3, "rock", shore + 0.05, 0.97)
        _company(scene, shore + 0.06, 0.97, 1.2)


def _mountain(scene: Scene) -> None:
    top = scene.horizon = scene.between(0.46, 0.62)
    _hills(scene, int(scene.rng.integers(2, 4)), 0.36, jagged=True)
    front = top
    if scene.chance(0.45):
        front = top + scene.between(0.14, 0.24)
        scene.water = (top, front)
        if scene.chance(0.45):
            scene.stand("boat", top + 0.04, front - 0.04)
    scene.maybe(0.3, "cottage", front + 0.05, front + 0.12)
    if scene.chance(0.48):
        x = scene.between(0, 1)
        for _ in range(int(scene.rng.integers(2, 7))):
            scene.stand("pine", front + 0.04, min(0.97, front + 0.3), x + scene.between(-0.25, 0.25))
    for kind, probability in (("rock", 0.5), ("bush", 0.25), ("fence", 0.15)):
        scene.maybe(probability, kind, front + 0.06, 0.97)
    if scene.season != "winter":
        scene.maybe(0.2, "flower", front + 0.1, 0.98)
    _company(scene, front + 0.06, 0.97, 0.9)


SETTINGS: dict[str, tuple[float, Callable[[Scene], None]]] = {
    "meadow": (0.3, _meadow),
    "street": (0.27, _street),
    "sea": (0.23, _sea),
    "mountain": (0.2, _mountain),
}


def _leave_out_hidden(scene: Scene) -> None:
    """Sort things from back to front and drop those that are hardly visible."""
    scene.things.sort(key=lambda thing: (thing.y, thing.x))
    kept: list[Thing] = []
    for thing in reversed(scene.things):
        if visible_part(thing, kept, []) >= FAIR_PART:
            kept.append(thing)
    scene.things = kept[::-1]
    behind: list[Thing] = []
    for thing in reversed(scene.sky):
        if visible_part(thing, kept + behind, scene.ridges) >= FAIR_PART:
            behind.append(thing)
    scene.sky = behind[::-1]


def tags_of(scene: Scene) -> tuple[str, ...]:
    """The tags of a scene, in the order of TAGS."""
    present = {KINDS[thing.kind].tag for thing in scene.sky + scene.things}
    return tuple(tag for tag in TAGS if tag in present or (tag == "water" and scene.water))
