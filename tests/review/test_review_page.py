"""The review page in a real browser: keys, both modes, two tabs, both widths and colour schemes."""

import json
import os
import shutil

import pytest

from review_session import make_session, served

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"), pytest.mark.slow]


@pytest.fixture(scope="module")
def browser():
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield found
        found.close()


@pytest.fixture
def session(tmp_path):
    return make_session(tmp_path, images=45)


@pytest.fixture
def client(session):
    with served(session) as found:
        yield found


@pytest.fixture
def tab(browser, client):
    return opened(browser, client)


def opened(browser, client, width=1400, height=900, scheme="light", touch=False):
    """A tab with the page; whatever the browser complains of makes the test fail at its next look."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=touch)
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(client.policy.address())
    page.wait_for_selector(".toggle")
    return page


def saved(page, text):
    api.expect(page.locator("#status")).to_have_text(text)
    assert page.complaints == []


def answers(session, number):
    return session.image(number)["answers"]


def stored_order(page):
    page.keyboard.press(",")
    api.expect(page.locator("#order-stored")).to_have_attribute("aria-pressed", "true")
    api.expect(page.locator("#name")).to_contain_text("000.png")


def test_keys_toggle_accept_undo_and_move(tab, session):
    stored_order(tab)
    tab.keyboard.press("1")
    saved(tab, "kept")
    assert answers(session, 0) == ["no", None, None]
    tab.keyboard.press("Shift+Digit2")
    saved(tab, "kept")
    api.expect(tab.locator(".toggle.unsure")).to_have_count(1)
    tab.keyboard.press("Enter")
    api.expect(tab.locator("#name")).to_contain_text("001.png")
    assert answers(session, 0) == ["no", "unsure", "no"]
    tab.keyboard.press("Enter")
    api.expect(tab.locator("#name")).to_contain_text("002.png")
    assert answers(session, 1) == ["yes", "yes", "no"]
    tab.keyboard.press("z")
    saved(tab, "undone")
    api.expect(tab.locator("#name")).to_contain_text("001.png")
    assert answers(session, 1) == [None, None, None]
    tab.keyboard.press("ArrowLeft")
    api.expect(tab.locator("#name")).to_contain_text("000.png")
    tab.keyboard.press("ArrowRight")
    api.expect(tab.locator("#name")).to_contain_text("001.png")
    assert session.progress()["decisions"] == 3
    api.expect(tab.locator("#progress")).to_have_text("2 of 45 · 3 decisions")


def test_undo_survives_a_reload(tab, session):
    tab.keyboard.press("1")
    saved(tab, "kept")
    tab.reload()
    tab.wait_for_selector(".toggle")
    tab.keyboard.press("z")
    saved(tab, "undone")
    assert session.progress()["decisions"] == 0


def test_a_tag_with_markup_is_text(tab):
    api.expect(tab.locator(".toggle .tag").nth(1)).to_have_text("<b>sea</b>")
    assert tab.locator("main b").count() == 0
    assert tab.complaints == []


def test_score_and_threshold_are_shown(tab):
    stored_order(tab)
    assert tab.locator(".score .text").all_text_contents() == ["0.90 / 0.50", "0.20 / 0.50", "0.10 / never"]


def test_the_grid_asks_for_one_tag_and_one_key_accepts_all(tab, session):
    tab.keyboard.press(".")
    api.expect(tab.locator("#asked")).to_have_text("Do all of these 18 show boat?")
    tab.locator(".tile").nth(3).click()
    saved(tab, "kept")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("u")
    api.expect(tab.locator(".tile.unsure")).to_have_count(1)
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("Space")
    api.expect(tab.locator(".tile.no")).to_have_count(2)
    tab.keyboard.press("Enter")
    api.expect(tab.locator("#empty")).to_be_visible()
    given = [session.image(number)["answers"][0] for number in range(45) if number % 5 < 2]
    assert sorted(given) == ["no"] * 2 + ["unsure"] + ["yes"] * 15
    assert session.progress()["decisions"] == 18
    tab.keyboard.press("z")
    api.expect(tab.locator(".tile")).to_have_count(18)
    assert session.progress()["decisions"] == 3
    assert tab.complaints == []


def test_the_other_side_of_a_tag_comes_forty_at_a_time(tab, session):
    tab.keyboard.press(".")
    tab.keyboard.press("]")
    tab.keyboard.press("]")
    tab.keyboard.press(";")
    api.expect(tab.locator("#asked")).to_have_text("Do none of these 40 show dog?")
    tab.keyboard.press("PageDown")
    api.expect(tab.locator("#asked")).to_have_text("Do none of these 4 show dog?")  # one of 45 is labelled
    tab.keyboard.press("Enter")
    api.expect(tab.locator("#empty")).to_be_visible()
    assert session.progress()["decisions"] == 4


def test_a_search_by_tag_shows_the_images_that_have_it(tab):
    stored_order(tab)
    tab.keyboard.press("/")
    tab.keyboard.type("dog")
    tab.keyboard.press("Enter")
    api.expect(tab.locator("#progress")).to_contain_text("1 of 1 ·")
    api.expect(tab.locator("#name")).to_contain_text("044.png")
    tab.locator("#search").fill("cat")
    tab.keyboard.press("Enter")
    api.expect(tab.locator("#status")).to_have_text("there is no tag “cat”")
    tab.locator("#search").fill("")
    tab.keyboard.press("Enter")
    api.expect(tab.locator("#progress")).to_contain_text("of 45 ·")


def test_two_tabs_lose_nothing_of_each_other(browser, client, session, tab):
    other = opened(browser, client)
    stored_order(tab)
    stored_order(other)
    tab.keyboard.press("1")
    saved(tab, "kept")
    other.keyboard.press("2")
    saved(other, "kept")
    assert answers(session, 0) == ["no", "yes", None]
    tab.evaluate("window.dispatchEvent(new Event('focus'))")
    api.expect(tab.locator(".toggle.by-you")).to_have_count(2)
    tab.keyboard.press("z")
    saved(tab, "undone")
    assert answers(session, 0) == [None, "yes", None]
    other.context.close()


def test_a_server_that_is_gone_is_said_and_the_toggle_goes_back(browser, session):
    with served(session) as client:
        page = opened(browser, client)
        stored_order(page)
    page.keyboard.press("1")
    api.expect(page.locator("#status")).to_contain_text("not kept: fewtags review is not running any more")
    api.expect(page.locator(".toggle").first).to_have_class("toggle yes by-model")
    page.context.close()


def test_a_picture_that_cannot_be_shown_says_why(browser, client, tmp_path):
    for file in (tmp_path / "photos").iterdir():
        file.write_bytes(b"")
    page = opened(browser, client)
    api.expect(page.locator("#no-picture")).to_have_text("cannot be shown: the file is empty\n")
    page.context.close()


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_at_either_width(browser, client, width, scheme):
    page = opened(browser, client, width, 800, scheme)
    for key in ("", ".", "?"):
        if key:
            page.keyboard.press(key)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#help").is_visible()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 300) == (scheme == "dark")
    page.keyboard.press("Escape")
    api.expect(page.locator("#help")).to_be_hidden()
    for button in ("#accept", "#next", "#undo", "#back"):
        box = page.locator(button).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert page.complaints == []
    page.context.close()


def test_a_phone_needs_no_keys(browser, client, session):
    page = opened(browser, client, 390, 800, touch=True)
    page.locator(".toggle").first.tap()
    saved(page, "kept")
    page.locator(".maybe").nth(2).tap()
    api.expect(page.locator(".toggle.unsure")).to_have_count(1)
    page.locator("#accept").tap()
    api.expect(page.locator("#progress")).to_contain_text("3 decisions")
    page.locator("#mode-grid").tap()
    page.locator(".tile").first.tap()
    saved(page, "kept")
    assert session.progress()["decisions"] == 4
    lines = [json.loads(line) for line in session.log.file.read_text().splitlines()]
    assert [line["answer"] for line in lines].count("unsure") == 1
    page.context.close()
