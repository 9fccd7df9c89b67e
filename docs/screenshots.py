"""Makes the pictures in docs/screenshots: report, review (both modes) and explain, on a desk and on a phone.

make screenshots          needs Chromium and playwright; trains on drawn scenes, a few minutes the first time
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from fewtags.scenes.draw import draw

OUT = Path(__file__).parent / "screenshots"
SCREENS = {"desk": (1400, 900), "phone": (390, 844)}
IMAGES, LABELLED = 400, 80


def main() -> None:
    """Train once, then take every picture on both screens."""
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_photos(Path("photos"))
        fewtags("train", "photos", "--out", "run")
        fewtags("report", "run")
        fewtags("explain", "run", f"photos/{LABELLED + 4:03d}.jpg", "--out", "why.html")
        with sync_playwright() as playwright, served("run") as address:
            browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            for screen in SCREENS:
                take(browser, screen, "report", Path("run/report.html").absolute().as_uri(), None)
                take(browser, screen, "explain", Path("why.html").absolute().as_uri(), None)
                take(browser, screen, "review-image", address, one_image)
                take(browser, screen, "review-grid", address, one_tag)


def make_photos(folder: Path) -> None:
    """Drawn scenes as a person's folder, the first of them labelled."""
    folder.mkdir()
    rows = [["image", "tags"]]
    for number in range(IMAGES):
        picture, tags = draw(1, number)
        picture.save(folder / f"{number:03d}.jpg", quality=92)
        rows.append([f"{number:03d}.jpg", "|".join(tags)])
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows[: LABELLED + 1])


def take(browser: Browser, screen: str, name: str, address: str, prepare) -> None:
    """One picture of what a person sees first."""
    width, height = SCREENS[screen]
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(address)
    if prepare is not None:
        prepare(page)
    page.wait_for_timeout(800)
    file = OUT / f"{name}-{screen}.png"
    page.screenshot(path=file)
    page.close()
    shrink(file)


def shrink(file: Path) -> None:
    """256 colours are enough for a page, and a third of the bytes."""
    Image.open(file).convert("RGB").quantize(256).save(file, optimize=True)


def one_image(page: Page) -> None:
    """The first image that teaches much."""
    page.wait_for_selector(".toggle")


def one_tag(page: Page) -> None:
    """Are these all boats?"""
    page.wait_for_selector(".toggle")
    page.keyboard.press(".")


class served:  # noqa: N801 - reads as a word
    """The review page of a run, while the block lasts; gives its address."""

    def __init__(self, run: str) -> None:
        self._run = run

    def __enter__(self) -> str:
        command = [sys.executable, "-m", "fewtags", "review", self._run, "--no-browser"]
        self._server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return next(found[0] for line in self._server.stdout if (found := re.search(r"http://\S+", line)))

    def __exit__(self, *_: object) -> None:
        self._server.terminate()
        self._server.wait()


def fewtags(*words: str) -> None:
    """A command, as a person would type it."""
    subprocess.run([sys.executable, "-m", "fewtags", *words], check=True)


def chromium() -> str:
    """Where the system's browser is."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        sys.exit("no Chromium on this machine: install one first")
    return found


if __name__ == "__main__":
    main()
