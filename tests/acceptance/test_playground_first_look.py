"""What a newcomer meets in the playground: the finished example, where two texts part or agree, bans and safety in the
form, recent traces."""

from __future__ import annotations

import importlib.util
import json

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")
pytest.importorskip("uvicorn")

import espalier
from tests.acceptance.test_playground import DEMO, delete, done, generate, serve, visit
from tests.browsers import browser, in_chromium, playwright

__all__ = ["browser", "serve", "visit"]  # fixtures

pytestmark = in_chromium
ROOT = DEMO.parents[1]
PAGES, SCRIPTS = ROOT / "src" / "espalier" / "pages", ROOT / "scripts"


@pytest.mark.slow
def test_it_opens_with_a_finished_example_and_says_what_is_seen(serve, visit):
    page = visit(serve("Hello"))
    page.wait_for_selector("#tokens [data-i]")
    note = page.inner_text("#example-note")
    assert note.startswith("An example, recorded with the small demo model")
    assert "✓ Valid" in page.inner_text("#stats")
    assert json.loads(page.inner_text("#text"))["name"] == "Sofia Reyes"
    assert page.inner_text("#free-text").startswith("Sure! Here is the JSON")
    assert page.inner_text("#parted").startswith("They part at the first token: the model wanted Sure")
    assert page.input_value("#seed") == "6"
    page.select_option("#kind", "none")
    page.fill("#temperature", "0")
    generate(page)
    assert page.is_hidden("#example-note")
    assert page.inner_text("#text") == "Hello"


@pytest.mark.slow
def test_the_example_is_what_the_demo_model_writes():
    example = json.loads((PAGES / "example.json").read_text("utf-8"))
    spec = importlib.util.spec_from_file_location("playground_example", SCRIPTS / "playground_example.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    with espalier.load(str(DEMO)) as engine:
        made = script.build_example(engine)
    assert made["text"] == example["text"]
    assert made["free"] == example["free"]
    assert made["text"] != made["free"]["text"]
    assert [step["token"]["id"] for step in made["steps"]] == [step["token"]["id"] for step in example["steps"]]
    assert made["steps"][0].keys() == example["steps"][0].keys()


@pytest.mark.slow
def test_with_and_without_says_that_they_agree_where_the_texts_are_equal(serve, visit):
    page = visit(serve("yes"))
    page.select_option("#kind", "choice")
    page.fill("#editor", "yes\nno")
    page.fill("#temperature", "0")
    page.click("#both")
    done(page)
    assert page.inner_text("#text") == page.inner_text("#free-text") == "yes"
    said = page.inner_text("#parted")
    assert said.startswith("They agree: ")
    assert "pushed" not in said


@pytest.mark.slow
def test_bans_and_safety_are_in_the_form_and_in_its_link(serve, visit):
    address = serve("a fox")
    page = visit(address)
    sent = []
    page.on("request", lambda r: sent.append(r.post_data_json) if r.method == "POST" else None)
    page.select_option("#kind", "none")
    assert page.is_disabled("#both")
    page.click("#ban-box summary")
    page.fill("#bans", "fox\ncat")
    page.select_option("#safety", "standard")
    page.fill("#max_tokens", "8")
    assert page.is_enabled("#both")
    page.click("#both")
    done(page)
    held, free = sorted(sent, key=lambda one: "bad_words" not in one)
    assert held["bad_words"] == ["fox", "cat"]
    assert held["espalier"]["safety"] == "standard"
    assert "bad_words" not in free
    assert "safety" not in free.get("espalier", {})
    assert "fox" not in page.inner_text("#text")
    page.click("#link")
    again = page.context.new_page()
    again.goto(page.evaluate("location.href"))  # `page.url` learns of it later
    again.wait_for_selector("#server b")
    assert again.input_value("#bans") == "fox\ncat"
    assert again.input_value("#safety") == "standard"
    assert again.is_visible("#bans")


@pytest.mark.slow
def test_a_link_that_is_cut_or_hostile_changes_nothing(serve, visit):
    address = serve("Hello.")
    page = visit(address)
    usual = page.input_value("#editor")
    for fragment in ("#s=", "#s=!!", "#s=bnVsbA", "#s=eyJwcm9tcHQiOlsxXX0", "#s=eyJwcm9tcHQiOi", "#t1"):
        page.goto(f"{address}/{fragment}")
        assert page.input_value("#editor") == usual, fragment


def test_an_old_verdict_goes_when_the_form_has_an_error(serve, visit):
    page = visit(serve("Hello"))
    page.wait_for_selector("#stats:has-text('Valid')")
    page.fill("#temperature", "warm")
    page.click("#go")
    playwright.expect(page.locator("#temperature-fault")).to_have_text("Temperature is a number.")
    assert page.is_hidden("#stats")
    assert "Valid" not in page.inner_text(".output")


@pytest.mark.slow
def test_a_list_of_traces_that_comes_late_does_not_replace_a_newer_one(serve, visit):
    page = visit(serve("Hello"))
    playwright.expect(page.locator("#recent-note")).to_have_text("None yet.")
    late = []

    def hold(route):
        late.append(route)

    page.route("**/traces?*", hold, times=1)
    page.click("#refresh")
    page.select_option("#kind", "none")
    generate(page)
    page.wait_for_selector("#traces li")
    with page.expect_response("**/traces?*"):
        late[0].fulfill(json={"data": [], "last_id": None, "has_more": False})
    page.evaluate("fetch('ready').then((reply) => reply.json())")  # the late reply is read before this one
    assert page.locator("#traces li").count() == 1
    assert page.is_hidden("#recent-note:has-text('None yet')")


@pytest.mark.slow
def test_recent_traces_show_prompt_and_output_and_deleting_asks(serve, visit):
    page = visit(serve("Hello there"))
    page.select_option("#kind", "none")
    page.fill("#prompt", "Greet <b>me</b>")
    page.fill("#temperature", "0")
    generate(page)
    page.wait_for_selector("#traces li")
    assert page.inner_text("#traces .heads") == "Greet <b>me</b> → Hello there"
    page.click("#traces button:text-is('Delete')")
    assert page.evaluate("document.activeElement.textContent") == "Keep"
    page.click("#traces button:text-is('Keep')")
    assert page.locator("#traces li").count() == 1
    assert page.is_hidden("#traces .asks")
    delete(page)
    page.wait_for_selector("#recent-note:has-text('None yet')")
