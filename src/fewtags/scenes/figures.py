"""Painters of the small things of a scene, with and without a tag, and the table of all painters."""

import math
from collections.abc import Callable

from fewtags.scenes import scenery
from fewtags.scenes.light import Colour, mix
from fewtags.scenes.pen import BLACK, WHITE, Pen
from fewtags.scenes.scenery import BARK, BRIGHT

SKIN: tuple[Colour, ...] = ((246, 212, 184), (224, 176, 140), (176, 124, 90), (120, 80, 58))
FUR: tuple[Colour, ...] = ((142, 96, 62), (206, 164, 110), (70, 60, 58), (238, 228, 210), (176, 112, 66))


def bird(pen: Pen) -> None:
    """A bird on the wing."""
    coat, lift = pen.pick(((244, 244, 240), (60, 62, 76), (112, 98, 92))), pen.between(0.15, 0.5)
    for side in (-1, 1):
        wing = [
            (0.1 * side, 0.5),
            (0.5 * side, 0.55 + lift),
            (0.95 * side, 0.45 + lift * 0.6),
            (0.5 * side, 0.42 + lift * 0.7),
            (0.05 * side, 0.32),
        ]
        pen.poly(wing, mix(coat, BLACK, 0.0 if side == pen.sunny else 0.15))
    pen.oval(0.08, 0.38, 0.36, 0.15, coat)
    pen.oval(0.42, 0.44, 0.13, 0.12, coat)
    pen.poly([(0.52, 0.48), (0.72, 0.42), (0.52, 0.38)], (232, 156, 60))
    pen.poly([(-0.2, 0.42), (-0.55, 0.36), (-0.2, 0.3)], mix(coat, BLACK, 0.2))


def sparrow(pen: Pen) -> None:
    """A bird on its feet."""
    coat = pen.pick(((120, 96, 82), (130, 136, 150), (60, 62, 76), (206, 120, 80)))
    pen.shadow(0.35)
    for u in (-0.02, 0.1):
        pen.line([(u, 0), (u, 0.3)], 0.05, (220, 140, 70))
    pen.poly([(-0.2, 0.55), (-0.75, 0.45), (-0.7, 0.3), (-0.1, 0.35)], mix(coat, BLACK, 0.3))
    pen.oval(0, 0.46, 0.38, 0.25, coat)
    pen.oval(0.08, 0.4, 0.25, 0.16, mix(coat, WHITE, 0.45))
    pen.oval(-0.1, 0.5, 0.24, 0.13, mix(coat, BLACK, 0.2))
    pen.oval(0.3, 0.75, 0.2, 0.19, coat)
    pen.poly([(0.46, 0.82), (0.72, 0.72), (0.46, 0.68)], (232, 156, 60))
    pen.oval(0.36, 0.79, 0.04, 0.04, BLACK)


def flower(pen: Pen) -> None:
    """A handful of daisies, tulips or poppies of one kind."""
    shape, petal = (
        int(pen.rng.integers(3)),
        pen.pick((BRIGHT[0], BRIGHT[1], BRIGHT[2], BRIGHT[5], BRIGHT[6], WHITE)),
    )
    green = (78, 128, 70)
    for place in sorted((pen.between(-0.5, 0.5), pen.between(0.55, 0.85)) for _ in range(int(pen.rng.integers(3, 7)))):
        u, v = place
        pen.line([(u * 0.6, 0), (u * 0.9, v * 0.5), (u, v)], 0.035, green)
        pen.poly([(u * 0.75, v * 0.25), (u * 0.75 + 0.13, v * 0.55), (u * 0.85, v * 0.4)], mix(green, WHITE, 0.15))
        if shape == 0:
            for turn in range(7):
                angle = turn * math.tau / 7
                pen.oval(u + 0.085 * math.cos(angle), v + 0.085 * math.sin(angle), 0.06, 0.06, petal)
            pen.oval(u, v, 0.055, 0.055, (246, 196, 70) if petal != WHITE else (240, 170, 50))
        elif shape == 1:
            cup = [
                (-0.09, 0.14),
                (-0.045, 0.07),
                (0, 0.15),
                (0.045, 0.07),
                (0.09, 0.14),
                (0.07, -0.06),
                (-0.07, -0.06),
            ]
            pen.poly([(u + a, v + b) for a, b in cup], petal)
        else:
            pen.oval(u, v, 0.13, 0.1, mix(petal, BLACK, 0.12))
            pen.oval(u - 0.03, v + 0.02, 0.1, 0.08, petal)
            pen.oval(u, v, 0.035, 0.03, BLACK)


