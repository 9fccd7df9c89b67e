"""The model as a folder that `fewtags tag` accepts, with a model card."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fewtags.errors import Fault, UserError
from fewtags.model.saved import load_model
from fewtags.report.card import model_card
from fewtags.utils.files import write_text


def export_folder(run: Path, folder: Path, methods: Sequence[str] = ()) -> None:
    """Write model.json, model.safetensors and README.md into a new folder; all of it or nothing."""
    info = load_model(run, methods).info  # also finds out whether the files are whole
    card = model_card(run, info)
    source = run / "model" if (run / "model").is_dir() else run
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not empty; name a new folder")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as name:
        made = Path(name) / "made"
        made.mkdir()  # with the usual rights, which a temporary folder does not have
        try:
            for file in ("model.safetensors", "model.json"):
                shutil.copyfile(source / file, made / file)
            write_text(made / "README.md", card)
            made.replace(folder)
        except OSError as error:
            raise Fault(f"{folder} could not be written ({error.strerror or error})") from error
