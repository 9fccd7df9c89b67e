"""Painters of the large things of a scene, one per kind."""

import math

import numpy as np
from PIL import Image, ImageDraw

from fewtags.scenes.light import Colour, mix
from fewtags.scenes.pen import BLACK, WHITE, Pen

BRIGHT: tuple[Colour, ...] = (
    (214, 72, 62), (238, 150, 58), (244, 200, 76), (74, 150, 132), (66, 120, 178),
    (122, 92, 160), (226, 122, 142), (240, 236, 224), (92, 104, 124), (150, 190, 200),
)  # fmt: skip
WALLS: tuple[Colour, ...] = (
    (244, 232, 208), (232, 190, 160), (206, 132, 108), (178, 200, 206), (240, 214, 150), (214, 206, 220),
    (170, 186, 160),
)  # fmt: skip
ROOFS: tuple[Colour, ...] = ((172, 78, 62), (128, 74, 70), (96, 104, 122), (190, 112, 72), (84, 92, 88))
BARK: Colour = (112, 84, 66)


def sun(pen: Pen) -> None:
    """A disc with a wide glow."""
    disc = pen.light.hour.disc
    pen.glow(0, 0.5, pen.between(1.8, 3.2), disc, 0.75)
    pen.oval(0, 0.5, 0.5, 0.5, mix(disc, WHITE, 0.25), glowing=True)


def moon(pen: Pen) -> None:
    """A pale disc with craters, or a sickle."""
    disc, shade = pen.light.hour.disc, mix(pen.light.hour.disc, (90, 100, 130), 0.25)
    pen.glow(0, 0.5, 1.5, disc, 0.35)
    if pen.between(0, 1) < 0.5:
        arc, tilt = [math.pi * step / 16 for step in range(17)], pen.between(0.1, 0.5)
        curves = [[(0.5 * bulge * math.sin(a), 0.5 * math.cos(a)) for a in arc] for bulge in (1, 0.45)]
        sickle = [(u - tilt * v, 0.5 + v + tilt * u) for u, v in curves[0] + curves[1][::-1]]
        pen.poly(sickle, disc, glowing=True)
        return
    pen.oval(0, 0.5, 0.5, 0.5, disc, glowing=True)
    for u, v, r in ((-0.15, 0.6, 0.12), (0.15, 0.35, 0.09), (0.12, 0.7, 0.06)):
        pen.oval(u, v, r, r, shade, glowing=True)


