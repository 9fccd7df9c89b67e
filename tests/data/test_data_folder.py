"""A folder of images with labels.csv, right and wrong."""

import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fewtags.data import Role, read
from fewtags.data.catalogue import UNKNOWN, Catalogue, Names
from fewtags.data.readers.folder import LABELS, read_folder, scan_folder
from fewtags.errors import UserError

Photos = Callable[..., Path]


@pytest.fixture
def photos(tmp_path: Path) -> Photos:
    """Makes a folder with empty image files and a labels.csv."""

    def make(labels: str | bytes | None, *names: str) -> Path:
        root = tmp_path / "photos"
        for name in names or ("a.jpg", "b.jpg", "c.jpg", "sub/d.jpg"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
        root.mkdir(exist_ok=True)
        if labels is not None:
            (root / LABELS).write_bytes(labels if isinstance(labels, bytes) else labels.encode())
        return root

    return make


def told(catalogue: Catalogue) -> dict[str, tuple[str, list[int]]]:
    return {
        name: (Role(role).name, row.tolist())
        for name, role, row in zip(catalogue.names, catalogue.roles, catalogue.targets, strict=True)
    }


def problems_of(root: Path) -> list[str]:
    return [text.removeprefix(f"{root / LABELS}") for text in scan_folder(root)[1].texts]


def test_the_long_form_says_yes_to_the_listed_tags_and_no_to_the_others(photos: Photos) -> None:
    catalogue = read(str(photos("image,tags\nb.jpg,sky | cat\nsub/d.jpg,\n")))
    assert catalogue.tags == ("cat", "sky")
    assert told(catalogue) == {
        "a.jpg": ("UNLABELLED", [UNKNOWN, UNKNOWN]),
        "b.jpg": ("LABELLED", [1, 1]),
        "c.jpg": ("UNLABELLED", [UNKNOWN, UNKNOWN]),
        "sub/d.jpg": ("LABELLED", [0, 0]),
    }


def test_the_wide_form_keeps_its_order_and_an_empty_cell_is_unknown(photos: Photos) -> None:
    catalogue = read_folder(photos("image,sky,cat\na.jpg,1,\nb.jpg,,\nc.jpg, 0 ,1\n"))
    assert catalogue.tags == ("sky", "cat")
    assert told(catalogue) == {
        "a.jpg": ("LABELLED", [1, UNKNOWN]),
        "b.jpg": ("UNLABELLED", [UNKNOWN, UNKNOWN]),
        "c.jpg": ("LABELLED", [0, 1]),
        "sub/d.jpg": ("UNLABELLED", [UNKNOWN, UNKNOWN]),
    }


@pytest.mark.parametrize(
    "labels",
    ["split,image,cat\ntest,a.jpg,1\ntrain,b.jpg,1\n", "image,split,tags\na.jpg,test,cat\nb.jpg,,cat\n"],
)
def test_a_split_column_sets_test_images_apart_in_both_forms(photos: Photos, labels: str) -> None:
    catalogue = read_folder(photos(labels))
    assert catalogue.tags == ("cat",)
    assert told(catalogue)["a.jpg"] == ("TEST", [1])
    assert told(catalogue)["b.jpg"] == ("LABELLED", [1])


def test_byte_order_mark_windows_line_ends_quotes_and_blank_lines_are_read(photos: Photos) -> None:
    labels = b'\xef\xbb\xbfimage,tags\r\n\r\n"a, or ""b"".jpg","cat|red ball"\r\n'
    catalogue = read_folder(photos(labels, 'a, or "b".jpg'))
    assert catalogue.tags == ("cat", "red ball")
    assert told(catalogue) == {'a, or "b".jpg': ("LABELLED", [1, 1])}


@pytest.mark.parametrize("on_disk", ["NFC", "NFD"])
@pytest.mark.parametrize("in_file", ["NFC", "NFD"])
def test_accents_match_however_they_are_composed(photos: Photos, on_disk: str, in_file: str) -> None:
    name = unicodedata.normalize(on_disk, "Café/Ünï.jpg")
    labels = unicodedata.normalize(in_file, "image,tags\nCafé/Ünï.jpg,café\n") + "z.jpg,caf\u00e9\n"
    catalogue = read_folder(photos(labels, name, "z.jpg"))
    assert catalogue.tags == ("caf\u00e9",)
    assert told(catalogue)[name] == ("LABELLED", [1])


def test_labels_are_found_inside_first_then_beside_and_can_be_named(photos: Photos, tmp_path: Path) -> None:
    root = photos("image,tags\na.jpg,inside\n")
    (tmp_path / LABELS).write_text("image,tags\nphotos/a.jpg,beside\n")
    (tmp_path / "mine.csv").write_text("image,tags\n./a.jpg,named\nsub\\d.jpg,named\n")
    assert read(str(root)).tags == ("inside",)
    assert read(str(root), labels=tmp_path / "mine.csv").tags == ("named",)
    (root / LABELS).unlink()
    assert read(str(root)).tags == ("beside",)


def test_repeated_rows_that_agree_are_merged_with_a_note(photos: Photos) -> None:
    catalogue = read_folder(photos("image,cat,sky\na.jpg,1,\na.jpg,,0\nb.jpg,,\nb.jpg,0,\n"))
    assert told(catalogue)["a.jpg"] == ("LABELLED", [1, 0])
    assert told(catalogue)["b.jpg"] == ("LABELLED", [0, UNKNOWN])
    assert "2 repeated rows" in catalogue.notes[0]


def test_tags_that_differ_in_capitals_are_noted(photos: Photos) -> None:
    assert "Cat/cat" in read_folder(photos("image,tags\na.jpg,Cat\nb.jpg,cat\n")).notes[0]


def test_every_wrong_row_is_told_at_once_with_its_line(photos: Photos, tmp_path: Path) -> None:
    root = photos(
        "image,split,tags\n"
        "a.jpg,train,cat\n"
        'e.jpg,train,"cat\n"\n'
        "../x.jpg,train,cat\n"
        "a.jpg,train,dog\n"
        "b.jpg,tset,cat||dog\n"
        "c.jpg,train\n"
        "link.jpg,,cat\n"
        "a.jpg,test,cat\n"
        ",,cat\n"
        "notes.txt,,cat\n"
        "/etc/passwd,,cat\n"
    )
    (root / "notes.txt").touch()
    (tmp_path / "x.jpg").touch()
    (root / "link.jpg").symlink_to(tmp_path / "x.jpg")
    expected = [
        ", line 3: no image 'e.jpg'",
        ", line 5: image '../x.jpg': leads outside",
        ", line 6: 'a.jpg': disagrees with line 2 about cat, dog",
        ", line 7: split 'tset'",
        ", line 7: a tag without a name in 'cat||dog'",
        ", line 8: 2 cells, the header has 3",
        ", line 9: image 'link.jpg': leads outside the folder through a link",
        ", line 10: 'a.jpg': another split than in line 2",
        ", line 11: a row without an image",
        ", line 12: image 'notes.txt' is hidden, in a linked folder or of an unknown kind",
        ", line 13: image '/etc/passwd': leads outside",
    ]
    found = problems_of(root)
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected
    with pytest.raises(UserError) as error:
        read_folder(root)
    assert str(error.value).count("\n") == len(expected)
    assert told(scan_folder(root)[0])["a.jpg"][0] == "LABELLED"  # the good row is kept


def test_a_long_list_of_problems_is_cut_in_the_message(photos: Photos) -> None:
    root = photos("image,tags\n" + "".join(f"none{i}.jpg,cat\n" for i in range(1500)))
    with pytest.raises(UserError, match="1500 problems") as error:
        read_folder(root)
    assert "and 1480 more" in str(error.value)
    assert len(scan_folder(root)[1].texts) == 1000


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("", "the file is empty"),
        ("Image,tags\na.jpg,cat\n", "did you mean 'Image'"),
        ("image;tags\na.jpg;cat\n", "separate the columns with commas"),
        ("image\na.jpg\n", "no column for tags"),
        ("image,tags,width\na.jpg,cat,3\n", "'width' beside `tags`"),
        ("image,label\na.jpg,cat\n", "call it `tags`"),
        ("image,cat,cat\na.jpg,1,1\n", "'cat' more than once"),
        ("image,image,cat\na.jpg,a.jpg,1\n", "'image' more than once"),
        ("image,cat,\na.jpg,1,1\n", "a tag without a name in the header"),
        ("image,cat|dog,sky\na.jpg,1,1\n", "contains |"),
        ("image,cat,sky\na.jpg,1,yes\n", "cell 'yes' under 'sky'"),
        ("image,cat,sky\na.jpg,1.0,1\n", "cell '1.0' under 'cat'"),
        ("image,tags\n", "no row names a tag"),
        ("image,tags\na.jpg,\n", "no row names a tag"),
        (b"image,tags\na.jpg,cat\nb.jpg,caf\xe9\n", "line 3: not UTF-8"),
        ("image,tags\na.jpg,cat\n".encode("utf-16"), "line 1: not UTF-8"),
        ('image,tags\n"a.jpg,cat\n', "line 2: not CSV"),
        ("image,tags\na.jpg,cat\nA.jpg,cat\n", "did you mean 'a.jpg'"),
        (f"image,tags\na.jpg,cat\n{'x' * 9999}.jpg,cat\n", "correct the name or delete the row"),
    ],
)
def test_a_wrong_file_is_one_message_with_the_remedy(photos: Photos, labels: str | bytes, message: str) -> None:
    with pytest.raises(UserError) as error:
        read_folder(photos(labels))
    assert message in str(error.value)
    assert LABELS in str(error.value)


