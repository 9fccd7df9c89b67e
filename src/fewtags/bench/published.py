"""The figures published in the papers (mAP, CF1, OF1 in percent), for comparison."""

from dataclasses import dataclass

SHARES = (0.01, 0.05, 0.10, 0.15, 0.20)

# Xiao et al., ECCV 2024: mAP by share, seed 1, ResNet-50 at 224 px.
_MAP = {
    "voc": {
        "BCE": (16.71, 67.95, 75.35, 78.19, 79.38),
        "ASL": (34.81, 71.46, 78.00, 79.69, 80.77),
        "LL-*": (36.01, 75.79, 81.04, 82.36, 83.68),
        "PLC": (43.91, 74.49, 80.35, 82.35, 83.39),
        "Top-*": (38.61, 75.77, 80.78, 82.65, 83.72),
        "IAT": (34.39, 73.24, 80.27, 82.39, 83.55),
        "ADSH": (45.06, 75.37, 80.34, 82.80, 83.93),
        "FreeMatch": (44.98, 75.11, 80.66, 82.63, 83.60),
        "DRML": (38.90, 61.77, 71.01, 72.98, 74.49),
        "CAP": (41.28, 76.16, 82.16, 83.48, 84.41),
        "D2L + MAT": (49.09, 79.26, 84.06, 86.25, 87.16),
    },
    "coco": {
        "BCE": (44.11, 58.90, 63.75, 65.91, 67.33),
        "ASL": (44.87, 59.12, 63.82, 66.10, 67.51),
        "LL-*": (45.36, 59.33, 64.25, 66.69, 68.12),
        "PLC": (48.95, 59.85, 65.03, 67.62, 69.14),
        "Top-*": (48.40, 58.25, 63.52, 66.11, 67.49),
        "IAT": (46.41, 60.34, 65.54, 67.88, 69.25),
        "ADSH": (47.93, 60.75, 65.37, 67.70, 69.01),
        "FreeMatch": (47.10, 59.94, 64.46, 66.79, 68.04),
        "DRML": (39.12, 53.60, 57.06, 58.53, 59.24),
        "CAP": (52.40, 62.43, 67.36, 69.11, 70.41),
        "D2L + MAT": (56.59, 69.30, 73.06, 74.63, 75.70),
    },
    "nus": {
        "BCE": (29.58, 41.09, 45.39, 47.30, 48.36),
        "ASL": (30.51, 42.87, 46.50, 48.42, 49.65),
        "LL-*": (20.70, 40.20, 44.95, 47.32, 48.31),
        "PLC": (33.59, 43.55, 47.51, 49.75, 50.71),
        "Top-*": (26.84, 40.99, 45.07, 47.43, 48.49),
        "IAT": (26.28, 42.58, 46.60, 48.76, 49.62),
        "ADSH": (33.13, 43.94, 47.28, 49.22, 49.93),
        "FreeMatch": (32.10, 43.12, 46.65, 48.74, 49.59),
        "DRML": (17.40, 30.61, 35.09, 37.91, 39.98),
        "CAP": (24.75, 44.82, 48.24, 49.90, 51.06),
        "D2L + MAT": (38.09, 46.86, 50.25, 51.61, 52.64),
    },
}  # fmt: skip
_ABLATION = {  # from 5 % upwards
    "voc": {"MAT": (76.87, 82.59, 84.29, 85.16), "MAT + CDD": (77.11, 83.48, 85.72, 86.55)},
    "coco": {"MAT": (65.03, 68.87, 70.54, 71.54), "MAT + CDD": (66.07, 70.72, 72.92, 74.26)},
    "nus": {"MAT": (45.26, 48.88, 50.23, 51.20), "MAT + CDD": (45.74, 49.30, 50.83, 52.04)},
}
_CF1 = {
    "voc": {"D2L + MAT": (41.15, 68.50, 75.94, 77.14, 79.37), "CAP": (44.54, 69.86, 75.63, 77.09, 77.88)},
    "coco": {"D2L + MAT": (55.32, 65.65, 68.70, 69.83, 70.74), "CAP": (52.70, 60.66, 64.11, 65.40, 66.30)},
    "nus": {"D2L + MAT": (42.17, 47.47, 50.77, 51.35, 52.31), "CAP": (28.81, 47.14, 49.94, 51.14, 52.37)},
}
_OF1 = {
    "voc": {"D2L + MAT": (35.63, 72.23, 79.38, 80.54, 82.44), "CAP": (33.57, 73.98, 78.39, 79.83, 80.80)},
    "coco": {"D2L + MAT": (62.67, 70.88, 73.50, 74.33, 75.10), "CAP": (59.99, 66.09, 68.85, 69.94, 70.71)},
    "nus": {"D2L + MAT": (40.65, 66.23, 68.50, 68.74, 69.15), "CAP": (35.26, 66.92, 68.09, 68.62, 69.23)},
}
_DICAP = {"voc": {0.05: 83.53, 0.10: 87.92}, "coco": {0.05: 70.07, 0.10: 73.55}, "nus": {0.05: 48.37}}


@dataclass(frozen=True)
class Published:
    """The published figures of one data set."""

    data: str  # voc, coco, nus
    protocol: str  # how the papers' figures and ours were obtained

    def figure(self, label: str, name: str, share: float | None) -> float | None:
        """mAP, CF1 or OF1 of a row at a share; None if not published."""
        if label == "DiCaP":
            return _DICAP[self.data].get(share or 0.0) if name == "map" else None
        if share not in SHARES:
            return None
        place = SHARES.index(share)
        if name == "map" and label in _ABLATION[self.data]:
            return _ABLATION[self.data][label][place - 1] if place else None
        table = {"map": _MAP, "cf1": _CF1, "of1": _OF1}.get(name, {}).get(self.data, {})
        return table[label][place] if label in table else None


def published(data: str, ours: str) -> Published | None:
    """The papers' figures for a data set (`voc:PATH`, …) or None; ours: a description of our protocol."""
    kind = data.partition(":")[0]
    if kind not in _MAP:
        return None
    return Published(
        kind,
        "paper: seed 1, ResNet-50 with ImageNet weights at 224 px, every weight learns (12 + 28 epochs), the epoch is "
        "chosen by mAP on the test split, CF1 and OF1 by each method's own rule (DiCaP: its own paper, an ML-Decoder "
        f"head); here: {ours}",
    )
