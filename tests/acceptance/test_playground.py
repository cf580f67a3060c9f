"""The playground in headless Chromium against a real server: every kind of constraint, stop, faults beside their
fields, keys, kept traces, the keyboard, narrow screens; no console error, and no request to anywhere else."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")
pytest.importorskip("uvicorn")

import espalier
from espalier.engines.serving.service import Service
from tests.browsers import browser, in_chromium, playwright
from tests.server_app import fake_engine, make_app, served, settings

__all__ = ["browser"]  # a fixture

pytestmark = in_chromium
DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"
KEY = "sk-a-key-for-tests"
HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(2)>\u202eabc\u200bd\x1b[31m é {"a": 1}'


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The address of a server of the demo model, with a store."""
    base = tmp_path_factory.mktemp("demo")
    config = settings(trace_level="asked", database_url=f"sqlite:///{base}/a.db", model_alias="demo")
    with espalier.load(str(DEMO)) as engine, served(make_app(engine=engine, config=config)) as address:
        yield address


@pytest.fixture
def serve(tmp_path):
    """Serve the fake model that wishes for a text, until the end of the test."""
    with_key = {"secret_token": KEY}
    stack = []

    def start(wish: str, *, key: bool = False, **parts: Any) -> str:
        config = settings(trace_level="asked", database_url=f"sqlite:///{tmp_path}/a.db", **(with_key if key else {}))
        one = served(make_app(engine=fake_engine(wish), config=config, **parts))
        stack.append(one)
        return one.__enter__()

    yield start
    for one in stack:
        one.__exit__(None, None, None)


@pytest.fixture
def visit(browser):
    """Open the page of a server. At the end it must have had no error but those that the test expects, and must have
    asked nobody else for anything."""
    contexts, faults, allowed = [], [], []

    def load(address, *, expects=(), ready="#server b", width=1280, **options):
        allowed.extend(expects)
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: faults.append(str(e)))
        page.on("dialog", lambda d: (faults.append(d.message), d.dismiss()))
        own = (address, f"blob:{address}", "data:")
        context.on("request", lambda r: None if r.url.startswith(own) else faults.append(r.url))
        page.goto(address)
        page.wait_for_selector(ready)
        return page

    yield load
    for context in contexts:
        context.close()
    assert [fault for fault in faults if not any(part in fault for part in allowed)] == []


def generate(page):
    page.click("#go")
    done(page)


def delete(page):
    page.click("#traces li:nth-child(1) button:text-is('Delete')")
    page.click("#traces li:nth-child(1) button:text-is('Delete for good')")


def done(page):
    page.wait_for_selector("#go:not([disabled])")


def current(page):
    """The number in `Step N of 0–M`."""
    return int(page.locator("#panel").inner_text().split()[1])


class Gated(Service):
    """Holds the events of every run back after the first few, until `gate` opens; `left` says that a reader went."""

    def __init__(self, engine: Any, *, after: int) -> None:
        super().__init__(engine)
        self.gate, self.left, self._after = threading.Event(), threading.Event(), after

    def submit(self, request: Any, **options: Any) -> Any:
        return _Held(super().submit(request, **options), self, self._after)


class _Held:
    def __init__(self, running: Any, owner: Gated, after: int) -> None:
        self._running, self._owner, self._after = running, owner, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._running, name)

    async def bursts(self) -> Any:
        told = 0
        async for burst in self._running.bursts():
            for event in burst:  # one by one: how many come at once is a matter of time
                while told >= self._after and not self._owner.gate.is_set():
                    await asyncio.sleep(0.01)
                told += 1
                yield [event]

    def cancel(self) -> None:
        self._running.cancel()
        self._owner.left.set()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "json", "grammar", "regex", "choice", "wordlist", "object", "tools", "spec"])
def test_every_kind_of_constraint_is_generated_with_its_example(demo, visit, kind):
    page = visit(demo)
    page.select_option("#kind", kind)
    page.fill("#seed", "7")
    generate(page)
    assert page.locator("#ask .fault:not(:empty)").count() == 0
    assert page.inner_text("#status").startswith("Done: ")
    assert page.locator("#tokens [data-i]").count() == int(page.inner_text("#status").split()[1])
    verdict = page.locator("#stats .stat").first.inner_text()
    assert re.search(r"in total: (negligible|mild|strong|extreme)", page.inner_text("#stats"))
    assert ("Valid" in verdict) == (kind not in ("none", "grammar"))
    assert page.inner_text("#calls" if kind == "tools" else "#text").strip()
    if kind != "none":
        page.locator("#tokens .forb").first.click()
        said = page.inner_text("#panel")
        for words in ("top choice blocked", "Wanted", "Allowed", "Removed mass", "Tax", "Why it was refused"):
            assert words in said


