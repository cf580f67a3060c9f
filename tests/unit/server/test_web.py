"""The playground at `/`: public, complete, with a strict policy, without data of the server; steps in a stream."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from espalier.sampling.presets.catalogue import Presets
from espalier.server.routes.web import PARTS, _preset
from tests.server_app import OneKeyGate, client, events

ROUTE = "/v1/chat/completions"
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 12,
    "stream": True,
    "temperature": 0,
}


def streamed(c: Any, **more: Any) -> list[dict[str, Any]]:
    reply = c.post(ROUTE, json=ASK | more)
    assert reply.status_code == 200, reply.text
    return [json.loads(one) for one in events(reply.text) if one != "[DONE]"]


def test_the_page_allows_nothing_inline_nothing_from_elsewhere_and_no_frame() -> None:
    with client() as c:
        reply = c.get("/", headers=BROWSER)
    policy = dict(part.strip().partition(" ")[::2] for part in reply.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert (
        policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == policy["trusted-types"] == "'none'"
    )
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|https?://", reply.text)


def test_every_file_that_the_page_names_is_there_and_is_named_relatively() -> None:
    with client() as c:
        named = re.findall(r'(?:href|src)="([^"#]+)"', c.get("/", headers=BROWSER).text)
        assert "playground/playground.js" in named
        for address in named:
            assert not address.startswith("/"), "a server may stand below a path"
            assert c.get(f"/{address}", headers=BROWSER).status_code == 200, address
        for name, kind in PARTS.items():
            reply = c.get(f"/playground/{name}")
            assert reply.headers["content-type"].partition(";")[0] == kind
            for imported in re.findall(r'from "\./([^"]+)"', reply.text):
                assert imported in PARTS


def test_no_script_writes_html_or_evaluates_text() -> None:
    with client() as c:
        for name in (name for name in PARTS if name.endswith(".js")):
            found = re.search(
                r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|localStorage|DOMParser",
                c.get(f"/playground/{name}").text,
            )
            assert found is None, (name, found)


@pytest.mark.parametrize("name", ["trace.html", "__init__.py", "..%2Fpages%2Ftrace.js", "playground.html", "x"])
def test_nothing_else_of_the_package_can_be_read(name: str) -> None:
    with client() as c:
        assert c.get(f"/playground/{name}").status_code == 404


def test_an_unchanged_file_is_not_sent_again_and_a_head_has_no_body() -> None:
    with client() as c:
        first = c.get("/playground/inspector.js")
        again = c.get("/playground/inspector.js", headers={"if-none-match": f'"x", {first.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert c.head("/", headers=BROWSER).content == b""
        assert c.get("/favicon.ico").headers["content-type"] == "image/svg+xml"


def test_the_page_needs_no_key_and_says_the_same_with_and_without_one_and_presets_need_it() -> None:
    with client(gate=OneKeyGate()) as c:
        key = {"authorization": "Bearer sk-good"}
        assert c.get("/", headers=BROWSER).content == c.get("/", headers=BROWSER | key).content
        assert c.get("/espalier/presets").status_code == 401
        presets = {one["id"]: one for one in c.get("/espalier/presets", headers=key).json()["data"]}
    assert presets["deterministic"]["problem"] is None
    assert presets["safe_chat"]["problem"] is None


def test_a_preset_that_cannot_be_used_says_why_and_names_no_path(tmp_path: Path) -> None:
    folder = tmp_path / "presets"
    folder.mkdir()
    (folder / "broken.toml").write_text("x = \n")
    (folder / "odd.toml").write_text('[[filters]]\ntype = "nowhere"\n')
    presets = Presets(folder=folder)
    assert _preset(presets, "broken")["problem"] == "its file is broken"
    assert "nowhere" in _preset(presets, "odd")["problem"]


def test_each_step_comes_with_its_token_and_not_again_at_the_end() -> None:
    with client("Sure! 12") as c:
        ours = {"trace": "full", "stream_steps": True}
        chunks = streamed(c, structured_outputs={"regex": "[0-9]{2}"}, espalier=ours)
        whole = c.post(
            ROUTE,
            json=ASK | {"stream": False, "structured_outputs": {"regex": "[0-9]{2}"}, "espalier": {"trace": "full"}},
        ).json()
    told = [step for chunk in chunks for step in chunk.get("espalier", {}).get("steps", ())]
    assert [step["step"] for step in told] == list(range(len(told)))
    assert "".join(step["token"]["text"] for step in told if not step["token"]["is_special"]) == "12"
    assert told[0]["removed_mass"] > 0.5
    assert not told[0]["pre_masking"][0]["allowed"]
    assert told[0]["blame"]["reason"]
    (last,) = [chunk["espalier"]["outputs"][0] for chunk in chunks if "outputs" in chunk.get("espalier", {})]
    assert "trace" not in last
    assert last["summary"]["total_steps"] == len(told)
    steps = whole["espalier"]["outputs"][0]["trace"]["steps"]
    assert {key for step in told for key in step} - {"index"} == set(steps[0])


def test_steps_of_several_outputs_say_whose_they_are() -> None:
    with client("ab") as c:
        chunks = streamed(c, n=2, espalier={"trace": "summary", "stream_steps": True})
    told = [step for chunk in chunks for step in chunk.get("espalier", {}).get("steps", ())]
    assert {step["index"] for step in told} == {0, 1}
    assert all(step["pre_masking"] == [] for step in told), "measures are told where only measures were asked for"


def test_a_stream_without_the_wish_has_no_steps() -> None:
    with client() as c:
        chunks = streamed(c, espalier={"trace": "full"})
    assert not any("steps" in chunk.get("espalier", {}) for chunk in chunks)


@pytest.mark.parametrize(
    "body", [{"stream": False, "espalier": {"trace": True, "stream_steps": True}}, {"espalier": {"stream_steps": True}}]
)
def test_steps_without_a_stream_or_a_trace_are_refused(body: dict[str, Any]) -> None:
    with client() as c:
        reply = c.post(ROUTE, json=ASK | body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "espalier.stream_steps")
