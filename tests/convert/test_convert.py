"""Labels from and for other tools, on small files in their formats."""

import csv
import json
from pathlib import Path

import pytest
from PIL import Image

from fewtags.cli import run
from fewtags.convert import convert
from fewtags.data.readers.folder import read_folder
from fewtags.errors import UserError

WIDE = "image,boat,dog,split\na.png,1,0,train\nsub/b c.png,0,,train\nd.png,1,1,test\ne.png,,,train\n"


def choices(*tags: str, **more: object) -> dict:
    result = [{"id": "x", "from_name": "c", "to_name": "img", "type": "choices", "value": {"choices": list(tags)}}]
    return {"id": 5, "completed_by": 1, "was_cancelled": False, "result": result if tags else [], **more}


def task(image: str, *annotations: dict, **data: object) -> dict:
    return {"id": 1, "data": {"image": image, **data}, "annotations": list(annotations), "predictions": []}


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Write a file, text or JSON, into the folder that the test stands in."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, content: object) -> Path:
        text = content if isinstance(content, str) else json.dumps(content)
        Path(name).write_text(text, encoding="utf-8")
        return Path(name)

    return write


def written(source: Path, name: str, *options: str) -> str:
    assert run(["convert", str(source), name, *options]) == 0
    return Path(name).read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(text.splitlines()))


def test_long_and_wide_csv_become_each_other(at):
    long = at("long.csv", "image,tags\na.png,dog|boat\nb.png,\n")
    wide = written(long, "wide.csv")
    assert wide == "image,boat,dog\na.png,1,1\nb.png,0,0\n"
    assert written(Path("wide.csv"), "again.csv", "--to", "long") == "image,tags\na.png,boat|dog\nb.png,\n"


def test_wide_csv_keeps_what_is_unknown_and_the_split(at):
    assert written(at("in.csv", WIDE), "out.csv") == WIDE


def test_label_studio_choices_are_read(at):
    tasks = [
        task("/data/upload/3/1a2b3c4d-beach.jpg", choices("sea", "dog")),
        task("/data/local-files/?d=photos/my%20garden.jpg", choices("flower")),
        task("https://example.org/some/street.jpg?size=2", choices()),
        task("s3://bucket/none.jpg", choices("sea", was_cancelled=True)),
        task("plain.jpg"),
    ]
    assert rows(written(at("tasks.json", tasks), "out.csv")) == [
        ["image", "dog", "flower", "sea"],
        ["beach.jpg", "1", "0", "1"],
        ["photos/my garden.jpg", "0", "1", "0"],
        ["street.jpg", "0", "0", "0"],
        ["none.jpg", "", "", ""],
        ["plain.jpg", "", "", ""],
    ]


def test_where_two_people_disagree_a_tag_is_unknown(at):
    tasks = [task("a.jpg", choices("sea", "dog"), choices("sea")), task("b.jpg", choices("dog"), choices("dog"))]
    assert written(at("tasks.json", tasks), "out.csv") == "image,dog,sea\na.jpg,,1\nb.jpg,1,0\n"


def test_boxes_beside_choices_are_passed_over(at):
    annotation = choices("sea")
    annotation["result"].append({"type": "rectanglelabels", "value": {"x": 1, "rectanglelabels": ["Ship"]}})
    assert written(at("tasks.json", [task("a.jpg", annotation)]), "out.csv") == "image,sea\na.jpg,1\n"


def test_label_studio_comes_back_as_it_went(at, capsys):
    known = "image,b & w,dog,split\nsub/a é.png,1,0,train\nd.png,0,0,test\ne.png,,,train\n"
    text = written(at("in.csv", known), "tasks.json", "--to", "label-studio")
    first, second, third = json.loads(text)
    assert first["data"] == {"image": "/data/local-files/?d=sub/a%20%C3%A9.png"}
    (result,) = first["annotations"][0]["result"]
    assert (result["type"], result["value"]) == ("choices", {"choices": ["b & w"]})
    assert second["annotations"] == [{"result": []}]
    assert third["annotations"] == third["predictions"] == []
    assert '<Choice value="b &amp; w"/>' in capsys.readouterr().err
    assert (
        written(Path("tasks.json"), "out.csv") == "image,b & w,split\nsub/a é.png,1,train\nd.png,0,test\ne.png,,train\n"
    )


def test_what_is_known_in_part_goes_to_label_studio_as_a_suggestion(at, capsys):
    first = json.loads(
        written(at("in.csv", "image,boat,dog\na.png,1,\nb.png,1,1\n"), "t.json", "--to", "label-studio")
    )[0]
    assert first["annotations"] == []
    assert first["predictions"][0]["result"][0]["value"] == {"choices": ["boat"]}
    assert "1 image is known in part" in capsys.readouterr().err


