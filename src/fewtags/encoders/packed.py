"""An encoder as bytes: it can be sent to another process or machine, and reading it runs no code."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from safetensors.torch import load, save

from fewtags.encoders.base import Encoder, EncoderSettings, find_encoder
from fewtags.encoders.kinds import EncoderKind
from fewtags.errors import UserError

NAMELESS = Path("a packed encoder")  # in the place of a file, in messages
ABSENT = {"blocks": None, "components": None, "words": None}  # what model.json says where an encoder has no such thing


def pack_encoder(encoder: Encoder) -> bytes:
    """The content of a safetensors file: its tensors, and as metadata what it was told and what it learned.

    What comes of it extracts, encodes and finishes as the encoder does, byte for byte; what `fit` tried on the way to
    its choice stays behind. An hf: or timm: backbone needs its library, and an hf: one its config.json, where it is
    unpacked.
    """
    about = {"kind": encoder.kind, "state": encoder.state(), "settings": asdict(encoder.settings)}
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in encoder.tensors().items()}
    return save(tensors, {"encoder": json.dumps(about)})


def unpack_encoder(packed: bytes) -> Encoder:
    """The encoder that was packed."""
    about = _about(packed)
    if about["kind"] not in get_args(EncoderKind):  # the word becomes the name of a module
        raise UserError(f"{NAMELESS} is of the unknown kind {about['kind']!r}; pack it with this version of fewtags")
    encoder = find_encoder(about["kind"]).restore({**ABSENT, **about["state"]}, load(packed), NAMELESS)
    # a model says only what tagging needs: the draws of strong views, for one, it leaves out
    encoder.settings = _settings(about["settings"])
    return encoder.with_backbones(encoder.backbones)


def _settings(told: dict[str, Any]) -> EncoderSettings:
    """JSON knows lists only; settings hold tuples."""
    kept: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in told.items()}
    return EncoderSettings(**kept)


def _about(packed: bytes) -> dict[str, Any]:
    """The metadata: a safetensors file begins with eight bytes, the length of the JSON after them."""
    end = 8 + int.from_bytes(packed[:8], "little")
    about: dict[str, Any] = json.loads(json.loads(packed[8:end])["__metadata__"]["encoder"])
    return about
