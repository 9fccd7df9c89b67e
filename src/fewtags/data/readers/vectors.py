"""`vectors:FILE`: vectors that somebody computed already, of images, texts or sounds; labels in a CSV keyed by id.

| file | vectors | ids (else the row's number) | labels inside the file | pictures to show |
|---|---|---|---|---|
| .npy | the array [n, D] | – | – | – |
| .npz | `vectors` | `ids` | `labels` [n, K] of 1, 0, -1 and `tags` | `paths` |
| .safetensors | `vectors` | JSON list `ids` in the metadata | `labels` and `tags` likewise | `paths` likewise |
| .parquet | column `vector` | column `id` | – | column `path` |

Labels that are not in the file stand in labels.csv beside it, or where --labels says, as for a folder of images.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewtags.data.catalogue import UNKNOWN, Catalogue, Names, Role
from fewtags.data.images import path_within
from fewtags.data.labels.csv_file import LabelFile, Problems, tag_error
from fewtags.data.labels.targets import read_table
from fewtags.data.readers.folder import LABELS
from fewtags.data.vectors import VectorSource
from fewtags.errors import BadImage, UserError
from fewtags.utils.extras import install_command, missing
from fewtags.utils.files import atomic_write

TAKES_LABELS = True
_BLOCK = 4096  # rows that are checked at a time
# what numpy and zipfile raise for files that are damaged or of another kind
_UNREADABLE = (
    *(ValueError, TypeError, AttributeError, OSError, EOFError, KeyError, SyntaxError),
    *(TokenError, BadZipFile, zlib.error),
)


class VectorFile(NamedTuple):
    """What a file of vectors holds."""

    vectors: NDArray[Any]  # [n, D]
    ids: Sequence[str] | None = None
    labels: NDArray[Any] | None = None  # [n, K]
    tags: Sequence[str] | None = None
    paths: Sequence[str] | None = None


def read(place: str, labels: Path | None = None, seed: int = 1) -> Catalogue:
    """See fewtags.data.readers."""
    file, content = _content(place)
    ids, source = _source(file, content)
    if content.labels is not None and labels is None:
        return _catalogue(source, ids, _checked_labels(content.labels, len(ids), str(file)), content.tags, str(file))
    return _with_labels(source, ids, file, labels)


def read_vectors(place: str) -> tuple[list[str], VectorSource]:
    """The ids and vectors of a file, whatever it says of labels."""
    return _source(*_content(place))


def _content(place: str) -> tuple[Path, VectorFile]:
    file = Path(place)
    if not file.is_file():
        raise UserError(f"vectors:{place}: there is no such file; name a {', '.join(_READERS)} file")
    if file.suffix.lower() not in _READERS:
        raise UserError(f"vectors:{place}: of an unknown kind; there are {', '.join(_READERS)}")
    return file, _READERS[file.suffix.lower()](file)


def _source(file: Path, content: VectorFile) -> tuple[list[str], VectorSource]:
    vectors = _checked_vectors(content.vectors, str(file))
    ids = _checked_ids(content.ids, len(vectors), str(file))
    pictures: dict[str, Path] = {}
    if content.paths is not None:
        texts = _texts([path or "" for path in list(content.paths)], "paths", str(file))
        pictures = {name: _picture(file, path) for name, path in zip(ids, texts, strict=True) if path}
    return ids, VectorSource(vectors, ids, pictures)


def _picture(file: Path, path: str) -> Path:
    """Where a picture lies: below the folder of the file, and nowhere else."""
    try:
        return path_within(file.parent, path)
    except BadImage as error:
        raise UserError(f"{file}: the path {path!r} {error}") from error


def catalogue_of_arrays(
    vectors: ArrayLike, labels: ArrayLike | None, ids: Sequence[str] | None, tags: Sequence[str] | None
) -> Catalogue:
    """Vectors [n, D] and labels [n, K] in memory: 1, 0, or -1 for unknown; a row of -1 is unlabelled."""
    if labels is None:
        raise UserError("vectors need labels=[n, K] of 1, 0 and -1 for unknown")
    rows = _checked_vectors(_array(vectors, "vectors"), "vectors")
    names = _checked_ids(ids, len(rows), "ids")
    return _catalogue(VectorSource(rows, names), names, _checked_labels(labels, len(rows), "labels"), tags, "labels")


def write_arrays(file: Path, catalogue: Catalogue) -> None:
    """Write a catalogue of vectors so that `read` gives it again."""
    source = catalogue.images
    if not isinstance(source, VectorSource):
        raise TypeError("not a catalogue of vectors")
    names = list(catalogue.names)
    with atomic_write(file) as out:
        np.savez(
            out,
            vectors=source.vectors(names),
            ids=np.array(names),
            labels=catalogue.targets,
            tags=np.array(catalogue.tags),
        )


def _catalogue(
    source: VectorSource, ids: Sequence[str], targets: NDArray[np.int8], tags: Sequence[str] | None, where: str
) -> Catalogue:
    numbered = [f"tag_{place:02d}" for place in range(targets.shape[1])]
    names = tuple(numbered if tags is None else _texts(tags, "tags", where))
    faults = [fault for tag in names if (fault := tag_error(tag))]
    if faults:
        raise UserError(f"{where}: {faults[0]}")
    if len(names) != targets.shape[1] or len(set(names)) != len(names):
        raise UserError(f"{where}: {len(set(names))} different tags for {targets.shape[1]} columns of labels")
    roles = np.where((targets != UNKNOWN).any(axis=1), Role.LABELLED, Role.UNLABELLED).astype(np.int8)
    return Catalogue(names, Names(ids), targets, roles, source)


def _with_labels(source: VectorSource, ids: list[str], file: Path, labels: Path | None) -> Catalogue:
    """Labels in a CSV, whose column `image` (or `id`) holds ids."""
    place = labels or file.parent / LABELS
    if not place.is_file():
        reason = "there is no such file" if labels else f"has no labels in it and no {LABELS} beside it"
        raise UserError(f"{labels or file}: {reason}; write one that starts `id,tags`, or use --labels")
    problems, table_file = Problems(), LabelFile(place)
    header = table_file.header(problems)
    table = None if header is None else read_table(table_file, header, ids, problems, file)
    problems.raise_any()
    assert table is not None  # noqa: S101 - a header that cannot be read is a problem
    return Catalogue(table.tags, Names(ids), table.targets, table.roles, source, table.notes())


def _checked_vectors(array: Any, where: str) -> NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu" or not array.size:
        what = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise UserError(f"{where}: {what}; vectors must be numbers, one row per item: [n, D]")
    bad: list[int] = []
    for start in range(0, len(array), _BLOCK):  # as they are read: a large float64 is infinite in float32
        with np.errstate(over="ignore"):
            block = np.asarray(array[start : start + _BLOCK]).astype(np.float32)
        bad += (start + np.flatnonzero(~np.isfinite(block).all(axis=1))).tolist()
    if bad:
        raise UserError(f"{where}: row {bad[0]} holds NaN or infinity ({len(bad):,} rows do); leave these rows out")
    return array


def _texts(values: Any, what: str, where: str) -> list[str]:
    """A list of names; bytes are decoded."""
    array = np.asarray(values) if not isinstance(values, np.ndarray) else values
    if isinstance(values, (str, bytes)) or array.ndim != 1 or array.dtype.kind not in "USiuO":
        raise UserError(f"{where}: {what} must be a list of names")
    try:
        return [one.decode() if isinstance(one, bytes) else str(one) for one in array.tolist()]
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: {what} holds a name that is not UTF-8") from error


def _checked_ids(ids: Any, count: int, where: str) -> list[str]:
    if ids is None:
        return [str(row) for row in range(count)]
    names = _texts(ids, "ids", where)
    if len(names) != count or len(set(names)) != count:
        raise UserError(f"{where}: {len(set(names)):,} different ids for {count:,} vectors; every vector needs its own")
    return names


def _checked_labels(labels: Any, count: int, where: str) -> NDArray[np.int8]:
    array = _array(labels, where)
    if array.ndim != 2 or len(array) != count or array.dtype.kind not in "biuf" or not array.shape[1]:
        raise UserError(f"{where}: {array.dtype} {array.shape}; labels must be {count:,} rows, one column per tag")
    if not np.isin(array, (1, 0, UNKNOWN)).all():
        raise UserError(f"{where}: labels must be 1, 0, or -1 for unknown")
    return array.astype(np.int8)


def _array(values: Any, where: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise UserError(f"{where}: rows of different lengths; give a table of numbers") from error


def _loaded(file: Path, kind: str) -> Any:
    """What numpy finds in a file; never runs what a pickle holds."""
    try:
        if kind == "npy":
            return np.lib.format.open_memmap(file, mode="r")
        with BytesIO(file.read_bytes()) as content, np.load(content, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (
        AttributeError,
        TypeError,
        ValueError,
        OSError,
        EOFError,
        KeyError,
        SyntaxError,
        TokenError,
        BadZipFile,
        zlib.error,
    ) as error:
        what, write = ("array", "numpy.save") if kind == "npy" else ("archive", "numpy.savez")
        raise UserError(f"{file}: no .{kind} {what} ({str(error)[:100]}); write it with {write}") from error


def _read_npy(file: Path) -> VectorFile:
    return VectorFile(_loaded(file, "npy"))


def _read_npz(file: Path) -> VectorFile:
    return _of_arrays(_loaded(file, "npz"), file, "array")


def _read_safetensors(file: Path) -> VectorFile:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as content:  # numpy has no bfloat16
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
            texts = content.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file}: no safetensors file ({str(error)[:100]})") from error
    found: dict[str, Any] = {
        name: (value.float() if value.is_floating_point() else value).numpy() for name, value in tensors.items()
    }
    for name in ("ids", "tags", "paths"):
        if name in texts:
            try:
                listed = json.loads(texts[name])
            except (ValueError, RecursionError) as error:
                raise UserError(f"{file}: {name!r} of its metadata is no JSON list ({error})") from error
            if not isinstance(listed, list):
                raise UserError(f"{file}: {name!r} of its metadata is no JSON list")
            found[name] = listed
    return _of_arrays(found, file, "tensor")


def _read_parquet(file: Path) -> VectorFile:
    if missing("pyarrow"):
        raise UserError(f"{file}: Parquet needs pyarrow; run: {install_command('parquet')}")
    import pyarrow
    import pyarrow.compute
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{file}: no Parquet file ({str(error)[:100]})") from error
    names = table.column_names
    if "vector" not in names:
        raise UserError(f"{file}: no column `vector`; it has {', '.join(names)}")
    column = table["vector"].combine_chunks()
    try:
        lengths = pyarrow.compute.unique(pyarrow.compute.list_value_length(column)).to_pylist()
        values = column.flatten().to_numpy(zero_copy_only=False)
    except (pyarrow.ArrowException, AttributeError) as error:
        raise UserError(f"{file}: the column `vector` holds {column.type}; it must be lists of numbers") from error
    if len(lengths) != 1 or not lengths[0]:
        shown = ", ".join(str(length or 0) for length in lengths[:5])
        raise UserError(f"{file}: the lists in `vector` differ in length ({shown})")
    columns = {name: table[name].to_pylist() for name in ("id", "path") if name in names}
    vectors = np.asarray(values).reshape(-1, lengths[0])
    return VectorFile(vectors, columns.get("id"), paths=columns.get("path"))


def _of_arrays(found: Mapping[str, Any], file: Path, what: str) -> VectorFile:
    if "vectors" not in found:
        raise UserError(f"{file}: no {what} named `vectors`; it has {', '.join(found) or 'none'}")
    vectors, paths = _checked_vectors(found["vectors"], str(file)), found.get("paths")
    if paths is not None and len(_texts(paths, "paths", str(file))) != len(vectors):
        raise UserError(f"{file}: {len(paths):,} paths for {len(vectors):,} vectors")
    return VectorFile(*(found.get(name) for name in VectorFile._fields))  # type: ignore[arg-type]


_READERS: dict[str, Callable[[Path], VectorFile]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".parquet": _read_parquet,
}
