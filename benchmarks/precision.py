"""Frozen forwards in int8, float16 and bfloat16 against float32: speed and features side by side.

    python benchmarks/precision.py [--images 32] [--rounds 5] [--voc PATH]

Every backbone is read as `fewtags train` reads it, with one thread; float32 is the file that OnnxEngine runs. All
take turns on the same pictures, so that a busy machine slows all of them. --voc PATH (a folder with VOCdevkit) takes
photographs instead of drawn scenes and adds the mAP of a regression on float32 and on int8 features.
"""

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.transformers.float16 import convert_float_to_float16
from torch import Tensor

from fewtags.backbones.base import build_backbone
from fewtags.data import Catalogue, Role, read
from fewtags.encoders.runtime import BATCH, exported
from fewtags.encoders.windows import WindowReader, make_readers, square
from fewtags.metrics.multilabel import mean_average_precision
from fewtags.scenes.draw import draw
from fewtags.solvers.regression import fit_regression

SIZE = 448
BACKBONES = ("efficientnet_lite0", "efficientnet_lite2")
CALIBRATION = 64  # pictures that give the ranges of the maps
LABELLED, HELD_OUT, SEED = 285, 1432, 1001
REDRAWS = 10  # other draws of the labelled images: one draw cannot show 0.2 mAP
STRENGTH = 0.003

Pictures = NDArray[np.uint8]  # [n, SIZE, SIZE, 3]
Engine = Callable[[Pictures], NDArray[np.float32]]  # a batch -> features [n, width]


class Calibration(CalibrationDataReader):
    """Pictures one by one, as quantize_static asks for them."""

    def __init__(self, pictures: Pictures) -> None:
        self._left: Iterator[Pictures] = iter(pictures)

    def get_next(self) -> dict[str, Pictures] | None:
        """The next input of the model, None after the last."""
        picture = next(self._left, None)
        return None if picture is None else {"pictures": picture[None]}


