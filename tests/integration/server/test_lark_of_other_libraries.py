"""What guidance and outlines send to a vLLM server, sent to ours with the demo model: Lark in `structured_outputs` and
in the older `guided_grammar`. The bodies are as guidance's `ll_grammar()` and outlines' `CFG` write them."""

from __future__ import annotations

import json
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


JSON_IN_A_RULE = """%llguidance {}

start: "Person: " person ", " again
person[capture]: %json {
    "type": "object",
    "properties": {"mood": {"enum": ["calm", "glad"]}, "age": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["mood", "age"],
    "additionalProperties": false
}
again: %regex {"substring_words": "calm or glad"}
"""


def test_json_and_parts_of_a_text_within_a_rule_hold(http: TestClient) -> None:
    text = answer(http, {"structured_outputs": {"grammar": JSON_IN_A_RULE}, "max_tokens": 120})
    head, _, again = text.removeprefix("Person: ").rpartition(", ")
    person = json.loads(head)
    assert person["mood"] in ("calm", "glad")
    assert 1 <= person["age"] <= 99
    assert again in "calm or glad"


def test_a_rule_ends_after_its_tokens(http: TestClient) -> None:
    lark = '%llguidance {}\n\nstart: "<" name ">"\n\nname[max_tokens=3]: /[a-z ]{40}/\n'
    text = answer(http, {"structured_outputs": {"grammar": lark}})
    assert re.fullmatch(r"<[a-z ]*>", text)
    counted = http.post("/tokenize", json={"content": text[1:-1]}).json()
    assert 1 <= len(counted["tokens"]) <= 4, text  # the first token may begin before the rule


def test_the_temperature_of_a_rule_is_taken_and_named_in_the_warning(http: TestClient) -> None:
    lark = "%llguidance {}\n\nstart: name\n\nname[temperature=0.5]: /[a-z]{1,9}/\n"
    reply = http.post("/v1/chat/completions", json=CHAT | {"structured_outputs": {"grammar": lark}})
    assert reply.status_code == 200, reply.text
    assert "temperature=0.5 of a rule is not used" in reply.headers["warning"]
    assert re.fullmatch("[a-z]{1,9}", reply.json()["choices"][0]["message"]["content"])


def test_a_keyword_that_no_grammar_holds_is_refused_by_its_pointer(http: TestClient) -> None:
    lark = 'start: a\na: %json {"type": "array", "uniqueItems": true, "items": {"type": "object"}}\n'
    reply = http.post("/v1/chat/completions", json=CHAT | {"structured_outputs": {"grammar": lark}})
    assert reply.status_code == 400
    assert "uniqueItems" in reply.json()["error"]["message"]
