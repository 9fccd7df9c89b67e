"""The drawn scenes: the same for everybody, honest tags, fair shares, and no drawing where none is needed."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fewtags.data.catalogue import Role
from fewtags.data.readers.scenes import read_scenes
from fewtags.errors import BadImage, UserError
from fewtags.scenes import draw as scenes
from fewtags.scenes.backdrop import Ridge
from fewtags.scenes.draw import TAGS, SceneImages, draw, paint
from fewtags.scenes.figures import PAINTERS
from fewtags.scenes.layout import plan, tags_of
from fewtags.scenes.things import KINDS, Thing, visible_part

PLANS = [plan(1, index) for index in range(1000)]


def digest_of_pictures() -> str:
    digest = hashlib.sha256()
    for index in range(6):
        image, tags = draw(3, index)
        digest.update(image.tobytes() + "|".join(tags).encode())
    return digest.hexdigest()


@pytest.mark.slow
def test_pictures_are_the_same_bytes_in_another_process_with_another_hash_seed():
    code = "from test_scenes import digest_of_pictures; print(digest_of_pictures())"
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest_of_pictures()


def test_pictures_are_rgb_and_differ_between_indices_and_between_worlds():
    pictures = [draw(1, 0)[0], draw(1, 1)[0], draw(2, 0)[0]]
    assert {(picture.mode, picture.size) for picture in pictures} == {("RGB", (256, 256))}
    assert len({picture.tobytes() for picture in pictures}) == 3


def test_each_tag_is_in_5_to_40_percent_of_the_scenes():
    present = np.array([[tag in tags_of(scene) for tag in TAGS] for scene in PLANS])
    shares = dict(zip(TAGS, present.mean(axis=0), strict=True))
    assert len(TAGS) == 12
    assert {tag: share for tag, share in shares.items() if not 0.05 <= share <= 0.4} == {}


def test_things_keep_natural_company():
    for scene in PLANS:
        tags = tags_of(scene)
        assert "water" in tags or "boat" not in tags
        assert scene.setting == "street" or "car" not in tags
        assert scene.season != "winter" or "flower" not in tags
        assert scene.hour not in ("night", "overcast") or "sun" not in tags


def test_every_kind_has_a_painter_and_every_tag_a_kind():
    assert set(PAINTERS) == set(KINDS)
    assert {kind.tag for kind in KINDS.values()} == {*TAGS, None} - {"water"}


def test_every_tagged_thing_can_be_seen_in_the_pixels():
    for scene in PLANS[:25]:
        whole = np.asarray(paint(scene), dtype=np.int16)
        for thing in scene.things:
            if KINDS[thing.kind].tag is None:
                continue
            rest = replace(scene, things=[other for other in scene.things if other is not thing])
            changed = np.abs(whole - np.asarray(paint(rest))).max(axis=2) > 8
            assert changed.sum() >= 20, (scene.hour, thing)


def thing(kind: str, x: float, y: float, size: float) -> Thing:
    return Thing(kind, x, y, size, far=0.0, look=0)


def test_a_thing_behind_another_is_hidden_and_beside_it_is_not():
    house = thing("house", 0.5, 0.8, 0.5)
    assert visible_part(thing("ball", 0.5, 0.75, 0.05), [house], []) == 0
    assert visible_part(thing("ball", 0.9, 0.75, 0.05), [house], []) == 1


def test_only_the_part_of_a_thing_inside_the_picture_counts():
    assert visible_part(thing("ball", 0.0, 0.5, 0.1), [], []) == 0.5
    assert visible_part(thing("ball", 0.5, 0.0, 0.1), [], []) == 0


def test_a_sun_behind_a_ridge_is_hidden():
    ridge = Ridge(base=0.6, rise=0.1, waves=5, phase=0, far=1)
    assert visible_part(thing("sun", 0.5, 0.75, 0.1), [], [ridge]) == 0
    assert visible_part(thing("sun", 0.5, 0.4, 0.1), [], [ridge]) == 1


def test_no_plan_keeps_a_thing_that_is_mostly_hidden():
    for scene in PLANS[:300]:
        for place, item in enumerate(scene.things):
            assert visible_part(item, scene.things[place + 1 :], []) >= 0.5


def test_the_catalogue_knows_the_tags_without_drawing(monkeypatch: pytest.MonkeyPatch):
    truth = [draw(5, index)[1] for index in range(9)]
    monkeypatch.setattr(scenes, "paint", lambda scene: pytest.fail("a picture was drawn"))
    catalogue = read_scenes(9, seed=5)
    found = [tuple(tag for tag, here in zip(TAGS, row, strict=True) if here == 1) for row in catalogue.targets]
    assert found == truth
    assert set(np.unique(catalogue.targets)) == {0, 1}
    assert catalogue.images.fingerprint(catalogue.names[0])


def test_the_last_quarter_is_for_testing_and_the_rest_is_labelled():
    catalogue = read_scenes(8)
    assert list(catalogue.names)[::7] == ["scene-00000.png", "scene-00007.png"]
    assert catalogue.rows(Role.TEST).tolist() == [6, 7]
    assert catalogue.rows(Role.LABELLED).tolist() == [0, 1, 2, 3, 4, 5]


def test_the_images_of_a_catalogue_are_those_of_its_seed():
    catalogue = read_scenes(8, seed=4)
    assert catalogue.images.image("scene-00003.png").tobytes() == draw(4, 3)[0].tobytes()


def test_a_fingerprint_changes_with_world_index_and_drawing(monkeypatch: pytest.MonkeyPatch):
    prints = [SceneImages(1).fingerprint("scene-00001.png"), SceneImages(1).fingerprint("scene-00002.png")]
    prints.append(SceneImages(2).fingerprint("scene-00001.png"))
    assert prints[0] == SceneImages().fingerprint("scene-00001.png")
    monkeypatch.setattr(scenes, "DRAWING", b"another drawing")
    prints.append(SceneImages(1).fingerprint("scene-00001.png"))
    assert len(set(prints)) == 4
    assert {len(value) for value in prints} == {16}


@pytest.mark.parametrize("name", ["cat.jpg", "scene-42.png", "scene-000042.png", "scene-00042.png.exe"])
def test_a_foreign_name_is_a_bad_image(name: str):
    with pytest.raises(BadImage, match="no drawn scene"):
        SceneImages().image(name)


@pytest.mark.parametrize(("count", "seed", "remedy"), [(7, 1, "8 images or more"), (8, -1, "0 or more")])
def test_too_few_scenes_or_a_negative_seed_is_the_users_mistake(count: int, seed: int, remedy: str):
    with pytest.raises(UserError, match=remedy):
        read_scenes(count, seed)