def test_tokens_come_while_it_generates_and_stop_ends_it_on_the_server(serve, visit):
    held = []

    def gated(engine):
        held.append(Gated(engine, after=4))
        return held[0]

    page = visit(serve("abcdefghijklmnop", serve=gated))
    page.select_option("#kind", "regex")
    page.fill("#editor", "[a-z]{16}")
    page.fill("#temperature", "0")
    page.click("#go")
    page.wait_for_selector("#tokens [data-i='3']")
    assert page.locator("#tokens [data-i]").count() == 4
    assert page.is_disabled("#go")
    assert current(page) == 3, "the newest is shown while nobody points at another"
    assert not held[0].left.is_set()
    page.click("#stop")
    done(page)
    assert held[0].left.wait(60), "the server must have stopped"
    assert page.inner_text("#status") == "Stopped after 4 tokens."
    assert page.inner_text("#text") == "abcd"
    held[0].gate.set()
    generate(page)
    assert page.inner_text("#text") == "abcdefghijklmnop"


@pytest.mark.slow
def test_what_is_typed_while_it_generates_stays_and_a_chosen_token_is_not_taken_away(serve, visit):
    held = []

    def gated(engine):
        held.append(Gated(engine, after=6))
        return held[0]

    page = visit(serve("abcdefghijklmnop", serve=gated))
    page.select_option("#kind", "none")
    page.click("#go")
    page.wait_for_selector("#tokens [data-i='5']")
    page.locator("#tokens [data-i='2']").click()
    page.fill("#prompt", "n p / Another")
    held[0].gate.set()
    done(page)
    assert current(page) == 2
    assert page.input_value("#prompt") == "n p / Another"


