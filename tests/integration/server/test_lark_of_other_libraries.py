"""What guidance and outlines send to a vLLM server, sent to ours with the demo model: Lark in `structured_outputs` and
in the older `guided_grammar`. The bodies are as guidance's `ll_grammar()` and outlines' `CFG` write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

import espalier
from tests.server_app import client

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Who?"}], "temperature": 0, "max_tokens": 60}
GUIDANCE = {
    "a text up to a stop": (
        '%llguidance {}\n\nstart: "Name: " name "Age: " age\n\nname[capture, stop="\\n"]: /(?s:.{0,12})/\n\n'
        "age[capture]: /[0-9]{1,2}/\n",
        r"Name: .{0,12}\nAge: [0-9]{1,2}",
    ),
    "a choice": ('%llguidance {}\n\nstart: "I am " mood\n\nmood[capture]: "calm" | "glad"\n', r"I am (calm|glad)"),
    "a lazy rule": ('%llguidance {}\n\nstart: "<" word ">"\n\nword[lazy]: /[a-z]{1,9}!/\n', r"<[a-z]{1,9}!>"),
    "options": ('%llguidance {"no_forcing": true}\n\nstart: "A" ("," "B")~2\n', r"A(,B){2}"),
}
OUTLINES = """
    ?start: sum
    ?sum: product | sum "+" product | sum "-" product
    ?product: atom | product "*" atom
    ?atom: NUMBER | "-" atom | "(" sum ")"
    NUMBER: /[0-9]{1,3}/
    %import common.WS_INLINE
    %ignore WS_INLINE
"""


@pytest.fixture(scope="module")
def http(demo_engine: espalier.LoadedEngine) -> Iterator[TestClient]:
    with client(engine=demo_engine) as http:
        yield http


def answer(http: TestClient, fields: dict[str, Any]) -> str:
    reply = http.post("/v1/chat/completions", json=CHAT | fields)
    assert reply.status_code == 200, reply.text
    content = reply.json()["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


@pytest.mark.parametrize("field", ["structured_outputs", "guided_grammar"])
@pytest.mark.parametrize("name", GUIDANCE)
def test_guidances_grammar_holds(http: TestClient, name: str, field: str) -> None:
    lark, pattern = GUIDANCE[name]
    more = {"structured_outputs": {"grammar": lark, "backend": "guidance"}}
    older = {"guided_grammar": lark, "guided_decoding_backend": "guidance"}
    assert re.fullmatch(pattern, answer(http, more if field in more else older))


def test_outlines_grammar_holds(http: TestClient) -> None:
    lark = pytest.importorskip("lark", reason="Lark itself is not installed")
    text = answer(http, {"structured_outputs": {"grammar": OUTLINES}, "max_tokens": 200})
    lark.Lark(OUTLINES).parse(text)  # raises for a text that is none


def test_a_limit_of_tokens_within_the_grammar_is_refused_with_the_way_to_say_it(http: TestClient) -> None:
    lark = "%llguidance {}\n\nstart: name\n\nname[max_tokens=12]: /.*/\n"
    reply = http.post("/v1/chat/completions", json=CHAT | {"structured_outputs": {"grammar": lark}})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert "max_tokens of a rule" in error["message"]
    assert '"max_tokens": 12' in error["message"]
    assert '"espalier": {"max_reasoning": 12}' in error["message"]
