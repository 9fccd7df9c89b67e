"""The one place where ONNX Runtime is opened; torch is not imported here."""

from pathlib import Path
from typing import Any

from fewtags.errors import UserError
from fewtags.utils.extras import install_command

OPEN_AGAIN = "it is no ONNX file, damaged, or newer than the runtime: copy or export it again"


def open_session(model: Path | bytes, name: str = "the exported model") -> Any:
    """An ONNX file, or its bytes under a name, opened for use by many threads with one core each."""
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError(f"an .onnx file needs ONNX Runtime; run: {install_command('onnx')}") from error
    if isinstance(model, Path):
        name = str(model)
        if not model.is_file():
            raise UserError(f"{model}: there is no such file; give a file that `fewtags export` wrote, or a run folder")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # cores are shared out among pictures, not within one
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.log_severity_level = 4  # its errors reach the user as ours
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's errors have no common kind
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{name}: ONNX Runtime cannot open this; {OPEN_AGAIN} ({reason})") from error
