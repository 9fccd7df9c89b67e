"""The benchmark readers, on tiny copies of their layouts and on VOC itself where it is at hand."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fewtags.data import Role, hide, read
from fewtags.data.readers import reader_names
from fewtags.errors import UserError

REAL = Path(__file__).parents[3] / "shared" / "data"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def voc(root: Path) -> Path:
    main = "VOCdevkit/VOC2012/ImageSets/Main"
    return write(
        root,
        {
            "VOCdevkit/VOC2012/JPEGImages/2008_1.jpg": "",
            f"{main}/train.txt": "2008_2\n2008_1\n",
            f"{main}/dog_train.txt": "2008_2  1\n2008_1 -1\n2008_4 -1\n",
            f"{main}/cat_train.txt": "2008_2  0\n2008_1  1\n2008_4 -1\n",
            f"{main}/dog_val.txt": "2008_3  1\n",
            f"{main}/cat_val.txt": "2008_3 -1\n",
            f"{main}/dog_trainval.txt": "2008_3  1\n",
        },
    )


@pytest.mark.parametrize("below", [".", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_voc_is_sorted_and_difficult_objects_count_as_absent(tmp_path: Path, below: str) -> None:
    catalogue = read(f"voc:{voc(tmp_path) / below}")
    assert catalogue.tags == ("cat", "dog")
    assert list(catalogue.names) == ["2008_1.jpg", "2008_2.jpg", "2008_3.jpg"]
    assert catalogue.targets.tolist() == [[1, 0], [0, 1], [0, 1]]
    assert catalogue.roles.tolist() == [Role.LABELLED, Role.LABELLED, Role.TEST]
    assert catalogue.images.fingerprint("2008_1.jpg")


def test_damaged_voc_lists_are_named_with_their_line(tmp_path: Path) -> None:
    main = voc(tmp_path) / "VOCdevkit/VOC2012/ImageSets/Main"
    (main / "dog_val.txt").write_text("2008_3 2\n")
    with pytest.raises(UserError, match=r"dog_val\.txt, line 1"):
        read(f"voc:{tmp_path}")
    (main / "dog_val.txt").write_text("2008_9 1\n")
    with pytest.raises(UserError, match=r"lists other images than cat_val\.txt"):
        read(f"voc:{tmp_path}")
    (main / "dog_val.txt").unlink()
    with pytest.raises(UserError, match=r"dog_val\.txt: cannot be read"):
        read(f"voc:{tmp_path}")


@pytest.mark.skipif(not (REAL / "VOCdevkit").is_dir(), reason="PASCAL VOC 2012 is not at hand")
def test_voc_itself_has_the_published_counts_and_splits() -> None:
    catalogue = read(f"voc:{REAL}")
    train = catalogue.targets[catalogue.rows(Role.LABELLED)]
    test = catalogue.targets[catalogue.rows(Role.TEST)]
    assert np.bincount(train.sum(axis=1)).tolist() == [0, 3730, 1475, 414, 81, 17]
    assert np.bincount(test.sum(axis=1)).tolist() == [0, 3837, 1532, 378, 64, 12]
    totals = "327 268 395 260 365 213 590 539 566 151 269 632 237 265 1994 269 171 257 273 290"
    assert train.sum(axis=0).tolist() == [int(total) for total in totals.split()]
    assert (catalogue.tags[0], catalogue.tags[-1]) == ("aeroplane", "tvmonitor")
    bare = {1: {"motorbike", "sofa"}, 2: {"motorbike", "sheep"}, 3: {"horse"}, 4: {"boat", "pottedplant"}}
    for seed, missing in bare.items():
        few = hide(catalogue, 0.01, seed)
        counts = few.targets[few.rows(Role.LABELLED)].sum(axis=0)
        assert {tag for tag, count in zip(few.tags, counts, strict=True) if not count} == missing
    balanced = hide(catalogue, 0.01, 1, "balanced")
    assert balanced.targets[balanced.rows(Role.LABELLED)].sum(axis=0).min() >= 1
    assert catalogue.images.image(catalogue.names[0]).mode == "RGB"


def coco(root: Path, **changes: object) -> Path:
    content = {
        "categories": [{"id": 7, "name": "train"}, {"id": 1, "name": "person"}],
        "images": [{"id": number, "file_name": f"C_{number}.jpg", "width": 3} for number in (9, 10, 11, 100)],
        "annotations": [
            {"id": 1, "image_id": 9, "category_id": 1, "iscrowd": 0, "segmentation": [[1, 2, 3]]},
            {
                "id": 2,
                "image_id": 100,
                "category_id": 7,
                "iscrowd": 1,
                "segmentation": {"counts": [1], "size": [1]},
            },
            {"id": 3, "image_id": 10, "category_id": 7, "iscrowd": 0},
            {"id": 4, "image_id": 10, "category_id": 1, "iscrowd": 0},
        ],
    }
    for part, text in (("train", content), ("val", content | changes)):
        write(root, {f"annotations/instances_{part}2014.json": json.dumps(text), f"{part}2014/C_9.jpg": part})
    return root


def test_coco_sorts_ids_as_strings_counts_crowds_and_drops_empty_images(tmp_path: Path) -> None:
    catalogue = read(f"coco:{coco(tmp_path)}")
    assert catalogue.tags == ("train", "person")
    ids = ("10", "100", "9")
    assert list(catalogue.names) == [f"{part}2014/C_{i}.jpg" for part in ("train", "val") for i in ids]
    assert catalogue.targets.tolist() == [[1, 1], [1, 0], [0, 1]] * 2
    assert catalogue.roles.tolist() == [Role.LABELLED] * 3 + [Role.TEST] * 3
    prints = {catalogue.images.fingerprint(f"{part}2014/C_9.jpg") for part in ("train", "val")}
    assert len(prints) == 2


def test_wrong_coco_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="other categories"):
        read(f"coco:{coco(tmp_path, categories=[{'id': 1, 'name': 'a'}, {'id': 7, 'name': 'b'}])}")
    with pytest.raises(UserError, match=r"val2014\.json: not the instances file"):
        read(f"coco:{coco(tmp_path, images=[])}")
    for text in ("[1, 2", "[]", "3", '{"images": 3, "categories": [], "annotations": []}', "[" * 100_000):
        (tmp_path / "annotations" / "instances_train2014.json").write_text(text)
        with pytest.raises(UserError, match=r"train2014\.json: not the instances file"):
            read(f"coco:{tmp_path}")
    (tmp_path / "annotations" / "instances_train2014.json").unlink()
    with pytest.raises(UserError, match="needs train2014 and annotations/instances_train2014"):
        read(f"coco:{tmp_path}")


def arrays(root: Path, place: str = "") -> Path:
    (root / place).mkdir(parents=True, exist_ok=True)
    for part, names in (("train", ["b.jpg", "a.jpg"]), ("val", ["c.jpg"])):
        np.save(root / f"formatted_{part}_images.npy", np.array(names))
        np.save(root / f"formatted_{part}_labels.npy", np.eye(2)[: len(names)])
        for name in names:
            (root / place / name).touch()
    return root


@pytest.mark.parametrize("place", ["", "Flickr/", "images/"])
def test_npy_keeps_the_order_of_its_files_and_finds_the_images(tmp_path: Path, place: str) -> None:
    catalogue = read(f"npy:{arrays(tmp_path, place)}")
    assert catalogue.tags == ("tag_00", "tag_01")
    assert list(catalogue.names) == [f"{place}{name}.jpg" for name in "bac"]
    assert catalogue.targets.tolist() == [[1, 0], [0, 1], [1, 0]]
    assert catalogue.roles.tolist() == [Role.LABELLED, Role.LABELLED, Role.TEST]
    assert catalogue.images.fingerprint(catalogue.names[0])


def test_tags_txt_names_the_columns_and_must_fit(tmp_path: Path) -> None:
    arrays(tmp_path)
    (tmp_path / "tags.txt").write_text("cat\ndog\n")
    assert read(f"npy:{tmp_path}").tags == ("cat", "dog")
    (tmp_path / "tags.txt").write_text("cat\ncat\n")
    with pytest.raises(UserError, match="1 different tags for 2 columns"):
        read(f"npy:{tmp_path}")


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise AssertionError('a pickle was run')",)


@pytest.mark.parametrize("bare", [False, True])
def test_pickled_arrays_are_refused_and_never_run(tmp_path: Path, bare: bool) -> None:
    file = arrays(tmp_path) / "formatted_train_images.npy"
    if bare:
        file.write_bytes(pickle.dumps(Bomb()))
    else:
        np.save(file, np.array([Bomb(), Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="write it with numpy.save" if bare else r"astype\(str\)"):
        read(f"npy:{tmp_path}")


@pytest.mark.parametrize(
    ("file", "value", "message"),
    [
        ("formatted_train_labels", np.array([[0, 2], [1, 0]]), "row 0, column 1: 2"),
        ("formatted_train_labels", np.array([[0, 1], [np.nan, 0]]), "row 1, column 0: nan"),
        ("formatted_train_labels", np.ones((3, 2)), "must be 2 rows of numbers"),
        ("formatted_train_labels", np.ones(2), "must be 2 rows of numbers"),
        ("formatted_val_labels", np.ones((1, 3)), "2 and 3 columns"),
        ("formatted_train_images", np.arange(2), "must be a list of names"),
        ("formatted_train_images", np.array([b"\xff", b"a"]), "not UTF-8"),
        ("formatted_val_images", np.array(["../c.jpg"]), "put the images there"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, file: str, value: np.ndarray, message: str) -> None:
    root = arrays(tmp_path / "data")
    (tmp_path / "c.jpg").touch()
    np.save(root / f"{file}.npy", value)
    with pytest.raises(UserError, match=message):
        read(f"npy:{root}")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 200), st.binary(max_size=40))
def test_no_array_file_raises_anything_but_user_error(tmp_path: Path, place: int, bytes_: bytes) -> None:
    file = arrays(tmp_path) / "formatted_train_labels.npy"
    data = file.read_bytes()
    file.write_bytes(data[:place] + bytes_ + data[place + len(bytes_) :])
    try:
        catalogue = read(f"npy:{tmp_path}")
    except UserError:
        return
    assert len(catalogue) == 3


def nus(root: Path) -> Path:
    truth = "Groundtruth/TrainTestLabels"
    return write(
        root,
        {
            "ImageList/TrainImagelist.txt": "sky\\2.jpg\nsky\\1.jpg\ncat\\gone.jpg\n",
            "ImageList/TestImagelist.txt": "cat\\3.jpg\n",
            f"{truth}/Labels_sky_Train.txt": "1\n0\n1\n",
            f"{truth}/Labels_sky_Test.txt": "0\n",
            f"{truth}/Labels_cat_Train.txt": "0\n1\n1\n",
            f"{truth}/Labels_cat_Test.txt": "1\n",
            "Flickr/sky/1.jpg": "1",
            "Flickr/sky/2.jpg": "2",
            "Flickr/cat/3.jpg": "3",
        },
    )


def test_official_nus_keeps_what_is_on_the_disk_and_says_how_much_is_not(tmp_path: Path) -> None:
    catalogue = read(f"nus:{nus(tmp_path)}")
    assert catalogue.tags == ("cat", "sky")
    assert list(catalogue.names) == ["sky/2.jpg", "sky/1.jpg", "cat/3.jpg"]
    assert catalogue.targets.tolist() == [[0, 1], [1, 0], [1, 0]]
    assert catalogue.roles.tolist() == [Role.LABELLED, Role.LABELLED, Role.TEST]
    assert catalogue.notes[0].startswith("1 images of the lists")
    assert catalogue.images.fingerprint("sky/2.jpg")


def test_the_concept_list_sets_the_order_of_tags_in_both_layouts(tmp_path: Path) -> None:
    (nus(tmp_path / "official") / "Concepts81.txt").write_text("sky\ncat\n")
    assert read(f"nus:{tmp_path / 'official'}").tags == ("sky", "cat")
    crawl = arrays(tmp_path / "crawl", "Flickr/")
    write(crawl, {"ConceptsList/Concepts81.txt": "sky\ncat\n"})
    catalogue = read(f"nus:{crawl}")
    assert catalogue.tags == ("sky", "cat")
    assert list(catalogue.names) == ["Flickr/b.jpg", "Flickr/a.jpg", "Flickr/c.jpg"]


def test_damaged_nus_lists_are_named(tmp_path: Path) -> None:
    file = nus(tmp_path) / "Groundtruth/TrainTestLabels/Labels_sky_Train.txt"
    file.write_text("1\n0\n")
    with pytest.raises(UserError, match="2 lines for the 3 images"):
        read(f"nus:{tmp_path}")
    file.write_text("1\n0\n7\n")
    with pytest.raises(UserError, match=r"Labels_sky_Train\.txt, line 3: '7'"):
        read(f"nus:{tmp_path}")
    file.write_text("1\n0\n1\n")
    for image in tmp_path.glob("Flickr/*/*.jpg"):
        image.unlink()
    with pytest.raises(UserError, match="none of the listed images"):
        read(f"nus:{tmp_path}")


@pytest.mark.parametrize("kind", [kind for kind in reader_names() if kind not in ("folder", "scenes", "vectors")])
def test_an_absent_or_foreign_folder_is_told_with_the_remedy(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        read(f"{kind}:{tmp_path / 'nowhere'}")
    with pytest.raises(UserError, match=str(tmp_path)):
        read(f"{kind}:{tmp_path}")
    with pytest.raises(UserError, match="nothing follows the colon"):
        read(f"{kind}:")
    with pytest.raises(UserError, match="brings its own labels"):
        read(f"{kind}:{tmp_path}", labels=tmp_path / "labels.csv")


def test_an_absent_file_of_vectors_is_told_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere: there is no such file; name a \.npy, \.npz"):
        read(f"vectors:{tmp_path / 'nowhere'}")
    with pytest.raises(UserError, match=str(tmp_path)):
        read(f"vectors:{tmp_path}")
    with pytest.raises(UserError, match="nothing follows the colon"):
        read("vectors:")


def test_a_folder_is_named_without_a_kind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown kind 'folder'"):
        read(f"folder:{tmp_path}")
    with pytest.raises(UserError, match="nowhere"):
        read(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("spec", ["scenes:0", "scenes:-3", "scenes:many", "scenes:9999999999", "scenes:1.5"])
def test_an_impossible_number_of_scenes_is_refused(spec: str) -> None:
    with pytest.raises(UserError, match="the number of images must be between 1"):
        read(spec)


def test_an_unknown_kind_is_told_with_the_nearest_one() -> None:
    with pytest.raises(UserError, match="unknown kind 'cocoa'; did you mean 'coco'"):
        read("cocoa:data")
    with pytest.raises(UserError, match="DATA is empty"):
        read("")


def test_a_folder_may_have_a_colon_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"trip: Rome/a.jpg": "", "trip: Rome/labels.csv": "image,tags\na.jpg,cat\n"})
    monkeypatch.chdir(tmp_path)
    assert list(read("trip: Rome").names) == ["a.jpg"]
