"""The report in a real browser: it sorts, filters, fits a phone, asks for nothing, and stands without its script."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import fewtags
from made_up_runs import an_estimate, made_up_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
pytestmark = [pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"), pytest.mark.slow]
TAGS = ["sea", "dog", "<script>document.title = 'run'</script>"]
CARD = "#group-{} .card:visible"


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """Eight unlabelled images, of which the first two show sea, the next three a dog, with falling scores."""
    scores = np.full((8, 3), 0.02)
    scores[:2, 0] = 0.9, 0.7
    scores[2:5, 1] = 0.95, 0.8, 0.65
    labels = np.tile([[1, 0, 1], [0, 1, 0]], (5, 1))
    held_out = np.where(labels == 1, 0.9, 0.1)
    held_out[1, 0] = 0.85  # the label says no sea
    tables = {"labelled": held_out, "labelled_targets": labels, "held_out": held_out, "unlabelled": scores}
    records = [{"stage": "main", "epoch": n, "loss": 3.0 - n, "map": 0.5, "cf1": 0.4, "of1": 0.3} for n in range(3)]
    estimate = an_estimate(TAGS, [0.9, 0.3, 0.6])
    tested = {"map": 0.5, "cf1": 0.5, "of1": 0.5, "per_tag": estimate["per_tag"]}
    path = tmp_path_factory.mktemp("run") / "run"
    run = made_up_run(path, TAGS, tables, result={"estimate": estimate, **tested}, records=records, data="scenes:40")
    return fewtags.write_report(run)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, report):
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(report.as_uri())
    yield page
    page.close()


def tags_in_order(page) -> list[str]:
    return [TAGS.index(text) for text in page.locator("table.tags tbody th").all_inner_texts()]


def test_a_click_on_a_head_sorts_the_table_and_another_turns_it_round(page):
    assert tags_in_order(page) == [0, 2, 1]
    for _ in range(2):
        page.get_by_role("button", name="F1").first.click()
    assert tags_in_order(page) == [1, 2, 0]
    assert page.locator("th[aria-sort]").all_inner_texts() == ["F1"]
    page.get_by_role("button", name="Tag").click()
    assert tags_in_order(page) == [2, 1, 0]


def test_the_gallery_filters_by_tag_and_confidence(page):
    assert page.locator(CARD.format("sample")).count() == 8
    page.get_by_text("Most confident").first.click()
    assert page.locator(CARD.format("sample")).count() == 0
    assert page.locator("#found").inner_text() == "5 of 5 shown"
    page.locator("#tag").select_option(label="dog")
    assert page.locator(CARD.format("confident")).count() == 3
    page.locator("#least").fill("75")
    page.locator("#most").fill("90")
    texts = page.locator(CARD.format("confident")).all_inner_texts()
    assert len(texts) == 1
    assert "dog 80 %" in texts[0]
    page.get_by_text("Likely mistakes").first.click()
    assert page.locator("#found").inner_text() == "0 of 1 shown"
    page.locator("#tag").select_option(label="sea")
    assert "You said no sea; the model is 85 % sure" in page.locator(CARD.format("mistakes")).inner_text()


def test_the_bounds_of_confidence_push_each_other(page):
    page.locator("#most").fill("30")
    page.locator("#least").fill("60")
    assert page.locator("#most").input_value() == "60"
    page.locator("#most").fill("10")
    assert page.locator("#least").input_value() == "10"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_fits_its_width_asks_for_nothing_and_has_no_errors(browser, report, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: trouble.append(request.url) if request.url.startswith("http") else None)
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("Array.from(document.images).every((image) => image.naturalWidth > 0)")
    table = page.locator("#tags .scroll").evaluate("(box) => [box.scrollWidth, box.clientWidth]")
    assert (table[0] <= table[1]) == (width == 1400)  # a phone has to scroll it
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(251, 250, 247)"
    assert light == (scheme == "light")
    assert page.title() == "scenes:40 – fewtags report"
    assert trouble == []
    page.close()


def test_without_scripts_everything_is_shown(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    shown = {name: page.locator(CARD.format(name)).count() for name in ("sample", "confident", "uncertain", "mistakes")}
    assert shown == {"sample": 8, "confident": 5, "uncertain": 0, "mistakes": 1}
    assert page.locator("form.filters").is_hidden()
    assert tags_in_order(page) == [0, 2, 1]
    context.close()


def test_on_paper_the_filters_are_gone_and_the_table_is_not_cut(browser, report):
    page = browser.new_page(viewport={"width": 718, "height": 900})  # A4 without its margins
    page.goto(report.as_uri())
    page.emulate_media(media="print")
    assert page.locator("form.filters").is_hidden()
    assert page.locator("nav").is_hidden()
    assert page.evaluate("document.querySelector('table.tags').getBoundingClientRect().right") <= 718
    page.close()
