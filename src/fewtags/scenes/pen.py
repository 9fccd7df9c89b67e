"""A pen for single things: it works in a thing's own units and under the scene's light."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from fewtags.scenes.backdrop import FULL, Point, Stage
from fewtags.scenes.light import Colour, Light, Season, mix

WHITE, BLACK = (255, 255, 255), (26, 26, 34)


class Pen:
    """Draws one thing in units of its height: (0, 0) is the middle of its foot, u to its front, v upwards."""

    def __init__(self, stage: Stage, x: float, y: float, size: float, far: float, look: int) -> None:
        self.stage, self.far = stage, far
        self.x, self.y, self.unit = x * FULL, y * FULL, size * FULL
        self.rng = np.random.default_rng(look)
        self.face = 1 if self.rng.random() < 0.5 else -1
        self.sunny = stage.light.side * self.face  # the side, in the thing's own direction, that light falls on

    @property
    def light(self) -> Light:
        """How the scene is lit."""
        return self.stage.light

    @property
    def season(self) -> Season:
        """What grows in the scene, and how."""
        return self.stage.season

    def between(self, low: float, high: float) -> float:
        """A number from the thing's own chance."""
        return float(self.rng.uniform(low, high))

    def pick(self, colours: Sequence[Colour]) -> Colour:
        """One of the colours, slightly changed."""
        colour = colours[int(self.rng.integers(len(colours)))]
        return mix(colour, WHITE if self.rng.random() < 0.5 else BLACK, self.between(0, 0.14))

    def at(self, u: float, v: float) -> Point:
        """The pixel of a point of the thing."""
        return self.x + u * self.unit * self.face, self.y - v * self.unit

    def ink(self, colour: Colour, alpha: int = 255, glowing: bool = False) -> tuple[int, int, int, int]:
        """The colour under the scene's light; what glows keeps its own."""
        return (*(colour if glowing else self.light.tone(colour, self.far)), alpha)

    def poly(self, points: Sequence[Point], colour: Colour, alpha: int = 255, glowing: bool = False) -> None:
        """A filled polygon."""
        self.stage.draw.polygon([self.at(u, v) for u, v in points], fill=self.ink(colour, alpha, glowing))

    def oval(
        self,
        u: float,
        v: float,
        ru: float,
        rv: float,
        colour: Colour,
        alpha: int = 255,
        glowing: bool = False,
    ) -> None:
        """A filled ellipse around (u, v)."""
        x, y = self.at(u, v)
        a, b = abs(ru) * self.unit, abs(rv) * self.unit
        self.stage.draw.ellipse((x - a, y - b, x + a, y + b), fill=self.ink(colour, alpha, glowing))

    def box(
        self,
        u: float,
        v: float,
        w: float,
        h: float,
        colour: Colour,
        round_by: float = 0,
        glowing: bool = False,
    ) -> None:
        """A filled rectangle that starts at (u, v) and is w wide and h high."""
        (x0, y1), (x1, y0) = self.at(u, v), self.at(u + w, v + h)
        frame = (min(x0, x1), y0, max(x0, x1), y1)
        self.stage.draw.rounded_rectangle(frame, round_by * self.unit, fill=self.ink(colour, 255, glowing))

    def line(self, points: Sequence[Point], width: float, colour: Colour, alpha: int = 255) -> None:
        """A stroke through points, with round ends."""
        pixels = [self.at(u, v) for u, v in points]
        thick = max(1, round(width * self.unit))
        self.stage.draw.line(pixels, fill=self.ink(colour, alpha), width=thick, joint="curve")
        if alpha == 255 and thick > 3:
            for x, y in (pixels[0], pixels[-1]):
                r = thick / 2 - 0.5
                self.stage.draw.ellipse((x - r, y - r, x + r, y + r), fill=self.ink(colour))

    def shadow(self, half: float, u: float = 0) -> None:
        """A soft shade on the ground, away from the light."""
        if not self.light.hour.dark:
            self.oval(u - 0.12 * half * self.sunny, 0, half, half * 0.17, (30, 40, 60), 60)

    def glow(self, u: float, v: float, radius: float, colour: Colour, strength: float) -> None:
        """Light that fades from (u, v) outwards."""
        (x, y), r = self.at(u, v), max(2, round(radius * self.unit))
        halo = _HALO.resize((2 * r, 2 * r)).point(lambda level: level * level / 255 * strength)
        self.stage.image.paste(colour, (round(x) - r, round(y) - r), halo)


_HALO = Image.radial_gradient("L").point(lambda level: max(0, 255 - level * 1.42))
