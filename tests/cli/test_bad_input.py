"""A mistake of the user: exit code 2, one message that names it and the remedy, nothing half-written."""

import json
import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import fewtags
from fewtags.backbones.base import build_backbone
from fewtags.cli import run

QUICK = ["--method", "d2l", "--size", "64", "--warmup", "2", "--epochs", "2"]
LABELS = "image,tags\na.png,sea|dog\nb.png,sea\n"


class Desk:
    """A folder to make mistakes in, and a trained run."""

    def __init__(self, here: Path, trained: Path) -> None:
        self.here, self._trained = here, trained

    def photos(self, labels: str | None = LABELS) -> str:
        """Four images; labels.csv with this content."""
        root = self.here / "photos"
        root.mkdir()
        for shade, name in enumerate("abcd"):
            Image.new("RGB", (32, 32), (60 * shade, 90, 120)).save(root / f"{name}.png")
        if labels is not None:
            (root / "labels.csv").write_text(labels, encoding="utf-8")
        return "photos"

    def trained(self) -> Path:
        """A copy of the run that may be damaged."""
        return Path(shutil.copytree(self._trained, self.here / "trained").name)

    def file(self, name: str, content: str | bytes = "") -> str:
        """A file with this content."""
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return name


Arrange = Callable[[Desk], list[str]]
CASES = []


def case(*words: str) -> Callable[[Arrange], Arrange]:
    """A mistake (the command that makes it), and what the message must say."""

    def note(arrange: Arrange) -> Arrange:
        CASES.append(pytest.param(arrange, words, id=arrange.__name__))
        return arrange

    return note


def train(data: str, *options: str) -> list[str]:
    return ["train", data, "--out", "run", *QUICK, *options]


@case("no-such-folder", "check the spelling")
def missing_folder(desk: Desk) -> list[str]:
    return train("no-such-folder")


@case("photos.zip", "name the folder")
def file_in_place_of_the_folder(desk: Desk) -> list[str]:
    return train(desk.file("photos.zip", "PK"))


@case("photos", "labels.csv", "image,tags", "--labels")
def folder_without_labels(desk: Desk) -> list[str]:
    return train(desk.photos(labels=None))


@case("tags.csv", "there is no such file", "--labels")
def label_file_missing(desk: Desk) -> list[str]:
    return train(desk.photos(), "--labels", "tags.csv")


@case("scenes:32", "--labels goes with a folder")
def label_file_for_data_that_brings_its_own(desk: Desk) -> list[str]:
    return train("scenes:32", "--labels", desk.file("tags.csv", LABELS))


@case("labels.csv, line 1", "`image`", "image,tags")
def header_unknown(desk: Desk) -> list[str]:
    return train(desk.photos("file;class\na.png;sea\n"))


@case("labels.csv, line 2", "../secret.png", "outside the folder")
def image_above_the_folder(desk: Desk) -> list[str]:
    desk.file("secret.png", "x")
    return train(desk.photos("image,tags\n../secret.png,sea\n"))


@case("labels.csv, line 3", "outside the folder")
def image_with_an_absolute_name(desk: Desk) -> list[str]:
    desk.file("secret.png", "x")
    return train(desk.photos(f"image,tags\na.png,sea\n{desk.here / 'secret.png'},sea\n"))


@case("labels.csv, line 2", "link.png", "through a link")
def image_behind_a_link(desk: Desk) -> list[str]:
    photos = desk.photos("image,tags\nlink.png,sea\n")
    (desk.here / photos / "link.png").symlink_to(desk.here / desk.file("secret.png", "x"))
    return train(photos)


@case("labels.csv, line 3", "disagrees with line 2", "dog", "keep one")
def rows_that_disagree(desk: Desk) -> list[str]:
    return train(desk.photos("image,tags\na.png,sea|dog\na.png,sea\n"))


@case("no labelled image has a tag", "photos", "tag a few")
def no_labelled_positive(desk: Desk) -> list[str]:
    return train(desk.photos("image,sea,dog\na.png,0,0\nb.png,0,\n"))


