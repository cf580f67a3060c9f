"""The playground in front of a llama-server, below `/espalier/`: its page, its API, its traces; and what stays the
server's."""

from __future__ import annotations

import json
import re

import httpx2
import pytest

from espalier.server.proxy import playground
from tests.ports import free_port
from tests.proxies import proxied, proxy_settings, server_settings
from tests.scripted_server import reply, scripted_server
from tests.server_app import events
from tests.unit.upstream.test_hostile_llama_server import PROPS, sound

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
ASK = {
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 8,
    "stream": True,
    "structured_outputs": {"choice": ["yes"]},
    "espalier": {"trace": "full"},
}


def llama(model="toy"):
    """A llama-server that answers `yes`, and has a page of its own."""

    def answer(asked):
        if asked.path == "/props":
            return [reply(PROPS | {"chat_template": TEMPLATE, "model_path": f"/m/{model}.gguf"})]
        if asked.path in ("/", "/espalier/", "/espalierx"):
            return [reply(b"the page of llama-server")]
        return sound(asked)

    return scripted_server(answer)


@pytest.fixture(autouse=True)
def looks_each_time(monkeypatch):
    monkeypatch.setattr(playground, "LOOK_SECONDS", 0.0)


@pytest.mark.slow
def test_the_page_is_complete_below_its_prefix_and_asks_the_server_nothing():
    with llama() as server, proxied(proxy_settings(server.address)) as url:
        first = httpx2.get(f"{url}/espalier")
        assert (first.status_code, first.headers["location"]) == (308, "espalier/")
        page = httpx2.get(f"{url}/espalier/")
        assert "connect-src 'self'" in page.headers["content-security-policy"]
        addresses = set(re.findall(r'(?:href|src)="([^"#]+)"', page.text))
        assert "traces" in addresses
        for address in addresses - {"traces"}:  # the list is the API's, which reads the server's properties first
            assert httpx2.get(f"{url}/espalier/{address}").status_code == 200, address
        assert "/espalier/v1" in httpx2.get(f"{url}/espalier/docs").text
        assert server.asked == []
        for path in ("/", "/espalierx"):  # the server's own
            assert httpx2.get(url + path).text == "the page of llama-server"


@pytest.mark.slow
def test_a_generation_through_the_server_keeps_to_its_constraint_and_its_trace_is_in_the_proxys_list():
    with llama() as server, proxied(proxy_settings(server.address)) as url:
        assert httpx2.get(f"{url}/espalier/ready").json()["status"] == "ok"
        assert httpx2.get(f"{url}/espalier/v1/models").json()["data"][0]["id"] == "toy.gguf"
        assert httpx2.get(f"{url}/espalier/version").json()["engine"] == "llama-server"
        assert httpx2.get(f"{url}/espalier/espalier/presets").json()["data"]
        answer = httpx2.post(f"{url}/espalier/v1/chat/completions", json=ASK, headers={"x-request-id": "req-of-mine"})
        assert (answer.status_code, answer.headers.get_list("x-request-id")) == (200, ["req-of-mine"])
        *chunks, done = events(answer.text)
        parts = [one for chunk in chunks for one in json.loads(chunk)["choices"]]
        assert ("".join(one["delta"].get("content") or "" for one in parts), done) == ("yes", "[DONE]")
        (row,) = httpx2.get(f"{url}/traces").json()["data"]
        assert row["request_id"] == "req-of-mine"
        assert httpx2.get(f"{url}/espalier/traces").json()["data"] == [row]
        assert "yes" in httpx2.get(f"{url}/espalier/traces/{row['id']}/page").text
        refused = httpx2.post(f"{url}/espalier/v1/chat/completions", json=ASK | {"safety": "x"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "safety")


def test_keys_and_limits_are_the_proxys():
    config = server_settings(secret_token="sk-of-the-proxy-1", requests_per_minute="2")
    key = {"authorization": "Bearer sk-of-the-proxy-1"}
    with llama() as server, proxied(proxy_settings(server.address), settings=config) as url:
        assert httpx2.get(f"{url}/espalier/").status_code == 200
        assert httpx2.post(f"{url}/espalier/v1/chat/completions", json=ASK).status_code == 401
        assert server.asked == []  # nobody without a key has the server asked
        ours = "/espalier/v1/chat/completions"
        asks = [httpx2.post(url + path, json=ASK, headers=key).status_code for path in (ours, "/completion", ours)]
        assert asks == [200, 200, 429]


def test_a_server_that_is_not_there_yet_is_named_and_one_with_another_model_is_opened_anew():
    with proxied(proxy_settings(f"http://127.0.0.1:{free_port()}")) as url:
        assert httpx2.get(f"{url}/espalier/").status_code == 200
        assert httpx2.get(f"{url}/espalier/ready").status_code == 503
        said = httpx2.get(f"{url}/espalier/v1/models")
        assert said.status_code == 502
        assert "127.0.0.1" in said.json()["error"]["message"]
    names = ["first", "second"]
    now = []

    def answer(asked):
        return [reply(PROPS | {"model_path": f"/m/{now[-1]}"})] if asked.path == "/props" else sound(asked)

    with scripted_server(answer) as server, proxied(proxy_settings(server.address)) as url:
        for name in names:
            now.append(name)
            assert httpx2.get(f"{url}/espalier/v1/models").json()["data"][0]["id"] == name


def test_without_it_every_path_is_the_servers():
    with llama() as server, proxied(proxy_settings(server.address, playground=False)) as url:
        assert httpx2.get(f"{url}/espalier/").text == "the page of llama-server"


@pytest.mark.parametrize("has_playground", [True, False])
def test_the_list_of_traces_led_to_a_playground_that_was_not_there(has_playground):
    with llama() as server, proxied(proxy_settings(server.address, playground=has_playground)) as url:
        page = httpx2.get(f"{url}/traces", headers={"accept": "text/html"}).text
    shown = json.loads(re.search(r'id="shown">(.*?)</script>', page)[1])
    assert shown["playground"] == ("espalier/" if has_playground else None)