@pytest.mark.slow
def test_hostile_text_stays_text_and_what_nobody_could_see_is_shown(serve, visit):
    page = visit(serve(HOSTILE))
    page.select_option("#kind", "none")
    page.fill("#temperature", "0")
    generate(page)
    assert page.locator("#text script, #text img, #tokens script, #tokens img, #panel img").count() == 0
    said = page.inner_text("#text")
    assert "<script>alert(1)</script><img src=x onerror=alert(2)>" in said
    for shown in ("U+202E", "U+200B", "␛"):
        assert shown in said
    for hidden in ("\u202e", "\u200b", "\x1b"):
        assert hidden not in page.inner_text("body")
    page.wait_for_selector("#traces li")
    page.evaluate("document.querySelector('#traces li').id = 'before'")
    page.click("#refresh")
    page.click("#traces li:not(#before) button:has-text('Look')")  # a row that is replaced takes no click
    page.wait_for_selector("#status:has-text('stored')")
    assert page.inner_text("#text") == said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "field", "text", "place", "words"),
    [
        ("json", "#editor", '{"type": "intger"}', "#constraint-fault", "structured_outputs.json"),
        ("json", "#editor", '{"type": ', "#constraint-fault", "not JSON"),
        ("grammar", "#editor", "root ::= (", "#constraint-fault", "structured_outputs.grammar"),
        ("regex", "#editor", "(a", "#constraint-fault", "structured_outputs.regex"),
        ("wordlist", "#lang", "xx", "#constraint-fault", "there is no word list for 'xx'"),
        ("wordlist", "#top", "0", "#constraint-fault", "at least 1"),
        ("spec", "#editor", '{"kind": "nothing"}', "#constraint-fault", "espalier.constraint"),
        ("none", "#temperature", "-1", "#temperature-fault", "temperature"),
        ("none", "#max_tokens", "-5", "#max_tokens-fault", "max_tokens"),
        ("none", "#top_p", "2", "#top_p-fault", "top_p"),
        ("none", "#top_k", "x", "#top_k-fault", "number"),
        ("none", "#others", '{"audio": {}}', "#others-fault", "audio"),
        ("none", "#prompt", " ", "#prompt-fault", "empty"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(demo, visit, kind, field, text, place, words):
    page = visit(demo, expects=["status of 400"])
    page.select_option("#kind", kind)
    page.evaluate("for (const box of document.querySelectorAll('details')) box.open = true")
    page.fill(field, text)
    generate(page)
    assert words in page.inner_text(place)
    assert page.get_attribute(field, "aria-invalid") == "true"
    assert page.locator("#ask .fault:not(:empty)").count() == 1
    assert page.evaluate("document.activeElement.id") == field[1:]
    page.select_option("#kind", "none")
    page.fill(field, "1" if field not in ("#others", "#prompt") else "{}") if page.is_visible(field) else None
    generate(page)
    assert page.locator("#ask .fault:not(:empty)").count() == 0


@pytest.mark.slow
def test_big_numbers_reach_the_server_as_they_were_written(demo, visit):
    page = visit(demo)
    page.select_option("#kind", "json")
    page.fill("#editor", '{"const": 12345678901234567890123}')
    sent = []
    page.on("request", lambda r: sent.append(r.post_data) if r.method == "POST" else None)
    generate(page)
    assert "12345678901234567890123" in sent[0]
    page.select_option("#kind", "spec")
    page.fill("#editor", '{"kind": "json_schema", "schema": {"const": 1.50}}')
    generate(page)
    assert '"const": 1.50' in sent[1]


@pytest.mark.slow
def test_a_server_with_a_key_says_nothing_without_it_and_the_key_stays_in_the_tab(serve, visit):
    address = serve("Hello", key=True)
    page = visit(address, expects=["status of 401"], ready="#door:not([hidden])")
    addresses = []
    page.on("request", lambda r: addresses.append(r.url))
    assert not page.is_visible("#work")
    assert not page.is_visible("#recent")
    page.fill("#key", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#key-fault:has-text('not valid')")
    page.fill("#key", KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector("#work:not([hidden])")
    page.select_option("#kind", "none")
    page.fill("#temperature", "0")
    generate(page)
    assert page.inner_text("#text") == "Hello"
    with page.expect_download() as download:
        page.click("#traces button:has-text('save')")
    kept = Path(download.value.path()).read_text(encoding="utf-8")
    assert kept.startswith("<!doctype html>")
    assert not any(KEY in url for url in addresses)
    stored = page.evaluate("[Object.values(sessionStorage), Object.values(localStorage), document.cookie]")
    assert stored == [[KEY], [], ""]
    page.reload()
    page.wait_for_selector("#work:not([hidden]) #go:not([disabled])")
    page.wait_for_selector("#traces li")
    page.click("#forget")
    assert page.is_visible("#door")
    assert page.evaluate("sessionStorage.length") == 0
    assert page.locator("#traces li").count() == 0
    assert "Hello" not in page.inner_text("body")


@pytest.mark.slow
def test_kept_traces_are_listed_looked_at_opened_and_deleted(serve, visit):
    page = visit(serve("Hello"))
    page.select_option("#kind", "none")
    page.fill("#temperature", "0")
    for _ in range(2):
        generate(page)
        page.wait_for_selector("#traces li")
    page.wait_for_selector("#traces li:nth-child(2)")
    steps = page.locator("#tokens [data-i]").count()
    page.reload()
    page.wait_for_selector("#traces li:nth-child(2)")
    page.click("#traces li:nth-child(2) button:has-text('Look')")
    page.wait_for_selector("#status:has-text('stored')")  # the example of the start has tokens too
    assert page.locator("#tokens [data-i]").count() == steps
    with page.context.expect_page() as opened:
        page.click("#traces li:nth-child(1) a")
    opened.value.wait_for_selector("#tokens [data-i='2']")
    opened.value.locator("#tokens [data-i='2']").click()
    assert current(opened.value) == 2
    delete(page)
    page.wait_for_selector("#traces li:nth-child(2)", state="detached")
    delete(page)
    page.wait_for_selector("#recent-note:has-text('None yet')")


@pytest.mark.slow
def test_it_is_used_with_the_keyboard_alone(demo, visit):
    page = visit(demo)
    page.focus("#prompt")
    page.keyboard.press("Control+a")
    page.keyboard.type("Generate user info")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#status:has-text('Done')")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('#tokens') !== null"):
            break
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert current(page) == 1
    page.keyboard.press("Enter")
    assert page.locator("#tokens [aria-selected=true]").get_attribute("data-i") == "1"
    page.keyboard.press("p")
    assert current(page) == 0
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('#text, #panel *, #output *, a, pre')")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_narrow_screen_in_both_schemes(demo, visit, scheme):
    page = visit(demo, width=360, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    generate(page)
    page.locator("#tokens [data-i='0']").click()
    page.wait_for_selector("#traces li")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(250, 248, 243)"
    assert light == (scheme == "light")


def test_the_policy_would_refuse_html_and_eval(demo, visit):
    page = visit(demo, expects=["Content Security Policy", "This document requires"])
    # In a callback: what the browser's own protocol evaluates may evaluate further.
    tried = page.evaluate(
        """() => new Promise((end) => setTimeout(() => { const found = [];
        try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); } catch (e) { found.push(e.name); }
        try { eval("1"); } catch (e) { found.push(e.name); }
        end(found); }))"""
    )
    assert tried == ["TypeError", "EvalError"]


@pytest.mark.slow
def test_a_preset_is_chosen_and_those_with_safety_filters_are_offered_too(demo, visit):
    page = visit(demo)
    page.wait_for_selector("#preset-field:not([hidden])")
    assert page.get_attribute("#preset option[value=safe_chat]", "disabled") is None
    page.select_option("#preset", "deterministic")
    page.select_option("#kind", "none")
    texts = set()
    for _ in range(2):
        generate(page)
        texts.add(page.inner_text("#text"))
    assert len(texts) == 1


@pytest.mark.slow
def test_calls_and_other_fields_of_a_request(demo, visit):
    page = visit(demo)
    page.select_option("#kind", "none")
    page.click("#more-box summary")
    tool = '{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}'
    page.fill("#others", f'{{"tools": [{tool}], "tool_choice": "required", "espalier": {{"max_calls": 1}}}}')
    generate(page)
    assert page.inner_text("#general-fault") == page.inner_text("#others-fault") == ""
    assert page.inner_text("#calls").startswith("look({")
    page.fill("#others", '{"stream": false}')
    generate(page)
    assert "stream is said by this page" in page.inner_text("#others-fault")


@pytest.mark.slow
def test_a_server_that_goes_away_is_said(serve, visit, tmp_path):
    page = visit(serve("Hello"), expects=["net::ERR", "Failed to load"])
    page.route("**/v1/chat/completions", lambda route: route.abort())
    generate(page)
    assert "cannot be reached" in page.inner_text("#general-fault")
    page.unroute("**/v1/chat/completions")
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body="data: {}", content_type="text/event-stream"))
    generate(page)
    assert "ended early" in page.inner_text("#general-fault")


@pytest.mark.slow
def test_a_typo_in_the_schema_is_a_warning_and_a_link_holds_the_whole_request(serve, visit):
    address = serve('{"a": 1}')
    page = visit(address)
    schema = '{"type": "object", "properties": {"a": {"const": 1}}, "requried": ["a"]}'
    page.fill("#editor", schema)
    page.fill("#prompt", "Grüße, <b>du</b>")
    page.fill("#temperature", "0")
    generate(page)
    assert "/requried is no keyword of JSON Schema" in page.locator("#warnings").inner_text()
    assert "did you mean `required`?" in page.locator("#warnings").inner_text()
    page.click("#link")
    playwright.expect(page.locator("#link-note")).not_to_be_empty()
    link = page.evaluate("location.href")
    assert link.startswith(f"{address}/#s=")
    other = visit(address)
    other.goto(link)
    other.reload()
    other.wait_for_selector("#server b")
    assert other.input_value("#editor") == schema
    assert other.input_value("#prompt") == "Grüße, <b>du</b>"
    assert other.input_value("#temperature") == "0"


@pytest.mark.slow
def test_with_and_without_in_one_click_then_a_conversation_and_a_link_that_holds_both(serve, visit):
    page = visit(serve("yes"))
    sent = []
    page.on("request", lambda r: sent.append(r.post_data_json) if r.method == "POST" else None)
    page.select_option("#kind", "choice")
    page.fill("#editor", "no\nnever")
    page.fill("#temperature", "0")
    page.click("#both")
    done(page)
    held, free = sorted(sent, key=lambda one: "structured_outputs" not in one)
    assert "structured_outputs" not in free
    assert "trace" not in free.get("espalier", {})
    assert held["seed"] == free["seed"]
    answer = page.inner_text("#text")
    assert answer in ("no", "never")
    assert page.inner_text("#free-text") == "yes"
    assert "not what the constraint asks for" in page.inner_text("#free-note")
    parted = page.inner_text("#parted")
    assert parted.startswith("They part at the first token: the model wanted y")
    assert "and the constraint pushed it to n" in parted
    page.click("#next")
    page.fill("#prompt", "Really?")
    page.select_option("#kind", "none")
    assert page.is_disabled("#both")
    generate(page)
    assert sent[-1]["messages"] == [
        {"role": "user", "content": "Generate user info"},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "Really?"},
    ]
    assert not page.is_visible("#free")
    page.select_option("#kind", "choice")
    page.click("#both")
    done(page)
    page.click("#link")
    again = page.context.new_page()
    again.goto(page.evaluate("location.href"))  # `page.url` learns of it later
    again.wait_for_selector("#server b")
    assert again.input_value("#prompt") == "Really?"
    assert [one.inner_text() for one in again.locator("#turns pre").all()] == ["Generate user info", answer]
    assert again.inner_text("#turns .under") == "Choices"
    assert again.get_attribute("#both", "aria-pressed") == "true"
    again.click("#turns button")
    assert again.input_value("#prompt") == "Generate user info"
    assert again.is_hidden("#talk")
