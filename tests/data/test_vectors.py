"""`vectors:FILE` and arrays in memory: every kind of file, and every way in which one can be wrong."""

import json

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from fewtags.data import Role, read
from fewtags.data.readers.vectors import catalogue_of_arrays, write_arrays
from fewtags.errors import BadImage, UserError

X = np.arange(12, dtype=np.float32).reshape(4, 3)
IDS = ["a", "b", "c", "d"]
Y = np.array([[1, 0], [0, 1], [-1, -1], [-1, 0]])


def labels(folder, text="id,tags\na,sea|dog\nb,\n"):
    (folder / "labels.csv").write_text(text)


def write(folder, kind):
    file = folder / f"x.{kind}"
    if kind == "npy":
        np.save(file, X)
        labels(folder, "id,tags\n0,sea|dog\n1,\n")
        return file
    labels(folder)
    if kind == "npz":
        np.savez(file, vectors=X, ids=np.array(IDS))
    elif kind == "safetensors":
        save_file({"vectors": X}, file, metadata={"ids": json.dumps(IDS)})
    else:
        pyarrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
        parquet.write_table(pyarrow.table({"id": IDS, "vector": X.tolist()}), file)
    return file


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors", "parquet"])
def test_every_kind_of_file_gives_the_same_catalogue(tmp_path, kind):
    catalogue = read(f"vectors:{write(tmp_path, kind)}")
    assert catalogue.tags == ("dog", "sea")
    assert catalogue.targets.tolist() == [[1, 1], [0, 0], [-1, -1], [-1, -1]]
    assert catalogue.roles.tolist() == [Role.LABELLED, Role.LABELLED, Role.UNLABELLED, Role.UNLABELLED]
    assert np.array_equal(catalogue.images.vectors(list(catalogue.names)), X)
    assert catalogue.images.width == 3


def test_labels_may_lie_in_the_file_itself_and_a_csv_goes_before_them(tmp_path):
    np.savez(tmp_path / "x.npz", vectors=X, labels=Y, tags=np.array(["sea", "dog"]))
    catalogue = read(f"vectors:{tmp_path / 'x.npz'}")
    assert catalogue.tags == ("sea", "dog")
    assert catalogue.targets.tolist() == Y.tolist()
    assert catalogue.roles.tolist() == [Role.LABELLED, Role.LABELLED, Role.UNLABELLED, Role.LABELLED]
    (tmp_path / "other.csv").write_text("id,tags\n2,cat\n")
    assert read(f"vectors:{tmp_path / 'x.npz'}", tmp_path / "other.csv").tags == ("cat",)


def test_arrays_in_memory_are_read_again_as_they_were(tmp_path):
    catalogue = catalogue_of_arrays(X, Y, IDS, ["sea", "dog"])
    write_arrays(tmp_path / "x.npz", catalogue)
    again = read(f"vectors:{tmp_path / 'x.npz'}")
    assert again.digest() == catalogue.digest()
    assert [again.images.fingerprint(name) for name in IDS] == [catalogue.images.fingerprint(name) for name in IDS]


def test_pictures_beside_the_vectors_are_shown(tmp_path):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "a.png")
    np.savez(tmp_path / "x.npz", vectors=X, ids=np.array(IDS), paths=np.array(["a.png", "", "", ""]))
    labels(tmp_path)
    images = read(f"vectors:{tmp_path / 'x.npz'}").images
    assert images.has_pictures
    assert images.image("a").getpixel((0, 0)) == (255, 0, 0)
    with pytest.raises(BadImage, match="without a picture"):
        images.image("b")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"vectors": X[0]}, r"vectors must be numbers, one row per item"),
        ({"vectors": np.array([["a"]])}, "vectors must be numbers"),
        ({"vectors": np.full((4, 3), np.nan)}, "row 0 holds NaN or infinity .4 rows do."),
        ({"vectors": X, "ids": np.array(["a", "a", "b", "c"])}, "3 different ids for 4 vectors"),
        ({"vectors": X, "ids": np.array(["a"])}, "1 different ids for 4 vectors"),
        ({"vectors": X, "labels": Y[:2]}, "labels must be 4 rows, one column per tag"),
        ({"vectors": X, "labels": Y + 5}, "labels must be 1, 0, or -1"),
        ({"vectors": X, "labels": Y, "tags": np.array(["sea"])}, "1 different tags for 2 columns"),
        ({"vectors": X, "labels": Y, "tags": np.array(["sea", "a|b"])}, "contains"),
        ({"vectors": X, "paths": np.array(["a.png"])}, "1 paths for 4 vectors"),
        ({"features": X}, "no array named `vectors`; it has features"),
    ],
)
def test_a_file_that_cannot_be_is_told_with_the_reason(tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    labels(tmp_path)
    with pytest.raises(UserError, match=message) as raised:
        read(f"vectors:{tmp_path / 'x.npz'}")
    assert "x.npz" in str(raised.value)


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors", "parquet"])
def test_a_file_of_noise_is_told_by_its_kind(tmp_path, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / f"x.{kind}").write_bytes(b"no such thing" * 10)
    with pytest.raises(UserError, match=rf"x\.{kind}: no "):
        read(f"vectors:{tmp_path / f'x.{kind}'}")


def test_python_objects_are_never_loaded(tmp_path):
    np.savez(tmp_path / "x.npz", vectors=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match=r"no \.npz archive"):
        read(f"vectors:{tmp_path / 'x.npz'}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("vectors:nowhere.npz", "there is no such file; name a .npy, .npz"),
        ("vectors:", "nothing follows the colon"),
    ],
)
def test_a_name_that_is_no_file_is_told_with_the_remedy(spec, message):
    with pytest.raises(UserError, match=message):
        read(spec)


