"""What an exported file says of itself: one JSON text in its metadata. No torch here."""

from pydantic import ConfigDict

from fewtags.model.base import About

KEY = "fewtags"  # of the metadata


class AboutFile(About):
    """All that a program needs beside the graph."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may say more

    inputs: dict[str, str]  # name -> how it is made of an image, in words
