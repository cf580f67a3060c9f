"""The trace page in headless Chromium: no console error, the keyboard moves between tokens, a click pins, and what is
chosen, searched, sorted and saved is what the trace says."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from espalier.trace.page import render, render_pair
from espalier.trace.records import Rewind
from tests.browsers import browser, in_chromium, playwright
from tests.traces import as_json, sample_trace

__all__ = ["browser"]  # a fixture

pytestmark = in_chromium


@pytest.fixture
def open_page(browser, tmp_path):
    """Open a trace, or a page as text; at the end of the test the page must have had no error."""
    pages, faults = [], []

    def load(trace, fragment="", **options):
        path = tmp_path / "trace.html"
        path.write_text(trace if isinstance(trace, str) else render(trace.to_json()), encoding="utf-8")
        page = browser.new_page(viewport={"width": 1280, "height": 900}, **options)
        page.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: faults.append(str(e)))
        page.on(
            "request", lambda r: faults.append(r.url) if not r.url.startswith(("file:", "data:", "blob:")) else None
        )
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector("#exports button")
        pages.append(page)
        return page

    yield load
    for page in pages:
        page.close()
    assert faults == []


def selected(page):
    return page.locator("#tokens [aria-selected=true]").first.get_attribute("data-i")


def current(page):
    """The number in `Step N of 0–M`."""
    return int(page.locator("#panel").inner_text().split()[1])


@pytest.mark.slow
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


@pytest.mark.slow
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
    steps = (replace(trace.steps[0], removed_by=shares), *trace.steps[1:])
    page = open_page(replace(trace, steps=steps), "#t0")
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
    playwright.expect(page.locator("#panel")).to_contain_text("Step 7")
    assert current(page) == 7


@pytest.mark.slow
def test_it_works_in_the_dark_on_a_phone_and_with_hostile_text(open_page):
    page = open_page(sample_trace(20), color_scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = open_page(sample_trace(20), color_scheme="light").evaluate(
        "getComputedStyle(document.body).backgroundColor"
    )
    assert dark != light
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.slow
def test_two_thousand_tokens_stay_responsive(open_page):
    page = open_page(sample_trace(2000))
    page.locator("#tokens [data-i]").nth(0).focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    assert current(page) == 30


def classes(page, place):
    return page.locator(f"#tokens [data-i='{place}']").get_attribute("class").split()


def said(page):
    return page.locator("#view [role=status]").inner_text()


def test_chips_are_coloured_by_what_is_chosen_and_the_legend_follows(open_page):
    trace = sample_trace(50)
    rejected = next(i for i, s in enumerate(trace.steps) if s.was_rejected)
    forced = next(i for i, s in enumerate(trace.steps) if s.was_forced)
    page = open_page(trace)
    assert "Removed mass" in page.locator("#legend").inner_text()
    page.get_by_role("button", name="Probability", exact=True).click()
    assert "Probability" in page.locator("#legend").inner_text()
    assert "q4" in classes(page, 0), "a token of probability 0.2% is between 0.1% and 1%"
    page.locator("h1").click()
    page.keyboard.press("c")
    assert page.get_by_role("button", name="Stage", exact=True).get_attribute("aria-pressed") == "true"
    assert "s2" in classes(page, rejected)
    assert "s3" in classes(page, forced)
    page.keyboard.press("c")
    assert "b5" in classes(page, 0)


def test_f_cycles_the_filter_and_n_visits_what_passes(open_page):
    trace = sample_trace(60)
    rejected = [i for i, s in enumerate(trace.steps) if s.was_rejected]
    assert len(rejected) >= 2
    page = open_page(trace, f"#t{rejected[0]}")
    page.keyboard.press("f")
    out = page.locator("#tokens .out").count()
    assert out == len(trace.steps) - len(rejected)
    assert said(page) == f"1 of {len(rejected)} steps"
    page.keyboard.press("n")
    assert current(page) == rejected[1]
    page.keyboard.press("N")
    page.keyboard.press("N")
    assert current(page) == rejected[-1], "from the first it goes on at the last"
    for _ in range(3):
        page.keyboard.press("f")
    assert page.locator("#tokens .out").count() == 0
    assert said(page) == ""


@pytest.mark.slow
def test_search_finds_text_across_tokens_in_any_case(open_page):
    trace = sample_trace(50)
    page = open_page(trace)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("ADA LOVELACE")
    page.keyboard.press("Enter")
    first = next(i for i, s in enumerate(trace.steps) if s.bytes == b"Ada")
    assert said(page) == "1 of 1 match"
    assert current(page) == first
    hits = page.locator("#tokens .hit").all_inner_texts()
    assert "".join(hits).replace("\u00b7", " ") == "Ada Lovelace"
    page.locator("#search").fill("\U0001f33f\u00a0caf")  # the leaf is spelled by two tokens
    page.keyboard.press("Enter")
    assert said(page) == "1 of 1 match"
    assert page.locator("#tokens .hit").count() == 3
    page.locator("#search").fill("no such text")
    page.keyboard.press("Enter")
    assert said(page) == "No match"
    page.keyboard.press("Escape")
    assert said(page) == ""
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.i") is not None


@pytest.mark.slow
def test_a_row_of_the_costs_shows_its_tokens_and_the_table_sorts(open_page):
    trace = sample_trace(50)
    told = trace.by_path()
    page = open_page(trace)
    rows = page.locator("#costs tbody tr")
    assert rows.count() == len(told)
    by_tax = sorted(told, key=lambda path: -told[path]["tax_nats"])
    assert rows.nth(0).locator("th").inner_text() == (by_tax[0] or "(keys and punctuation)")
    page.locator("#costs [data-by=tokens] button").click()
    counts = [int(text) for text in page.locator("#costs tbody td:nth-of-type(1)").all_inner_texts()]
    assert counts == sorted((round(cost["tokens"]) for cost in told.values()), reverse=True)
    assert page.locator("#costs [data-by=tokens]").get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="/email", exact=True).click()
    assert page.locator("#tokens .tok:not(.out)").count() == told["/email"]["tokens"]
    page.get_by_role("button", name="/email", exact=True).click()
    assert page.locator("#tokens .out").count() == 0


@pytest.mark.slow
def test_the_dearest_tokens_lead_to_their_steps(open_page):
    trace = sample_trace(50)
    worst = trace.summary()["worst_tokens"]
    page = open_page(trace)
    links = page.locator("#worst a")
    assert [link.get_attribute("href") for link in links.all()] == [f"#t{one['step']}" for one in worst]
    links.nth(1).click()
    assert selected(page) == str(worst[1]["step"])


def saved(page, name):
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name).click()
    return Path(waiting.value.path()).read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_is_saved_is_what_the_trace_says(open_page):
    trace = sample_trace(50)
    page = open_page(trace)
    assert json.loads(saved(page, "Trace as JSON")) == as_json(trace)
    rows = list(csv.DictReader(io.StringIO(saved(page, "Steps as CSV"), newline="")))
    assert [json.loads(row["text_json"]) for row in rows] == [s.text for s in trace.steps]
    assert [float(row["tax_nats"]) for row in rows] == pytest.approx([s.tax_nats for s in trace.steps])
    assert float(rows[-1]["cumulative_tax_nats"]) == pytest.approx(trace.total_tax_nats)
    assert [row["path"] for row in rows] == [one.path or "" for one in trace.by_token()]
    drawn = ET.fromstring(saved(page, "Chart as SVG"))  # its own output
    bars = [node for node in drawn.iter("{http://www.w3.org/2000/svg}path") if node.get("d")]
    assert bars
    assert all("var(" not in (node.get("fill") or "var(") for node in bars)


def test_the_output_is_copied_as_it_is(open_page):
    trace = sample_trace(50)
    page = open_page(trace)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the output").click()
    playwright.expect(page.locator("#exports [role=status]")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == trace.text


def test_faults_come_first_and_remedies_are_text(open_page):
    findings = [
        {"code": "x", "severity": "note", "message": "worth <b>knowing</b>", "steps": [3], "remedies": []},
        {
            "code": "y",
            "severity": "fault",
            "message": "it repeats itself",
            "steps": [9],
            "remedies": [{"action": "a", "text": "<img src=x> penalise it", "change": {}}],
        },
    ]
    page = open_page(render(sample_trace(20).to_json(), findings=findings))
    shown = page.locator("#findings .findings > li").all_inner_texts()
    assert "it repeats itself" in shown[0]
    assert "<img src=x> penalise it" in shown[0]
    assert "worth <b>knowing</b>" in shown[1]
    page.locator("#findings a").nth(0).click()
    assert selected(page) == "9"


@pytest.mark.slow
def test_how_it_was_decoded_and_what_was_taken_back_is_said(open_page):
    weighing = {"log_weight": -12.5, "ess": 5.25, "particles": 8, "acceptance": 0.5, "log_z": -9.0}
    trace = replace(
        sample_trace(20),
        strategy="smc",
        decoding={"strategy": "smc", "particles": 8},
        closed_by_budget=True,
        rewinds=(Rewind(step=4, tokens=(7, 8), text="<i>no</i>"),),
        score=-3.5,
        weighing=weighing,
    )
    page = open_page(trace)
    page.locator("#settings > summary").click()
    page.locator("#about details summary").last.click()
    about = page.locator("#about").inner_text()
    for words in (
        "smc",
        "particles 8",
        "score \u22123.50",
        "log weight \u221212.50",
        "50.0%",
        "closed by budget",
        "<i>no</i>",
    ):
        assert words in about


def test_bounds_are_never_shown_as_exact(open_page):
    data = as_json(sample_trace(20))
    for step in data["steps"]:
        step |= {"bounds": [0.25, 1.0], "exactness": "bounded", "allowed_count": 0, "z_sampled": None}
    page = open_page(render(data), "#t3")
    panel = page.locator("#panel").inner_text()
    assert "at least 25.0% and at most 100.0%" in panel
    assert "at least 0.29 nats" in panel
    assert "0 allowed" not in panel, "what nobody counted is no count"
    assert panel.count("not known") >= 4
    assert "at least 5.75 nats" in page.locator("#stats").inner_text()  # -20 ln 0.75
    assert "at least 25.0%" in page.locator("#stats").inner_text()


@pytest.mark.slow
def test_an_old_trace_and_one_without_steps_are_shown(open_page):
    data = as_json(sample_trace(20))
    for name in ("decoding", "closed_by_budget", "rewinds", "score", "weighing", "level", "soft"):
        del data["metadata"][name]
    for name in ("by_path", "by_rule", "worst_tokens"):
        del data["summary"][name]
    for step in data["steps"]:
        del step["was_changed"], step["rule"]
    assert open_page(render(data)).locator("#tokens [data-i]").count() == 20
    whole = as_json(sample_trace(20))
    whole["steps"], whole["metadata"]["level"] = [], "summary"
    page = open_page(render(whole))
    assert "not its steps" in page.locator("main").inner_text()
    assert page.locator("#costs tbody tr").count() == len(whole["summary"]["by_path"])


@pytest.mark.slow
def test_two_traces_stand_side_by_side_and_where_they_part_is_marked(open_page):
    a, b = sample_trace(40), sample_trace(50, seed=1)
    ids = [[s.token_id for s in one.steps] for one in (a, b)]
    apart = next(i for i, (x, y) in enumerate(zip(*ids, strict=False)) if x != y)
    page = open_page(render_pair(a.to_json(), b.to_json(), ("with <b>", "without")))
    assert f"they part at step {apart}" in page.locator("#split-at").inner_text()
    assert page.locator(".first-apart").evaluate_all("all => all.map((one) => one.id)") == [f"a{apart}", f"b{apart}"]
    assert page.locator("#texts .same").count() == 2 * apart
    change = b.total_tax_nats - a.total_tax_nats
    row = page.locator("#totals tbody tr").nth(0).inner_text()
    assert f"{abs(change):.2f} nats" in row
    page.locator("#a0").click()
    page.keyboard.press("ArrowRight")
    assert page.locator("#step-head").inner_text().startswith("Step 1 of 0–39 and 0–49")
    page.keyboard.press("d")
    assert "the first that differs" in page.locator("#step-head").inner_text()
    same = open_page(render_pair(a.to_json(), a.to_json()))
    assert "the same, token by token" in same.locator("#split-at").inner_text()


@pytest.mark.slow
def test_two_thousand_steps_are_searched_and_filtered(open_page, record_property):
    trace = sample_trace(2000)
    page = open_page(trace)
    # From the start of the navigation to the end of the page's script, which is when it answers to keys.
    ready = page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    record_property("milliseconds_until_interactive", ready)
    page.keyboard.press("f")
    assert page.locator("#tokens .tok:not(.out)").count() == sum(s.was_rejected for s in trace.steps)
    page.keyboard.press("/")
    page.keyboard.type("lovelace")
    page.keyboard.press("Enter")
    found = trace.text.lower().count("lovelace")
    page.keyboard.press("Escape")
    for _ in range(3):
        page.locator("h1").click()
        page.keyboard.press("f")
    page.locator("#search").fill("lovelace")
    page.keyboard.press("Enter")
    assert said(page).endswith(f"of {found} matches")


@pytest.mark.slow
def test_one_sentence_then_the_output_then_costs_and_the_settings_last_and_folded(open_page):
    trace = sample_trace(20)
    page = open_page(render(trace.to_json(), findings=[]))
    said = page.locator("#sentence").inner_text()
    assert said.startswith("The most expensive token is ")
    assert said.rstrip().endswith(("negligible.", "mild.", "strong.", "extreme."))
    order = ("#sentence", "#split", "#where", "#chart-card", "#settings")
    tops = [page.locator(one).bounding_box()["y"] for one in order]
    assert tops == sorted(tops)
    assert not page.locator("#about").is_visible()


def test_the_page_opens_at_the_most_expensive_step_and_its_sentence_leads_with_it(open_page):
    trace, worst = sample_trace(40), 18
    steps = [replace(step, tax_nats=9.0) if i == worst else step for i, step in enumerate(trace.steps)]
    trace = replace(trace, steps=tuple(steps))
    taxes = [step.tax_nats for step in trace.steps]
    assert trace.steps[0].tax_nats > 0, "the first is not free of cost, and is not where the page opens"
    page = open_page(trace)
    assert current(page) == worst
    assert selected_chip(page) == str(worst)
    said = page.locator("#sentence").inner_text()
    assert said.startswith(f"The most expensive token is at step {worst}: ")
    assert f"({max(taxes):.2f} of {sum(taxes):.2f} nats in all)" in said


def selected_chip(page):
    return page.locator("#tokens .now").get_attribute("data-i")


def test_the_sentence_says_when_the_constraint_cost_nothing(open_page):
    data = as_json(sample_trace(3))
    for step in data["steps"]:
        step |= {"was_changed": False, "tax_nats": 0.0, "removed_mass": 0.0}
    data["summary"] |= {"total_tax_nats": 0.0, "worst_tokens": []}
    said = open_page(render(data)).locator("#sentence").inner_text()
    assert said == "The constraint cost nothing in 3 tokens: it allowed what the model wanted."


def test_a_column_has_one_unit(open_page):
    page = open_page(sample_trace(40), "#t0")
    for place, form in (("#panel table td.p > span", r"[<>]?\d+\.\d%"), (".costs td:nth-child(3)", r"<?\d+\.\d\d")):
        cells = [text for text in page.locator(place).all_inner_texts() if text not in ("–", "cut", "forbidden")]
        assert cells
        assert all(re.fullmatch(form, text) for text in cells), cells
    taxes = page.locator("#worst .cost").all_inner_texts()
    assert all(re.fullmatch(r"<?\d+\.\d\d nats", text) for text in taxes), taxes


@pytest.mark.slow
def test_the_list_of_a_summary_trace_is_laid_out_as_that_of_its_steps(open_page):
    data = as_json(sample_trace(40))
    lefts = []
    for steps in (data["steps"], []):
        page = open_page(render(data | {"steps": steps}))
        lefts.append(
            [page.locator(f"#worst li:nth-child(2) {part}").bounding_box()["x"] for part in (".chip", ".at", ".where")]
        )
        rights = {
            round(box["x"] + box["width"])
            for box in (cost.bounding_box() for cost in page.locator("#worst .cost").all())
        }
        assert len(rights) == 1, "the costs are a column"
    assert lefts[0][0] < lefts[0][1] < lefts[0][2]
    assert lefts[1][0] < lefts[1][1] < lefts[1][2]


def test_breakers_of_dry_are_shown_as_they_are(open_page):
    data = as_json(sample_trace(3))
    data["metadata"]["sampling"] = {**data["metadata"]["sampling"], "dry_breakers": ["\n", '"', "*"]}
    page = open_page(render(data))
    page.locator("#settings > summary").click()
    assert r'["\n", "\"", "*"]' in page.locator("#about").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 760])
def test_the_output_and_a_token_are_in_the_first_screen(open_page, width):
    page = open_page(sample_trace(40))
    page.set_viewport_size({"width": width, "height": 900})
    for part in ("#tokens", "#panel"):
        assert page.locator(part).bounding_box()["y"] < 800, part