def test_labels_of_unknown_ids_and_missing_labels_are_told(tmp_path):
    np.savez(tmp_path / "x.npz", vectors=X, ids=np.array(IDS))
    with pytest.raises(UserError, match=r"has no labels in it and no labels.csv beside it"):
        read(f"vectors:{tmp_path / 'x.npz'}")
    labels(tmp_path, "id,tags\nz,sea\n")
    with pytest.raises(UserError, match=r"labels.csv, line 2: no image 'z' in .*x.npz"):
        read(f"vectors:{tmp_path / 'x.npz'}")
    (tmp_path / "x.txt").write_text("1 2 3")
    with pytest.raises(UserError, match="unknown kind"):
        read(f"vectors:{tmp_path / 'x.txt'}")


def test_a_parquet_file_without_vectors_or_of_uneven_ones_is_told(tmp_path):
    pyarrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    parquet.write_table(pyarrow.table({"id": IDS}), tmp_path / "x.parquet")
    with pytest.raises(UserError, match="no column `vector`; it has id"):
        read(f"vectors:{tmp_path / 'x.parquet'}")
    parquet.write_table(pyarrow.table({"vector": [[1.0], [1.0, 2.0]]}), tmp_path / "y.parquet")
    with pytest.raises(UserError, match="differ in length"):
        read(f"vectors:{tmp_path / 'y.parquet'}")


def test_ids_in_bytes_are_read_as_text(tmp_path):
    np.savez(tmp_path / "x.npz", vectors=X, ids=np.array([b"a", b"b", b"c", b"d"]))
    labels(tmp_path)
    assert list(read(f"vectors:{tmp_path / 'x.npz'}").names) == IDS


def damage(file, how):
    if how == "cut":
        np.savez(file, vectors=X)
        file.write_bytes(file.read_bytes()[:-40])
    elif how == "an array in an archive's name":
        with file.open("wb") as out:
            np.save(out, X)
    elif how == "no table":
        np.savez(file, vectors=np.float32(1))
    elif how == "ids without a length":
        np.savez(file, vectors=X, ids=np.array("a"))
    elif how == "numbers too large for float32":
        np.savez(file, vectors=np.full((4, 3), 1e200))
    else:
        np.savez(file, vectors=X, paths=np.array(["../secret.png", "", "", ""]))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cut", "no .npz archive"),
        ("an array in an archive's name", "no .npz archive"),
        ("no table", "vectors must be numbers"),
        ("ids without a length", "ids must be a list of names"),
        ("numbers too large for float32", "holds NaN or infinity"),
        ("a picture elsewhere", "leads outside the folder"),
    ],
)
def test_a_damaged_file_is_one_message(tmp_path, how, message):
    damage(tmp_path / "x.npz", how)
    labels(tmp_path)
    with pytest.raises(UserError, match=message):
        read(f"vectors:{tmp_path / 'x.npz'}")


def test_an_archive_in_an_arrays_name_is_one_message(tmp_path):
    np.savez(tmp_path / "x.npz", vectors=X)
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with pytest.raises(UserError, match=r"no \.npy array"):
        read(f"vectors:{tmp_path / 'x.npy'}")


def test_vectors_in_bfloat16_are_read(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_tensors

    save_tensors({"vectors": torch.from_numpy(X).bfloat16()}, tmp_path / "x.safetensors")
    labels(tmp_path, "id,tags\n0,sea\n1,\n")
    assert np.allclose(read(f"vectors:{tmp_path / 'x.safetensors'}").images.vectors(["1"]), X[1])
