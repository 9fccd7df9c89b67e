"""The words for encoders: held once, and each is the file of an encoder."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from fewtags.encoders import base
from fewtags.encoders.base import find_encoder
from fewtags.encoders.kinds import EncoderKind, PixelKind
from fewtags.model.saved import ModelInfo
from fewtags.training.options import choices
from fewtags.training.recipe import Recipe


@pytest.mark.parametrize("kind", get_args(EncoderKind))
def test_every_word_is_the_file_of_an_encoder(kind):
    assert find_encoder(kind).kind == kind


def test_every_encoder_has_its_word():
    files = Path(base.__file__).parent.glob("*.py")
    found = [file.stem for file in files if "(Encoder):" in file.read_text(encoding="utf-8")]
    assert sorted(found) == sorted(get_args(EncoderKind))


def test_options_recipe_and_model_accept_the_same_list():
    assert choices("features") == get_args(PixelKind)
    assert set(get_args(PixelKind)) < set(get_args(EncoderKind))
    assert Recipe.model_fields["features"].annotation == EncoderKind
    assert ModelInfo.model_fields["features"].annotation == EncoderKind


def test_the_list_of_options_is_read_without_torch():
    code = "import sys, fewtags.training.options; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
