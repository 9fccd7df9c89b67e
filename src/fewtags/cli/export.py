"""`fewtags export`: a trained model as one ONNX file, or as a folder with a model card."""

import shlex
from pathlib import Path

from fewtags.errors import UserError

SUFFIX = ".onnx"


def run_export(run: Path, target: Path, form: str, method: str | None) -> None:
    """Check what can be checked before anything is loaded, write, and say how to go on."""
    _check_target(target, form)
    from fewtags.training.run_folder import RunFolder

    folder = RunFolder(run)
    if folder.config_file.is_file() and not folder.finished:
        raise UserError(f"{run}: its training has not ended; go on with `fewtags train … --out {run} --resume`")
    methods = [method] if method else []
    if form == "onnx":
        from fewtags.model.onnx_export import export_onnx

        difference = export_onnx(run, target, methods)
        size = target.stat().st_size / 1e6
        print(f"{target}: {size:,.0f} MB, scores within {max(difference, 1e-7):.0e} of torch's on random inputs")
    else:
        from fewtags.report.model_folder import export_folder

        export_folder(run, target, methods)
        print(f"{target}: model.json, model.safetensors and README.md, the model card")
    print(f"tag images with it: fewtags tag {shlex.quote(str(target))} IMAGES --out tags.csv")


def _check_target(target: Path, form: str) -> None:
    if form == "onnx" and target.suffix.lower() != SUFFIX:
        raise UserError(f"{target}: name a file that ends in {SUFFIX}, or add --format safetensors for a folder")
    if form == "safetensors" and target.suffix.lower() in (SUFFIX, ".safetensors", ".json"):
        raise UserError(f"{target}: --format safetensors writes a folder; name it without {target.suffix}")
    if form == "onnx" and target.is_dir():
        raise UserError(f"{target} is a folder; name a file, such as {target / 'model.onnx'}")
    if not target.absolute().parent.is_dir():
        raise UserError(f"{target}: there is no folder {target.parent}; make it first, or name another place")
