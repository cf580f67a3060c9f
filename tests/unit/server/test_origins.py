"""Which host names a server answers to, and what pages of other origins may send, on every route."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

pytest.importorskip("fastapi", reason="the extra [server] is not installed")

from starlette.datastructures import Headers
from starlette.testclient import TestClient

from espalier.errors import InputError
from espalier.server.admit.origins import is_foreign_page, is_known_host, refuses_connection
from espalier.server.asgi import OriginGuard
from tests.server_app import client, make_app, served, settings
from tests.unit.server.test_every_route import FREE, declared

LOCAL = "127.0.0.1"


@pytest.mark.parametrize(
    ("server", "refused"),
    [(LOCAL, False), ("::1", False), ("testserver", False), (None, False), ("192.168.0.5", True), ("::", True)],
)
def test_without_keys_a_connection_to_another_address_is_refused(server: str | None, refused: bool) -> None:
    assert refuses_connection(server) is refused


@pytest.mark.parametrize(
    ("server", "host", "names", "known"),
    [
        (LOCAL, "127.0.0.1:8010", (), True),
        ("::1", "[::1]:8010", (), True),
        (LOCAL, "localhost:8010", (), True),
        (LOCAL, "LOCALHOST", (), True),
        (LOCAL, "app.localhost:1", (), True),
        (LOCAL, None, (), True),
        (LOCAL, "evil", (), False),
        (LOCAL, "evil:8010", (), False),
        (LOCAL, "rebound.example.org:8010", (), False),
        (LOCAL, "localhost.example.org", (), False),
        (LOCAL, "127.0.0.1.nip.io", (), False),
        (LOCAL, "0.0.0.0:8010", (), False),
        (LOCAL, "192.168.0.5", (), False),
        (LOCAL, "[fe80::1]:8010", (), False),
        (LOCAL, "llm.example.org", ("llm.example.org",), True),
        (LOCAL, "LLM.example.org:443", ("llm.example.org",), True),
        (LOCAL, "other.example.org", ("llm.example.org",), False),
        (LOCAL, "a.example.org", ("*.example.org",), True),
        (LOCAL, "example.org", ("*.example.org",), False),
        (LOCAL, "badexample.org", ("*.example.org",), False),
        (LOCAL, "anything.at.all", ("*",), True),
        (LOCAL, "192.168.0.5:8010", ("192.168.0.5",), True),
        ("/run/e.sock", "espalier", (), True),  # no browser comes by a UNIX socket
        ("/run/e.sock", "evil.example", (), False),
        ("testserver", "testserver", (), True),
    ],
)
def test_a_host_is_this_machines_or_named(server: str, host: str | None, names: tuple[str, ...], known: bool) -> None:
    assert is_known_host(host, names, server=server) is known


LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize(
    ("method", "headers", "foreign"),
    [
        ("POST", {}, False),  # a program
        ("POST", {"origin": "http://localhost:8010"}, False),
        ("POST", {"origin": "https://localhost:8010"}, False),  # TLS ends before this server
        ("POST", {"origin": "http://localhost:8010", "sec-fetch-site": "same-origin"}, False),
        ("POST", {"origin": "https://llm.example", "sec-fetch-site": "same-origin"}, False),  # a proxy changed Host
        ("POST", {"origin": "https://friend.example", "sec-fetch-site": "cross-site"}, False),
        ("GET", {"sec-fetch-site": "none"}, False),  # typed
        ("GET", LINK, False),
        ("POST", {**LINK, "origin": "https://evil.example"}, True),  # a form that is sent off
        ("GET", {**LINK, "sec-fetch-dest": "iframe"}, True),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, True),
        ("POST", {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}, True),
        ("POST", {"origin": "http://localhost:3000"}, True),
        ("POST", {"origin": "null"}, True),
        ("POST", {"origin": "null", "sec-fetch-site": "none"}, True),
        ("GET", {"origin": "https://evil.example"}, True),
        ("DELETE", {"origin": "http://[half"}, True),
        ("DELETE", {"origin": ""}, True),
    ],
)
def test_a_page_is_foreign_unless_its_origin_is_the_servers_or_named(
    method: str, headers: dict[str, str], foreign: bool
) -> None:
    sent = Headers({"host": "localhost:8010", **headers})
    assert is_foreign_page(method, sent, ("https://friend.example",)) is foreign
    assert not is_foreign_page(method, sent, ("*",))


@pytest.mark.parametrize("host", ["llm.example", "llm.example:443"])
def test_the_default_port_may_be_left_out(host: str) -> None:
    assert not is_foreign_page("POST", Headers({"host": host, "origin": "https://llm.example"}), ())
    assert is_foreign_page("POST", Headers({"host": host, "origin": "https://llm.example:8443"}), ())


@pytest.fixture(scope="module")
def everything() -> Iterator[TestClient]:
    with client(config=settings(wordlist_server_compat="true")) as api:
        yield api


TYPES = ("application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "")


@pytest.mark.slow
def test_no_route_takes_anything_from_a_page_of_another_origin(everything: TestClient) -> None:
    """Whatever the route, the method and the content type: a form needs no permission of the server's."""
    routes = [(method, path) for method, path in declared(make_app().routes) if path not in FREE]
    assert len(routes) > 80
    for method, path in routes:
        for kind in TYPES if method == "POST" else ("",):
            headers = {"origin": "https://evil.example", "sec-fetch-site": "cross-site", "content-type": kind}
            reply = everything.request(method, path, headers=headers, content=b"{}" if method == "POST" else None)
            assert reply.status_code == 403, (method, path, kind)
            assert not any(name.startswith("access-control-") for name in reply.headers)


