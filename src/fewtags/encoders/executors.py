"""Who computes the rows of images whose features are not kept yet: threads of this process, unless told otherwise.

Another way, such as processes or a cluster, is another function of this shape, handed to `extract` (or, in a whole
run, put into `Preparation.executor`). A worker elsewhere is sent `pack_encoder(encoder)` and the image source, opens
`unpack_encoder(packed).extraction(view, device)` once, and asks `extract_group` for `GROUP` images at a time: how many
pictures meet in one forward then stays the same, and with it every byte that is kept.
"""

from collections.abc import Generator, Iterable
from typing import Protocol

import torch

from fewtags.data.catalogue import ImageResult, ImageSource
from fewtags.encoders.base import Encoder, Rows, run_extraction


class Executor(Protocol):
    """A generator function; what it started it ends in a `finally`, because a run that is stopped closes it."""

    def __call__(
        self,
        encoder: Encoder,
        view: str,
        images: ImageSource,
        wanted: Iterable[tuple[str, bytes]],
        device: torch.device,
    ) -> Generator[ImageResult[Rows], None, None]:
        """For every wanted (name, key), in that order, the image's rows of this view, or why it cannot be used."""
        ...


def in_threads(
    encoder: Encoder, view: str, images: ImageSource, wanted: Iterable[tuple[str, bytes]], device: torch.device
) -> Generator[ImageResult[Rows], None, None]:
    """All cores of this machine, and the device."""
    yield from run_extraction(encoder.extraction(view, device), images, wanted)
