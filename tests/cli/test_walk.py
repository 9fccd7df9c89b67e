"""The whole way of a person: a folder of photos, thirty tagged rows, and everything that follows, in a real browser."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fewtags.cli import run
from fewtags.scenes.draw import draw

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"), pytest.mark.slow]
SMALL = ["--size", "64", "--epochs", "4"]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Sixty drawn scenes as files of three kinds in two folders, thirty of them with a row in labels.csv."""
    monkeypatch.chdir(tmp_path)
    rows = []
    for number in range(60):
        folder = tmp_path / "photos" / ("garden" if number % 3 else "")
        folder.mkdir(parents=True, exist_ok=True)
        picture, tags = draw(1, number)
        name = f"{number:02d}.{('jpg', 'png', 'webp')[number % 3]}"
        picture.resize((240, 160 + number)).save(folder / name)
        rows.append([(folder / name).relative_to(tmp_path / "photos").as_posix(), "|".join(tags)])
    with (tmp_path / "photos" / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["image", "tags"], *rows[:30]])
    return tmp_path


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] * (os.geteuid() == 0))
        yield found
        found.close()


def test_from_thirty_tagged_photos_to_a_model_that_leaves_the_house(photos, browser, capsys):
    assert run(["check", "photos"]) == 0
    assert run(["train", "photos", "--out", "run", *SMALL]) == 0
    assert "estimated quality" in capsys.readouterr().out

    assert run(["report", "run"]) == 0
    page = browser.new_page()
    page.goto((photos / "run" / "report.html").as_uri())
    api.expect(page.locator("body")).to_contain_text("30 images")
    page.close()

    assert run(["explain", "run", "photos/garden/31.png", "--out", "why.html"]) == 0
    assert "31.png" in (photos / "why.html").read_text(encoding="utf-8")

    decided = review_in(browser, "run", 3)
    assert run(["train", "run", "--with-review", "--out", "again"]) == 0
    assert json.loads((photos / "again" / "result.json").read_text())["images"]["labelled"] == 30 + decided

    assert run(["export", "again", "model.onnx"]) == 0
    for model, out in (("again", "ours.csv"), ("model.onnx", "theirs.csv")):
        assert run(["tag", model, "photos", "--out", out]) == 0
    assert (photos / "ours.csv").read_text() == (photos / "theirs.csv").read_text()
    assert len((photos / "ours.csv").read_text().splitlines()) == 61


def review_in(browser, folder: str, count: int) -> int:
    """Accept so many images on the page that `fewtags review` serves; how many of them had no row before."""
    command = [sys.executable, "-m", "fewtags", "review", folder, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            address = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
            page = browser.new_page()
            page.goto(address)
            page.wait_for_selector(".toggle")
            for _ in range(count):
                name = page.locator("#name").inner_text()
                page.keyboard.press("Enter")
                api.expect(page.locator("#name")).not_to_have_text(name)
            api.expect(page.locator("#progress")).to_contain_text(f"{12 * count} decisions")
            page.close()
        finally:
            server.terminate()
    lines = Path(folder, "review.jsonl").read_text(encoding="utf-8").splitlines()
    reviewed = {json.loads(line)["image"] for line in lines}
    labelled = {row.split(",")[0] for row in Path("photos/labels.csv").read_text(encoding="utf-8").splitlines()}
    assert len(reviewed) == count
    return len(reviewed - labelled)
