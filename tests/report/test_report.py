"""The report: its content, its protection against hostile names, and its error messages."""

import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fewtags
from fewtags.cli import run
from fewtags.data import Role
from fewtags.report import thumbnails
from fewtags.report.assessment import tag_rows
from fewtags.report.charts import Line, line_chart
from fewtags.report.counts import co_occurrence_counts, reliability_bins
from fewtags.report.facts import read_facts
from fewtags.report.markup import element, join
from fewtags.report.selection import MAX_PER_GROUP, MAX_PER_TAG, SAMPLE, select_images
from fewtags.report.summary import enumerate_words, sentence
from fewtags.training.options import TrainOptions
from fewtags.training.repeat import command
from fewtags.training.resolve import Job, resolve
from fewtags.training.run_folder import RunFolder
from made_up_runs import an_estimate, made_up_run, save_pictures
from small_runs import ALL, AUTO, HEADS, tiny_folder, train

HOSTILE = "<script>alert('tag')</script>"
SECTIONS = ["summary", "tags", "next", "learning", "pseudo", "reliability", "together", "images", "settings"]


class Page(HTMLParser):
    """A parsed page: elements with attributes, and text other than scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in {"img", "input", "meta"}:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag  # every element is closed where it should be

    def handle_data(self, data):
        if self._open[-1:] not in (["script"], ["style"]):
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(path: Path) -> Page:
    return Page(fewtags.write_report(path).read_text(encoding="utf-8", errors="surrogateescape"))


def small_run(path: Path, **changes) -> Path:
    """Three labelled, four unlabelled and two test images with two tags."""
    tables = {
        "labelled": [[0.9, 0.1], [0.2, 0.8], [0.7, 0.6]],
        "labelled_targets": [[1, 0], [0, 1], [1, 1]],
        "held_out": [[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]],
        "unlabelled": [[0.9, 0.8], [0.8, 0.1], [0.1, 0.7], [0.2, 0.3]],
        "test": [[0.9, 0.1], [0.3, 0.6]],
        "test_targets": [[1, 0], [0, 1]],
    }
    options = {"tags": ["sea", "dog"], "tables": tables} | changes
    return made_up_run(path, **options)


def full_run(path: Path) -> Path:
    """A run with content for every section."""
    records = [{"stage": "main", "epoch": number, "loss": 3.0 - number, "map": 0.5, "cf1": 0.4} for number in range(3)]
    held_back = [{"tag": "dog", "positives": 3, "more_labels": 20}]
    result = {"estimate": an_estimate(["sea", "dog"], [0.9, 0.3]), "not_given": held_back}
    run = small_run(path, records=records, result=result)
    RunFolder(run).write_scores(RunFolder(run).scores() | {"unlabelled_targets": np.ones((4, 2), np.int8)})
    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("trained")
    return train(tiny_folder(home / "photos"), home / "run", *AUTO)


@pytest.mark.slow
def test_report_writes_one_page_into_the_run_folder_and_says_where(trained, capsys):
    assert run(["report", str(trained)]) == 0
    assert capsys.readouterr().out == f"report: {trained / 'report.html'}\n"
    page = page_of(trained)
    assert page.text.count("Tags 10 images;") == 1
    assert len(page.all("img")) >= 10


def test_the_sections_stand_in_their_order_and_the_links_lead_to_them(tmp_path):
    page = page_of(full_run(tmp_path / "run"))
    assert [each["id"] for each in page.all("section")] == SECTIONS
    assert [each["href"] for each in page.all("a")] == [f"#{name}" for name in SECTIONS]


@pytest.mark.slow
def test_report_writes_where_it_is_told(trained, tmp_path):
    out = tmp_path / "new folder" / "page.html"
    assert run(["report", str(trained), "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.slow
def test_the_page_loads_nothing_and_lets_only_its_own_script_run(trained):
    page = page_of(trained)
    addresses = [each.get(name) for _, each in page.elements for name in ("src", "href", "action") if name in each]
    assert all(address.startswith(("data:image/jpeg;base64,", "#")) for address in addresses)
    assert {name for name, _ in page.elements} & {"link", "iframe", "object", "embed", "base"} == set()
    text = (trained / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"@import|url\(|https?://", text) == []
    policy = next(each["content"] for each in page.all("meta") if each.get("http-equiv"))
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert re.search(r"script-src 'sha256-[\w+/=]{44}'", policy)


def test_hostile_names_of_tags_and_files_are_text(tmp_path):
    tags = [HOSTILE, '"&']
    names = {"unlabelled": [f"{HOSTILE}.png", '" onload="x.png', "</style>.png", "ü&.png"]}
    estimate = an_estimate(tags, [0.9, 0.3])
    page = page_of(small_run(tmp_path / "run", tags=tags, names=names, data=HOSTILE, result={"estimate": estimate}))
    assert len(page.all("script")) == len(page.all("style")) == 1
    assert [key for _, each in page.elements for key in each if key.startswith("on")] == []
    assert f'trust {HOSTILE}; check "&.' in page.text
    for name in [*names["unlabelled"], f"Pictures are missing: {HOSTILE}: there is no such folder"]:
        assert name in page.text


def test_text_is_escaped_and_elements_are_not():
    assert element("b", "<&", element("i", 3), title='"') == '<b title="&quot;">&lt;&amp;<i>3</i></b>'
    assert join("<", element("img", src=None, alt="x"), None) == '&lt;<img alt="x">'


class Noise:
    """Pictures that no codec makes small."""

    def image(self, name):
        pixels = np.random.default_rng(len(name)).integers(0, 256, (160, 208, 3), dtype=np.uint8)
        return Image.fromarray(pixels)


@pytest.mark.slow
def test_a_hundred_thousand_images_make_a_page_under_15_mb_that_says_it_is_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(thumbnails, "image_source", lambda config: Noise())
    rng, tags = np.random.default_rng(0), [f"tag {number}" for number in range(80)]
    scores = {"labelled": rng.random((500, 80)), "unlabelled": rng.random((100_000, 80))}
    scores |= {"labelled_targets": rng.integers(0, 2, (500, 80)), "held_out": rng.random((500, 80))}
    path = made_up_run(
        tmp_path / "run",
        tags,
        scores,
        thresholds=[0.9] * 80,
        result={"estimate": an_estimate(tags, [0.8] * 80)},
        records=[{"stage": "main", "epoch": number, "loss": 9.0 - number} for number in range(5)],
    )
    page = page_of(path)
    assert 2e6 < (path / "report.html").stat().st_size < 15e6
    shown = re.search(r"([\d,]+) of 100,000 images are here, so that the page stays small", page.text)
    assert 200 < int(shown[1]) < 600
    assert len(page.all("img")) > 200


@pytest.mark.slow
def test_without_the_images_the_page_is_made_and_says_so(tmp_path, trained):
    moved = json.loads(json.dumps(read_facts(trained).config.data))
    text = (trained / "config.yaml").read_text(encoding="utf-8")
    copy = tmp_path / "run"
    copy.mkdir()
    for name in ("split.csv", "scores.safetensors", "result.json", "tags.csv", "metrics.jsonl"):
        (copy / name).write_bytes((trained / name).read_bytes())
    (copy / "model").mkdir()
    (copy / "model" / "model.json").write_bytes((trained / "model" / "model.json").read_bytes())
    (copy / "config.yaml").write_text(text.replace(moved, "gone"), encoding="utf-8")
    page = page_of(copy)
    assert "Pictures are missing: gone: there is no such folder any more." in page.text
    assert page.all("img") == []
    assert page.text.count("no picture") >= 10


def test_an_image_that_cannot_be_read_is_shown_without_a_picture(tmp_path):
    names = {"labelled": ["a.png", "b.png", "c.png"], "unlabelled": [f"{n}.png" for n in range(4)], "test": ["t", "u"]}
    photos = save_pictures(tmp_path / "photos", ["0.png", "1.png", "2.png"])
    tables = {"labelled": [[0.9]] * 3, "labelled_targets": [[1]] * 3, "unlabelled": [[0.1]] * 4, "test": [[0.1]] * 2}
    page = page_of(made_up_run(tmp_path / "run", ["sea"], tables, names, data=str(photos)))
    assert "All 4 images are here. 1 could not be read: shown without a picture." in page.text
    assert len(page.all("img")) == 3


def test_tags_are_trusted_or_to_be_checked_by_f1_and_its_interval(tmp_path):
    tags = ["good", "wide", "bad", "never", "odd"]
    estimate = an_estimate(tags, [0.9, 0.696, 0.694, 0.9, None])
    tables = {"labelled": np.full((3, 5), 0.6), "labelled_targets": np.ones((3, 5)), "unlabelled": np.full((2, 5), 0.6)}
    limits = [0.5, 0.5, 0.5, None, 0.5]
    facts = read_facts(made_up_run(tmp_path / "a", tags, tables, thresholds=limits, result={"estimate": estimate}))
    rows = tag_rows(facts)
    verdicts = {"good": "trust", "wide": "fair", "bad": "check", "never": "never", "odd": "few"}
    assert {row.tag: row.verdict for row in rows} == verdicts
    assert [row.tag for row in rows] == ["good", "wide", "bad", "never", "odd"]
    assert sentence(facts, rows) == "Tags 2 images; trust good; check bad."
    few = an_estimate(tags, [0.9] * 5, support=4)
    facts = read_facts(made_up_run(tmp_path / "b", tags, tables, thresholds=limits, result={"estimate": few}))
    assert {row.verdict for row in tag_rows(facts)} == {"few", "never"}
    assert sentence(facts, tag_rows(facts)) == "Tags 2 images; too few known labels to say how well."


def test_of_the_tags_to_check_the_worst_come_first(tmp_path):
    facts = read_facts(small_run(tmp_path / "run", result={"estimate": an_estimate(["sea", "dog"], [0.6, 0.2])}))
    assert sentence(facts, tag_rows(facts)) == "Tags 4 images; check dog and sea."


def test_a_tag_is_named_rather_than_counted_as_one_more():
    assert [enumerate_words(list("abcdefg")[:count]) for count in (1, 2, 6, 7)] == [
        "a",
        "a and b",
        "a, b, c, d, e and f",
        "a, b, c, d, e and 2 more",
    ]


def test_of_many_tags_the_sentence_names_the_first(tmp_path):
    tags = [f"t{number}" for number in range(11)]
    tables = {"labelled": np.ones((1, 11)), "labelled_targets": np.ones((1, 11)), "unlabelled": np.ones((1, 11))}
    estimate = an_estimate(tags, [0.99 - number / 100 for number in range(11)])
    facts = read_facts(made_up_run(tmp_path / "run", tags, tables, result={"estimate": estimate}))
    assert sentence(facts, tag_rows(facts)) == "Tags 1 image; trust t0, t1, t2, t3, t4 and 6 more."


def test_the_table_shows_estimate_and_test_figures_side_by_side(tmp_path):
    tested = [
        {
            "tag": tag,
            "support": 9,
            "known": 20,
            "threshold": 0.5,
            "precision": 0.61,
            "recall": None,
            "f1": 0.63,
            "ap": 0.64,
        }
        for tag in ("sea", "dog")
    ]
    result = {"map": 0.64, "cf1": 0.65, "of1": 0.66, "per_tag": tested}
    result["estimate"] = an_estimate(["sea", "dog"], [0.9, 0.4])
    page = page_of(small_run(tmp_path / "run", result=result))
    assert "Estimated from your labels On the test images" in page.text
    assert "sea Trust 2 2 0.50 90 % 85–95 90 % 85–95 90 % 85–95 90 % 85–95 61 % – 63 % 64 %" in page.text
    assert "mAP how well images are ranked, mean over tags 81.0 % 77.0 to 84.0 64.0 %" in page.text
    made = (
        "How these figures were made: from 40 labelled images in 5 parts, each tagged by a model that learned without"
    )
    assert made in page.text


def test_without_an_estimate_tags_are_assessed_on_the_test_split(tmp_path):
    tested = [
        {
            "tag": tag,
            "support": support,
            "known": 20,
            "threshold": 0.5,
            "precision": f1,
            "recall": f1,
            "f1": f1,
            "ap": f1,
        }
        for tag, f1, support in (("sea", 0.9, 9), ("dog", 0.9, 4))
    ]
    path = small_run(tmp_path / "run", result={"map": 0.6, "cf1": 0.6, "of1": 0.6, "per_tag": tested})
    assert [row.verdict for row in tag_rows(read_facts(path))] == ["trust", "few"]
    page = page_of(path)
    assert "Estimated from your labels" not in page.text
    assert "the model tagged 2 images that took no part in training, and was compared with their labels." in page.text


def test_without_estimate_and_test_split_the_page_says_that_there_are_no_figures(tmp_path):
    page = page_of(small_run(tmp_path / "run"))
    assert "this run has no estimate of its quality, and its data no test images" in page.text
    assert "Tags 4 images; too few known labels to say how well." in page.text


def test_a_run_without_unlabelled_images_shows_its_test_images(tmp_path):
    tables = {"labelled": [[0.9]] * 3, "labelled_targets": [[1]] * 3, "test": [[0.8]] * 2, "test_targets": [[1], [0]]}
    page = page_of(made_up_run(tmp_path / "run", ["sea"], tables))
    assert "Learned from 3 images, none to tag;" in page.text
    assert "All 2 images are here." in page.text


def test_pseudo_labels_are_judged_where_the_truth_is_known(tmp_path):
    tables = {
        "labelled": [[0.9]],
        "labelled_targets": [[1]],
        "unlabelled": [[0.9], [0.8], [0.7], [0.6], [0.1]],
        "unlabelled_targets": [[1], [1], [0], [-1], [1]],
    }
    pseudo = {"pseudo_cp": 0.5, "pseudo_cr": 0.25, "pseudo_cf1": 0.33, "pseudo_positives": 7}
    records = [{"stage": "main", "epoch": 0, **pseudo}, {"stage": "main", "epoch": 1, **pseudo, "pseudo_cp": 0.6}]
    page = page_of(made_up_run(tmp_path / "run", ["sea"], tables, records=records))
    assert "The truth of 4 images that came without tags is known" in page.text
    assert "Of the tags they were given 67 % are right, and 67 % of the tags that are there were given" in page.text
    assert "7 positives, precision 60 %, recall 25 %, CF1 33 %." in page.text
    assert "precision, recall and CF1 of pseudo-labels, by epoch" in [
        each.get("aria-label") for each in page.all("svg")
    ]


def test_a_score_is_reliable_as_counted_by_hand():
    scores = np.array([[0.05, 0.95], [0.01, 1.0], [0.55, 0.91], [0.58, 0.2]])
    targets = np.array([[0, 1], [1, 1], [1, 0], [0, -1]])
    bins = reliability_bins(scores, targets)
    assert [each.decisions for each in bins] == [2, 0, 0, 0, 0, 2, 0, 0, 0, 3]
    assert bins[0][3:] == pytest.approx((0.03, 0.5))
    assert bins[9][3:] == pytest.approx(((0.95 + 1.0 + 0.91) / 3, 2 / 3))
    assert np.isnan(bins[3].positive_share)


@pytest.mark.parametrize(
    ("held_out", "who"), [(True, "models that were not trained on them"), (False, "The test images")]
)
def test_reliability_comes_from_held_out_scores_else_from_the_test_split(tmp_path, held_out, who):
    tables = {"labelled": [[0.9]], "labelled_targets": [[1]], "unlabelled": [[0.9]], "test": [[0.8], [0.7]]}
    tables |= {"test_targets": [[1], [0]]} | ({"held_out": [[0.6]]} if held_out else {})
    page = page_of(made_up_run(tmp_path / "run", ["sea"], tables))
    assert f"{who}" in page.text.split("What a score means")[1].split("grouped by score")[0]
    assert f": {1 if held_out else 2} decisions" in page.text


@pytest.mark.parametrize(
    ("said", "true", "words"),
    [
        (0.8, 16, "Scores above one half are well calibrated."),
        (0.95, 16, "Scores above one half are 15 points too high on average."),
        (0.6, 16, "Scores above one half are 20 points too low on average."),
        (0.3, 6, "No score is above one half."),
    ],
)
def test_the_reliability_diagram_says_how_far_probabilities_are_from_what_is_there(tmp_path, said, true, words):
    labels = (np.arange(20) < true).astype(np.int8)[:, None]
    tables = {"labelled": np.full((20, 1), 0.99), "labelled_targets": labels, "unlabelled": [[0.9]]}
    page = page_of(made_up_run(tmp_path / "run", ["sea"], tables | {"held_out": np.full((20, 1), said)}))
    assert words in page.text
    low = int(10 * said) * 10
    share = round(100 * true / 20)
    assert f"{low}–{low + 10} % 20 {share} %" in page.text, "a row of the table"
    titles = f"scores {low}–{low + 10} %: 20 decisions, the tag is there in {share} %"
    assert titles in page.text, "the point of the diagram"


def the_next(page: Page) -> str:
    """The text of the section about what more labels would bring."""
    return page.text.split("What more labels would bring")[1].split("What a score means")[0]


def test_tags_that_are_held_back_are_named_with_the_labels_they_lack(tmp_path):
    rows = [{"tag": "dog", "positives": 1, "more_labels": 3000}, {"tag": "<b>", "positives": 0, "more_labels": 20}]
    page = page_of(small_run(tmp_path / "run", result={"not_given": rows}))
    told = "dog (about 3,000 more labels would help), <b> (about 20 more labels would help)."
    assert f"Given to no image, because too few examples show what they are: {told}" in the_next(page)


def test_a_tag_that_is_held_back_is_not_given_whatever_its_figures(tmp_path):
    estimate = an_estimate(["sea", "dog"], [0.9, 0.9])
    page = page_of(small_run(tmp_path / "run", thresholds=[0.5, None], result={"estimate": estimate}))
    assert "Not given too few examples to be sure of any image, so none gets it dog" in page.text


def test_the_forecast_is_told_and_the_tags_that_gain_most_are_listed_first(tmp_path):
    steps = [
        {"labels": labels, "map": gain, "per_tag": {"sea": gain / 2, "dog": 2 * gain}}
        for labels, gain in ((20, 0.01), (50, 0.024), (100, 0.04))
    ]
    curve = {"labels": [11, 21, 26], "map": [0.3, 0.4, 0.43], "doubled": 0.02, "next": steps}
    found = the_next(page_of(small_run(tmp_path / "run", result={"learning_curve": curve, "not_given": []})))
    told = "Models that learned from 11, 21 and 26 of the labelled images say what more should bring, in mAP: "
    assert f"{told}+1.0 after 20 more, +2.4 after 50 more, +4.0 after 100 more." in found
    assert "tag 20 more 50 more 100 more dog +2.0 +4.8 +8.0 sea +0.5 +1.2 +2.0" in found
    assert "Given to no image" not in found


def test_what_corrections_brought_is_told_as_a_sentence(tmp_path):
    result = {"compared": {"text": "what the corrections brought, on the same 40 labelled images: OF1 50.0 → 60.0"}}
    found = the_next(page_of(small_run(tmp_path / "run", result=result)))
    assert found.strip() == "What the corrections brought, on the same 40 labelled images: OF1 50.0 → 60.0."


def test_with_nothing_to_tell_of_more_labels_there_is_no_such_section(tmp_path):
    page = page_of(small_run(tmp_path / "run", result={"estimate": an_estimate(["sea", "dog"], [0.9, 0.3])}))
    assert "next" not in [each["id"] for each in page.all("section")]
    assert "#next" not in [each["href"] for each in page.all("a")]


def test_tags_together_are_counted_and_the_rarest_left_out():
    given = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 0]], bool)
    table = co_occurrence_counts(given, ["a", "b", "c", "d"], most=2)
    assert table.tags == ["a", "b"]
    assert table.counts.tolist() == [[3, 2], [2, 2]]
    assert co_occurrence_counts(given, ["a", "b", "c", "d"], most=9).pairs(2) == [("a", "b", 2), ("a", "c", 2)]
    assert co_occurrence_counts(given, ["a", "b", "c", "d"], most=9).tags == ["a", "b", "c"]


def selected(path: Path) -> dict[str, list]:
    return {group.name: group.images for group in select_images(read_facts(path))}


def test_likely_mistakes_are_known_labels_that_a_model_contradicts_the_largest_loss_first(tmp_path):
    held_out = np.tile([[0.9, 0.5], [0.1, 0.5]], (10, 1))
    labels = np.tile([[1, 0], [0, 1]], (10, 1))
    held_out[0, 0], held_out[1, 0], held_out[3, 0], held_out[5, 0] = 0.2, 0.97, 0.99, 0.7
    labels[3, 0] = -1  # nobody said anything of it
    held_out[7, 1] = 0.01  # a contradiction, but of a tag that the model cannot tell apart
    tables = {"labelled": held_out, "labelled_targets": labels, "held_out": held_out, "unlabelled": [[0.1, 0.1]]}
    path = made_up_run(tmp_path / "run", ["boat", "dog"], tables)
    assert [(image.part, image.row) for image in selected(path)["mistakes"]] == [("held_out", 1), ("held_out", 0)]
    page = page_of(path)
    assert "You said no boat ; the model is 97 % sure that it is there." in page.text
    assert "You said boat ; the model is 80 % sure that it is not there." in page.text


def test_images_kept_back_from_training_are_the_ones_that_are_asked_about(tmp_path):
    tables = {"labelled": [[0.9]], "labelled_targets": [[1]], "unlabelled": [[0.1]]}
    tables |= {"held_out": [[0.9], [0.8], [0.95]], "held_out_targets": [[1], [0], [1]]}
    names = {"held_out": ["a.png", "doubtful.png", "c.png"]}
    path = made_up_run(tmp_path / "run", ["boat"], tables, names, kept_back=True)
    assert [(image.part, image.row) for image in selected(path)["mistakes"]] == [("held_out", 1)]
    facts = read_facts(path)
    assert "--validate" in command_of(path).split()
    assert tag_rows(facts)[0].labelled == 3
    page = page_of(path)
    assert "4 images with your labels" in page.text
    assert "doubtful.png" in page.text


def test_labels_are_not_questioned_by_models_that_saw_them(tmp_path):
    tables = {"labelled": [[0.01], [0.9]], "labelled_targets": [[1], [1]], "unlabelled": [[0.1]]}
    path = made_up_run(tmp_path / "run", ["boat"], tables)
    assert selected(path)["mistakes"] == []
    assert "its labels cannot be checked" in page_of(path).text


def test_the_gallery_takes_the_surest_the_closest_and_a_sample_without_repeats(tmp_path):
    rng = np.random.default_rng(0)
    scores = rng.random((2000, 30))
    limits = [0.6] * 29 + [None]
    tables = {"labelled": scores[:1], "labelled_targets": np.ones((1, 30)), "unlabelled": scores}
    path = made_up_run(tmp_path / "run", [f"t{n}" for n in range(30)], tables, thresholds=limits)
    found = selected(path)
    for name, most in (("sample", SAMPLE), ("confident", MAX_PER_GROUP), ("uncertain", MAX_PER_GROUP)):
        rows = [image.row for image in found[name]]
        assert len(rows) == len(set(rows)) == most
    scores = scores.astype(np.float32)
    for place in range(29):
        assert int(scores[:, place].argmax()) in {image.row for image in found["confident"]}
        assert int(abs(scores[:, place] - 0.6).argmin()) in {image.row for image in found["uncertain"]}
    assert 29 not in {place for group in found.values() for image in group for place, _ in image.tags}
    assert max(abs(score - 0.6) for image in found["uncertain"] for _, score in image.tags) <= 0.1


def test_one_tag_brings_at_most_a_dozen_images_into_a_group(tmp_path):
    tables = {"labelled": [[0.9]], "labelled_targets": [[1]], "unlabelled": np.linspace(0.45, 0.55, 50)[:, None]}
    found = selected(made_up_run(tmp_path / "run", ["sea"], tables))
    assert [len(found[name]) for name in ("sample", "confident", "uncertain")] == [50, MAX_PER_TAG, MAX_PER_TAG]
    assert found["confident"][0].row == 49


def test_a_curve_ends_where_its_last_value_says():
    drawn = line_chart([Line("mAP", [(1.0, 0.0), (3.0, 1.0)])], "epoch", "a curve", percent=True)
    (route,) = re.findall(r'points="([^"]+)"', drawn)
    first, last = (tuple(map(float, pair.split(","))) for pair in route.split())
    assert first == (48.0, 208.0)
    assert last == (418.0, 14.0)
    assert "mAP <b>100 %</b>" in drawn


def test_values_that_are_no_numbers_are_left_out_of_the_curves(tmp_path):
    records = [{"stage": "main", "epoch": n, "loss": loss} for n, loss in enumerate([3.0, float("nan"), None, 1.0])]
    page = (small_run(tmp_path / "run", records=records) / "..").resolve() / "run"
    text = fewtags.write_report(page).read_text(encoding="utf-8")
    assert text.count("<polyline") == 2  # loss, and reliability
    assert "nan" not in re.findall(r'points="[^"]*"', text)[0]


def command_of(path: Path) -> str:
    """The command that repeats a run, from what its folder holds."""
    facts = read_facts(path)
    return command(facts.config, len(facts.names["labelled"]), len(facts.names["unlabelled"]), facts.kept_back)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        AUTO,
        HEADS,
        ALL,
        ("--labels", "my labels.csv", "--seed", "3", "--prefer", "recall", "--set", "share=none", "strength=2"),
        ("--method", "asl", "--labelled", "0.5", "--split", "balanced", "--set", "adapter=64"),
        ("--protocol", "paper", "--method", "cap", "--set", "unlabelled_batch=5"),
    ],
    ids=["auto", "d2l", "all", "labels", "asl", "paper"],
)
def test_the_command_of_the_page_makes_the_same_run_again(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    photos = tiny_folder(tmp_path / "my photos")
    (tmp_path / "my labels.csv").write_bytes((photos / "labels.csv").read_bytes())
    asked: list[dict] = []
    monkeypatch.setattr("fewtags.cli.train.run_train", lambda data, **given: asked.append({"data": data} | given))

    def resolved(words: list[str]) -> Job:
        assert run(words) == 0
        return resolve(TrainOptions.of(asked.pop()))

    first = resolved(["train", "my photos", *options])
    parts = [Role.LABELLED, Role.UNLABELLED, Role.TEST]
    tables = {role.name.lower(): np.zeros((len(first.catalogue.rows(role)), 3)) for role in parts}
    path = made_up_run(tmp_path / "run", list(first.config.tags), tables, config=first.config)
    told = command_of(path)
    assert told.startswith("fewtags train 'my photos' --")
    assert told.endswith(" --out again")
    assert resolved(shlex.split(told)[1:]).config == first.config
    assert told in page_of(path).text


def test_settings_of_a_method_that_is_not_at_hand_are_all_named(tmp_path):
    path = small_run(tmp_path / "run")
    file = path / "config.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("method: asl", "method: my_own.method"), encoding="utf-8")
    told = command_of(path)
    assert "--method my_own.method" in told
    assert "weight_decay=0.01" in told


def damage(path: Path, name: str, content: str | None) -> None:
    (path / name).unlink()
    if content is not None:
        (path / name).write_text(content, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.yaml", None, ["is not a run folder", "--out"]),
        ("result.json", None, ["has not ended", "--resume"]),
        ("result.json", "{", ["result.json is damaged", "train again"]),
        ("result.json", "[]", ["result.json is damaged", "train again"]),
        ("scores.safetensors", None, ["scores.safetensors cannot be read", "train again"]),
        ("scores.safetensors", "no tensors", ["scores.safetensors cannot be read", "train again"]),
        ("split.csv", None, ["split.csv is missing or damaged", "train again"]),
        ("split.csv", "image,role\na.png,tested\n", ["split.csv is missing or damaged", "tested", "train again"]),
        ("split.csv", "image\na.png\n", ["split.csv is missing or damaged", "train again"]),
        ("split.csv", "image,role\na.png,labelled\n", ["labelled is (3, 2)", "(1, 2)", "train again"]),
        ("model/model.json", None, ["model.json cannot be read", "train again"]),
        ("model/model.json", '{"thresholds": [0.5]}', ["model.json is damaged", "each of the 2 tags"]),
    ],
)
def test_a_run_folder_that_cannot_be_used_is_refused_in_one_message(tmp_path, capsys, name, content, words):
    path = small_run(tmp_path / "run")
    damage(path, name, content)
    assert run(["report", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("fewtags: ")
    assert "Traceback" not in said
    assert all(word in said for word in words), said
    assert not (path / "report.html").exists()


def test_scores_of_a_part_that_split_csv_names_must_be_there(tmp_path, capsys):
    path = small_run(tmp_path / "run")
    (path / "split.csv").write_text("image,role\n" + "a.png,labelled\n" * 3, encoding="utf-8")
    tables = {"unlabelled": np.ones((4, 2), np.float32)}
    RunFolder(path).write_scores(tables)
    assert run(["report", str(path)]) == 2
    assert "no scores of the 3 labelled images of split.csv" in capsys.readouterr().err


@pytest.mark.parametrize(("out", "words"), [(".", "is a folder; name a file"), ("file/page.html", "cannot be made")])
def test_a_place_that_cannot_hold_the_page_is_refused(tmp_path, monkeypatch, capsys, out, words):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert run(["report", str(small_run(tmp_path / "run")), "--out", out]) == 2
    assert words in capsys.readouterr().err
