"""An exported model against torch: decisions and scores on random images of random sizes.

    python benchmarks/export.py RUN [IMAGES]

Torch does all the arithmetic on one side, ONNX Runtime on the other.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from fewtags.encoders import crops, evidence
from fewtags.encoders.runtime import TorchEngine
from fewtags.model.onnx_export import export_onnx
from fewtags.model.onnx_tagger import OnnxTagger
from fewtags.model.tagger import Tagger


class RandomImages:
    """Images drawn from their numbers: noise in cells of 1 to 64 px between two colours, 16 to 600 px per side."""

    def image(self, name: str) -> Image.Image:
        """The image of this number."""
        rng = np.random.default_rng(int(name))
        height, width, cell = rng.integers(16, 601), rng.integers(16, 601), rng.integers(1, 65)
        lowest, highest = np.sort(rng.integers(0, 256, (2, 3)), axis=0)
        pixels = rng.integers(lowest, highest + 1, (height // cell + 1, width // cell + 1, 3)).astype(np.uint8)
        return Image.fromarray(pixels.repeat(cell, 0).repeat(cell, 1)[:height, :width])

    def fingerprint(self, name: str) -> bytes:
        """Nothing is kept."""
        return name.encode()


def main(run: Path, count: int) -> None:
    for module in (crops, evidence):
        module.make_engine = lambda reader, device: TorchEngine(reader, device)  # type: ignore[assignment]
    names = [str(number) for number in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        export_onnx(run, file)
        taggers = (Tagger(run), OnnxTagger(file))
        ours, theirs = (np.stack([found.value for found in one.scores(names, RandomImages())]) for one in taggers)
        limits = np.array(list(taggers[0].thresholds.values()))
    middle = np.median(ours, axis=0) + 1e-6  # half of the images reach it: more decisions, and closer ones
    for name, thresholds in (("its own thresholds", limits), ("the medians as thresholds", middle)):
        given, differ = ours >= thresholds, (ours >= thresholds) != (theirs >= thresholds)
        print(f"{name}: {given.mean():.1%} of {given.size:,} given, {differ.sum()} decided otherwise")
    print(f"scores differ by at most {np.abs(ours - theirs).max():.1e}; they spread by {ours.std(0).mean():.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
