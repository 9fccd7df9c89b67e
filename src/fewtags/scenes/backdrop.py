"""The background of a drawn scene: sky, ridges, ground, water, and the final post-processing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from fewtags.scenes.light import Colour, Light, Season, mix

SIDE = 256  # pixels of a finished picture
SCALE = 2  # supersampling factor, for smooth edges
FULL = SIDE * SCALE
_AXIS = np.linspace(-1, 1, SIDE, dtype=np.float32) ** 2
RIM = np.float32(0.07) * np.repeat(_AXIS[:, None] + _AXIS, 3, axis=1)  # [SIDE, 3 SIDE] what the rim loses of light

Point = tuple[float, float]


@dataclass(frozen=True)
class Ridge:
    """A line of hills or, if jagged, of peaks; heights in 0..1 of the picture, measured downwards."""

    base: float
    rise: float
    waves: float
    phase: float
    far: float
    jagged: bool = False

    def top(self, x: float) -> float:
        """The height of the ridge at position x."""
        wave: Callable[[float], float] = _triangle if self.jagged else math.sin
        angle = self.waves * x + self.phase
        high = 0.62 * wave(angle) + 0.26 * wave(2.3 * angle + 1.0) + 0.12 * wave(5.1 * angle + 2.0)
        return self.base - self.rise * (0.5 + 0.5 * high)


def _triangle(angle: float) -> float:
    return 2 / math.pi * math.asin(math.sin(angle))


class Stage:
    """A canvas with coordinates in 0..1, x to the right and y downwards."""

    def __init__(self, light: Light, season: Season, rng: np.random.Generator) -> None:
        self.light, self.season, self.rng = light, season, rng
        shift = rng.integers(-7, 8, 3)
        stops = np.clip(np.array(light.hour.sky) + shift, 0, 255)
        at, rows = [0.0, 0.34, 0.62], np.linspace(0, 1, FULL)
        column = np.stack([np.interp(rows, at, stops[:, band]) for band in range(3)], axis=1)
        strip = Image.fromarray(column.round().astype(np.uint8)[:, None])
        self.image = strip.resize((FULL, FULL), Image.Resampling.NEAREST)
        self.draw = ImageDraw.Draw(self.image, "RGBA")

    def stars(self) -> None:
        """Points of light over the upper sky."""
        for x, y, bright in self.rng.random((60, 3)):
            r = 0.8 + 1.4 * bright**4
            px, py = x * FULL, y * 0.5 * FULL
            self.draw.ellipse((px - r, py - r, px + r, py + r), fill=(255, 250, 230, round(70 + 170 * bright - 60 * y)))

    def fill(self, points: Sequence[Point], top: Colour, bottom: Colour) -> None:
        """A polygon filled with a vertical gradient."""
        pixels = [(x * FULL, y * FULL) for x, y in points]
        if top == bottom:
            self.draw.polygon(pixels, fill=top)
            return
        low = max(0, math.floor(min(y for _, y in pixels)))
        high = min(FULL, math.ceil(max(y for _, y in pixels)))
        if high <= low:
            return
        ramp = np.linspace(top, bottom, high - low).round().astype(np.uint8)[:, None]
        mask = Image.new("L", (FULL, high - low))
        ImageDraw.Draw(mask).polygon([(x, y - low) for x, y in pixels], fill=255)
        strip = Image.fromarray(ramp).resize((FULL, high - low), Image.Resampling.NEAREST)
        self.image.paste(strip, (0, low), mask)

    def strokes(self, count: int, band: tuple[float, float], reach: float, ink: Colour, lean: float = 0) -> None:
        """Short brush strokes, longer in front: waves if flat (lean 0), else blades of grass."""
        (top, bottom), fill = band, (*ink, 80)
        for x, depth, size in self.rng.random((count, 3)).tolist():
            y, length = top + (bottom - top) * depth**1.4, reach * (0.25 + 0.75 * depth) * (0.5 + size)
            right, up = (length * lean * (size - 0.5), length) if lean else (length, 0)
            line = (x * FULL, y * FULL, (x + right) * FULL, (y - up) * FULL)
            self.draw.line(line, fill=fill, width=2 if depth < 0.7 else 3)

    def ridge(self, ridge: Ridge, colour: Colour) -> None:
        """Hills in one hazy colour; peaks with a lit side and snow."""
        xs = np.linspace(0, 1, 97 if ridge.jagged else 41).tolist()
        tops = [ridge.top(x) for x in xs]
        tone = self.light.tone(colour, ridge.far)
        foot: list[Point] = [(1, ridge.base + 0.12), (0, ridge.base + 0.12)]
        base = mix(tone, self.light.hour.sky[2], 0.35)
        self.fill([*zip(xs, tops, strict=True), *foot], mix(tone, (0, 0, 0), 0.12 * ridge.jagged), base)
        if not ridge.jagged:
            return
        lit = [max(top, ridge.top(x + 0.035 * self.light.side)) for x, top in zip(xs, tops, strict=True)]
        self.fill([*zip(xs, lit, strict=True), *foot], mix(tone, (255, 255, 255), 0.1), base)
        line = ridge.base - 0.62 * ridge.rise
        ends = [max(top, line + 0.025 * _triangle(40 * x)) for x, top in zip(xs, tops, strict=True)]
        snow = self.light.tone((246, 248, 252), ridge.far * 0.6)
        self.fill([*zip(xs, tops, strict=True), *zip(xs[::-1], ends[::-1], strict=True)], snow, snow)

    def grass(self, top: float) -> None:
        """A meadow down to the lower edge, with soft patches, blades and sometimes a path."""
        far, near = (self.light.tone(colour) for colour in self.season.grass)
        ridge = Ridge(top + 0.012, 0.024, 5, self.rng.uniform(0, 6), 0)
        edge = [(x, ridge.top(x)) for x in np.linspace(0, 1, 25).tolist()]
        self.fill([*edge, (1, 1), (0, 1)], mix(far, self.light.hour.sky[2], 0.2), near)
        for x, y, size in self.rng.random((5, 3)):
            px, py, r = x * FULL, (top + 0.1 + (0.95 - top) * y) * FULL, (0.1 + 0.2 * size) * FULL
            self.draw.ellipse((px - r, py - r / 7, px + r, py + r / 7), fill=(*mix(far, near, 0.3), 60))
        if top < 0.75 and self.rng.random() < 0.4:
            self._path(top + 0.02)
        self.strokes(150, (top + 0.03, 1), 0.022, mix(near, (255, 255, 220), 0.25), 0.7)
        self.strokes(110, (top + 0.04, 1.01), 0.026, mix(near, (0, 20, 30), 0.25), 0.7)

    def _path(self, top: float) -> None:
        bend, goal = self.rng.uniform(-0.15, 0.15), self.rng.uniform(0.25, 0.75)
        left, right = [], []
        for t in np.linspace(0, 1, 14).tolist():
            middle, half = goal + bend * math.sin(5 * t) * (0.3 + t), 0.006 + 0.1 * t**1.6
            left.append((middle - half, top + (1 - top) * t))
            right.append((middle + half, top + (1 - top) * t))
        earth = self.light.tone((222, 200, 158))
        self.fill([*left, *right[::-1]], mix(earth, self.light.tone(self.season.grass[0]), 0.4), earth)

    def water(self, top: float, bottom: float, shore: Colour | None, glitter: float | None) -> None:
        """Water between two heights, waves, light under a sun at x = glitter, and a shore below (or none)."""
        sky = self.light.hour.sky
        deep = self.light.tone((34, 104, 142) if self.rng.random() < 0.6 else (40, 128, 138))
        shallow = mix(deep, self.light.tone((120, 196, 190)), 0.5 if shore else 0.0)
        self.fill([(0, top), (1, top), (1, bottom + 0.03), (0, bottom + 0.03)], mix(deep, sky[2], 0.6), shallow)
        crest = mix(sky[2], (255, 255, 255), 0.0 if self.light.hour.dark else 0.5)
        self.strokes(70, (top + 0.01, bottom), 0.07, crest)
        self.strokes(50, (top + 0.01, bottom), 0.06, mix(deep, (0, 10, 40), 0.2))
        if glitter is not None:
            for along, aside, size in self.rng.random((60, 3)):
                y, reach = top + (bottom - top) * along, (0.008 + 0.03 * size) * (0.5 + along)
                x = glitter + (aside - 0.5) * (0.05 + 0.13 * along)
                line = ((x - reach) * FULL, y * FULL, (x + reach) * FULL, y * FULL)
                self.draw.line(line, fill=(*self.light.hour.disc, 150), width=3)
        if shore:
            self._shore(bottom, shore)

    def _shore(self, level: float, colour: Colour) -> None:
        ridge = Ridge(level + 0.02, 0.04, 6, self.rng.uniform(0, 6), 0)
        xs = np.linspace(0, 1, 33).tolist()
        for lift, tone in (
            (0.016, mix(colour, (255, 255, 255), 0.75)),
            (0.006, mix(colour, (60, 50, 40), 0.25)),
        ):
            self.fill([*((x, ridge.top(x) - lift) for x in xs), (1, level + 0.1), (0, level + 0.1)], tone, tone)
        edge = [(x, ridge.top(x)) for x in xs]
        self.fill([*edge, (1, 1), (0, 1)], colour, mix(colour, (120, 90, 60), 0.18))
        for x, y, size in self.rng.random((70, 3)):
            px, py, r = x * FULL, (level + 0.03 + (1 - level) * y) * FULL, 1 + size
            self.draw.ellipse((px - r, py - r / 2, px + r, py + r / 2), fill=(90, 70, 50, 60))

    def street(self, top: float, road: tuple[float, float]) -> None:
        """A pavement from `top`, a road with a dashed line, and a pavement or a lawn in front."""
        stone, asphalt = self.light.tone((206, 198, 188)), self.light.tone((104, 106, 118))
        self.fill([(0, top), (1, top), (1, 1), (0, 1)], stone, mix(stone, (60, 50, 60), 0.15))
        start, end = road
        for y, tone in ((start - 0.008, mix(stone, (255, 255, 255), 0.3)), (start, asphalt)):
            self.fill([(0, y), (1, y), (1, end), (0, end)], tone, mix(tone, (30, 30, 50), 0.12))
        gap = self.rng.uniform(0, 0.2)
        for step in range(7):
            x, y = (gap + step * 0.2 - 0.2), (start + end) / 2
            mark = [(x, y), (x + 0.1, y), (x + 0.097, y + 0.008), (x - 0.004, y + 0.008)]
            self.fill(mark, self.light.tone((240, 236, 220)), self.light.tone((240, 236, 220)))
        if self.rng.random() < 0.5:
            self.grass(end + 0.02)
            return
        self.fill([(0, end), (1, end), (1, end + 0.012), (0, end + 0.012)], stone, mix(stone, (40, 40, 60), 0.4))
        lean = self.rng.uniform(-0.3, 0.3)
        for step in range(-2, 9):
            x = step / 7
            joint = (x * FULL, (end + 0.012) * FULL, (x + lean * (x - 0.5) + 0.04) * FULL, FULL)
            self.draw.line(joint, fill=(60, 50, 60, 45), width=2)

    def finish(self) -> Image.Image:
        """The picture at its final size: slightly blurred, with grain, exposure and vignetting."""
        soft, grain, gain = self.rng.uniform(0, 0.2), self.rng.uniform(1.5, 5), self.rng.uniform(0.93, 1.05)
        image = self.image.reduce(SCALE)
        side, corner = soft * (1 - soft), soft * soft / 2
        kernel = [corner, side, corner, side, 1.0, side, corner, side, corner]
        image = image.filter(ImageFilter.Kernel((3, 3), kernel))
        pixels = np.asarray(image, dtype=np.float32).reshape(SIDE, -1) * (np.float32(gain) - RIM)
        pixels += np.repeat(self.rng.standard_normal((SIDE, SIDE), np.float32) * np.float32(grain), 3, axis=1)
        np.clip(pixels, 0, 255, out=pixels)
        return Image.fromarray(pixels.astype(np.uint8).reshape(SIDE, SIDE, 3))
