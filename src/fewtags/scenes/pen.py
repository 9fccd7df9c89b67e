"""A pen that draws one thing, in units of the thing and in the light of the scene."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from fewtags.scenes.backdrop import FULL, Point, Stage
from fewtags.scenes.light import Colour, Light, Season, mix

WHITE, BLACK = (255, 255, 255), (26, 26, 34)


class Pen:
    """Draws one thing in units of its height: (0, 0) is the centre of its foot, u to its front, v upwards."""

    def __init__(self, stage: Stage, x: float, y: float, size: float, far: float, look: int) -> None:
        self.stage, self.far = stage, far
        self.x, self.y, self.unit = x * FULL, y * FULL, size * FULL
        self.rng = np.random.default_rng(look)
        self.face = 1 if self.rng.random() < 0.5 else -1
        self.sunny = stage.light.side * self.face  # the lit side, relative to the thing's direction

    @property
    def light(self) -> Light:
        """The light of the scene."""
        return self.stage.light

    @property
    def season(self) -> Season:
        """The season of the scene."""
        return self.stage.season

    def between(self, low: float, high: float) -> float:
        """A random number from the thing's own generator."""
        return float(self.rng.uniform(low, high))

    def pick(self, colours: Sequence[Colour]) -> Colour:
        """One of the colours, slightly varied."""
        colour = colours[int(self.rng.integers(len(colours)))]
        return mix(colour, WHITE if self.rng.random() < 0.5 else BLACK, self.between(0, 0.14))

    def at(self, u: float, v: float) -> Point:
        """Thing coordinates -> pixels."""
        return self.x + u * self.unit * self.face, self.y - v * self.unit

    def ink(self, colour: Colour, alpha: int = 255, glowing: bool = False) -> tuple[int, int, int, int]:
        """The colour in the light of the scene; glowing colours are unchanged."""
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
        """A filled rectangle with a corner at (u, v), w wide and h high."""
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
        """A soft shadow on the ground, away from the light."""
        if not self.light.hour.dark:
            self.oval(u - 0.12 * half * self.sunny, 0, half, half * 0.17, (30, 40, 60), 60)

    def glow(self, u: float, v: float, radius: float, colour: Colour, strength: float) -> None:
        """A glow that fades outwards from (u, v)."""
        (x, y), r = self.at(u, v), max(2, round(radius * self.unit))
        halo = _HALO.resize((2 * r, 2 * r)).point(lambda level: level * level / 255 * strength)
        self.stage.image.paste(colour, (round(x) - r, round(y) - r), halo)


_HALO = Image.radial_gradient("L").point(lambda level: max(0, 255 - level * 1.42))
