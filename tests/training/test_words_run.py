"""Runs that read tags' names: from a folder without a label to a model, and no harm where names say nothing."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors import safe_open

import fewtags
import fewtags.training.run_folder
from fewtags.api import data_of
from fewtags.cli import run as fewtags_run
from fewtags.data.catalogue import UNKNOWN, Role
from fewtags.model.saved import read_info
from fewtags.report.card import model_card
from fewtags.review.session import open_session
from fewtags.scenes.draw import draw
from fewtags.training.repeat import command as repeating_command
from fewtags.training.run_folder import RunFolder, Watch
from fewtags.words.table import word_table
from small_runs import Stopped, command, model, read_rows, tiny_folder, write_rows

pytestmark = pytest.mark.slow

IMAGES, TAGS = 40, ("boat", "dog", "car", "zzqqx")
SMALL = ("--backbone", "efficientnet_lite0", "--size", "64", "--epochs", "50", "--set", "hidden=16", "components=8")
NAMED = ("--tags", ",".join(TAGS), *SMALL)


@pytest.fixture(scope="module", autouse=True)
def easily_seen():
    """Drawn things of a few pixels are never clear to a network that knows photographs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fewtags.metrics.decisions.CLEAR", 1e-4)
        patch.setattr("fewtags.training.results.SHEET_IMAGES", 2)
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Drawn scenes in photos/, and what they show in truth.csv beside the folder's parent, where nobody finds it."""
    home = tmp_path_factory.mktemp("words")
    (home / "photos").mkdir()
    rows = []
    for number in range(IMAGES):
        picture, tags = draw(1, number)
        picture.resize((96, 72)).save(home / "photos" / f"{number:02d}.png")
        rows.append([f"{number:02d}.png", "|".join(tags)])
    write_rows(home / "truth.csv", [["image", "tags"], *rows])
    return home


@pytest.fixture(scope="module")
def photos(home) -> Path:
    return home / "photos"


@pytest.fixture(scope="module")
def trained(home, photos) -> Path:
    """A run without a label."""
    assert fewtags_run(command(photos, home / "run", *NAMED)) == 0
    return home / "run"


def result(run: Path) -> dict:
    return json.loads((run / "result.json").read_text(encoding="utf-8"))


def thresholds(run: Path) -> dict:
    about = json.loads((run / "model" / "model.json").read_text(encoding="utf-8"))
    return dict(zip(about["tags"], about["thresholds"], strict=True))


def given(file: Path) -> dict[str, set[str]]:
    return {name: set(filter(None, tags.split("|"))) for name, tags in read_rows(file)[1:]}


def files_of(run: Path) -> dict[str, bytes]:
    names = ("model/model.safetensors", "model/model.json", "tags.csv", "split.csv", "config.yaml")
    return {name: (run / name).read_bytes() for name in names}


# --- without a label ------------------------------------------------------------------------------------------


def test_a_run_without_a_label_says_that_nothing_is_verified(photos, trained, tmp_path, capsys):
    assert fewtags_run(command(photos, tmp_path / "run", *NAMED)) == 0
    printed = capsys.readouterr()
    assert "no image is labelled: only the surest get a tag, by its name alone, and none is verified" in printed.out
    assert "quality is unknown until you label some images" in printed.out
    assert "estimated" not in printed.out
    assert f"{IMAGES} images tagged" in printed.out
    assert "no labelled image shows zzqqx: never given" in printed.err
    assert "no labelled image shows boat, dog, car: given by name alone" in printed.err
    assert "dog: Chihuahua, Japanese spaniel and 116 more" in printed.err
    assert "zzqqx: nothing found" in printed.err
    assert files_of(tmp_path / "run") == files_of(trained), "the same once more"


def test_what_a_run_without_a_label_keeps(trained):
    kept = result(trained)
    assert kept["images"] == {"labelled": 0, "unlabelled": IMAGES, "test": 0}
    limits = thresholds(trained)
    assert limits["zzqqx"] is None
    assert kept["unverified"] == [tag for tag, limit in limits.items() if limit is not None]
    assert kept["unverified"], "else nothing is tested here"
    assert "estimate" not in kept
    tags = given(trained / "tags.csv")
    assert len(tags) == IMAGES
    assert set.union(*tags.values()) == set(kept["unverified"])
    assert all(limit is None or limit >= 0.5 for limit in limits.values())
    config = RunFolder(trained).config()
    assert (config.words, config.given_tags, config.tags) == ("on", ",".join(TAGS), list(TAGS))
    assert json.loads((trained / "model" / "model.json").read_text())["words"] == len(TAGS)