def test_fiftyone_numbers_names_and_objects_are_read(at):
    labels = {"a": [0, 2], "sub/b": [], "c": None, "d": 1, "e": [{"label": 1, "confidence": 0.9}], "f": ["sea"]}
    content = {"classes": ["boat", "dog", "sea"], "labels": labels}
    assert rows(written(at("labels.json", content), "out.csv"))[1:] == [
        ["a", "1", "0", "1"],
        ["sub/b", "0", "0", "0"],
        ["c", "", "", ""],
        ["d", "0", "1", "0"],
        ["e", "0", "1", "0"],
        ["f", "0", "0", "1"],
    ]


def test_fiftyone_without_classes_uses_names(at):
    content = {"classes": None, "labels": {"a": ["sea", "dog"], "b": "sea"}}
    assert written(at("labels.json", content), "out.csv") == "image,dog,sea\na,1,1\nb,0,1\n"


@pytest.mark.parametrize("folder", ["data", "photos"])
def test_fiftyone_names_get_the_ending_of_the_files(at, folder):
    Path(folder, "sub").mkdir(parents=True)
    Path("photos").mkdir(exist_ok=True)
    for name in ("a.JPG", "sub/b.png"):
        Image.new("RGB", (8, 8)).save(Path(folder, name))
    source = at("labels.json", {"labels": {"a": ["sea"], "sub/b": []}})
    assert written(source, "photos/labels.csv") == "image,sea\na.JPG,1\nsub/b.png,0\n"
    assert tuple(read_folder(Path(folder), Path("photos/labels.csv")).tags) == ("sea",)


def test_fiftyone_comes_back_as_it_went(at, capsys):
    known = "image,boat,dog\na,1,0\nsub/b,0,0\nc,,\n"
    content = json.loads(written(at("in.csv", known), "labels.json", "--to", "fiftyone"))
    assert content == {"classes": ["boat", "dog"], "labels": {"a": [0], "sub/b": [], "c": None}}
    assert written(Path("labels.json"), "out.csv") == known


def test_what_fiftyone_cannot_hold_is_said(at, capsys):
    content = json.loads(written(at("in.csv", WIDE), "labels.json", "--to", "fiftyone"))
    assert content["labels"] == {"a": [0], "sub/b c": None, "d": [0, 1], "e": None}
    said = capsys.readouterr().err
    assert "1 image is known in part" in said
    assert "split" in said


def test_a_byte_order_mark_and_spaces_do_not_hide_the_form(at):
    assert written(at("tasks.json", "\ufeff \n" + json.dumps([task("a.jpg", choices("sea"))])), "out.csv").endswith(
        "a.jpg,1\n"
    )


def test_python_says_what_was_done(at):
    outcome = convert(at("in.csv", WIDE), "out.json", "label-studio")
    assert (outcome.images, outcome.tags, outcome.read_as) == (4, 2, "wide CSV")


DEEP = "[" * 100_000

