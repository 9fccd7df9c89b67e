"""All that a run needs to go on exactly where it stopped, in one file that is written whole or not at all."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fewtags.errors import UserError
from fewtags.training.loop import Loop, Position, make_optimisers
from fewtags.utils.files import atomic_write


def save_checkpoint(loop: Loop, path: Path, belongs_to: str) -> None:
    """Write the state of a loop; `belongs_to` is a digest of data, split and settings."""
    tensors = {f"raw/{name}": value for name, value in loop.network.state_dict().items()}
    tensors |= {f"average/{name}": value for name, value in loop.average.network.state_dict().items()}
    tensors |= {f"best/{name}": value for name, value in loop.evaluator.best_weights.items()}
    tensors |= {f"method/{name}": value for name, value in loop.method.state.items()}
    tensors |= {f"tally/{name}": value for name, value in loop.tally.items()}
    for update, optimiser in loop.optimisers.items():
        for number, state in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser/{update}/{number}/{name}": value for name, value in state.items()}
    # safetensors refuses two names for the same memory, so every tensor is copied
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    about = {
        "belongs_to": belongs_to,
        "position": vars(loop.position),
        "spent": loop.spent.read(),
        "evaluator": {name: getattr(loop.evaluator, name) for name in ("best", "last_gain", "top")},
    }
    with atomic_write(path) as file:
        file.write(save(tensors, metadata={"about": json.dumps(about)}))


def load_checkpoint(loop: Loop, path: Path, belongs_to: str) -> None:
    """Put a loop where `save_checkpoint` left it."""
    about, tensors = _read(path)
    if about.get("belongs_to") != belongs_to:
        raise UserError(f"{path} belongs to other data or settings; start a new run with another --out")
    loop.position = Position(**about["position"])
    loop.spent.earlier = tuple(about.get("spent", (0.0, 0.0)))
    loop.network.load_state_dict(_under(tensors, "raw/"))
    loop.average.network.load_state_dict(_under(tensors, "average/"))
    loop.evaluator.best_weights = _under(tensors, "best/")
    for name, value in (about.get("evaluator") or about.get("judge") or {}).items():  # 0.3 wrote "judge"
        setattr(loop.evaluator, name, value)
    loop.method.state.update({k: v.to(loop.fabric.device) for k, v in _under(tensors, "method/").items()})
    loop.tally = _under(tensors, "tally/")
    if loop.stages:
        stage = min(loop.position.stage, len(loop.stages) - 1)
        loop.network.requires_grad_(True).body.requires_grad_(loop.stages[stage].body_learns)
    loop.optimisers = make_optimisers(loop.network, loop.method, loop.recipe.weight_decay)
    for update, optimiser in loop.optimisers.items():
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in _under(tensors, f"optimiser/{update}/").items():
            number, key = name.split("/")
            state.setdefault(int(number), {})[key] = value
        optimiser.load_state_dict({**optimiser.state_dict(), "state": state})


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            about = dict(json.loads((file.metadata() or {})["about"]))
            return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, KeyError, ValueError, TypeError, OSError) as error:
        raise UserError(
            f"{path} is not a checkpoint of fewtags ({error}); delete it, and --resume starts from the beginning"
        ) from error


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
