"""The light and seasons of drawn scenes: colours, and how the time of day changes them."""

from dataclasses import dataclass

Colour = tuple[int, int, int]


def mix(a: Colour, b: Colour, t: float) -> Colour:
    """Linear interpolation from colour a to colour b; t in 0..1."""
    red, green, blue = (round(p + (q - p) * t) for p, q in zip(a, b, strict=True))
    return red, green, blue


@dataclass(frozen=True)
class Hour:
    """The light of a time of day."""

    sky: tuple[Colour, Colour, Colour]  # at the top, half-way, at the horizon
    tint: tuple[float, float, float]  # factors of red, green and blue
    haze: float  # 0..1, strength of haze at the horizon
    disc: Colour  # the sun, or the moon
    dark: bool = False


HOURS = {
    "morning": Hour(((132, 186, 214), (196, 217, 219), (253, 226, 196)), (1.0, 0.96, 0.92), 0.55, (255, 244, 214)),
    "noon": Hour(((72, 149, 208), (136, 196, 228), (214, 236, 240)), (1.0, 1.0, 1.0), 0.35, (255, 243, 190)),
    "evening": Hour(((92, 118, 176), (214, 168, 168), (255, 204, 138)), (1.0, 0.86, 0.74), 0.45, (255, 226, 150)),
    "sunset": Hour(((70, 66, 120), (204, 116, 122), (255, 184, 116)), (0.86, 0.66, 0.66), 0.45, (255, 206, 120)),
    "overcast": Hour(((140, 155, 170), (182, 192, 200), (216, 220, 220)), (0.86, 0.89, 0.92), 0.6, (240, 240, 235)),
    "night": Hour(((14, 22, 52), (34, 50, 94), (78, 98, 140)), (0.40, 0.46, 0.64), 0.35, (244, 240, 220), dark=True),
}


@dataclass(frozen=True)
class Season:
    """The colours of plants."""

    grass: tuple[Colour, Colour]  # far and near
    leaves: tuple[Colour, ...]
    snow: bool = False


SEASONS = {
    "spring": Season(((168, 204, 112), (98, 164, 78)), ((122, 184, 88), (236, 176, 190), (160, 200, 96))),
    "summer": Season(((150, 186, 96), (72, 134, 66)), ((70, 132, 72), (92, 150, 70), (52, 112, 76))),
    "autumn": Season(((206, 186, 110), (156, 142, 66)), ((214, 128, 52), (196, 84, 50), (222, 170, 66))),
    "winter": Season(((232, 238, 244), (206, 220, 234)), ((214, 226, 232), (120, 146, 140), (184, 202, 208)), True),
}


@dataclass(frozen=True)
class Light:
    """The light of a scene: the time of day, and the side it comes from (-1 left, 1 right)."""

    hour: Hour
    side: int

    def tone(self, colour: Colour, far: float = 0.0) -> Colour:
        """The colour in this light, at a distance of 0 (here) to 1 (at the horizon)."""
        red, green, blue = (round(part * keep) for part, keep in zip(colour, self.hour.tint, strict=True))
        return mix((red, green, blue), self.hour.sky[2], far * self.hour.haze)