WRONG = [
    ("in.csv", "", "in.csv: the file is empty"),
    ("in.csv", "file,tags\na.png,sea\n", "in.csv, line 1"),
    ("in.csv", "image,sea\na.png,2\n", "in.csv, line 2: cell '2'"),
    ("in.csv", "image,sea\na.png,1\na.png,0\n", "in.csv, line 3: 'a.png' occurs earlier with another label for 'sea'"),
    ("in.csv", "image,sea,split\na.png,1,train\na.png,1,test\n", "line 3: 'a.png' occurs earlier in another split"),
    ("in.csv", "image,sea\n,1\n", "in.csv, line 2: a row without an image"),
    ("in.csv", "image,tags\na.png,\n", "nothing to convert"),
    ("in.json", '[\n{"data": \n}]', "in.json, line 3: not JSON"),
    ("in.json", DEEP, "in.json"),
    ("in.json", "{}", "in.json: JSON of an unknown form"),
    ("in.json", [], "nothing to convert"),
    ("in.json", [3], "in.json, task 1: not an object"),
    ("in.json", [{"image": "a.jpg", "choice": "sea"}], "in.json, task 1: this is the export JSON-MIN"),
    ("in.json", [task("a.jpg"), {"data": {"text": "x"}}], "in.json, task 2: no data.image"),
    ("in.json", [task("a.jpg") | {"annotations": {}}], "in.json, task 1, annotations: not a list"),
    ("in.json", [task("a.jpg", {"result": None})], "in.json, task 1, annotation 1, result: not a list"),
    ("in.json", [task("a.jpg", {"result": [{"value": {"choices": "sea"}}]})], "result 1, choices: not a list"),
    ("in.json", [task("a.jpg", choices("a|b"))], "in.json, task 1, annotation 1, result 1: tag 'a|b'"),
    ("in.json", [task("a.jpg", {"result": [{"value": {"choices": [3]}}]})], "3 is not text"),
    ("in.json", [task("a.jpg", {"result": [{"value": {"rectanglelabels": ["x"]}}]})], "has no choices"),
    ("in.json", [task("a.jpg", choices("x")), task("a.jpg", choices("y"))], "in.json, task 2: 'a.jpg' occurs earlier"),
    ("in.json", {"labels": []}, "in.json, labels: must map"),
    ("in.json", {"labels": {}, "classes": 3}, "in.json, classes: must be a list"),
    ("in.json", {"labels": {"a": [5]}, "classes": ["sea"]}, "in.json, labels['a']: 5 is not a tag"),
    ("in.json", {"labels": {"a": [0]}}, "in.json, labels['a']: 0 is not a tag"),
    ("in.json", {"labels": {"a": [True]}, "classes": ["x", "y"]}, "in.json, labels['a']: True is not a tag"),
    ("in.json", {"labels": {"a": [{"label": "x", "bounding_box": [0, 0, 1, 1]}]}}, "holds boxes"),
    ("in.json", {"labels": {"a": ["x|y"]}}, "tag 'x|y'"),
    ("in.json", {"labels": {"a": None}}, "nothing to convert"),
    ("in.jsonl", '{"image": "a", "tag": "b", "answer": "yes", "action": "1"}\n{"x": 1}\n', "in.jsonl, line 2"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_what_is_wrong_is_said_with_its_place_and_nothing_is_written(at, capsys, name, content, words):
    source = at(name, content)
    assert run(["convert", str(source), "out.csv"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("fewtags: ")
    assert words in printed.err
    assert not Path("out.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.csv", "out.csv"], "missing.csv: cannot be read"),
        (["in.csv", "out.json"], "--to label-studio"),
        (["in.csv", "in.csv"], "is the file that is read"),
        (["in.csv", "folder", "--to", "wide"], "is a folder"),
        (["in.csv", "out.csv", "--to", "long"], "'dog' is unknown for 'sub/b c.png'"),
        (["binary.csv", "out.csv"], "not UTF-8"),
        (["folder", "out.csv"], "cannot be read"),
        (["twice.csv", "out.json", "--to", "fiftyone"], "two are called 'a'"),
    ],
)
def test_other_mistakes_are_refused_in_one_message(at, capsys, arguments, words):
    at("in.csv", WIDE)
    at("twice.csv", "image,sea\na.png,1\na.jpg,0\n")
    Path("binary.csv").write_bytes(b"\xff\xfe\x00")
    Path("folder").mkdir()
    before = sorted(Path().iterdir())
    assert run(["convert", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("fewtags: ") == 1
    assert words in printed.err
    assert sorted(Path().iterdir()) == before


def test_an_unknown_form_is_refused_from_python_too(at):
    with pytest.raises(UserError, match="use wide, long, label-studio or fiftyone"):
        convert(at("in.csv", WIDE), "out.json", "coco")


def test_two_files_of_one_name_without_ending_are_refused(at):
    Path("data").mkdir()
    for name in ("a.jpg", "a.png"):
        Image.new("RGB", (8, 8)).save(Path("data", name))
    with pytest.raises(UserError, match=r"may be a\.jpg or a\.png"):
        convert(at("labels.json", {"labels": {"a": ["sea"]}}), "out.csv")


@pytest.mark.parametrize("tags", [["split", "cat"], ["Image", "cat"], ["label"]])
def test_a_tag_that_a_csv_would_take_for_a_column_is_refused(at, tags, capsys):
    at("labels.json", {"classes": tags, "labels": {"a": tags}})
    at("a.png", "")
    assert run(["convert", "labels.json", "wide.csv"]) == 2
    assert f"a tag named {tags[0]!r}" in capsys.readouterr().err
    assert not Path("wide.csv").exists()


def test_a_name_that_is_not_utf8_is_refused_in_every_form(at, capsys):
    line = {"image": "caf\udce9.png", "tag": "dog", "answer": "yes", "when": "now", "action": "1"}
    at("review.jsonl", json.dumps(line) + "\n")
    for out, options in (("a.csv", []), ("b.json", ["--to", "label-studio"]), ("c.json", ["--to", "fiftyone"])):
        assert run(["convert", "review.jsonl", out, *options]) == 2
        assert "is not UTF-8" in capsys.readouterr().err


def test_the_long_form_says_which_tags_it_loses(at, capsys):
    at("wide.csv", "image,boat,dog\na.png,1,0\nb.png,0,0\n")
    written(Path("wide.csv"), "long.csv", "--to", "long")
    shown = capsys.readouterr()
    assert "no image has dog" in shown.out + shown.err