def test_the_refusal_says_what_allows_it() -> None:
    with client() as api:
        reply = api.post("/v1/chat/completions", json={}, headers={"origin": "https://a.example"}).json()["error"]
        assert "CORS_ORIGINS" in reply["message"]
        assert reply["code"] == "forbidden"
        assert "ALLOWED_HOSTS" in api.get("/v1/models", headers={"host": "a.example"}).json()["error"]["message"]


def test_a_dotless_host_is_refused_where_a_browser_could_come_from() -> None:
    with served(make_app()) as url:
        assert httpx2.get(f"{url}/v1/models", headers={"host": "evil"}).status_code == 403
        assert httpx2.get(f"{url}/health", headers={"host": "evil"}).status_code == 200
        assert httpx2.get(f"{url}/v1/models", headers={"host": "localhost"}).status_code == 200
    with served(make_app(config=settings(allowed_hosts="evil"))) as url:
        assert httpx2.get(f"{url}/v1/models", headers={"host": "evil"}).status_code == 200


def test_with_keys_every_host_is_answered_unless_some_are_named() -> None:
    key = {"authorization": "Bearer a-long-enough-key"}
    with served(make_app(config=settings(secret_token="a-long-enough-key"))) as url:
        assert httpx2.get(f"{url}/v1/models", headers=key | {"host": "llm.example"}).status_code == 200
    config = settings(secret_token="a-long-enough-key", allowed_hosts="llm.example")
    with served(make_app(config=config)) as url:
        assert httpx2.get(f"{url}/v1/models", headers=key | {"host": "llm.example"}).status_code == 200
        assert httpx2.get(f"{url}/v1/models", headers=key | {"host": "other.example"}).status_code == 403
        assert httpx2.get(f"{url}/v1/models", headers=key).status_code == 200


def test_a_websocket_has_the_same_rule() -> None:
    """No route is one today; one that comes, or a server behind a proxy, is behind the same check."""
    passed: list[str] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope["type"])

    class App:
        state = object()

    async def ask(**headers: str) -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        raw = [(name.encode(), value.encode()) for name, value in {"host": "localhost:1", **headers}.items()]
        scope = {"type": "websocket", "path": "/live", "headers": raw, "app": App(), "server": (LOCAL, 1)}
        await OriginGuard(inner, settings=settings())(scope, None, send)  # type: ignore[arg-type]
        return sent

    assert asyncio.run(ask()) == []
    assert passed == ["websocket"]
    assert [message["type"] for message in asyncio.run(ask(origin="http://evil.example"))] == ["websocket.close"]
    assert passed == ["websocket"]


@pytest.mark.parametrize("name", ["https://a.example", "a.example/x", "a.example:80", "a b"])
def test_a_setting_that_is_no_host_name_is_an_error(name: str) -> None:
    with pytest.raises(InputError, match="ALLOWED_HOSTS"):
        settings(allowed_hosts=name)


def test_origins_of_programs_with_pages_can_be_named() -> None:
    assert settings(cors_origins="app://obsidian.md,https://a.example").cors_origins[0] == "app://obsidian.md"
    for wrong in ("a.example", "https://a.example/x", "https://"):
        with pytest.raises(InputError, match="CORS_ORIGINS"):
            settings(cors_origins=wrong)