def dog(pen: Pen) -> None:
    """A dog from the side, standing or at a run, with a collar."""
    coat, stride = pen.pick(FUR), pen.between(0.0, 0.16)
    dark = mix(coat, BLACK, 0.25)
    pen.shadow(0.65)
    for u, shift, colour in ((-0.38, -1, dark), (0.3, 1, dark), (-0.44, 1, coat), (0.36, -1, coat)):
        pen.line([(u, 0.42), (u + shift * stride, 0.04)], 0.11, colour)
    pen.line([(-0.5, 0.55), (-0.68, 0.72), (-0.7, 0.9)], 0.09, coat)
    pen.oval(-0.05, 0.5, 0.52, 0.19, coat)
    pen.poly([(0.2, 0.6), (0.42, 0.84), (0.6, 0.7), (0.46, 0.42)], coat)
    pen.oval(0.56, 0.82, 0.19, 0.16, coat)
    pen.box(0.58, 0.68, 0.27, 0.15, coat, 0.06)
    pen.oval(0.84, 0.79, 0.05, 0.04, BLACK)
    pen.oval(0.45, 0.8, 0.09, 0.17, dark)
    pen.oval(0.62, 0.87, 0.028, 0.028, BLACK)
    pen.line([(0.34, 0.7), (0.52, 0.58)], 0.06, pen.pick(BRIGHT[:5]))


def ball(pen: Pen) -> None:
    """A plain, striped or patched ball on the ground."""
    paint, other, shape = pen.pick(BRIGHT[:7]), pen.pick((WHITE, (244, 200, 76))), int(pen.rng.integers(3))
    pen.shadow(0.55)
    pen.oval(0, 0.5, 0.5, 0.5, paint)
    if shape == 0:
        pen.oval(0, 0.5, 0.22, 0.49, other)
        pen.oval(0, 0.5, 0.08, 0.49, paint)
    elif shape == 1:
        for u, v in ((0, 0.5), (-0.32, 0.72), (0.32, 0.7), (-0.25, 0.2), (0.28, 0.22)):
            pen.oval(u, v, 0.13, 0.13, other)
    pen.oval(-0.1 * pen.sunny, 0.42, 0.4, 0.4, BLACK, 26)
    pen.oval(0.2 * pen.sunny, 0.72, 0.1, 0.08, WHITE, 190)


