"""The kinds of things in drawn scenes, their sizes, and their visibility."""

from dataclasses import dataclass

from fewtags.scenes.backdrop import Ridge

GRID = [(0.5 + step) / 6 for step in range(6)]  # sample points for visibility, across and down


@dataclass(frozen=True)
class Kind:
    """Tag and size of a kind of thing."""

    tag: str | None  # None: scenery without a tag
    height: float  # at the front of the picture, 1 = the picture's height
    wide: float  # width of its solid part, 1 = its height
    solid: tuple[float, float] = (0.0, 0.95)  # bottom and top of that part, 1 = its height


KINDS = {
    "sun": Kind("sun", 0.13, 0.9),
    "moon": Kind(None, 0.1, 0.9),
    "cloud": Kind("cloud", 0.16, 2.0, (0.0, 0.7)),
    "tree": Kind("tree", 0.95, 0.62, (0.35, 0.9)),
    "pine": Kind("tree", 0.95, 0.3, (0.1, 0.8)),
    "palm": Kind("tree", 0.8, 0.5, (0.45, 0.9)),
    "house": Kind("house", 1.15, 0.78),
    "cottage": Kind("house", 0.6, 0.78),
    "car": Kind("car", 0.27, 2.1),
    "boat": Kind("boat", 0.62, 0.5, (0.0, 0.8)),
    "steamer": Kind("boat", 0.36, 1.6, (0.0, 0.65)),
    "bird": Kind("bird", 0.06, 1.3, (0.2, 0.8)),
    "sparrow": Kind("bird", 0.08, 0.9, (0.2, 0.9)),
    "flower": Kind("flower", 0.17, 0.9, (0.2, 0.9)),
    "dog": Kind("dog", 0.17, 1.2),
    "ball": Kind("ball", 0.085, 0.9),
    "person": Kind("person", 0.42, 0.2),
    "balloon": Kind(None, 0.17, 0.6),
    "kite": Kind(None, 0.11, 0.4),
    "umbrella": Kind(None, 0.4, 0.9, (0.62, 0.95)),
    "lamp": Kind(None, 0.85, 0.02),
    "fence": Kind(None, 0.15, 3.6, (0.3, 0.8)),
    "rock": Kind(None, 0.13, 1.5, (0.0, 0.8)),
    "bush": Kind(None, 0.2, 1.6, (0.0, 0.8)),
    "bench": Kind(None, 0.2, 1.8, (0.3, 0.9)),
    "buoy": Kind(None, 0.1, 0.5),
}


@dataclass(frozen=True)
class Thing:
    """One thing: the centre of its foot and its height in 0..1 of the picture, its distance, its random seed."""

    kind: str
    x: float
    y: float
    size: float
    far: float
    look: int

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the solid part."""
        kind = KINDS[self.kind]
        half, (low, high) = kind.wide * self.size / 2, kind.solid
        return self.x - half, self.y - high * self.size, self.x + half, self.y - low * self.size


def visible_part(thing: Thing, before: list[Thing], ridges: list[Ridge]) -> float:
    """The visible share (0..1) of a thing: inside the picture, not behind another thing or a ridge."""
    left, top, right, bottom = thing.box
    boxes = [other.box for other in before]
    boxes = [(a, b, c, d) for a, b, c, d in boxes if a < right and c > left and b < bottom and d > top]
    seen = 0
    for across in GRID:
        x = left + (right - left) * across
        sky_ends = min((ridge.top(x) for ridge in ridges), default=1.0)
        for down in GRID:
            y = top + (bottom - top) * down
            inside = 0 < x < 1 and 0 < y < min(1.0, sky_ends)
            seen += inside and not any(a < x < c and b < y < d for a, b, c, d in boxes)
    return seen / len(GRID) ** 2
