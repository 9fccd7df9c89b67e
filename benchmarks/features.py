"""The feature stage of `fewtags train` against the bare forward of the same engines.

    python benchmarks/features.py [--images 200]

Photo-sized pictures are decoded, resized, read by two backbones at 448 px and written; beside it the same engines on
pictures that are in memory already. Both run in turns, so that a busy machine slows both.
"""

import argparse
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from fewtags.backbones.base import build_backbone
from fewtags.data import read
from fewtags.encoders.base import EncoderSettings
from fewtags.encoders.evidence import Evidence
from fewtags.encoders.extract import extract, fingerprints
from fewtags.encoders.runtime import BATCH, make_engine
from fewtags.encoders.windows import make_readers, square
from fewtags.scenes.draw import draw
from fewtags.utils.stopping import StopRequest

SIZE = 448
BACKBONES = ("efficientnet_lite0", "efficientnet_lite2")


def paint(folder: Path, count: int) -> None:
    """Photo-sized JPEG files."""
    rows = ["image,tags"]
    for number in range(count):
        name = f"{number:05d}.jpg"
        draw(1, number)[0].resize((500, 375)).save(folder / name, quality=90)
        rows.append(f"{name},thing")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def stage(folder: Path, cache: Path) -> float:
    """Seconds of the feature stage with an empty store."""
    os.environ["FEWTAGS_CACHE"] = str(cache)
    catalogue = read(str(folder))
    keys = fingerprints(catalogue, {})
    one = SimpleNamespace(device=torch.device("cpu"), global_rank=0, world_size=1, is_global_zero=True)
    encoder = Evidence([build_backbone(name) for name in BACKBONES], EncoderSettings(size=SIZE))
    began = time.perf_counter()
    rows = np.arange(len(catalogue))
    extract(encoder, "plain", catalogue, keys, rows, {}, one, StopRequest())  # type: ignore[arg-type]
    return time.perf_counter() - began


def bare(pictures: np.ndarray) -> float:
    """Seconds of the same engines on pictures in memory."""
    engines = [make_engine(reader, torch.device("cpu")) for reader in readers()]
    for engine in engines:
        engine(pictures[:1])  # its session is made
    began = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        starts = range(0, len(pictures), BATCH)
        list(pool.map(lambda start: [engine(pictures[start : start + BATCH]) for engine in engines], starts))
    return time.perf_counter() - began


def readers() -> list:
    """Both backbones, as `fewtags train` reads them."""
    return make_readers([build_backbone(name) for name in BACKBONES], SIZE, 1)


def main() -> None:
    """Print the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=200)
    count = parser.parse_args().images
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "pictures"
        folder.mkdir()
        paint(folder, count)
        pictures = np.stack([square(draw(1, number)[0].resize((500, 375)), SIZE) for number in range(count)])
        caches = [Path(scratch) / f"cache{turn}" for turn in range(2)]
        os.environ["FEWTAGS_CACHE"] = str(caches[0])
        bare(pictures[:1])  # engines are exported once, outside the clock
        (caches[1] / "engines").parent.mkdir()
        (caches[1] / "engines").symlink_to(caches[0] / "engines")
        times = [(stage(folder, cache), bare(pictures)) for cache in caches]
    whole, alone = (sum(one) for one in zip(*times, strict=True))
    turns = len(times) * count
    print(f"feature stage {turns / whole:.1f} images a second, bare forward {turns / alone:.1f}")
    print(f"feature stage / bare forward: {whole / alone:.2f} (limit 1.15)")


if __name__ == "__main__":
    main()