def person(pen: Pen) -> None:
    """A person walking or standing, in trousers or a dress, with or without a hat."""
    skin, top, lower, hair = (
        pen.pick(SKIN),
        pen.pick(BRIGHT),
        pen.pick(BRIGHT[3:6] + BRIGHT[8:9]),
        pen.pick(FUR),
    )
    stride, swing, dress = pen.between(0.01, 0.1), pen.between(0.03, 0.14), pen.between(0, 1) < 0.4
    pen.shadow(0.2)
    legs = skin if dress else lower
    pen.line([(-0.02, 0.45), (-stride, 0.03)], 0.075, mix(legs, BLACK, 0.2))
    pen.line([(0.02, 0.45), (stride, 0.03)], 0.075, legs)
    for u in (-stride, stride):
        pen.box(u - 0.03, 0, 0.095, 0.035, (70, 52, 50), 0.015)
    pen.line([(-0.06, 0.75), (-0.06 - swing, 0.48)], 0.05, mix(top, BLACK, 0.2))
    if dress:
        pen.poly([(-0.07, 0.8), (0.07, 0.8), (0.15, 0.3), (-0.15, 0.3)], top)
    pen.box(-0.085, 0.42, 0.17, 0.4, top, 0.05)
    pen.line([(0.05, 0.76), (0.05 + swing, 0.5)], 0.052, mix(top, WHITE, 0.12))
    pen.oval(0.05 + swing, 0.48, 0.03, 0.03, skin)
    pen.box(-0.025, 0.78, 0.05, 0.08, skin)
    if dress:
        pen.poly([(-0.09, 0.95), (0.02, 0.97), (-0.02, 0.76), (-0.11, 0.76)], hair)
    pen.oval(0.005, 0.9, 0.07, 0.08, skin)
    pen.oval(-0.02, 0.94, 0.075, 0.055, hair)
    if pen.between(0, 1) < 0.35:
        pen.oval(0, 0.95, 0.14, 0.022, lower)
        pen.box(-0.065, 0.95, 0.13, 0.065, lower, 0.03)


def balloon(pen: Pen) -> None:
    """A hot-air balloon."""
    cloth, other = pen.pick(BRIGHT[:7]), pen.pick((WHITE, BRIGHT[2]))
    for u in (-0.08, 0.08):
        pen.line([(u * 2, 0.4), (u, 0.12)], 0.015, BARK)
    pen.poly([(-0.3, 0.5), (0.3, 0.5), (0.09, 0.24), (-0.09, 0.24)], cloth)
    pen.oval(0, 0.65, 0.35, 0.35, cloth)
    pen.oval(0, 0.65, 0.2, 0.35, other)
    pen.oval(0, 0.65, 0.08, 0.35, cloth)
    pen.box(-0.08, 0, 0.16, 0.12, (150, 108, 70), 0.02)


def kite(pen: Pen) -> None:
    """A kite with a tail."""
    cloth = pen.pick(BRIGHT[:7])
    pen.line([(0, 0.4), (-0.15, 0.25), (0.05, 0.12), (-0.1, 0)], 0.025, (240, 240, 240))
    pen.poly([(0, 0.35), (0.27, 0.75), (0.05, 1), (-0.24, 0.7)], cloth)
    pen.poly([(0, 0.35), (0.27, 0.75), (0.05, 1)], mix(cloth, WHITE, 0.35))


def umbrella(pen: Pen) -> None:
    """A beach umbrella, planted at an angle."""
    cloth, lean = pen.pick(BRIGHT[:6]), pen.between(-0.12, 0.12)
    pen.shadow(0.5)
    pen.line([(0, 0), (lean, 0.95)], 0.035, (230, 220, 205))
    dome = [(0.55 * math.cos(a), 0.62 + 0.38 * math.sin(a)) for a in (math.pi * step / 12 for step in range(13))]
    for step in range(0, 12, 2):
        colour = cloth if step % 4 else (246, 238, 222)
        pen.poly([(lean, 1.0), *((u + lean, v) for u, v in dome[step : step + 3])], colour)
        (a, b), (p, q) = dome[step], dome[step + 2]
        pen.poly([(a + lean, b), (p + lean, q), (lean, 1.0), (lean * 0.6, 0.66)], colour)


def lamp(pen: Pen) -> None:
    """A lamp post, lit in the dark."""
    pen.shadow(0.12)
    pen.line([(0, 0), (0, 0.86)], 0.024, (62, 66, 78))
    pen.box(-0.03, 0, 0.06, 0.06, (62, 66, 78))
    dark = pen.light.hour.dark
    if dark:
        pen.glow(0, 0.91, 0.3, (255, 220, 140), 0.7)
    pen.poly([(-0.035, 0.86), (0.035, 0.86), (0.055, 0.96), (-0.055, 0.96)], (255, 232, 170), glowing=dark)
    pen.poly([(-0.07, 0.955), (0.07, 0.955), (0, 1)], (62, 66, 78))


