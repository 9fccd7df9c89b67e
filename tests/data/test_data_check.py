"""Everything wrong with a data set at once."""

from pathlib import Path

import pytest
from PIL import Image

from fewtags.data.check import check


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    root.mkdir()
    for number, colour in enumerate(("red", "green", "blue", "red")):
        Image.new("RGB", (4, 4), colour).save(root / f"{number}.png")
    (root / "text.jpg").write_text("no picture")
    return root


def test_problems_bad_files_rare_tags_and_doubles_are_told_together(photos: Path) -> None:
    labels = "image,split,cat,dog\n0.png,,1,0\n1.png,,1,\nnone.png,,1,1\n3.png,test,1,0\n2.png,,x,1\n"
    (photos / "labels.csv").write_text(labels)
    steps: list[tuple[int, int]] = []
    report = check(str(photos), advance=lambda done, total: steps.append((done, total)))
    assert [text.split(":")[0].split(", ")[1] for text in report.problems] == ["line 4", "line 6"]
    assert not report.ok
    assert [name for name, _ in report.bad] == ["text.jpg"]
    assert report.duplicates == [("0.png", "3.png")]
    assert report.images == {"labelled": 2, "unlabelled": 2, "test": 1}
    cat, dog = report.tags
    assert (cat.tag, cat.present, cat.absent, cat.unknown, cat.test) == ("cat", 2, 0, 0, 1)
    assert (dog.tag, dog.present, dog.absent, dog.unknown, dog.test) == ("dog", 0, 1, 1, 0)
    assert report.rare == ["cat", "dog"]
    assert steps == [(done, 5) for done in range(1, 6)]
    text = "\n".join(report.lines())
    for part in (
        "2 problems:",
        "line 4",
        "1 bad image file:",
        "text.jpg: not an image",
        "0.png = 3.png",
        "fewer than 5",
    ):
        assert part in text


def test_a_clean_folder_is_called_clean(photos: Path) -> None:
    (photos / "text.jpg").unlink()
    for number in range(4, 9):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(photos / f"{number}.png")
    (photos / "labels.csv").write_text("image,tags\n" + "".join(f"{number}.png,cat\n" for number in range(5)))
    report = check(str(photos))
    assert report.ok
    assert report.rare == []
    assert report.lines()[-1] == "nothing wrong found"


def test_five_positives_are_enough_and_four_are_few(photos: Path) -> None:
    for number in range(4, 9):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(photos / f"{number}.png")
    rows = "".join(f"{number}.png,{'a|b' if number < 4 else 'a'}\n" for number in range(5))
    (photos / "labels.csv").write_text("image,tags\n" + rows)
    assert check(str(photos)).rare == ["b"]


def test_without_labels_the_images_are_still_looked_at(photos: Path) -> None:
    report = check(str(photos))
    assert "no labels.csv" in report.problems[0]
    assert [name for name, _ in report.bad] == ["text.jpg"]


@pytest.mark.parametrize("spec", ["nowhere", "voc:nowhere", "vox:nowhere", "scenes:0"])
def test_what_cannot_be_read_at_all_is_a_problem_and_not_a_crash(spec: str) -> None:
    report = check(spec)
    assert len(report.problems) == 1
    assert "nothing could be read" in report.lines()[0]


def test_problems_beyond_the_kept_ones_are_counted(photos: Path) -> None:
    rows = "".join(f"none{number}.png,cat\n" for number in range(1005))
    (photos / "labels.csv").write_text("image,tags\n" + rows)
    assert check(str(photos)).problems[-1] == "… and 5 more"