def test_missing_parts_are_told_with_the_remedy(photos: Photos, tmp_path: Path) -> None:
    root = photos(None)
    with pytest.raises(UserError, match=r"no labels\.csv in it or beside it"):
        read_folder(root)
    with pytest.raises(UserError, match=r"none\.csv: there is no such file"):
        read_folder(root, tmp_path / "none.csv")
    with pytest.raises(UserError, match="there is no such folder"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is a file"):
        read_folder(root / "a.jpg")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / LABELS).write_text("image,tags\n")
    with pytest.raises(UserError, match="no image in this folder"):
        read_folder(tmp_path / "bare")


WORDS = st.sampled_from(
    ["image", "tags", "split", "a.jpg", "1", "0", "", ",", "\n", "|", '"', "../", "\0", "\r", "cat", "\xff"]
)


def test_a_header_alone_names_tags(photos: Photos) -> None:
    catalogue = read_folder(photos("image,cat,sky\n", "a.jpg", "b.jpg"))
    assert catalogue.tags == ("cat", "sky")
    assert len(catalogue.rows(Role.UNLABELLED)) == 2


def test_tags_may_be_named_without_a_label_file(photos: Photos) -> None:
    catalogue = read_folder(photos(None, "a.jpg"), tags=("sea", "cat"))
    assert catalogue.tags == ("sea", "cat")
    assert (catalogue.targets == UNKNOWN).all()