@case("photos", "every image is labelled", "--labelled 0.05", "--method asl")
def no_unlabelled_image_for_d2l(desk: Desk) -> list[str]:
    return train(desk.photos("image,tags\na.png,sea\nb.png,\nc.png,\nd.png,dog\n"))


@case("--strict", "c.png: the file is empty", "fewtags check photos")
def bad_image_with_strict(desk: Desk) -> list[str]:
    photos = desk.photos()
    desk.file("photos/c.png")
    return train(photos, "--strict")


@case("photos", "no labelled image has a tag", "2 images cannot be used", "a.png: the file is empty")
def every_labelled_image_bad(desk: Desk) -> list[str]:
    photos = desk.photos()
    desk.file("photos/a.png")
    desk.file("photos/b.png", "text")
    return train(photos)


@case("unknown method 'd2'", "did you mean 'd2l'", "fewtags methods")
def method_unknown(desk: Desk) -> list[str]:
    return train("scenes:32", "--method", "d2")


@case("no_package.no_method", "cannot be imported")
def method_not_importable(desk: Desk) -> list[str]:
    return train("scenes:32", "--method", "no_package.no_method")


@case("unknown backbone 'resnet5'", "did you mean 'resnet50'")
def backbone_unknown(desk: Desk) -> list[str]:
    return train("scenes:32", "--backbone", "resnet5")


@case("unknown setting 'beto'", "did you mean 'beta'", "fewtags methods d2l")
def setting_unknown(desk: Desk) -> list[str]:
    return train("scenes:32", "--set", "beto=1")


@case("--set beta", "key=value")
def setting_without_equals(desk: Desk) -> list[str]:
    return train("scenes:32", "--set", "beta")


@case("beta='high'", "number")
def setting_of_the_wrong_type(desk: Desk) -> list[str]:
    return train("scenes:32", "--set", "beta=high")


@case("adapter='0'", "greater than or equal to 1")
def setting_out_of_range(desk: Desk) -> list[str]:
    return train("scenes:32", "--set", "adapter=0")


@case("precision='64-true'", "only --tune all knows it")
def train_stored_features_in_doubles(desk: Desk) -> list[str]:
    return train("scenes:32", "--set", "precision=64-true")


@case("--set seed=2", "--seed 2")
def setting_that_is_an_option(desk: Desk) -> list[str]:
    return train("scenes:32", "--set", "seed=2")


