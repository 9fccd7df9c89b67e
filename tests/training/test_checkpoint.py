"""Checkpoints of an older version."""

import json

from safetensors import safe_open
from safetensors.torch import save_file

from fewtags.training.checkpoint import load_checkpoint, save_checkpoint
from small_runs import tiny_loop


def test_a_checkpoint_of_0_3_is_gone_on_with(tmp_path):
    loop = tiny_loop()
    loop.evaluator.top = {"raw": 0.25}
    file, older = tmp_path / "new.safetensors", tmp_path / "old.safetensors"
    save_checkpoint(loop, file, "run")
    with safe_open(file, framework="pt") as content:
        about = json.loads(content.metadata()["about"])
        tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    about["judge"] = about.pop("evaluator")  # as 0.3 called it
    save_file(tensors, older, metadata={"about": json.dumps(about)})
    again = tiny_loop()
    load_checkpoint(again, older, "run")
    assert again.evaluator.top == {"raw": 0.25}