def cloud(pen: Pen) -> None:
    """Puffs on a flat base, bright above and shaded below; blurred, so drawn on a separate layer."""
    hour = pen.light.hour
    body = pen.light.tone(mix((250, 250, 252), hour.sky[1], pen.between(0.05, 0.3)))
    wide, high = round(2.6 * pen.unit), round(1.1 * pen.unit)
    sheet = Image.new("L", (wide // 2, high // 2))
    draw, unit = ImageDraw.Draw(sheet), pen.unit / 2
    for u in np.linspace(-0.8, 0.8, 6).tolist():
        r = (0.42 - 0.26 * abs(u)) * pen.between(0.75, 1.25)
        x, y = wide / 4 + u * unit, high / 2 - (0.1 + r * 0.9) * unit
        draw.ellipse((x - r * 1.3 * unit, y - r * unit, x + r * 1.3 * unit, y + r * unit), fill=255)
    draw.rounded_rectangle(
        (wide / 4 - unit, high / 2 - 0.3 * unit, wide / 4 + unit, high / 2 - 2), 0.13 * unit, fill=255
    )
    mask = sheet.resize((wide, high), Image.Resampling.BICUBIC)
    corner = (round(pen.x - wide / 2), round(pen.y - high))
    ramp = np.linspace(mix(body, WHITE, 0.0 if hour.dark else 0.5), mix(body, hour.sky[1], 0.45), high)
    sides = Image.fromarray(ramp.round().astype(np.uint8)[:, None]).resize((wide, high), Image.Resampling.NEAREST)
    pen.stage.image.paste(sides, corner, mask.point(lambda level: level * 0.94))


def tree(pen: Pen) -> None:
    """A round crown on a trunk, lighter where the light falls, sometimes with fruit."""
    leaf, wide, tall = pen.pick(pen.season.leaves), pen.between(0.7, 1.1), pen.between(0.9, 1.1)
    pen.shadow(0.34)
    pen.poly([(-0.05, 0), (0.05, 0), (0.03, 0.5), (-0.03, 0.5)], BARK)
    pen.line([(0, 0.3), (0.13, 0.5)], 0.025, BARK)
    puffs = [(pen.between(-0.2, 0.2) * wide, pen.between(0.46, 0.8) * tall, pen.between(0.12, 0.19)) for _ in range(7)]
    puffs += [(0.0, 0.65, 0.25)]
    for lift, shrink, colour in ((0.0, 1.0, mix(leaf, (20, 40, 60), 0.3)), (0.035, 0.8, leaf)):
        for u, v, r in puffs:
            pen.oval(u + lift * pen.sunny, v + lift, r * shrink * wide, r * shrink, colour)
    for u, v, r in puffs[:5]:
        pen.oval(u + 0.07 * pen.sunny, v + 0.07, r * 0.4 * wide, r * 0.35, mix(leaf, (255, 250, 200), 0.25), 150)
    if pen.between(0, 1) < 0.25 and not pen.season.snow:
        for u, v, r in puffs:
            pen.oval(u + r * 0.5, v - r * 0.4, 0.018, 0.018, (206, 60, 50))


def pine(pen: Pen) -> None:
    """Tiers of branches, one half in the light, with snow in winter."""
    leaf = pen.pick(((48, 96, 82), (60, 112, 84), (40, 82, 84)))
    pen.shadow(0.22)
    pen.box(-0.03, 0, 0.06, 0.2, BARK)
    tiers = int(pen.rng.integers(3, 6))
    for step in range(tiers):
        low, half = 0.12 + 0.75 * step / tiers, 0.25 * (1 - step / (tiers + 0.6))
        top = min(1.0, low + 0.95 / tiers + 0.1)
        pen.poly([(-half, low), (0, low - 0.03), (half, low), (0, top)], mix(leaf, (10, 30, 50), 0.25))
        pen.poly([(half * pen.sunny, low), (0, low - 0.03), (0, top)], leaf)
        if pen.season.snow:
            pen.poly(
                [
                    (-half * 0.55, low + (top - low) * 0.45),
                    (0, top - 0.12),
                    (half * 0.55, low + (top - low) * 0.45),
                    (0, top),
                ],
                (240, 245, 250),
            )


def palm(pen: Pen) -> None:
    """A bent trunk with fronds."""
    leaf, bend = pen.pick(((84, 146, 84), (64, 126, 90))), pen.between(0.05, 0.16)
    pen.shadow(0.25)
    pen.line([(bend * t * t, 0.72 * t) for t in np.linspace(0, 1, 8).tolist()], 0.045, (150, 116, 82))
    for turn in np.linspace(-0.5, math.pi + 0.5, 8).tolist():
        reach = pen.between(0.26, 0.34)
        arc = [
            (bend + reach * math.cos(turn) * t, 0.72 + reach * (math.sin(turn) * t - 0.75 * t * t))
            for t in (0, 0.3, 0.6, 1)
        ]
        back = [(u, v - 0.06 * math.sin(math.pi * t)) for (u, v), t in zip(arc, (0, 0.4, 0.7, 1), strict=True)]
        pen.poly([*arc, *back[::-1]], mix(leaf, BLACK, 0.12 if math.cos(turn) * pen.sunny < 0 else 0))
    for u in (-0.02, 0.03):
        pen.oval(bend + u, 0.7, 0.025, 0.025, (120, 80, 50))


def house(pen: Pen, most_floors: int = 3) -> None:
    """Walls, a roof, a door, and windows lit in the dark."""
    wall, roof, wood = pen.pick(WALLS), pen.pick(ROOFS), pen.pick(BRIGHT)
    if pen.season.snow:
        roof = mix(roof, (240, 245, 250), 0.8)
    floors, columns = int(pen.rng.integers(1, most_floors + 1)), int(pen.rng.integers(2, 4))
    top, half = 0.62 + 0.05 * (floors - 1), 0.38
    pen.shadow(0.46)
    if pen.between(0, 1) < 0.7:
        pen.box(0.16, top, 0.09, 0.34, mix(roof, BLACK, 0.2))
    pen.box(-half, 0, 2 * half, top, wall)
    pen.poly(
        [(-half * pen.sunny, 0), (-0.12 * pen.sunny, 0), (-0.12 * pen.sunny, top), (-half * pen.sunny, top)],
        mix(wall, (60, 50, 90), 0.3),
        70,
    )
    ridge = pen.between(0.0, 0.3)
    pen.poly([(-half - 0.06, top), (half + 0.06, top), (ridge, 0.97), (-ridge, 0.97)], roof)
    pen.line([(-half - 0.06, top), (half + 0.06, top)], 0.018, mix(roof, BLACK, 0.3))
    step, lamp = 2 * half / columns, pen.light.hour.dark or pen.light.hour.tint[0] < 0.87
    door = int(pen.rng.integers(columns))
    for floor in range(floors):
        for column in range(columns):
            u, v, tall = (
                -half + step * (column + 0.5),
                top * (floor + 0.32) / floors,
                min(0.2, top * 0.42 / floors),
            )
            if floor == 0 and column == door:
                pen.box(u - 0.065, 0, 0.13, min(0.3, top / floors * 0.8), wood, 0.01)
                continue
            lit = lamp and pen.between(0, 1) < 0.6
            pen.box(u - 0.075, v - 0.012, 0.15, tall + 0.024, mix(wall, WHITE, 0.6))
            pen.box(u - 0.06, v, 0.12, tall, (255, 214, 130) if lit else (118, 150, 172), glowing=lit)
            pen.line([(u, v), (u, v + tall)], 0.012, mix(wall, WHITE, 0.6))


def cottage(pen: Pen) -> None:
    """A house of one floor."""
    house(pen, most_floors=1)


def car(pen: Pen) -> None:
    """A side view: saloon, hatchback or van, with lamps on in the dark."""
    paint, dark = pen.pick(BRIGHT), pen.light.hour.dark
    front, back = ((0.42, -0.5), (0.42, -0.9), (0.6, -0.98))[int(pen.rng.integers(3))]
    pen.shadow(1.1)
    pen.box(-1.08, 0.16, 2.16, 0.42, paint, 0.14)
    roof = [(front + 0.3, 0.52), (front - 0.05, 0.97), (back + 0.22, 0.97), (back - 0.04, 0.52)]
    pen.poly(roof, paint)
    pen.poly([(front + 0.2, 0.55), (front - 0.07, 0.89), (back + 0.25, 0.89), (back + 0.12, 0.55)], (150, 186, 200))
    pen.box((front + back) / 2 - 0.03, 0.5, 0.07, 0.45, paint)
    pen.box(-1.06, 0.2, 2.12, 0.12, mix(paint, BLACK, 0.25), 0.05)
    for u in (-0.62, 0.62):
        pen.oval(u, 0.2, 0.22, 0.22, (38, 38, 46))
        pen.oval(u, 0.2, 0.11, 0.11, (186, 188, 194))
    pen.box(0.96, 0.36, 0.12, 0.12, (255, 240, 180), 0.04, glowing=dark)
    pen.box(-1.08, 0.36, 0.09, 0.12, (210, 50, 50), 0.03, glowing=dark)
    if dark:
        pen.glow(1.15, 0.4, 0.6, (255, 240, 180), 0.5)


def boat(pen: Pen) -> None:
    """A sailing boat."""
    hull, cloth, wide = (
        pen.pick(BRIGHT),
        pen.pick((WHITE, (250, 236, 206), *BRIGHT[:5])),
        pen.between(0.26, 0.36),
    )
    pen.oval(0, -0.02, wide, 0.04, (20, 50, 80), 80)
    pen.line([(0.02, 0.1), (0.02, 1)], 0.02, (110, 80, 60))
    pen.poly([(0, 0.18), (0, 0.97), (-wide * 0.8, 0.2)], cloth)
    pen.poly([(0.05, 0.18), (0.05, 0.9), (wide * 0.9, 0.2)], mix(cloth, (90, 90, 140), 0.18))
    pen.poly([(-wide, 0.15), (wide * 1.15, 0.17), (wide * 0.8, 0), (-wide * 0.8, 0)], hull)
    pen.line([(-wide, 0.15), (wide * 1.12, 0.165)], 0.025, mix(hull, WHITE, 0.6))


def steamer(pen: Pen) -> None:
    """A small fishing boat or ferry with a cabin and a funnel."""
    hull, stripe = pen.pick(BRIGHT), pen.pick(BRIGHT)
    pen.oval(0, -0.02, 0.95, 0.07, (20, 50, 80), 80)
    pen.box(-0.25, 0.3, 0.16, 0.62, stripe)
    pen.box(-0.55, 0.3, 0.95, 0.36, (244, 240, 230), 0.03)
    for u in (-0.42, -0.18, 0.06):
        pen.oval(
            u + 0.06,
            0.48,
            0.07,
            0.07,
            (255, 214, 130) if pen.light.hour.dark else (96, 130, 156),
            glowing=pen.light.hour.dark,
        )
    pen.line([(0.5, 0.3), (0.5, 1)], 0.03, (110, 90, 80))
    pen.poly([(-0.9, 0.36), (1.0, 0.42), (0.72, 0), (-0.78, 0)], hull)
    pen.poly([(-0.84, 0.14), (0.82, 0.14), (0.72, 0), (-0.78, 0)], mix(hull, BLACK, 0.35))
