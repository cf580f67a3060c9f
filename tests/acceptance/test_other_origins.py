"""What a page of another origin can do with servers on the reader's own machine, in headless Chromium: nothing.

The page stands on another port of this machine. It asks with every content type that needs no permission, by `fetch`
and by a form that is sent off; a rebound name leads to this machine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")
pytest.importorskip("uvicorn")

from espalier.server.mcp.http import create_mcp_app
from espalier.server.process.opening import Parts
from espalier.settings import KernelSettings
from espalier.wiring import App
from tests.browsers import CHROMIUM, QUIET, in_chromium, playwright
from tests.proxies import OK, Asked, behind, files_of, proxied, proxy_settings
from tests.server_app import fake_engine, make_app, served, settings

pytestmark = in_chromium
ASK = """async ([url, method, type, body]) => {
    const form = new FormData();
    form.append("file", new Blob(['{"custom_id": "a"}']), "in.jsonl");
    form.append("purpose", "batch");
    const sent = {method, body: method === "GET" ? undefined : body ?? form, credentials: "include"};
    if (type) sent.headers = {"content-type": type};
    try {
        const reply = await fetch(url, sent);
        return [reply.status, await reply.text()];
    } catch (error) {
        return ["unread", String(error)];
    }
}"""
CHAT = '{"messages": [{"role": "user", "content": "a"}]}'
SIMPLE = (  # what a page may send to any server without asking: no preflight
    ("POST", "/v1/files", None, None),
    ("POST", "/v1/batch/jobs", None, None),
    ("POST", "/v1/chat/completions", "text/plain", CHAT),
    ("POST", "/api/chat", "text/plain", CHAT),
    ("POST", "/completion", "application/x-www-form-urlencoded", '{"prompt": "a"}'),
    ("POST", "/v1/chat/completions", "application/json", CHAT),
    ("GET", "/v1/models", None, None),
    ("GET", "/props", None, None),
)


class Page(BaseHTTPRequestHandler):
    """An empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """The address of another server of this machine, whose page it is."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def page(elsewhere: str) -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        rules = "--host-resolver-rules=MAP rebound.example 127.0.0.1,MAP evil 127.0.0.1"
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=[*QUIET, rules])
        opened = chromium.new_page()
        opened.goto(elsewhere)
        yield opened
        chromium.close()


def files_at(url: str) -> list[Any]:
    data: list[Any] = httpx2.get(f"{url}/v1/files").json()["data"]
    return data


@pytest.mark.slow
def test_a_page_of_another_origin_uploads_and_starts_nothing(page: Any, elsewhere: str, tmp_path: Path) -> None:
    config = settings(batch_jobs="true", trace_level="asked", database_url=f"sqlite:///{tmp_path}/e.db")
    with served(make_app(config=config)) as url:
        for method, path, kind, body in SIMPLE:
            status, text = page.evaluate(ASK, [url + path, method, kind, body])
            assert status == "unread", (path, text)
        page.set_content(
            f'<form method="post" enctype="multipart/form-data" action="{url}/v1/batch/jobs"><input name="a"></form>'
        )
        with page.expect_navigation() as navigation:
            page.evaluate("document.forms[0].submit()")
        assert navigation.value.status == 403
        page.goto(elsewhere)
        assert files_at(url) == []
        assert httpx2.get(f"{url}/v1/batches").json()["data"] == []
        page.goto(f"{url}/")  # its own page may
        status, text = page.evaluate(ASK, [f"{url}/v1/files", "POST", None, None])
        assert status == 200, text
        assert len(files_at(url)) == 1
        page.goto(elsewhere)


def test_a_named_origin_may(page: Any, elsewhere: str) -> None:
    with served(make_app(config=settings(cors_origins=elsewhere))) as url:
        for method, path, kind, body in SIMPLE[5:]:
            status, text = page.evaluate(ASK.replace('"include"', '"omit"'), [url + path, method, kind, body])
            assert status == 200, text


def test_a_link_from_elsewhere_opens_the_playground(page: Any, elsewhere: str) -> None:
    with served(make_app()) as url:
        page.set_content(f'<a href="{url}/">to the playground</a>')
        with page.expect_navigation() as navigation:
            page.click("a")
        assert navigation.value.status == 200
        page.goto(elsewhere)


@pytest.mark.parametrize("name", ["rebound.example", "evil"])
def test_a_name_that_leads_to_this_machine_reaches_nothing(page: Any, elsewhere: str, name: str) -> None:
    with served(make_app()) as url:
        there = f"http://{name}:{url.rpartition(':')[2]}"
        for path in ("/", "/v1/models"):
            assert page.goto(f"{there}{path}").status == 403
        # the page is of the rebound origin now, so that the browser lets it read all that it gets
        status, text = page.evaluate(ASK, [f"{there}/v1/chat/completions", "POST", "application/json", CHAT])
        assert (status, "ALLOWED_HOSTS" in text) == (403, True)
        page.goto(elsewhere)


def test_tools_over_mcp_are_not_called(page: Any) -> None:
    parts = Parts(app=App(KernelSettings()), engine=fake_engine(), takes_batches=False)
    with served(create_mcp_app(settings(), parts)) as url:
        begin = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
        for kind in ("text/plain", "application/json"):
            assert page.evaluate(ASK, [f"{url}/mcp", "POST", kind, begin])[0] == "unread"


@pytest.mark.slow
def test_a_llama_server_behind_the_proxy_is_not_opened_to_pages(page: Any, elsewhere: str, tmp_path: Path) -> None:
    """A llama-server lets every origin read, with credentials."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        origin = asked.header("origin") or elsewhere
        head = OK + f"access-control-allow-origin: {origin}\r\naccess-control-allow-credentials: true\r\n".encode()
        writer.write(head + b'content-length: 15\r\n\r\n{"content":"a"}')
        await writer.drain()

    with behind(answer) as server, proxied(proxy_settings(server.url, mode="xray", output_dir=tmp_path)) as url:
        for method, path, kind, body in SIMPLE[2:]:
            status, text = page.evaluate(ASK, [url + path, method, kind, body])
            assert status == "unread", (path, text)
        assert server.asked == []
        assert files_of(tmp_path) == []
        assert httpx2.post(f"{url}/completion", json={"prompt": "a"}).json() == {"content": "a"}  # a program may
        page.goto(f"{url}/props")
        assert page.evaluate(ASK, [f"{url}/completion", "POST", "application/json", '{"prompt": "a"}'])[0] == 200
        page.goto(elsewhere)
    with behind(answer) as server:
        config = settings(cors_origins=elsewhere)
        with proxied(proxy_settings(server.url), settings=config) as url:
            asked = [f"{url}/completion", "POST", "application/json", '{"prompt": "a"}']
            assert page.evaluate(ASK.replace('"include"', '"omit"'), asked)[0] == 200
            assert all(one.header("origin") is None for one in server.asked)
