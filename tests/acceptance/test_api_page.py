"""The page `/docs` in headless Chromium: an example is sent from it, in the page's own policy, and fits a phone."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from tests.browsers import browser, in_chromium, playwright
from tests.server_app import fake_engine, make_app, served, settings

__all__ = ["browser"]  # a fixture

pytestmark = in_chromium
KEY = "sk-a-key-for-tests"


@pytest.mark.parametrize("key", ["", KEY])
def test_the_first_example_is_chat_and_is_tried_from_the_page(browser, key):
    config = settings(secret_token=key) if key else settings()
    with served(make_app(engine=fake_engine('{"name": "Ada", "age": 36}'), config=config)) as address:
        faults = []
        page = browser.new_page(viewport={"width": 400, "height": 900})
        page.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: faults.append(str(e)))
        page.on("request", lambda r: None if r.url.startswith((address, "data:")) else faults.append(r.url))
        page.goto(f"{address}/docs")
        first = page.locator("article").first
        assert "/v1/chat/completions" in first.inner_text()
        if key:
            page.fill("#key", key)
        first.locator(".try summary").click()
        first.locator(".try button").click()
        playwright.expect(first.locator("[role=status]")).to_contain_text("Status 200")
        reply = json.loads(first.locator("form pre").inner_text())
        assert json.loads(reply["choices"][0]["message"]["content"]) == {"name": "Ada", "age": 36}
        first.locator("textarea").fill("{")
        first.locator(".try button").click()
        playwright.expect(first.locator("[role=status]")).to_contain_text("Status 400")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        page.close()
        assert [fault for fault in faults if "status of 400" not in fault] == []
