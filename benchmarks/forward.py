"""How far images-to-tags is from the bare arithmetic, and what the engine gives. Prints ratios measured side by side.

python benchmarks/forward.py [--images 2000]
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from fewtags.backbones.base import build_backbone
from fewtags.encoders.base import EncoderSettings
from fewtags.encoders.crops import Crops
from fewtags.encoders.runtime import BATCH, OnnxEngine, TorchEngine
from fewtags.methods import make_method
from fewtags.model.network import Network
from fewtags.model.saved import Model, ModelInfo, save_model
from fewtags.model.tagger import Tagger
from fewtags.scenes.draw import draw

SIZE, PATCHES, CHUNK = 224, 2, 50


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def make_model(folder: Path) -> None:
    encoder = Crops([build_backbone("efficientnet_lite0")], EncoderSettings(size=SIZE, patches=PATCHES))
    method = make_method("asl", {"patches": PATCHES})
    info = ModelInfo(
        fewtags="benchmark",
        method="asl",
        method_settings=method.model_dump(),
        tags=[f"tag{number}" for number in range(20)],
        thresholds=[0.5] * 20,
        learned_from=0,
        adapter=512,
        features="crops",
        **encoder.state(),
    )
    network = Network(method.build_body(encoder.width, 512), method.restore_heads(encoder.width, 20, 0))
    save_model(folder, Model(info, encoder, network, method))


def bare_forward(engine: OnnxEngine, pictures: np.ndarray) -> None:
    """The same number of forwards of the same engine on pictures that are there already."""
    starts = range(0, len(pictures), BATCH)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda start: engine(pictures[start : start + BATCH]), starts))


def compare_tagging(images: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(folder / "model")
        tagger = Tagger(folder)
        files = []
        for index in range(CHUNK):  # a few files many times: reading them stays what it is, drawing is not measured
            files.append(str(folder / f"{index}.jpg"))
            draw(1, index)[0].resize((500, 375)).save(files[-1], quality=90)
        pictures = np.random.default_rng(1).integers(0, 256, (CHUNK * (1 + PATCHES**2), SIZE, SIZE, 3), dtype=np.uint8)
        engine = OnnxEngine(build_backbone("efficientnet_lite0").eval())
        tagger.tag(files[:2])
        bare_forward(engine, pictures[:8])
        tagging = bare = 0.0
        for _ in range(images // CHUNK):  # in turns, so that both meet the same noise
            tagging += seconds(lambda: tagger.tag(files))
            bare += seconds(lambda: bare_forward(engine, pictures))
    print(f"tagging {images} images: {images / tagging:.1f} images/s, bare forward {images / bare:.1f} images/s")
    print(f"ratio tagging / bare forward: {tagging / bare:.2f} (at most 1.3)")


def compare_engines(count: int = 256) -> None:
    backbone = build_backbone("efficientnet_lite0").eval()
    pictures = np.random.default_rng(1).integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8)
    onnx, eager = OnnxEngine(backbone), TorchEngine(backbone, torch.device("cpu"))
    difference = np.abs(onnx(pictures[:8]) - eager(pictures[:8])).max()
    fast = slow = 0.0
    for _ in range(3):
        fast += seconds(lambda: bare_forward(onnx, pictures))
        slow += seconds(lambda: eager(pictures))
    print(f"frozen forward, {SIZE} px: ONNX Runtime {3 * count / fast:.0f}/s, eager torch {3 * count / slow:.0f}/s")
    print(f"ratio ONNX Runtime / eager torch: {slow / fast:.2f}; largest difference of a feature {difference:.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2000)
    arguments = parser.parse_args()
    compare_engines()
    compare_tagging(arguments.images)
