"""The trace page in headless Chromium: no console error, the keyboard moves between tokens, a click pins."""

import dataclasses
import shutil

import pytest

from tests.traces import sample_trace

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Open a trace; at the end of the test the page must have had no error."""
    pages, faults = [], []

    def load(trace, fragment="", **options):
        path = tmp_path / "trace.html"
        trace.save(path)
        page = browser.new_page(viewport={"width": 1280, "height": 900}, **options)
        page.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: faults.append(str(e)))
        page.on("request", lambda r: faults.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector("[data-i]")
        pages.append(page)
        return page

    yield load
    for page in pages:
        page.close()
    assert faults == []


def selected(page):
    return page.locator("#tokens [aria-selected=true]").first.get_attribute("data-i")


def current(page):
    """The number in `Token N of M`, from 0."""
    return int(page.locator("#panel").inner_text().split()[1]) - 1


def test_every_token_is_a_chip_and_the_arrows_move_between_them(open_page):
    trace = sample_trace(50)
    page = open_page(trace)
    chips = page.locator("#tokens [data-i]")
    assert chips.count() == 50
    chips.nth(0).focus()
    page.keyboard.press("Home")
    before = page.locator("#panel").inner_text()
    page.keyboard.press("ArrowRight")
    assert current(page) == 1
    assert page.evaluate("document.activeElement.dataset.i") == "1"
    assert page.locator("#panel").inner_text() != before
    page.keyboard.press("End")
    assert current(page) == 49
    page.keyboard.press("ArrowLeft")
    assert current(page) == 48


def test_n_and_p_jump_between_steps_whose_favourite_was_forbidden(open_page):
    trace = sample_trace(50)
    forbidden = [i for i, s in enumerate(trace.steps) if not s.pre_masking[0].allowed]
    assert len(forbidden) >= 2
    page = open_page(trace)
    page.locator("#tokens [data-i]").nth(0).focus()
    page.keyboard.press("Home")
    page.keyboard.press("n")
    following = [i for i in forbidden if i > 0]
    assert current(page) == following[0]
    page.keyboard.press("n")
    assert current(page) == following[1]
    page.keyboard.press("p")
    assert current(page) == following[0]


def test_a_click_pins_and_the_address_selects(open_page):
    page = open_page(sample_trace(50), "#t12")
    assert selected(page) == "12"
    assert current(page) == 12
    page.locator("#tokens [data-i='20']").click()
    assert selected(page) == "20"
    page.locator("#tokens [data-i='3']").hover()
    assert current(page) == 20, "a pinned token stays while the pointer moves"


def test_the_panel_says_which_member_removed_how_much(open_page):
    trace = sample_trace(10)
    shares = (("all_of[0].json_object", 0.25), ("all_of[1].<b>ban</b>", 0.5), ("all_of", 0.0))
    steps = (dataclasses.replace(trace.steps[0], removed_by=shares), *trace.steps[1:])
    page = open_page(dataclasses.replace(trace, steps=steps), "#t0")
    said = page.locator("#panel .shares").inner_text()
    assert "25.0%" in said
    assert "all_of[1].<b>ban</b>" in said
    assert page.locator("#panel .shares dt").count() == 2
    page.locator("#tokens [data-i='1']").click()
    assert page.locator("#panel .shares").count() == 0


def test_the_panel_says_what_was_wanted_allowed_and_taken(open_page):
    trace = sample_trace(50)
    place = next(i for i, s in enumerate(trace.steps) if not s.pre_masking[0].allowed)
    step = trace.steps[place]
    text = open_page(trace, f"#t{place}").locator("#panel").inner_text()
    assert step.pre_masking[0].text.strip() in text
    for words in ("forbidden", "taken", "Wanted", "Allowed", "Removed mass", "Tax"):
        assert words in text
    if step.blame is not None:
        assert step.blame.reason in text


def test_the_pointer_shows_a_token(open_page):
    page = open_page(sample_trace(50))
    page.locator("#tokens [data-i='7']").hover()
    page.mouse.move(*[round(v) + 2 for v in list(page.locator("#tokens [data-i='7']").bounding_box().values())[:2]])
    page.wait_for_function("document.querySelector('#panel').innerText.startsWith('Token 8')")
    assert current(page) == 7


def test_it_works_in_the_dark_on_a_phone_and_with_hostile_text(open_page):
    page = open_page(sample_trace(20), color_scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = open_page(sample_trace(20), color_scheme="light").evaluate(
        "getComputedStyle(document.body).backgroundColor"
    )
    assert dark != light
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_two_thousand_tokens_stay_responsive(open_page):
    page = open_page(sample_trace(2000))
    page.locator("#tokens [data-i]").nth(0).focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    assert current(page) == 30