def fence(pen: Pen) -> None:
    """A low wooden fence."""
    wood = pen.pick(((236, 230, 218), (150, 114, 84)))
    for v in (0.35, 0.7):
        pen.line([(-2, v), (2, v)], 0.09, mix(wood, BLACK, 0.15))
    for step in range(9):
        u = -1.9 + step * 0.475
        pen.poly([(u - 0.08, 0), (u + 0.08, 0), (u + 0.08, 0.9), (u, 1), (u - 0.08, 0.9)], wood)


def rock(pen: Pen) -> None:
    """A stone with a lit side."""
    stone, peak = pen.pick(((132, 130, 134), (150, 140, 128), (108, 112, 122))), pen.between(-0.3, 0.3)
    pen.shadow(0.9)
    outline = [(-0.85, 0), (-0.7, 0.5), (peak - 0.2, 1), (peak + 0.3, 0.92), (0.75, 0.45), (0.85, 0)]
    pen.poly(outline, mix(stone, BLACK, 0.2))
    edge = (0.85 * pen.sunny, 0)
    pen.poly(
        [edge, (0.72 * pen.sunny, 0.48), (peak + 0.25 * pen.sunny, 0.95), (peak, 0.5), (0.1 * pen.sunny, 0)],
        stone,
    )


def bush(pen: Pen) -> None:
    """A low round bush."""
    leaf = pen.pick(pen.season.leaves)
    pen.shadow(0.95)
    for colour, shift, shrink in ((mix(leaf, (20, 40, 60), 0.35), 0.0, 1.0), (leaf, 0.07, 0.78)):
        for u, v, r in (
            (-0.5, 0.3, 0.36),
            (0.5, 0.3, 0.36),
            (0, 0.45, 0.5),
            (-0.25, 0.4, 0.4),
            (0.3, 0.42, 0.4),
        ):
            pen.oval(u + shift * pen.sunny, v * 0.9 + shift, r * shrink * 1.1, r * shrink * 0.85, colour)


def bench(pen: Pen) -> None:
    """A park bench."""
    wood = pen.pick(((166, 112, 72), (96, 130, 108)))
    pen.shadow(1.0)
    for u in (-0.8, 0.8):
        pen.line([(u, 0), (u, 0.95)], 0.08, (60, 60, 70))
    for v in (0.4, 0.62, 0.82):
        pen.box(-0.95, v, 1.9, 0.13, mix(wood, BLACK, 0.2) if v == 0.4 else wood, 0.03)


def buoy(pen: Pen) -> None:
    """A striped buoy on the water."""
    pen.oval(0, 0, 0.5, 0.1, (20, 50, 80), 80)
    pen.poly([(-0.35, 0), (0.35, 0), (0.12, 0.75), (-0.12, 0.75)], (210, 70, 56))
    pen.poly([(-0.27, 0.25), (0.27, 0.25), (0.2, 0.5), (-0.2, 0.5)], (244, 240, 230))
    pen.oval(0, 0.85, 0.12, 0.12, (244, 200, 76))


PAINTERS: dict[str, Callable[[Pen], None]] = {
    "sun": scenery.sun, "moon": scenery.moon, "cloud": scenery.cloud, "tree": scenery.tree,
    "pine": scenery.pine, "palm": scenery.palm, "house": scenery.house, "cottage": scenery.cottage,
    "car": scenery.car, "boat": scenery.boat, "steamer": scenery.steamer, "bird": bird, "sparrow": sparrow,
    "flower": flower, "dog": dog, "ball": ball, "person": person, "balloon": balloon, "kite": kite,
    "umbrella": umbrella, "lamp": lamp, "fence": fence, "rock": rock, "bush": bush, "bench": bench,
    "buoy": buoy,
}  # fmt: skip