@pytest.mark.parametrize("content", ["image,tags\na.jpg,cat\n", "image,cat\na.jpg,1\n"])
def test_named_tags_stand_beside_those_of_the_file_and_are_unknown(photos: Photos, content: str) -> None:
    catalogue = read_folder(photos(content, "a.jpg", "b.jpg"), tags=("sea", "cat"))
    assert catalogue.tags == ("cat", "sea")
    assert catalogue.targets[list(catalogue.names).index("a.jpg")].tolist() == [1, UNKNOWN]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200) | st.lists(WORDS, max_size=40).map(lambda words: "".join(words).encode("latin-1")))
@example(b"image,tags\n\x00,\x00\n")
@example(b'image,tags\n"')
@example(b"image,tags\n" + b"x" * 200_000)
def test_no_labels_raise_anything_but_user_error(photos: Photos, labels: bytes) -> None:
    for content in (labels, b"image,tags\n" + labels, b"image,cat,dog\n" + labels):
        root = photos(content, "a.jpg", "b.jpg")
        try:
            catalogue = read_folder(root)
        except UserError:
            continue
        assert catalogue.tags


def test_a_row_of_the_catalogue_costs_its_name_and_one_byte_per_tag(photos: Photos) -> None:
    names = [f"{number:04d}.jpg" for number in range(500)]
    tags = ",".join(f"t{number}" for number in range(80))
    rows = "".join(f"{name}{',1' * 80}\n" for name in names)
    catalogue = read_folder(photos(f"image,{tags}\n{rows}", *names))
    stored = catalogue.targets.nbytes + catalogue.roles.nbytes + catalogue.names.nbytes
    assert stored <= 500 * (80 + 1 + 8 + 8) + 8


def test_names_are_a_list_of_any_strings() -> None:
    words = ["", "a", "Ü/é.jpg", "\udcff.jpg"]
    names = Names(words)
    assert list(names) == words
    assert names[-1] == words[-1]
    assert list(names[1:3]) == words[1:3]
    assert list(names.take(np.array([2, 0]))) == [words[2], words[0]]
    assert len(Names()) == 0
    with pytest.raises(IndexError):
        names[4]


def test_the_digest_sees_roles_and_known_targets_but_not_hidden_truth(photos: Photos) -> None:
    catalogue = read_folder(photos("image,tags\na.jpg,cat\nb.jpg,\n"))

    def digest(row: int, target: int, role: Role) -> str:
        targets, roles = catalogue.targets.copy(), catalogue.roles.copy()
        targets[row, 0], roles[row] = target, role
        return Catalogue(catalogue.tags, catalogue.names, targets, roles, catalogue.images).digest()

    assert digest(2, 1, Role.UNLABELLED) == digest(2, 0, Role.UNLABELLED) == catalogue.digest()
    assert len({catalogue.digest(), digest(0, 0, Role.LABELLED), digest(0, 1, Role.TEST)}) == 3