def onnx_engine(file: Path) -> Engine:
    """A model in ONNX Runtime with one thread, as OnnxEngine sets it up."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda pictures: session.run(None, {"pictures": pictures})[0][:, 0]


def torch_engine(reader: WindowReader, bfloat16: bool) -> Engine:
    """Eager torch, channels last."""
    folded = reader.folded().to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def run(pictures: Pictures) -> NDArray[np.float32]:
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            return folded(torch.from_numpy(pictures).permute(0, 3, 1, 2)).float()[:, 0].numpy()

    return run


def int8_file(reader: WindowReader, calibration: Pictures, folder: Path) -> Path:
    """The convolutions in int8, a scale for each channel of their weights; classifier and softmax stay float32."""
    file = folder / f"{reader.name}-int8.onnx"
    logging.disable(logging.WARNING)  # it advises folding norms, which `folded` has done
    quantize_static(
        exported(reader.folded(), SIZE),
        file,
        Calibration(calibration),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["Conv", "Clip"],
        per_channel=True,
        # Weights of 7 bits: without VNNI pairs of products are added in 16 bits, where 8 bits overflow.
        reduce_range=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    logging.disable(logging.NOTSET)
    return file


def float16_file(reader: WindowReader, folder: Path) -> Path:
    file = folder / f"{reader.name}-float16.onnx"
    onnx.save(convert_float_to_float16(onnx.load(exported(reader.folded(), SIZE)), keep_io_types=True), file)
    return file


def why_no_bfloat16() -> str:
    """What ONNX Runtime says to one convolution in bfloat16; empty if it has a kernel for it."""
    kind = onnx.TensorProto.BFLOAT16
    shapes = {"x": [1, 8, 8, 8], "weight": [8, 8, 1, 1]}
    inputs = [onnx.helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    output = onnx.helper.make_tensor_value_info("y", kind, None)
    graph = onnx.helper.make_graph([onnx.helper.make_node("Conv", list(shapes), ["y"])], "one", inputs, [output])
    # Conv knows bfloat16 from opset 22 on.
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - the runtime's own exceptions have no common name
        return str(error)
    return ""


def compare(reader: WindowReader, engines: dict[str, Engine], pictures: Pictures, rounds: int) -> None:
    """Print every engine's speed over the first one's and the cosine of the blocks of their features."""
    times: dict[str, list[float]] = {name: [] for name in engines}
    found = {}
    for engine in engines.values():
        engine(pictures[:1])  # first calls reserve memory
    for _ in range(rounds):
        for name, engine in engines.items():
            began = time.perf_counter()
            found[name] = np.concatenate([engine(batch) for batch in batches(pictures)])
            times[name].append(time.perf_counter() - began)
    first = next(iter(engines))
    for name in engines:
        ratios = np.array(times[first]) / np.array(times[name])
        speed = f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"
        print(f"{reader.name} {name}: speed / {first} {speed}, cosines {cosines(reader, found[first], found[name])}")


def cosines(reader: WindowReader, wanted: NDArray[np.float32], given: NDArray[np.float32]) -> str:
    """The mean over pictures for every block."""
    ends = np.cumsum([0, *(block.width for block in reader.blocks)])
    parts = []
    for block, (start, end) in zip(reader.blocks, pairwise(ends), strict=True):
        one, other = (torch.from_numpy(features[:, start:end]) for features in (wanted, given))
        parts.append(f"{block.kind} {torch.cosine_similarity(one, other).mean():.4f}")
    return ", ".join(parts)


def batches(pictures: Pictures) -> list[Pictures]:
    return [pictures[start : start + BATCH] for start in range(0, len(pictures), BATCH)]


def drawn(count: int) -> Pictures:
    return np.stack([square(draw(1, number)[0].resize((500, 375)), SIZE) for number in range(count)])


def photographs(catalogue: Catalogue, rows: NDArray[np.int64]) -> Pictures:
    return np.stack([square(catalogue.images.image(catalogue.names[int(row)]), SIZE) for row in rows])


def compare_map(
    readers: list[WindowReader], engines: dict[str, list[Engine]], catalogue: Catalogue, rows: NDArray[np.int64]
) -> None:
    """Print the held-out mAP of every precision for each backbone and for all; the first LABELLED rows are learnt."""
    targets = torch.from_numpy(catalogue.targets[rows])
    found: dict[str, list[list[Tensor]]] = {name: [[] for _ in readers] for name in engines}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(rows), 16 * BATCH):
            pictures = batches(photographs(catalogue, rows[start : start + 16 * BATCH]))
            for name, many in engines.items():
                for place, (reader, engine) in enumerate(zip(readers, many, strict=True)):
                    made = torch.from_numpy(np.concatenate(list(pool.map(engine, pictures))))
                    kept = [made[:, left:right] for left, right in reader.columns("both")]
                    found[name][place].append(torch.cat(kept, dim=1))
    features = {name: [torch.cat(chunks).double() for chunks in parts] for name, parts in found.items()}
    orders = [np.arange(len(rows))]
    orders += [np.random.default_rng(number).permutation(len(rows)) for number in range(REDRAWS)]
    for place, what in enumerate([*(reader.name for reader in readers), "all"]):
        maps = {}
        for name, parts in features.items():
            x = torch.cat(parts, dim=1) if what == "all" else parts[place]
            maps[name] = np.array([held_out_map(x[order], targets[order]) for order in orders])
        first = next(iter(maps))
        for name, values in maps.items():
            changes = (values - maps[first])[1:]
            # No standard error: the draws share most of their images.
            span = f"{changes.mean():+.2f} ({changes.min():+.2f} to {changes.max():+.2f})"
            more = f"; in {len(changes)} other draws {span} against {first}"
            print(f"mAP, {what}, {name}: {values[0]:.2f}{more if name != first else ''}")


def held_out_map(x: Tensor, targets: Tensor) -> float:
    """In percent. The labelled images alone give mean and scale, as in training.evidence.coordinates."""
    x = x - x[:LABELLED].mean(0)
    x = x / x[:LABELLED].square().sum(1).mean().sqrt()
    fitted = fit_regression(x[:LABELLED], targets[:LABELLED], STRENGTH)
    return 100 * mean_average_precision(fitted.logits(x[LABELLED:]).numpy(), targets[LABELLED:].numpy())


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--voc", type=Path, help="folder with VOCdevkit: adds mAP")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    needed = CALIBRATION + arguments.images
    if arguments.voc:
        catalogue = read(f"voc:{arguments.voc}")
        order = np.random.RandomState(SEED).permutation(catalogue.rows(Role.LABELLED))
        rows = np.concatenate([order[:LABELLED], order[-HELD_OUT:]])
        some = photographs(catalogue, order[LABELLED : LABELLED + needed])  # neither labelled nor held out
    else:
        some = drawn(needed)
    calibration, pictures = some[:CALIBRATION], some[CALIBRATION:]
    print(f"ONNX Runtime, a convolution in bfloat16: {why_no_bfloat16() or 'has a kernel'}")
    readers = make_readers([build_backbone(name) for name in BACKBONES], SIZE, 1)
    engines: dict[str, list[Engine]] = {"float32": [], "int8": []}
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["FEWTAGS_CACHE"] = scratch
        for reader in readers:
            engines["float32"].append(onnx_engine(exported(reader, SIZE)))
            engines["int8"].append(onnx_engine(int8_file(reader, calibration, Path(scratch))))
            pair = {name: many[-1] for name, many in engines.items()}
            compare(reader, pair, pictures, arguments.rounds)
            slow = {
                "float32": engines["float32"][-1],
                "float16": onnx_engine(float16_file(reader, Path(scratch))),
                "torch float32": torch_engine(reader, bfloat16=False),
                "torch bfloat16": torch_engine(reader, bfloat16=True),
            }
            compare(reader, slow, pictures[:2], 1)  # seconds a picture where the CPU has no bfloat16
        if arguments.voc:
            compare_map(readers, engines, catalogue, rows)


if __name__ == "__main__":
    main()
