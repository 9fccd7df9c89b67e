"""What corrections have brought: two models on the same images, in figures and in one sentence."""

import json

import numpy as np
import pytest

import fewtags
from fewtags.errors import UserError
from fewtags.metrics import f1_scores, mean_average_precision
from fewtags.model.saved import ModelInfo
from fewtags.review.compare import LEAST, compare
from fewtags.training.run_folder import RunFolder
from fewtags.utils.files import write_json
from made_up_runs import an_estimate, made_up_run

TAGS = ["sea", "dog"]
BEFORE, JOINED = [f"a{number}.png" for number in range(12)], [f"b{number}.png" for number in range(4)]
TRUTH = np.array([[number % 2, number % 3 == 0] for number in range(16)], np.int8)
GOOD = np.where(TRUTH == 1, 0.9, 0.1)
BAD = GOOD.copy()
BAD[3:6] = 1 - BAD[3:6]
BAD[12:] = 1 - BAD[12:]  # those that were asked about
MIDDLING = GOOD.copy()
MIDDLING[12:14] = 1 - MIDDLING[12:14]


def a_run(path, labelled, scores, labels, unlabelled=(), of_unlabelled=(), of1=None, tags=TAGS, limits=(0.5, 0.5)):
    """A run whose labelled images have these out-of-fold scores, and its unlabelled ones the others."""
    tables = {"labelled": np.full((len(labelled), len(tags)), 0.77), "labelled_targets": labels, "held_out": scores}
    if len(unlabelled):
        tables["unlabelled"] = of_unlabelled
    estimate = None if of1 is None else {**an_estimate(tags, [0.8] * len(tags)), "of1": of1}
    run = RunFolder(
        made_up_run(
            path,
            list(tags),
            tables,
            {"labelled": list(labelled), "unlabelled": list(unlabelled)},
            result={} if estimate is None else {"estimate": estimate},
        )
    )
    info = ModelInfo(
        fewtags=fewtags.__version__,
        method="asl",
        method_settings={},
        tags=list(tags),
        thresholds=list(limits),
        learned_from=len(labelled),
        adapter=None,
        features="vectors",
        numbers=4,
    )
    write_json(run.model_folder / "model.json", info.model_dump())
    return run


def two_runs(tmp_path, first=(0.8, BAD), second=(0.7, MIDDLING), before=12, **changed):
    """Twelve labelled images and four that a review added, whose scores were bad before it and are middling after."""
    (of1_before, old), (of1_after, new) = first, second
    one = a_run(
        tmp_path / "before", BEFORE[:before], old[:before], TRUTH[:before],
        [*BEFORE[before:], *JOINED, "c.png"], np.vstack([old[before:], [[0.9, 0.9]]]), of1_before,
    )  # fmt: skip
    labels = changed.pop("labels", TRUTH)
    other = a_run(tmp_path / "after", [*BEFORE, *JOINED], new, labels, ["c.png"], [[0.1, 0.1]], of1_after, **changed)
    return one, other


def figures(scores, labels):
    scores = np.array(scores, np.float32)  # as they are kept: ties are ties
    f1 = f1_scores((scores >= 0.5).astype(np.int8), labels)
    return {"map": pytest.approx(mean_average_precision(scores, labels)), "of1": pytest.approx(f1["of1"])}


def test_both_models_are_measured_on_all_images_labelled_now_and_on_those_labelled_before(tmp_path):
    found = compare(*two_runs(tmp_path))
    assert (found["images"], found["shared_images"]) == (16, 12)
    assert found["before"] == figures(BAD, TRUTH)
    assert found["after"] == figures(MIDDLING, TRUTH)
    assert found["shared_before"] == figures(BAD[:12], TRUTH[:12])
    assert found["shared_after"] == {"map": 1.0, "of1": 1.0}
    assert json.loads(json.dumps(found)) == found


def test_the_sentence_says_what_the_corrections_brought_on_the_same_images(tmp_path):
    found = compare(*two_runs(tmp_path, first=(0.6, BAD), second=(0.7, GOOD)))
    before = found["before"]
    assert found["text"] == (
        "what the corrections brought, on the same 16 labelled images: "
        f"OF1 {100 * before['of1']:.1f} → 100.0, mAP {100 * before['map']:.1f} → 100.0"
    )


