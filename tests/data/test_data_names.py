"""Tags that are named on the command line or in Python, with labels beside them or none."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fewtags.data import UNKNOWN, Role, hide, read
from fewtags.data.check import check
from fewtags.data.labels.csv_file import clean_tag, tag_error
from fewtags.data.labels.names import LONGEST, parse_tags, tags_text
from fewtags.data.readers.folder import read_folder
from fewtags.errors import UserError
from fewtags.training.options import TrainOptions


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("dog", ("dog",)),
        ("dog,sea", ("dog", "sea")),
        (" dog , sea ", ("dog", "sea")),
        ("zebra,ant", ("zebra", "ant")),
        ('"rock, paper",dog', ("rock, paper", "dog")),
        ('dog, "rock, paper"', ("dog", "rock, paper")),
        ("dog\nsea,sky", ("dog", "sea", "sky")),
        ("e\u0301t\u00e9", ("\u00e9t\u00e9",)),
        ("potted plant,T-shirt,5\u20325", ("potted plant", "T-shirt", "5\u20325")),
        ("a=b,c;d", ("a=b", "c;d")),
        ("\u72ac,\u6d77", ("\u72ac", "\u6d77")),
    ],
)
def test_names_are_separated_by_commas_and_keep_their_order(text: str, tags: tuple[str, ...]) -> None:
    assert parse_tags(text) == tags


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no tag is named"),
        (" , ", "no tag is named"),
        ('""', "no tag is named"),
        ("dog,,sea", "a tag without a name"),
        ("dog,", "a tag without a name"),
        ("dog,sea,dog", "'dog' comes twice"),
        ("Dog,sea,dog", "'Dog' and 'dog' differ only in capitals"),
        ("stra\u00dfe,STRASSE", "differ only in capitals"),
        ("dog,sea\udcff", r"'sea\\udcff' is no UTF-8 text"),
        ("dog|cat", r"contains \| or a control character"),
        ("dog\tcat", r"contains \| or a control character"),
        ("dog\0", r"\| or a control character"),
        ('"dog', "separate names with commas"),
        ('"dog"s,cat', "separate names with commas"),
        ("x" * (LONGEST + 1), "has 201 characters; a name has at most 200"),
        ("x" * 10_000, "has 10,000 characters"),
        ("x" * 200_000, "--tags"),
    ],
)
def test_what_is_no_list_of_names_is_one_message(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parse_tags(text)
    assert "--tags" in str(caught.value)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_the_longest_name_and_five_hundred_of_them_are_fine() -> None:
    assert parse_tags("x" * LONGEST) == ("x" * LONGEST,)
    many = [f"tag {number}" for number in range(500)]
    assert parse_tags(",".join(many)) == tuple(many)


LETTERS = st.text(st.sampled_from("abÄé\"', |;=\t\n\r\0-é犬\u2028\x85\x1c"), max_size=8) | st.text(max_size=8)


@given(st.lists(LETTERS, min_size=1, max_size=6))
@example(["a\x85b", "c"])
@example(["a\u2028b"])
@example(['"'])
@example(["'a", 'b"c'])
@example([","])
def test_names_come_back_from_their_text(names: list[str]) -> None:
    names = list({name.casefold(): name for name in map(clean_tag, names) if tag_error(name) is None}.values())
    unique = [name for name in names if sum(name.casefold() == other.casefold() for other in names) == 1]
    if unique:
        assert parse_tags(tags_text(unique)) == tuple(unique)


@given(st.text(max_size=30) | st.lists(st.sampled_from(["a", ",", '"', "\n", "|", " "]), max_size=12).map("".join))
def test_no_text_raises_anything_but_user_error_and_what_is_read_is_read_again(text: str) -> None:
    try:
        tags = parse_tags(text)
    except UserError:
        return
    assert tags
    assert all(tag_error(tag) is None for tag in tags)
    assert parse_tags(tags_text(tags)) == tags


def test_in_python_names_may_be_a_list() -> None:
    for given_tags in (["rock, paper", "dog"], ("rock, paper", "dog"), '"rock, paper",dog'):
        options = TrainOptions.of({"data": "photos", "tags": given_tags})
        assert options.tags is not None
        assert parse_tags(options.tags) == ("rock, paper", "dog")


# --- labels beside names ------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    root.mkdir()
    for name in "abcd":
        (root / f"{name}.jpg").touch()
    return root


def told(root: Path, labels: str | None, *tags: str) -> tuple[tuple[str, ...], dict[str, list[int]]]:
    """Tags, and the targets of the labelled images."""
    if labels is not None:
        (root / "labels.csv").write_text(labels, encoding="utf-8")
    found = read_folder(root, tags=tags)
    return found.tags, {found.names[int(row)]: found.targets[row].tolist() for row in found.rows(Role.LABELLED)}


def test_tags_of_the_file_come_first_and_nobody_looked_for_the_others(photos: Path) -> None:
    tags, labelled = told(photos, "image,tags\na.jpg,sky|cat\nb.jpg,\n", "zebra", "cat", "ant")
    assert tags == ("cat", "sky", "zebra", "ant")
    assert labelled == {"a.jpg": [1, 1, UNKNOWN, UNKNOWN], "b.jpg": [0, 0, UNKNOWN, UNKNOWN]}


def test_a_wide_file_keeps_its_cells(photos: Path) -> None:
    tags, labelled = told(photos, "image,sky,cat\na.jpg,1,\nb.jpg,0,1\n", "ant", "cat")
    assert tags == ("sky", "cat", "ant")
    assert labelled == {"a.jpg": [1, UNKNOWN, UNKNOWN], "b.jpg": [0, 1, UNKNOWN]}


@pytest.mark.parametrize("labels", [None, "image,tags\n", "image,tags,split\n"])
def test_without_a_row_all_is_unknown(photos: Path, labels: str | None) -> None:
    tags, labelled = told(photos, labels, "sea", "ant")
    assert (tags, labelled) == (("sea", "ant"), {})
    found = read(str(photos), tags=("sea", "ant"))
    assert found.targets.shape == (4, 2)
    assert (found.targets == UNKNOWN).all()
    assert len(found.rows(Role.UNLABELLED)) == 4


def test_a_header_names_tags_beside_those_that_are_named(photos: Path) -> None:
    assert told(photos, "image,cat,sky\n", "sea", "cat") == (("cat", "sky", "sea"), {})


def test_a_file_that_names_no_tag_says_both_ways_to_name_some(photos: Path) -> None:
    with pytest.raises(UserError, match=r"no row names a tag.*\|.*--tags"):
        told(photos, "image,tags\na.jpg,\n")
    (photos / "labels.csv").unlink()
    with pytest.raises(UserError, match=r"no labels\.csv in it.*--labels.*--tags"):
        told(photos, None)


def test_problems_of_the_file_are_told_whatever_is_named(photos: Path) -> None:
    with pytest.raises(UserError, match=r"labels\.csv, line 2"):
        told(photos, "image,tags\nnone.jpg,sea\n", "sea")
    with pytest.raises(UserError, match="there is no such file"):
        read_folder(photos, photos / "none.csv", ("sea",))


@pytest.mark.parametrize("spec", ["voc:here", "coco:here", "nus:here", "npy:here", "scenes:16", "vectors:here.npz"])
def test_data_that_brings_its_own_tags_is_given_none(spec: str) -> None:
    with pytest.raises(UserError, match=f"{spec}: brings its own tags; --tags goes with a folder"):
        read(spec, tags=("sea",))


def test_a_check_knows_named_tags_and_says_that_none_is_labelled(photos: Path) -> None:
    report = check(str(photos), tags=("sea", "ant"))
    assert [count.tag for count in report.tags] == ["sea", "ant"]
    assert any("no image is labelled; tags' names alone decide" in line for line in report.lines())
    (photos / "labels.csv").write_text("image,tags\na.jpg,cat\n", encoding="utf-8")
    report = check(str(photos), tags=("sea",))
    assert [(count.tag, count.present) for count in report.tags] == [("cat", 1), ("sea", 0)]
    assert not any("no image is labelled" in line for line in report.lines())


@pytest.mark.parametrize("how", ["paper", "balanced"])
def test_labels_that_are_hidden_keep_the_order_of_the_split_and_their_truth(photos: Path, how: str) -> None:
    (photos / "labels.csv").write_text("image,tags\na.jpg,cat\nb.jpg,\nc.jpg,sky\n", encoding="utf-8")
    catalogue = read_folder(photos, tags=("sea",))
    hidden, some = (hide(catalogue, share, 1, how) for share in (0, 0.4))
    assert len(hidden.rows(Role.LABELLED)) == 0
    assert len(some.rows(Role.LABELLED)) == 1
    if how == "paper":
        assert list(hidden.names) == list(some.names)
    truth = {name: row.tolist() for name, row in zip(hidden.names, hidden.targets, strict=True)}
    assert truth["a.jpg"] == [1, 0, UNKNOWN]
    assert hidden.digest() != some.digest()
    assert np.array_equal(catalogue.rows(Role.LABELLED), [0, 1, 2])