@pytest.mark.parametrize("share", ["1.5", "-0.1", "nan", "1", "inf"])
def test_an_impossible_share_of_labels_is_refused(share, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert_refused(train("scenes:32", "--labelled", share), ("labelled", share, "between 0 and 1"), tmp_path, capsys)


@case("labelled share 0.01 of 24 images", "ask for more")
def share_of_less_than_one_image(desk: Desk) -> list[str]:
    return train("scenes:32", "--labelled", "0.01")


@case("--labelled", "number")
def share_that_is_no_number(desk: Desk) -> list[str]:
    return train("scenes:32", "--labelled", "few")


@case("--size", "16")
def size_too_small(desk: Desk) -> list[str]:
    return ["train", "scenes:32", "--out", "run", "--size", "5"]


@case("--epochs", "0")
def epochs_negative(desk: Desk) -> list[str]:
    return ["train", "scenes:32", "--out", "run", "--epochs", "-1"]


@case("--warmup 0 --epochs 0", "nothing would be learned")
def nothing_to_do(desk: Desk) -> list[str]:
    return ["train", "scenes:32", "--out", "run", "--warmup", "0", "--epochs", "0"]


@case("--seed", "0")
def seed_negative(desk: Desk) -> list[str]:
    return train("scenes:32", "--seed", "-1")


@case("--seed 4294967296", "between 0 and 4294967295")
def seed_too_large(desk: Desk) -> list[str]:
    return train(desk.photos(), "--seed", "4294967296")


@case("--tune", "nonsense", "'heads', 'all'")
def tune_unknown(desk: Desk) -> list[str]:
    return train("scenes:32", "--tune", "nonsense")


@case("No such option: --sizes", "--size")
def option_unknown(desk: Desk) -> list[str]:
    return train("scenes:32", "--sizes", "64")


@case("No such command 'trian'", "train")
def verb_unknown(desk: Desk) -> list[str]:
    return ["trian", "scenes:32"]


@case("encoder.onnx", "no such")
def onnx_file_missing(desk: Desk) -> list[str]:
    return train("scenes:32", "--backbone", "onnx:encoder.onnx")


@case("notes.onnx", "no ONNX file", "export it again")
def onnx_file_that_is_text(desk: Desk) -> list[str]:
    return train("scenes:32", "--backbone", f"onnx:{desk.file('notes.onnx', 'no model')}")


@case("efficientnet_lite0+efficientnet_lite2", "--features evidence")
def several_backbones_for_crops(desk: Desk) -> list[str]:
    return train("scenes:32", "--features", "crops", "--backbone", "efficientnet_lite0+efficientnet_lite2")


@case("small.safetensors", "one file cannot fill", "choose one backbone")
def one_weight_file_for_several_backbones(desk: Desk) -> list[str]:
    save_file(build_backbone("resnet18", pretrained=False).state_dict(), desk.here / "small.safetensors")
    words = ["--backbone", "resnet18+resnet18", "--weights", "small.safetensors"]
    return train("scenes:32", "--features", "evidence", *words)


@case("--features evidence", "--tune heads")
def evidence_for_a_network_that_learns(desk: Desk) -> list[str]:
    return train("scenes:32", "--features", "evidence", "--tune", "all")


@case("--size 16", "too small for efficientnet_lite0", "64 px")
def size_below_what_a_network_can_read(desk: Desk) -> list[str]:
    return ["train", "scenes:32", "--out", "run", "--features", "evidence", "--method", "asl", "--size", "16"]


@case("features", "crops", "evidence")
def features_unknown(desk: Desk) -> list[str]:
    return train("scenes:32", "--features", "evidences")


@case("weights.safetensors", "no such weight file", "--weights")
def weights_missing(desk: Desk) -> list[str]:
    return train("scenes:32", "--weights", "weights.safetensors")


@case("small.safetensors", "not weights of efficientnet_lite0", "choose the backbone", "missing in the file")
def weights_of_another_network(desk: Desk) -> list[str]:
    save_file({"layer.weight": torch.zeros(2, 2)}, desk.here / "small.safetensors")
    return train("scenes:32", "--weights", "small.safetensors")


@case("notes.pth", "not a file of plain tensors", ".safetensors")
def weights_that_are_text(desk: Desk) -> list[str]:
    return train("scenes:32", "--weights", desk.file("notes.pth", "these are no weights\n"))


class Bomb:
    """What unpickling it would do is write the file `exploded`."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


@case("bomb.pth", "nothing in it was run", ".safetensors")
def weights_that_are_a_pickle_bomb(desk: Desk) -> list[str]:
    return train("scenes:32", "--weights", desk.file("bomb.pth", pickle.dumps(Bomb())))


@case("bomb.pt", "nothing in it was run", ".safetensors")
def weights_that_hold_a_pickle_bomb_in_an_archive(desk: Desk) -> list[str]:
    torch.save({"fc.weight": Bomb()}, desk.here / "bomb.pt")
    return train("scenes:32", "--weights", "bomb.pt")


@case("trained holds a run already", "--resume", "another --out")
def out_that_holds_another_run(desk: Desk) -> list[str]:
    return ["train", "scenes:32", "--out", str(desk.trained()), *QUICK]


@case("run exists and is no run folder", "another --out")
def out_that_is_a_file(desk: Desk) -> list[str]:
    desk.file("run", "something")
    return train("scenes:32")


@case("run exists and is no run folder", "another --out")
def out_with_the_files_of_others(desk: Desk) -> list[str]:
    desk.file("run/letter.txt", "dear")
    return train("scenes:32")


@case("--out file/run cannot be made", "choose another")
def out_below_a_file(desk: Desk) -> list[str]:
    desk.file("file", "something")
    return ["train", "scenes:32", "--out", "file/run", *QUICK]


@case("trained was started with other settings", "recipe.epochs: 2, now 3", "method_settings.beta: 0.5, now 0.7")
def resume_with_other_settings(desk: Desk) -> list[str]:
    run_folder = str(desk.trained())
    return ["train", "scenes:40", "--resume", "--out", run_folder, *QUICK, "--epochs", "3", "--set", "beta=0.7"]


@case("voc:here", "no folder 'here'", "voc:PATH")
def benchmark_folder_missing(desk: Desk) -> list[str]:
    return train("voc:here")


@case("photos", "ImageSets/Main", "JPEGImages")
def voc_without_its_layout(desk: Desk) -> list[str]:
    return train(f"voc:{desk.photos()}")


@case("instances_train2014.json", "download it again")
def coco_with_broken_json(desk: Desk) -> list[str]:
    desk.file("coco/annotations/instances_train2014.json", '{"images": [')
    for part in ("train2014", "val2014"):
        (desk.here / "coco" / part).mkdir()
    return train("coco:coco")


@case("formatted_train_images.npy", "could run code", "convert it")
def npy_with_python_objects(desk: Desk) -> list[str]:
    (desk.here / "arrays").mkdir()
    np.save(desk.here / "arrays" / "formatted_train_images.npy", np.array([Bomb()], dtype=object))
    return train("npy:arrays")


@case("scenes:abc", "number of images")
def scenes_without_a_number(desk: Desk) -> list[str]:
    return train("scenes:abc")


@case("scenes:3 is too small", "ask for 8 images or more")
def scenes_too_few(desk: Desk) -> list[str]:
    return train("scenes:3")


@case("unknown kind 'cocoa'", "did you mean 'coco'")
def kind_of_data_unknown(desk: Desk) -> list[str]:
    return train("cocoa:somewhere")


def named(desk: Desk, *options: str, labels: str | None = None) -> list[str]:
    """The default, which reads names."""
    return ["train", desk.photos(labels), "--out", "run", "--size", "64", "--epochs", "2", *options]


@case("--tags", "no tag is named", "--tags dog,sea")
def tags_of_which_none_is_named(desk: Desk) -> list[str]:
    return named(desk, "--tags", "")


@case("--tags", "no tag is named", "--tags dog,sea")
def tags_of_commas(desk: Desk) -> list[str]:
    return named(desk, "--tags", " , ,")


@case("--tags", "a tag without a name", "--tags dog,sea")
def tags_with_a_comma_too_many(desk: Desk) -> list[str]:
    return named(desk, "--tags", "dog,,sea")


@case("--tags", "has 10,000 characters", "at most 200")
def tag_that_is_a_book(desk: Desk) -> list[str]:
    return named(desk, "--tags", "dog," + 10_000 * "x")


@case("--tags", "'dog' comes twice", "keep one")
def tag_named_twice(desk: Desk) -> list[str]:
    return named(desk, "--tags", "dog,sea,dog")


@case("--tags", "'Dog' and 'dog' differ only in capitals", "keep one")
def tags_that_differ_in_capitals(desk: Desk) -> list[str]:
    return named(desk, "--tags", "Dog,sea,dog")


@case("--tags", "no UTF-8 text")
def tag_of_bytes_that_are_no_text(desk: Desk) -> list[str]:
    return named(desk, "--tags", os.fsdecode(b"dog,\xff"))


@case("--tags", "'dog|sea'", "rename it")
def tags_separated_as_in_a_label_file(desk: Desk) -> list[str]:
    return named(desk, "--tags", "dog|sea")


@case("photos", "no labelled image has a tag", "nothing is found for zzqqx", "tag a few", "--words")
def no_labels_and_a_name_that_says_nothing(desk: Desk) -> list[str]:
    return named(desk, "--tags", "zzqqx")


@case("photos", "no labelled image has a tag", "no tag's name is read")
def no_labels_and_words_switched_off(desk: Desk) -> list[str]:
    return named(desk, "--tags", "dog", "--words", "off")


@case("photos", "no labelled image has a tag", "nothing is found for dog, boat")
def no_labels_and_every_tag_switched_off(desk: Desk) -> list[str]:
    return named(desk, "--tags", "dog,boat", "--words", "dog=-; boat=-")


@case("photos", "no labelled image has a tag", "no tag's name is read", "the default")
def no_labels_for_a_method_that_reads_no_names(desk: Desk) -> list[str]:
    return named(desk, "--tags", "dog", "--method", "d2l")


@case("photos", "no labels.csv in it", "--labels", "--tags")
def words_in_the_place_of_tags(desk: Desk) -> list[str]:
    return named(desk, "--words", "dog=hound")


@case("no image in this folder")
def tags_for_an_empty_folder(desk: Desk) -> list[str]:
    (desk.here / "empty").mkdir()
    return ["train", "empty", "--out", "run", "--tags", "dog"]


@case("scenes:32", "brings its own tags", "--tags goes with a folder")
def tags_for_scenes(desk: Desk) -> list[str]:
    return train("scenes:32", "--tags", "dog")


@case("voc:photos", "brings its own tags", "--tags goes with a folder")
def tags_for_a_benchmark(desk: Desk) -> list[str]:
    return train(f"voc:{desk.photos()}", "--tags", "dog")


@case("vectors:mine.npz", "brings its own tags", "--tags goes with a folder")
def tags_for_vectors(desk: Desk) -> list[str]:
    np.savez(desk.here / "mine.npz", vectors=np.eye(4, dtype=np.float32), ids=list("abcd"))
    return ["train", "vectors:mine.npz", "--out", "run", "--tags", "dog"]


@case("--words 'dg=hound'", "there is no tag 'dg'", "did you mean 'dog'")
def words_for_an_unknown_tag(desk: Desk) -> list[str]:
    return named(desk, "--words", "dg=hound", labels=LABELS)


@case("--words 'my-words.csv'", "there is no such file", "has no =", "tag,words")
def words_in_a_file_that_is_not_there(desk: Desk) -> list[str]:
    return named(desk, "--words", "my-words.csv", labels=LABELS)


@case("--words is empty", "tag,words")
def words_of_nothing(desk: Desk) -> list[str]:
    return named(desk, "--words", "", labels=LABELS)


@case("my-words.csv, line 3", "there is no tag 'cat'")
def words_for_an_unknown_tag_in_a_file(desk: Desk) -> list[str]:
    return named(desk, "--words", desk.file("my-words.csv", "tag,words\ndog,hound\ncat,kitty\n"), labels=LABELS)


@case("--words 'dog=-sofa bed'", "no class is called 'sofa bed'", "fewtags words dog")
def words_that_switch_off_what_is_no_class(desk: Desk) -> list[str]:
    return named(desk, "--words", "dog=-sofa bed", labels=LABELS)


@case("--words", "the papers use none", "leave it out")
def words_under_the_papers_protocol(desk: Desk) -> list[str]:
    return train(desk.photos(), "--words", "dog=hound", "--protocol", "paper")


@case("--words", "only the default", "leave it out")
def words_for_a_method_that_reads_none(desk: Desk) -> list[str]:
    return train(desk.photos(), "--words", "dog=hound")


@case("--words", "only the default", "leave it out")
def words_for_crops(desk: Desk) -> list[str]:
    return named(desk, "--words", "dog=hound", "--features", "crops", labels=LABELS)


@case("--words", "only the default", "leave it out")
def words_for_the_regression(desk: Desk) -> list[str]:
    how = ["--method", "neighbours", "--features", "evidence", "--set", "learner=regression", "--words", "dog=hound"]
    return named(desk, *how, labels=LABELS)


@case("--words", "no ImageNet classes", "leave it out")
def words_for_a_backbone_without_classes(desk: Desk) -> list[str]:
    save_file(build_backbone("resnet18", pretrained=False).state_dict(), desk.here / "small.safetensors")
    words = ["--backbone", "resnet18", "--weights", "small.safetensors", "--words", "dog=hound"]
    return named(desk, *words, labels=LABELS)


@case("--tags", "no tag is named")
def check_with_tags_of_nothing(desk: Desk) -> list[str]:
    return ["check", desk.photos(), "--tags", ""]


@case("--tags", "leave it out")
def other_tags_for_a_run_that_is_repeated(desk: Desk) -> list[str]:
    return ["train", str(desk.trained()), "--with-review", "--out", "again", "--tags", "dog"]


@case("--words", "leave it out")
def other_words_for_a_run_that_is_repeated(desk: Desk) -> list[str]:
    return ["train", str(desk.trained()), "--with-review", "--out", "again", "--words", "off"]


@case("no-run", "no such folder", "fewtags train")
def tag_without_a_run(desk: Desk) -> list[str]:
    return ["tag", "no-run", desk.photos(), "--out", "out.csv"]


@case("photos holds no model", "run folder")
def tag_with_a_folder_that_is_no_run(desk: Desk) -> list[str]:
    return ["tag", desk.photos(), "photos", "--out", "out.csv"]


@case("no-such.jpg", "no such file or folder")
def tag_an_image_that_is_not_there(desk: Desk) -> list[str]:
    return ["tag", str(desk.trained()), "no-such.jpg", "--out", "out.csv"]


@case("empty", "no images in this folder", ".jpg")
def tag_an_empty_folder(desk: Desk) -> list[str]:
    (desk.here / "empty").mkdir()
    return ["tag", str(desk.trained()), "empty", "--out", "out.csv"]


@case("no image files among these names")
def tag_a_pattern_of_other_files(desk: Desk) -> list[str]:
    desk.file("notes.txt", "no image")
    return ["tag", str(desk.trained()), "*.txt", "--out", "out.csv"]


@case("--out photos is a folder", "photos/tags.csv")
def tag_into_a_folder(desk: Desk) -> list[str]:
    return ["tag", str(desk.trained()), desk.photos(), "--out", "photos"]


@case("--out file/out.csv", "name another file")
def tag_below_a_file(desk: Desk) -> list[str]:
    desk.file("file", "something")
    return ["tag", str(desk.trained()), desk.photos(), "--out", "file/out.csv"]


def damaged(desk: Desk, **changes: object) -> list[str]:
    """Tag with a model.json in which these entries were changed."""
    folder = desk.trained()
    file = folder / "model" / "model.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | changes), encoding="utf-8")
    return ["tag", str(folder), desk.photos(), "--out", "out.csv"]


@case("model.json is damaged", "copy the model folder again")
def model_description_cut_short(desk: Desk) -> list[str]:
    folder = desk.trained()
    file = folder / "model" / "model.json"
    file.write_bytes(file.read_bytes()[:100])
    return ["tag", str(folder), desk.photos(), "--out", "out.csv"]


@case("model.json was written by fewtags 0.0.1", "train again")
def model_of_another_version(desk: Desk) -> list[str]:
    return damaged(desk, fewtags="0.0.1", thresholds="none")


@case("model.json is damaged", "12 tags but 1 thresholds")
def model_with_too_few_thresholds(desk: Desk) -> list[str]:
    return damaged(desk, thresholds=[0.5])


@case("model.json is damaged", "input_scale")
def model_with_half_a_scaling(desk: Desk) -> list[str]:
    return damaged(desk, input_scale=[255.0])


@case("model.json is damaged", "size")
def model_with_an_impossible_size(desk: Desk) -> list[str]:
    return damaged(desk, size=0)


@case("model.safetensors does not fit model.json", "copy the model folder again")
def model_with_tags_that_do_not_fit_its_weights(desk: Desk) -> list[str]:
    return damaged(desk, tags=["sea"], thresholds=[0.5])


@case("model.safetensors", "not a readable safetensors file")
def model_weights_cut_short(desk: Desk) -> list[str]:
    folder = desk.trained()
    file = folder / "model" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    return ["tag", str(folder), desk.photos(), "--out", "out.csv"]


@case("model.safetensors is missing", "copy the model folder again")
def model_weights_missing(desk: Desk) -> list[str]:
    folder = desk.trained()
    (folder / "model" / "model.safetensors").unlink()
    return ["tag", str(folder), desk.photos(), "--out", "out.csv"]


@case("photos holds no model", "run folder")
def evaluate_a_folder_that_is_no_run(desk: Desk) -> list[str]:
    return ["evaluate", desk.photos()]


@case("model is a model without its run", "DATA")
def evaluate_a_model_folder_without_data(desk: Desk) -> list[str]:
    model = (desk.here / desk.trained() / "model").rename(desk.here / "model")
    return ["evaluate", model.name]


@case("photos", "knows none of its tags (cat, hat)", "sun, cloud")
def evaluate_on_tags_that_the_model_does_not_know(desk: Desk) -> list[str]:
    return ["evaluate", str(desk.trained()), desk.photos("image,tags\na.png,cat|hat\n")]


@case("photos", "none of the 2 images can be read")
def evaluate_on_images_that_cannot_be_read(desk: Desk) -> list[str]:
    photos = desk.photos("image,tags\na.png,sun\nb.png,boat\n")
    desk.file("photos/a.png")
    desk.file("photos/b.png", "text")
    return ["evaluate", str(desk.trained()), photos]


@case("config.yaml is not the settings of a fewtags run")
def evaluate_with_damaged_settings(desk: Desk) -> list[str]:
    folder = desk.trained()
    (folder / "config.yaml").write_text("- a\n- list\n", encoding="utf-8")
    return ["evaluate", str(folder)]


@case("gone: there is no such folder", "trained was trained on this data", "fewtags evaluate trained DATA")
def evaluate_when_the_data_has_gone(desk: Desk) -> list[str]:
    folder = desk.trained()
    config = folder / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("data: scenes:40", "data: gone"), encoding="utf-8")
    return ["evaluate", str(folder)]


@case("unknown method 'als'", "did you mean 'asl'")
def show_a_method_that_is_not_there(desk: Desk) -> list[str]:
    return ["methods", "als"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    return fewtags.train("scenes:40", out=folder, method="d2l", size=64, warmup=2, epochs=2).path


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def assert_refused(arguments, words, folder, capsys) -> None:
    before = tree(folder)
    capsys.readouterr()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert run(arguments) == 2
    assert [str(one.message) for one in warned] == []
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert lines[0].startswith(("fewtags: ", "Usage: ")), printed.err
    assert len([line for line in lines if line.startswith(("fewtags: ", "Error: "))]) == 1, printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert [word for word in words if word not in printed.err] == [], printed.err
    assert tree(folder).keys() == before.keys()
    assert tree(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize(("arrange", "words"), CASES)
def test_a_mistake_is_refused_in_one_message_and_nothing_is_written(
    arrange, words, trained, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert_refused(arrange(Desk(tmp_path, trained)), words, tmp_path, capsys)


def test_a_run_refused_for_its_images_can_be_started_again_when_they_are_mended(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    desk = Desk(tmp_path, tmp_path)
    arguments = bad_image_with_strict(desk)
    assert run(arguments) == 2
    shutil.copy("photos/d.png", "photos/c.png")
    assert run(arguments) == 0
    assert Path("run/tags.csv").exists()
