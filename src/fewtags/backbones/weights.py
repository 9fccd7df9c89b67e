"""Load weight files without unpickling code; the digest of a network."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fewtags.errors import UserError

_PICKLED = (".pth", ".pt")
_WRAPPERS = ("state_dict", "model")  # keys under which training scripts save the weights
_PARALLEL = "module."  # prefix of DataParallel
_COUNTER = "num_batches_tracked"  # missing in old files; not used for inference
_SHOWN = 3  # differing keys shown in a message


def load_weights(module: nn.Module, file: Path, optional: str = "") -> None:
    """Copy the weights of a .safetensors, .pth or .pt file into a module, all of them or none.

    optional: the child that may be missing in the file or have another size (a classifier).
    """
    state = read_weights(file)
    if optional:
        state = _drop_misfit_classifier(state, optional, getattr(module, "width", None))
    _compare(module, state, file, f"{optional}." if optional else "")
    # Not strict because of the counters; everything else was compared above.
    module.load_state_dict(state, strict=False)


def read_weights(file: Path) -> dict[str, Tensor]:
    """Name -> tensor from a weight file, without the wrappers of training scripts."""
    file = Path(file)
    if not file.is_file():
        raise UserError(f"{file}: no such weight file; check the path given with --weights")
    content = _read_safetensors(file) if file.suffix == ".safetensors" else _read_pickled(file)
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not content:
        raise UserError(f"{file}: holds no named weights; save the network's state_dict() instead")
    odd = [name for name, value in content.items() if not (isinstance(name, str) and isinstance(value, Tensor))]
    if odd:
        raise UserError(f"{file}: {odd[0]!r} is not a tensor; save the network's state_dict() and nothing else")
    return {name.removeprefix(_PARALLEL): value for name, value in content.items()}


def digest(module: nn.Module) -> str:
    """sha256 (hex) over name, dtype, shape and bytes of every parameter and buffer, including the input scaling."""
    sha = hashlib.sha256()
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        sha.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        sha.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def _read_safetensors(file: Path) -> Any:
    try:
        return load_file(file)
    except Exception as error:  # a broken file may fail in any way
        raise UserError(f"{file}: not a readable safetensors file ({first_line(error)})") from error


def _read_pickled(file: Path) -> Any:
    if file.suffix not in _PICKLED:
        raise UserError(f"{file}: weights are read from .safetensors, .pth or .pt files")
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken or hostile file may fail in any way
        raise UserError(
            f"{file}: not a file of plain tensors, so nothing in it was run or loaded; save the network's "
            "state_dict(), best as .safetensors"
        ) from error


def _drop_misfit_classifier(state: dict[str, Tensor], optional: str, width: int | None) -> dict[str, Tensor]:
    """The state, without its classifier if that does not fit vectors of this width."""
    weight, bias = state.get(f"{optional}.weight"), state.get(f"{optional}.bias")
    if weight is not None and bias is not None and weight.shape == (len(bias), width):
        return state
    return {name: value for name, value in state.items() if not name.startswith(f"{optional}.")}


def _compare(module: nn.Module, state: dict[str, Tensor], file: Path, optional: str) -> None:
    def shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
        return {
            name: tuple(value.shape)
            for name, value in tensors.items()
            if not name.endswith(_COUNTER) and not (optional and name.startswith(optional))
        }

    expected, found = shapes(module.state_dict()), shapes(state)
    names = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
    if not names:
        return
    lines = [
        f"  {name}: {_shown(found.get(name))} in the file, {_shown(expected.get(name))} in the network"
        for name in names[:_SHOWN]
    ]
    more = f"\n  and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    called = getattr(module, "name", type(module).__name__)
    raise UserError(
        f"{file}: these are not weights of {called}; choose the backbone that the file belongs to\n"
        + "\n".join(lines)
        + more
    )


def _shown(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "×".join(map(str, shape)) or "one number"


def first_line(error: Exception) -> str:
    """The first line of an error message."""
    return (str(error).splitlines() or [type(error).__name__])[0]