def test_the_report_and_the_card_say_it_too(trained):
    assert fewtags_run(["report", str(trained)]) == 0
    page = (trained / "report.html").read_text(encoding="utf-8")
    assert "no image is labelled, so the quality is unknown until you label some" in page
    assert "Unverified" in page
    assert "no labelled image shows the tag; its name alone decides" in page
    card = model_card(trained, read_info(trained / "model" / "model.json"))
    assert "no test images and no labelled ones" in card
    assert f"Given by their names alone, which no labelled image confirms: {result(trained)['unverified'][0]}" in card
    assert "zzqqx" in card.partition("Not given")[2].splitlines()[0]


def test_the_model_tags_what_the_run_tagged_and_an_exported_one_does(photos, trained, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    file = tmp_path / "model.onnx"
    assert fewtags_run(["export", str(trained), str(file)]) == 0
    for source, out in ((trained, "ours.csv"), (file, "theirs.csv")):
        assert fewtags_run(["tag", str(source), str(photos), "--out", str(tmp_path / out)]) == 0
    ours, theirs = (given(tmp_path / name) for name in ("ours.csv", "theirs.csv"))
    assert len(ours) == IMAGES
    assert ours == theirs
    assert sorted(map(sorted, ours.values())) == sorted(map(sorted, given(trained / "tags.csv").values()))


@pytest.mark.parametrize("kind", ["png", "html"])
def test_a_tag_given_by_its_name_is_explained(photos, trained, tmp_path, kind, capsys):
    name, tags = next((name, tags) for name, tags in given(trained / "tags.csv").items() if tags)
    out = tmp_path / f"why.{kind}"
    assert fewtags_run(["explain", str(trained), str(photos / name), "--out", str(out)]) == 0
    assert out.stat().st_size > 1000
    assert all(tag in capsys.readouterr().out for tag in sorted(tags)[:1])


def test_a_label_file_measures_it(home, photos, trained, capsys):
    assert fewtags_run(["evaluate", str(trained), str(photos), "--labels", str(home / "truth.csv")]) == 0
    printed = capsys.readouterr().out
    assert "mAP" in printed
    assert "zzqqx" in printed
    assert fewtags_run(["evaluate", str(trained)]) == 2  # its own data has no labels
    assert "no test images" in capsys.readouterr().err


def test_a_check_shows_what_names_lead_to(photos, capsys):
    assert fewtags_run(["check", str(photos), "--tags", "dog,zzqqx"]) == 0
    printed = capsys.readouterr().out
    assert f"0 labelled, {IMAGES} unlabelled" in printed
    assert "no image is labelled" in printed
    assert "dog: Chihuahua, Japanese spaniel and 116 more" in printed
    assert "zzqqx: nothing found" in printed


def test_in_python_it_is_the_same(photos, trained, tmp_path):
    settings = {"hidden": 16, "components": 8}
    how = {"backbone": "efficientnet_lite0", "size": 64, "epochs": 50, "settings": settings, "progress": False}
    run = fewtags.train(photos, tags=list(TAGS), out=tmp_path / "run", **how)
    assert run.result["unverified"] == result(trained)["unverified"]
    assert model(run.path) == model(trained)


def test_all_labels_hidden_is_a_run_without_a_label(home, photos, trained, tmp_path):
    """Names of the file's tags are read; its labels are not."""
    options = ("--labels", str(home / "truth.csv"), "--labelled", "0", *SMALL)
    assert fewtags_run(command(photos, tmp_path / "run", *options)) == 0
    assert result(tmp_path / "run")["images"]["labelled"] == 0
    assert RunFolder(tmp_path / "run").config().words == "on"


def test_a_label_file_without_a_row_names_tags(photos, tmp_path):
    write_rows(tmp_path / "labels.csv", [["image", *TAGS]])
    options = ("--labels", str(tmp_path / "labels.csv"), *SMALL)
    assert fewtags_run(command(photos, tmp_path / "run", *options)) == 0
    kept = result(tmp_path / "run")
    assert kept["images"]["labelled"] == 0
    assert kept["unverified"]


@pytest.mark.parametrize("alike", [False, True], ids=["different", "alike"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_images_and_images_that_are_all_alike_are_borne(tmp_path, count, alike):
    (tmp_path / "few").mkdir()
    for number in range(count):
        draw(1, 0 if alike else number)[0].resize((96, 72)).save(tmp_path / "few" / f"{number}.png")
    assert fewtags_run(command(tmp_path / "few", tmp_path / "run", *NAMED)) == 0
    scores = RunFolder(tmp_path / "run").scores()["unlabelled"]
    assert scores.shape == (count, len(TAGS))
    assert ((scores >= 0) & (scores <= 1)).all()
    if alike:
        assert np.ptp(scores, axis=0).max() < 1e-6
    assert fewtags_run(["report", str(tmp_path / "run")]) == 0


def test_labels_that_only_say_no_leave_tags_unverified(photos, tmp_path, capsys):
    rows = [[f"{number:02d}.png", 0, 0] for number in range(12)]
    write_rows(tmp_path / "labels.csv", [["image", "dog", "boat"], *rows])
    options = ("--labels", str(tmp_path / "labels.csv"), *SMALL)
    assert fewtags_run(command(photos, tmp_path / "run", *options)) == 0
    kept = result(tmp_path / "run")
    assert kept["images"]["labelled"] == 12
    assert kept["unverified"] == [tag for tag, limit in thresholds(tmp_path / "run").items() if limit is not None]
    assert "estimate" not in kept, "no label shows a tag, so nothing can be estimated"
    printed = capsys.readouterr()
    assert "estimated" not in printed.out
    assert "no labelled image shows dog, boat: given by name alone" in printed.err
    if kept["unverified"]:
        assert f"given by name alone, unverified: {', '.join(kept['unverified'])}" in printed.out
    assert fewtags_run(["report", str(tmp_path / "run")]) == 0


# --- review ---------------------------------------------------------------------------------------------------


@pytest.fixture
def reviewed(trained, tmp_path):
    """A copy of the run, and its session."""
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    folder = RunFolder(run)
    return run, open_session(folder, data_of(folder))


def test_a_review_asks_about_every_image_in_an_order_of_its_own(reviewed):
    _, session = reviewed
    assert session.data.tags == TAGS
    assert (session.data.labels == UNKNOWN).all()
    order = session.queue("teach")
    assert sorted(order) == list(range(IMAGES))
    assert order != sorted(order)
    assert session.image(order[0])["answers"] == [None] * len(TAGS)
    assert session.jpeg(order[0], 64)[:2] == b"\xff\xd8"


def test_decisions_of_a_review_are_the_first_labels(home, reviewed, tmp_path, capsys):
    run, session = reviewed
    truth = given(home / "truth.csv")
    for number in session.queue("teach")[:12]:
        name = session.data.names[number]
        session.decide([(number, tag, "yes" if TAGS[tag] in truth[name] else "no") for tag in range(3)])
    assert fewtags_run(["train", str(run), "--with-review", "--out", str(tmp_path / "again")]) == 0
    kept = result(tmp_path / "again")
    assert kept["images"]["labelled"] == 12
    assert "estimate" in kept
    config = RunFolder(tmp_path / "again").config()
    assert (config.words, config.given_tags, config.tags) == ("on", ",".join(TAGS), list(TAGS))
    catalogue = data_of(RunFolder(tmp_path / "again"))
    assert len(catalogue.rows(Role.LABELLED)) == 12
    positives = {tag for tag, column in zip(TAGS, catalogue.targets.T, strict=True) if (column == 1).any()}
    assert positives
    assert set(kept["unverified"]) <= set(TAGS) - positives - {"zzqqx"}
    assert fewtags_run(["report", str(tmp_path / "again")]) == 0


@pytest.mark.parametrize("words", [(), ("--words", "boat=canoe")], ids=["names", "own words"])
def test_when_every_image_is_decided_labels_alone_are_learned(photos, tmp_path, words, capsys):
    run = tmp_path / "run"
    assert fewtags_run([*command(photos, run, *NAMED), *words]) == 0
    session = open_session(RunFolder(run), data_of(RunFolder(run)))
    for number in range(IMAGES):
        session.decide([(number, tag, "yes" if (number + tag) % 3 == 0 else "no") for tag in range(len(TAGS))])
    assert fewtags_run(["train", str(run), "--with-review", "--out", str(tmp_path / "again")]) == 0
    assert "no unlabelled image is left for neighbours" in capsys.readouterr().err
    assert result(tmp_path / "again")["images"] == {"labelled": IMAGES, "unlabelled": 0, "test": 0}
    config = RunFolder(tmp_path / "again").config()
    assert (config.method, config.words) == ("asl", "off")


# --- stopped and gone on with ---------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 30])
def test_an_interrupted_run_without_a_label_goes_on_to_the_same_bytes(photos, trained, tmp_path, monkeypatch, steps):
    step, left = Watch.step, [steps]

    def step_and_stop(self, report):
        step(self, report)
        left[0] -= 1
        if left[0] == 0:
            raise Stopped

    monkeypatch.setattr(fewtags.training.run_folder, "SAVE_SECONDS", 0)
    with monkeypatch.context() as patch:
        patch.setattr(Watch, "step", step_and_stop)
        with pytest.raises(Stopped):
            fewtags_run(command(photos, tmp_path / "run", *NAMED))
    assert not (tmp_path / "run" / "tags.csv").exists()
    assert fewtags_run([*command(photos, tmp_path / "run", *NAMED), "--resume"]) == 0
    assert files_of(tmp_path / "run") == files_of(trained)


def test_other_words_or_other_tags_are_not_gone_on_with(photos, trained, tmp_path, capsys):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    for other in (["--words", "dog=-"], ["--tags", "boat,dog,car,zzqqy"]):
        assert fewtags_run([*command(photos, run, *NAMED), *other, "--resume"]) == 2
        assert "was started with other settings" in capsys.readouterr().err


# --- with labels: no harm -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def labelled(tmp_path_factory) -> Path:
    """Tiny pictures, eight of them labelled."""
    return tiny_folder(tmp_path_factory.mktemp("labelled") / "pictures")


def renamed(data: Path, out: Path, *tags: str) -> str:
    """Its labels under other names."""
    header, *rows = read_rows(data / "labels.csv")
    write_rows(out, [["image", *tags, *header[1 + len(tags) :]], *rows])
    return str(out)


@pytest.fixture(scope="module")
def silent(labelled, tmp_path_factory) -> Path:
    """Known names, not read."""
    home = tmp_path_factory.mktemp("silent")
    labels = renamed(labelled, home / "labels.csv", "dog", "boat", "car")
    assert fewtags_run(command(labelled, home / "run", "--labels", labels, "--words", "off", *SMALL)) == 0
    return home / "run"


def test_with_every_label_hidden_test_images_still_judge(labelled, tmp_path):
    labels = renamed(labelled, tmp_path / "labels.csv", "dog", "boat", "car")
    options = ("--labels", labels, "--labelled", "0", *SMALL)
    assert fewtags_run(command(labelled, tmp_path / "run", *options)) == 0
    kept = result(tmp_path / "run")
    assert kept["images"] == {"labelled": 0, "unlabelled": 18, "test": 8}
    assert 0 <= kept["map"] <= 1
    assert "estimate" not in kept
    assert fewtags_run(["evaluate", str(tmp_path / "run")]) == 0
    assert fewtags_run(["report", str(tmp_path / "run")]) == 0


def test_names_that_say_nothing_change_nothing(labelled, silent, tmp_path, capsys):
    labels = renamed(labelled, tmp_path / "labels.csv", "zzqqa", "zzqqb", "zzqqc")
    assert fewtags_run(command(labelled, tmp_path / "run", "--labels", labels, *SMALL)) == 0
    assert model(tmp_path / "run") == model(silent)
    ours, theirs = ((one / "tags.csv").read_text(encoding="utf-8") for one in (tmp_path / "run", silent))
    for nonsense, name in zip(("zzqqa", "zzqqb", "zzqqc"), ("dog", "boat", "car"), strict=True):
        ours = ours.replace(nonsense, name)
    assert ours == theirs
    assert "unverified" not in result(tmp_path / "run")
    assert "what tags' names lead to" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [("--method", "asl"), ("--features", "crops"), ("--protocol", "paper", "--tune", "heads")], ids=str
)
def test_where_names_are_not_read_on_says_nothing(labelled, tmp_path, options):
    """It is the default, said aloud: a grid of many methods may have it."""
    labels = renamed(labelled, tmp_path / "labels.csv", "dog", "boat", "car")
    how = ("--labels", labels, "--size", "64", "--epochs", "2", "--warmup", "2", "--backbone", "efficientnet_lite0")
    for name, words in (("on", "on"), ("off", "off")):
        assert fewtags_run(command(labelled, tmp_path / name, *how, *options, "--words", words)) == 0
    assert model(tmp_path / "on") == model(tmp_path / "off")
    assert RunFolder(tmp_path / "on").config().words == "off"


def test_five_hundred_tags_are_learned_by_their_names(photos, tmp_path):
    names = dict.fromkeys(name.partition(" (")[0] for name in word_table().class_names)
    many = [name for name in names if len({other for other in names if other.lower() == name.lower()}) == 1][:500]
    write_rows(tmp_path / "tags.csv", [many])
    text = (tmp_path / "tags.csv").read_text(encoding="utf-8").strip()
    assert fewtags_run(command(photos, tmp_path / "run", "--tags", text, *SMALL)) == 0
    assert RunFolder(tmp_path / "run").config().tags == many
    assert len(thresholds(tmp_path / "run")) == len(many) == 500


def test_names_that_say_something_are_read_unless_told_otherwise(labelled, silent, tmp_path):
    labels = renamed(labelled, tmp_path / "labels.csv", "dog", "boat", "car")
    assert fewtags_run(command(labelled, tmp_path / "run", "--labels", labels, *SMALL)) == 0
    with safe_open(tmp_path / "run" / "model" / "model.safetensors", "pt") as ours:
        assert "words.weights" in ours.keys()  # noqa: SIM118
        assert ours.get_tensor("words.weights").shape == (1000, 3)
    with safe_open(silent / "model" / "model.safetensors", "pt") as theirs:
        assert "words.weights" not in theirs.keys()  # noqa: SIM118
    assert RunFolder(silent).config().words == "off"
    assert result(tmp_path / "run")["unverified"] == []


def test_own_words_are_kept_and_repeated(photos, tmp_path, capsys):
    assert fewtags_run([*command(photos, tmp_path / "run", *NAMED), "--words", "boat = canoe; dog=-;"]) == 0
    assert RunFolder(tmp_path / "run").config().words == "boat=canoe; dog=-"
    said = capsys.readouterr().err
    assert "boat: canoe" in said
    assert "dog: words switched off" in said
    assert thresholds(tmp_path / "run")["dog"] is None
    folder = RunFolder(tmp_path / "run")
    session = open_session(folder, data_of(folder))
    session.decide([(0, 0, "yes"), (1, 0, "no")])
    assert fewtags_run(["train", str(tmp_path / "run"), "--with-review", "--out", str(tmp_path / "again")]) == 0
    assert RunFolder(tmp_path / "again").config().words == "boat=canoe; dog=-"


def repeated(run: Path, labelled: int, unlabelled: int) -> list[str]:
    return shlex.split(repeating_command(RunFolder(run).config(), labelled, unlabelled, False))


def test_the_command_that_repeats_a_run_reads_names_as_it_did(photos, trained, silent, labelled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run, count in ((trained, (0, IMAGES)), (silent, (8, 10))):
        words = repeated(run, *count)
        assert words[:2] == ["fewtags", "train"]
        assert fewtags_run(words[1:]) == 0, words
        assert model(tmp_path / "again") == model(run), words
        shutil.rmtree(tmp_path / "again")


# --- runs of 0.3 ----------------------------------------------------------------------------------------------


def test_a_run_folder_of_before_is_read(labelled, silent, tmp_path):
    """Its config.yaml has neither words nor given_tags, its model.json no words."""
    run = Path(shutil.copytree(silent, tmp_path / "run"))
    about = run / "config.yaml"
    content = yaml.safe_load(about.read_text(encoding="utf-8"))
    digest = RunFolder(run).config().digest()
    assert (content.pop("words"), content.pop("given_tags")) == ("off", None)
    about.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    file = run / "model" / "model.json"
    description = json.loads(file.read_text(encoding="utf-8"))
    assert description.pop("words") is None
    file.write_text(json.dumps(description), encoding="utf-8")
    config = RunFolder(run).config()
    assert (config.words, config.given_tags, config.digest()) == ("off", None, digest)
    for source, out in ((silent, "ours.csv"), (run, "theirs.csv")):
        assert fewtags_run(["tag", str(source), str(labelled), "--out", str(tmp_path / out)]) == 0
    assert (tmp_path / "ours.csv").read_bytes() == (tmp_path / "theirs.csv").read_bytes()
    assert fewtags_run(["report", str(run)]) == 0
    assert fewtags_run(["evaluate", str(run)]) == 0
    session = open_session(RunFolder(run), data_of(RunFolder(run)))
    session.decide([(9, 0, "yes")])
    assert fewtags_run(["train", str(run), "--with-review", "--out", str(tmp_path / "again")]) == 0
    assert RunFolder(tmp_path / "again").config().words == "off"
