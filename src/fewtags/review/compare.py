"""What corrections have brought: the model before and the model after them, on the same images."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewtags.errors import UserError
from fewtags.metrics import f1_scores, mean_average_precision
from fewtags.model.saved import read_info
from fewtags.training.run_folder import RunFolder

Scores = NDArray[np.float32]
LEAST = 10  # images; with fewer a comparison says nothing
SHOWN = 0.005  # a fall of the estimate that is worth a sentence


def compare(before: RunFolder, after: RunFolder) -> dict[str, Any] | None:
    """Figures of both models on all images that are labelled now, and on those that were labelled before too.

    Every score comes from a model that had not learned the image's label. The labels are those after the corrections.
    None where there is too little to compare.
    """
    old, new = _known_scores(before), _known_scores(after)
    names = [name for name in new.labels if name in old.scores]
    was = [name for name in names if name in old.labels]
    if len(names) < LEAST or old.tags != new.tags:
        return None
    found: dict[str, Any] = {
        "images": len(names),
        "before": _figures(old, names, new.labels),
        "after": _figures(new, names, new.labels),
    }
    if len(was) >= LEAST and len(was) < len(names):
        found["shared_images"] = len(was)
        found["shared_before"] = _figures(old, was, new.labels)
        found["shared_after"] = _figures(new, was, new.labels)
    estimates = [one.result().get("estimate") for one in (before, after)]
    found["text"] = _sentence(found, *[None if one is None else one["of1"] for one in estimates])
    return found


class _Known:
    """Scores by name of images that a run's model can be judged on, and their labels."""

    def __init__(self, folder: RunFolder) -> None:
        tables, names, info = folder.scores(), folder.split(), read_info(folder.model_folder / "model.json")
        self.tags, self.thresholds = info.tags, np.array(info.threshold_values())
        part = "held_out" if names["held_out"] else "labelled"
        held, known = tables.get("held_out"), tables.get("held_out_targets")
        self.scores: dict[str, Scores] = {}
        self.labels: dict[str, NDArray[np.int8]] = {}
        if held is not None and known is not None:
            self.scores |= dict(zip(names[part], held, strict=True))
            self.labels |= dict(zip(names[part], known, strict=True))
        if "unlabelled" in tables:
            self.scores |= dict(zip(names["unlabelled"], tables["unlabelled"], strict=True))


def _known_scores(folder: RunFolder) -> _Known:
    try:
        return _Known(folder)
    except ValueError as error:
        raise UserError(f"{folder.scores_file} does not fit {folder.split_file} ({error}); train again") from error


def _figures(model: _Known, names: list[str], labels: dict[str, NDArray[np.int8]]) -> dict[str, float]:
    scores, truth = np.stack([model.scores[name] for name in names]), np.stack([labels[name] for name in names])
    f1 = f1_scores((scores >= model.thresholds).astype(np.int8), truth)
    mean = mean_average_precision(scores, truth)
    return {"map": mean if np.isfinite(mean) else 0.0, "of1": f1["of1"]}


def _sentence(found: dict[str, Any], estimated_before: float | None, estimated_after: float | None) -> str:
    def change(first: str, second: str) -> str:
        pairs = [f"{word} {100 * found[first][key]:.1f} → {100 * found[second][key]:.1f}"
                 for key, word in (("of1", "OF1"), ("map", "mAP"))]  # fmt: skip
        return ", ".join(pairs)

    text = f"what the corrections brought, on the same {found['images']:,} labelled images: {change('before', 'after')}"
    if estimated_before is None or estimated_after is None or "shared_images" not in found:
        return text
    if estimated_after < estimated_before - SHOWN:
        text += (
            f". The estimate is lower than before (OF1 {100 * estimated_before:.1f} → {100 * estimated_after:.1f}) "
            f"because harder images joined: on the {found['shared_images']:,} labelled before, "
            f"{change('shared_before', 'shared_after')}"
        )
    return text
