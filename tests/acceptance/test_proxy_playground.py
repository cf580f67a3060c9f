"""The playground of a proxy in headless Chromium: a real llama-server generates behind it."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("xllamacpp", reason="xllamacpp (a real llama-server) is not installed")

from tests.acceptance.test_playground import DEMO, browser, generate, pytestmark, visit  # noqa: F401
from tests.llama_server import llama_server
from tests.proxies import proxied, proxy_settings


@pytest.mark.slow
def test_a_user_generates_through_the_llama_server_and_sees_the_trace(visit):  # noqa: F811
    with llama_server(DEMO / "demo.gguf") as server, proxied(proxy_settings(server.address, mode="xray")) as url:
        page = visit(f"{url}/espalier/")
        page.wait_for_selector("#work:not([hidden])")
        page.select_option("#kind", "json")
        page.fill("#seed", "7")
        generate(page)
        assert page.inner_text("#status").startswith("Done: ")
        assert "✓ Valid" in page.locator("#stats .stat").first.inner_text()
        page.locator("#tokens [data-i]").first.click()
        assert "Wanted" in page.inner_text("#panel")
        assert "was allowed" not in page.inner_text("#panel")  # the server does not say that
        page.click("#refresh")
        page.wait_for_selector("#traces li")
        listed = page.locator("#traces li").first.inner_text()
        assert re.search(r"\d rejected, \d+ not known, \d+ with bounds only", listed)
        page.close()  # it asks how the server is, which is gone after this line
