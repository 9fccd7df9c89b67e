"""The words for encoders, held once: `--features`, the recipe and model.json accept these. Free of torch."""

from typing import Literal

PixelKind = Literal["crops", "evidence"]  # read images: what `--features` may name
EncoderKind = Literal[PixelKind, "vectors"]  # all; each word is also the file that holds the encoder