def test_where_the_estimate_falls_because_harder_images_joined_the_sentence_says_so(tmp_path):
    found = compare(*two_runs(tmp_path))
    _, _, rest = found["text"].partition(". ")
    before = found["shared_before"]
    assert rest == (
        "The estimate is lower than before (OF1 80.0 → 70.0) because harder images joined: on the 12 labelled before, "
        f"OF1 {100 * before['of1']:.1f} → 100.0, mAP {100 * before['map']:.1f} → 100.0"
    )


@pytest.mark.parametrize(("before", "after"), [(0.7, 0.7), (0.7, 0.696), (0.7, 0.8), (None, 0.7), (0.7, None)])
def test_an_estimate_that_did_not_fall_needs_no_words(tmp_path, before, after):
    found = compare(*two_runs(tmp_path, first=(before, BAD), second=(after, MIDDLING)))
    assert "harder images" not in found["text"]


def test_labels_are_those_after_the_corrections_and_unknown_ones_count_for_neither(tmp_path):
    corrected = TRUTH.copy()
    corrected[0] = 1 - corrected[0]
    corrected[1, 0] = -1
    found = compare(*two_runs(tmp_path, labels=corrected))
    assert found["before"] == figures(BAD, corrected)
    assert found["after"] == figures(MIDDLING, corrected)


def test_each_model_decides_by_its_own_thresholds_and_a_tag_held_back_is_given_by_none(tmp_path):
    one, other = two_runs(tmp_path, limits=(0.95, None))
    assert compare(one, other)["after"]["of1"] == 0
    assert compare(one, other)["before"] == figures(BAD, TRUTH)


def test_with_nothing_added_both_kinds_of_images_are_the_same_and_are_told_once(tmp_path):
    one = a_run(tmp_path / "before", BEFORE, BAD[:12], TRUTH[:12], of1=0.8)
    other = a_run(tmp_path / "after", BEFORE, GOOD[:12], TRUTH[:12], of1=0.7)
    found = compare(one, other)
    assert found["images"] == 12
    assert "shared_images" not in found
    assert "harder images" not in found["text"]


def test_too_few_images_labelled_before_are_not_told_apart(tmp_path):
    found = compare(*two_runs(tmp_path, before=LEAST - 1))
    assert found["images"] == 16
    assert found["before"] == figures(BAD, TRUTH)
    assert "shared_images" not in found


def test_images_that_one_of_the_models_never_scored_are_left_out(tmp_path):
    one = a_run(tmp_path / "before", BEFORE, BAD[:12], TRUTH[:12])
    _, other = two_runs(tmp_path / "more")
    found = compare(one, other)
    assert found["images"] == 12
    assert found["before"] == figures(BAD[:12], TRUTH[:12])


def test_there_is_nothing_to_compare_of_too_few_images_of_other_tags_or_without_held_out_scores(tmp_path):
    one, other = two_runs(tmp_path)
    few = a_run(tmp_path / "few", BEFORE[: LEAST - 1], GOOD[: LEAST - 1], TRUTH[: LEAST - 1])
    least = a_run(tmp_path / "least", BEFORE[:LEAST], GOOD[:LEAST], TRUTH[:LEAST])
    assert compare(one, few) is None
    assert compare(one, least)["images"] == LEAST
    renamed = a_run(tmp_path / "renamed", BEFORE, GOOD[:12], TRUTH[:12], tags=["sea", "cat"])
    assert compare(one, renamed) is None
    tables = other.scores()
    other.write_scores({name: table for name, table in tables.items() if "held_out" not in name})
    assert compare(one, other) is None


def test_scores_that_do_not_fit_the_split_are_named(tmp_path):
    one, other = two_runs(tmp_path)
    other.write_scores(other.scores() | {"held_out": GOOD[:3].astype(np.float32)})
    with pytest.raises(UserError, match=r"scores\.safetensors does not fit .*split\.csv"):
        compare(one, other)
