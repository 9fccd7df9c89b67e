"""A saved model in use: from the command line, from Python, and the sheet to glance at."""

import csv
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fewtags
from fewtags.cli import run
from fewtags.data.images import ImageFiles
from fewtags.encoders import base as encoding
from fewtags.errors import UserError
from fewtags.model.base import Tagging
from fewtags.model.tagger import Tagger
from fewtags.scenes.draw import draw
from fewtags.training.contact_sheet import COLUMNS, GAP, MISSED, RIGHT, SIDE, WRONG, Entry, contact_sheet

NAMES = ["plain.png", "with, comma.png", "Füße ☂.png", 'a "quoted" name.png', "sub/deeper/zebra.JPG", "two\nlines.png"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run whose model gives tags: 44 labelled scenes and enough epochs to tell some apart."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    return fewtags.train("scenes:60", labelled=0.5, method="d2l", size=64, warmup=20, epochs=2, out=folder).path


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    """A folder of scenes under names that are hard on CSV files."""
    monkeypatch.chdir(tmp_path)
    for index, name in enumerate(NAMES):
        file = Path("photos") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        draw(1, index)[0].save(file, "JPEG" if name.endswith("JPG") else "PNG")
    return Path("photos")


def rows(file: str | Path) -> list[list[str]]:
    with Path(file).open(encoding="utf-8", errors="surrogateescape", newline="") as lines:
        return list(csv.reader(lines))


def tag(trained: Path, *words: str) -> int:
    return run(["tag", str(trained), *words])


@pytest.mark.slow
def test_a_folder_is_tagged_whatever_its_files_are_called(trained, photos, capsys):
    assert tag(trained, "photos", "--out", "new/out.csv") == 0
    assert capsys.readouterr().out == "6 images tagged: new/out.csv\n"
    header, *found = rows("new/out.csv")
    assert header == ["image", "tags"]
    assert [image for image, _ in found] == sorted(f"photos/{name}" for name in NAMES)
    assert any("|" in tags for _, tags in found)
    assert [path.name for path in Path("new").iterdir()] == ["out.csv"]


def test_tags_go_to_standard_output_in_place_of_a_file(trained, photos, capsys):
    assert tag(trained, "photos", "--out", "out.csv") == 0
    capsys.readouterr()
    assert tag(trained, "photos", "--out", "-") == 0
    assert capsys.readouterr().out == Path("out.csv").read_text(encoding="utf-8")
    assert tag(trained, "photos") == 0
    assert capsys.readouterr().out == Path("out.csv").read_text(encoding="utf-8")


def test_scores_add_a_column_a_tag_that_decides_with_the_thresholds(trained, photos):
    assert tag(trained, "photos", "--scores", "--out", "out.csv") == 0
    thresholds = fewtags.load(trained).thresholds
    header, *found = rows("out.csv")
    assert header == ["image", "tags", *thresholds]
    for _, tags, *scores in found:
        given = {name for name, score in zip(thresholds, scores, strict=True) if float(score) > thresholds[name]}
        close = {name for name, s in zip(thresholds, scores, strict=True) if abs(float(s) - thresholds[name]) < 1e-4}
        assert given - close <= set(filter(None, tags.split("|"))) <= given | close


def test_files_folders_and_patterns_name_images_and_each_comes_once(trained, photos):
    words = ["photos/plain.png", "photos/p*.png", "./photos/plain.png", "photos/sub", "photos/**/*.JPG"]
    assert tag(trained, *words, "--out", "out.csv") == 0
    assert [row[0] for row in rows("out.csv")[1:]] == ["photos/plain.png", "photos/sub/deeper/zebra.JPG"]


def test_a_file_whose_name_looks_like_a_pattern_is_found(trained, photos):
    Path("photos/plain.png").rename("photos/img[1].png")
    assert tag(trained, "photos/img[1].png", "--out", "out.csv") == 0
    assert [row[0] for row in rows("out.csv")[1:]] == ["photos/img[1].png"]


def test_bad_files_are_listed_and_counted_and_do_not_stop_the_others(trained, photos, capsys):
    Path("photos/empty.png").touch()
    Path("photos/text, really.jpg").write_text("no image", encoding="utf-8")
    assert tag(trained, "photos", "--out", "out.csv") == 0
    printed = capsys.readouterr()
    assert printed.out == "6 images tagged: out.csv\n"
    assert printed.err == "2 files cannot be used: out.bad.csv lists the reasons\n"
    assert len(rows("out.csv")) == 1 + 6
    assert rows("out.bad.csv") == [
        ["image", "reason"],
        ["photos/empty.png", "the file is empty"],
        ["photos/text, really.jpg", "not an image of a known format, whatever its name says"],
    ]
    for name in ("empty.png", "text, really.jpg"):
        Path("photos", name).unlink()
    assert tag(trained, "photos", "--out", "out.csv") == 0
    assert not Path("out.bad.csv").exists()


def test_bad_files_are_said_where_tags_go_to_standard_output(trained, photos, capsys):
    Path("photos/empty.png").touch()
    assert tag(trained, "photos/plain.png", "photos/empty.png") == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert printed.err == "cannot be used: photos/empty.png: the file is empty\n"


def test_names_that_are_no_utf8_leave_as_they_came(trained, photos, monkeypatch):
    raw = b"photos/caf\xe9.png"
    try:
        Path("photos/plain.png").rename(os.fsdecode(raw))
    except OSError:
        pytest.skip("this file system knows Unicode names only")
    assert tag(trained, "photos", "--out", "out.csv") == 0
    assert raw in Path("out.csv").read_bytes()
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", output)
    assert tag(trained, "photos") == 0
    output.flush()
    assert output.buffer.getvalue() == Path("out.csv").read_bytes()


class Looked:
    """Counts the images that are opened, and may fail or send a signal at one of them."""

    def __init__(self, monkeypatch, at: str = "", what: BaseException | int | None = None) -> None:
        self.names: list[str] = []
        real = ImageFiles.image

        def image(files, name: str):
            if name == at and isinstance(what, BaseException):
                raise what
            if name == at:
                os.kill(os.getpid(), what)
            self.names.append(name)
            return real(files, name)

        monkeypatch.setattr(ImageFiles, "image", image)


@pytest.fixture
def many(tmp_path, monkeypatch) -> list[str]:
    """Forty small images; the heads are fed four at a time, so that an interruption finds some of them done."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(encoding, "BATCH", 4)
    Path("many").mkdir()
    names = [f"many/{index:02d}.png" for index in range(40)]
    for index, name in enumerate(names):
        Image.new("RGB", (24, 24), (index * 6, 255 - index * 5, index * 37 % 256)).save(name)
    return names


def part_file() -> Path:
    (part,) = Path().glob(".out.csv.*.part")
    return part


def test_tagging_goes_on_after_an_interruption_and_ends_with_the_same_file(trained, many, monkeypatch, capsys):
    assert tag(trained, "many", "--out", "whole.csv") == 0
    with monkeypatch.context() as patch:
        Looked(patch, many[-1], RuntimeError("the machine went down"))
        with pytest.raises(RuntimeError, match="went down"):
            tag(trained, "many", "--out", "out.csv")
    assert not Path("out.csv").exists()
    done = [row[0] for row in rows(part_file())[1:]]
    assert 0 < len(done) < len(many)
    capsys.readouterr()
    with monkeypatch.context() as patch:
        looked = Looked(patch)
        assert tag(trained, "many", "--out", "out.csv") == 0
    assert f"{len(done)} images tagged before an interruption" in capsys.readouterr().err
    assert sorted(looked.names) == many[len(done) :]
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert not list(Path().glob(".*.part"))


def test_ctrl_c_leaves_with_130_and_the_same_command_goes_on(trained, many, monkeypatch, capsys):
    assert tag(trained, "many", "--out", "whole.csv") == 0
    with monkeypatch.context() as patch:
        Looked(patch, many[0], signal.SIGINT)
        assert tag(trained, "many", "--out", "out.csv") == 130
    assert "the same command goes on from here" in capsys.readouterr().err
    assert tag(trained, "many", "--out", "out.csv") == 0
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


def interrupted_with(trained: Path, names: list[str], monkeypatch) -> Path:
    with monkeypatch.context() as patch:
        Looked(patch, names[-1], RuntimeError("stop"))
        with pytest.raises(RuntimeError):
            tag(trained, "many", "--out", "out.csv")
    return part_file()


@pytest.mark.slow
@pytest.mark.parametrize("left", ["", "{name}", "{name},su", "{name}\n", "\n"])
def test_a_half_written_line_is_taken_back_and_its_image_tagged_again(left, trained, many, monkeypatch):
    assert tag(trained, "many", "--out", "whole.csv") == 0
    part = interrupted_with(trained, many, monkeypatch)
    *lines, last = part.read_text(encoding="utf-8").splitlines(keepends=True)
    part.write_text("".join(lines) + left.format(name=last.split(",")[0]), encoding="utf-8")
    assert tag(trained, "many", "--out", "out.csv") == 0
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_a_line_cut_within_a_quoted_name_is_taken_back(trained, photos):
    assert tag(trained, "photos", "--out", "out.csv") == 0
    whole = Path("out.csv").read_bytes()
    cut = whole.index(b"two\nlines") + 4  # just after the line break within the name
    with pytest.MonkeyPatch.context() as patch:
        Looked(patch, "photos/plain.png", RuntimeError("stop"))
        with pytest.raises(RuntimeError):
            tag(trained, "photos", "--out", "out.csv")
    part_file().write_bytes(whole[:cut])
    assert tag(trained, "photos", "--out", "out.csv") == 0
    assert sorted(rows("out.csv")) == sorted(csv.reader(io.StringIO(whole.decode(), newline="")))


def test_what_was_begun_for_other_images_does_not_mix_in(trained, many, monkeypatch):
    interrupted_with(trained, many, monkeypatch)
    assert tag(trained, many[3], many[-1], "--out", "out.csv") == 0
    assert [row[0] for row in rows("out.csv")[1:]] == [many[3], many[-1]]


def test_what_was_begun_with_other_columns_is_not_gone_on_with(trained, many, monkeypatch):
    interrupted_with(trained, many, monkeypatch)
    assert tag(trained, "many", "--scores", "--out", "out.csv") == 0
    assert {len(row) for row in rows("out.csv")} == {2 + 12}


def test_names_are_taken_as_they_are_needed_so_that_memory_stays_constant(trained, many):
    taken = 0

    def names() -> Iterator[str]:
        nonlocal taken
        for _ in range(100_000):
            taken += 1
            yield many[taken % len(many)]

    stream = fewtags.load(trained).stream(names())
    ahead = []
    for given in range(1, 201):
        next(stream)
        ahead.append(taken - given)
    stream.close()
    threads = os.cpu_count() or 1
    assert max(ahead) <= 4 + 4 * (3 * threads + 1)  # a batch for the heads, and the groups under way


def test_the_tags_of_a_run_are_those_that_its_model_gives_to_the_same_images(trained, tmp_path):
    written = dict(rows(trained / "tags.csv")[1:])
    assert sum(tags != "" for tags in written.values()) > 3
    for name in written:
        draw(1, int(name[6:11]))[0].save(tmp_path / name)
    assert tag(trained, str(tmp_path), "--out", str(tmp_path / "out.csv")) == 0
    again = {Path(name).name: tags for name, tags in rows(tmp_path / "out.csv")[1:]}
    assert again == written


def test_a_loaded_model_gives_tags_with_the_surest_first(trained, photos):
    tagger = fewtags.load(trained)
    assert isinstance(tagger, Tagger)
    found = tagger.tag([photos / "plain.png", "photos/with, comma.png"])
    assert [one.image for one in found] == ["photos/plain.png", "photos/with, comma.png"]
    assert any(len(one.tags) > 1 for one in found)
    for one in found:
        assert isinstance(one, Tagging)
        assert list(one.scores) == tagger.tags
        margin = {name: one.scores[name] - tagger.thresholds[name] for name in tagger.tags}
        assert one.tags == sorted((name for name in margin if margin[name] >= 0), key=lambda name: -margin[name])


def test_one_path_may_stand_alone(trained, photos):
    tagger = fewtags.load(trained / "model")
    assert tagger.tag("photos/plain.png") == tagger.tag([photos / "plain.png"])


def test_a_model_of_version_0_3_is_read(trained, photos, tmp_path):
    """It also said of itself what the settings of its method say."""
    old = Path(shutil.copytree(trained / "model", tmp_path / "old"))
    about = json.loads((old / "model.json").read_text(encoding="utf-8"))
    for key in ("numbers", "blocks", "components"):
        assert about.pop(key) is None
    about |= {"fewtags": "0.3.0", "blocks": "both", "components": None}
    about |= {"merge": "logits", "alpha": 1.0, "heads": ["whole_make", "patch_make"]}
    (old / "model.json").write_text(json.dumps(about), encoding="utf-8")
    images = [f"photos/{name}" for name in NAMES]
    assert fewtags.load(old).tag(images) == fewtags.load(trained).tag(images)
    (old / "model.json").write_text(json.dumps(about | {"fewtags": "0.0.1", "what": 1}), encoding="utf-8")
    with pytest.raises(UserError, match=r"was written by fewtags 0\.0\.1, and this is"):
        fewtags.load(old)


def test_a_model_without_curves_gives_scores_as_they_are(trained, photos, tmp_path):
    """As 0.3 wrote it: its thresholds are on the scores themselves."""
    old = Path(shutil.copytree(trained / "model", tmp_path / "old"))
    about = json.loads((old / "model.json").read_text(encoding="utf-8"))
    slope, offset = np.array(about.pop("calibration")).T
    (old / "model.json").write_text(json.dumps(about), encoding="utf-8")
    images = [photos / name for name in NAMES]
    new, raw = fewtags.load(trained), fewtags.load(old)
    assert (new.calibrated, raw.calibrated) == (True, False)
    scores = raw.predict_proba(images).astype(np.float64)
    curved = 1 / (1 + np.exp(-(offset + slope * np.log(scores / (1 - scores)))))
    np.testing.assert_allclose(new.predict_proba(images), curved, atol=1e-5)
    assert np.abs(curved - scores).max() > 0.01
    labels = tmp_path / "labels.csv"
    lines = [["image", *new.tags[:2]], *([name, number % 2, 1 - number % 2] for number, name in enumerate(NAMES))]
    with labels.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
    assert fewtags.evaluate(old, photos, labels=labels)["calibration_error"] is None
    assert fewtags.evaluate(trained / "model", photos, labels=labels)["calibration_error"] is not None


def test_what_cannot_be_used_has_a_result_that_says_why(trained, photos):
    Path("photos/empty.png").touch()
    tagger = fewtags.load(trained)
    names = ["photos/plain.png", "photos/empty.png", "none.png"]
    scored, tagged = list(tagger.scores(names)), list(tagger.stream(names))
    assert [one.name for one in scored] == [one.name for one in tagged] == names
    assert tagged[0].value == tagger.tag(names[0])[0]
    assert scored[0].value.shape == (len(tagger.tags),)
    assert [(one.value, one.problem) for one in tagged[1:]] == [(one.value, one.problem) for one in scored[1:]]
    assert [one.value for one in scored[1:]] == [None, None]
    assert scored[1].problem == "the file is empty"
    assert scored[2].problem


@pytest.mark.parametrize("name", ["none.png", "photos", "photos/empty.png"])
def test_a_loaded_model_names_the_file_that_it_cannot_use(trained, photos, name):
    Path("photos/empty.png").touch()
    with pytest.raises(UserError, match=f"^{name} cannot be used: "):
        fewtags.load(trained).tag([name])


def picture() -> Image.Image:
    return Image.new("RGB", (300, 200), "#204060")


def colours(sheet: Image.Image) -> set[tuple[int, ...]]:
    return set(map(tuple, np.unique(np.asarray(sheet).reshape(-1, 3), axis=0).tolist()))


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


@pytest.mark.parametrize(("images", "rows_needed"), [(1, 1), (4, 1), (5, 2), (12, 3)])
def test_the_sheet_is_as_wide_as_four_pictures_and_as_high_as_its_rows(images, rows_needed):
    sheet = contact_sheet([Entry(picture(), ["sea"])] * images, "a title")
    assert sheet.width == GAP + COLUMNS * (SIDE + GAP)
    assert SIDE * rows_needed < sheet.height < (SIDE + 100) * rows_needed + 100


def test_only_a_sheet_with_truth_has_a_legend_and_its_colours():
    plain = contact_sheet([Entry(picture(), ["sea"])], "a title")
    judged = contact_sheet([Entry(picture(), ["sea", "dog"], ["sea", "cat"])], "a title")
    assert judged.height > plain.height
    marks = {rgb(RIGHT), rgb(WRONG), rgb(MISSED)}
    assert marks <= colours(judged)
    assert not marks & colours(plain)
    legend = (0, 50, judged.width, 80)
    assert marks <= colours(judged.crop(legend))


def test_an_image_without_tags_says_so():
    said = contact_sheet([Entry(picture(), [])], "a title")
    assert rgb(MISSED) in colours(said)


@pytest.mark.parametrize("name", ["W" * 40, "i" * 300, "a tag of very many words that nobody will ever read in full"])
def test_a_long_tag_is_cut_where_its_picture_ends(name):
    sheet = contact_sheet([Entry(picture(), [name, "sea"]), Entry(picture(), ["sea"])], "")
    paper = sheet.getpixel((0, 0))
    right_of_it = sheet.crop((GAP + SIDE + 1, 64, GAP + SIDE + GAP, sheet.height))
    assert colours(right_of_it) == {paper}
