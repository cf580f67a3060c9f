"""The middlewares for vLLM's server: a constraint beside beam search is refused, stock constraints become ours where
that is asked for, and all else passes as it came."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.engine_doubles import HAS_VLLM  # noqa: F401  # the package imports vLLM's interface

pytest.importorskip("torch", reason="torch is not installed")

from espalier.integrations.asked import read_asked
from espalier.integrations.vllm.http import ConstraintGuard, StockConstraints
from espalier.wiring import build_app


def passed(
    *chunks: bytes, method: str = "POST", by: type[ConstraintGuard] = ConstraintGuard, **headers: str
) -> tuple[bytes, list[Any]]:
    """What the application behind got, and what was sent."""
    got: list[bytes] = []
    listed = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    sent: list[Any] = []
    coming = [{"type": "http.request", "body": one, "more_body": one is not chunks[-1]} for one in chunks]

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            got.append(message["body"])
            more = message["more_body"]
        lengths = [int(value) for name, value in scope["headers"] if name == b"content-length"]
        assert all(length == len(b"".join(got)) for length in lengths)

    async def receive() -> Any:
        return coming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(by(behind)({"type": "http", "method": method, "headers": listed}, receive, send))
    return b"".join(got), sent


def body(**fields: Any) -> bytes:
    return json.dumps({"prompt": "a", **fields}).encode()


CONSTRAINED = {"vllm_xargs": {"espalier": '{"grammar": "root ::= \\"a\\""}'}}


def test_beam_search_beside_a_constraint_is_refused_by_name() -> None:
    asked = body(use_beam_search=True, **CONSTRAINED)
    got, sent = passed(asked[:20], asked[20:])
    assert got == b""
    assert sent[0]["status"] == 400
    assert json.loads(sent[1]["body"])["error"]["param"] == "use_beam_search"


@pytest.mark.parametrize(
    "asked",
    [
        body(use_beam_search=False, **CONSTRAINED),
        body(**CONSTRAINED),
        body(use_beam_search=True),
        body(use_beam_search=True, vllm_xargs={"other": "espalier"}),
        b'{"use_beam_search": true, "espalier": ',
        b'["use_beam_search", "espalier"]',
        b"",
    ],
)
def test_all_else_passes_as_it_came(asked: bytes) -> None:
    assert passed(asked[:7], asked[7:]) == (asked, [])
    assert passed(asked, method="GET") == (asked, [])


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
STATED = {"type": "json_schema", "json_schema": {"name": "one", "schema": SCHEMA}}
ASKED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"response_format": STATED}, {"json_schema": SCHEMA}),
    ({"response_format": {"type": "json_object"}}, {"constraint": {"kind": "json_object"}}),
    ({"structured_outputs": {"json": SCHEMA}}, {"json_schema": SCHEMA}),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, {"json_schema": SCHEMA}),
    ({"structured_outputs": {"json_object": True}}, {"constraint": {"kind": "json_object"}}),
    ({"structured_outputs": {"regex": "a+"}}, {"constraint": {"kind": "regex", "pattern": "a+"}}),
    ({"structured_outputs": {"choice": ["a", "b"]}}, {"constraint": {"kind": "choice", "options": ["a", "b"]}}),
    (
        {"structured_outputs": {"grammar": 'root ::= "a"'}, "response_format": {"type": "text"}},
        {"grammar": 'root ::= "a"'},
    ),
]


@pytest.mark.parametrize(("fields", "ours"), ASKED)
def test_a_stock_constraint_becomes_ours_with_a_report(fields: dict[str, Any], ours: dict[str, Any]) -> None:
    asked = body(**fields)
    got, sent = passed(asked[:9], asked[9:], by=StockConstraints, content_length=str(len(asked)), x_request_id="r7")
    behind = json.loads(got)
    assert json.loads(behind.pop("vllm_xargs")["espalier"]) == {**ours, "report": True, "id": "r7"}
    assert (behind, sent) == ({"prompt": "a"}, [])


@pytest.mark.parametrize(("fields", "ours"), ASKED)
def test_our_processor_reads_every_stock_constraint(fields: dict[str, Any], ours: dict[str, Any]) -> None:
    constraint = read_asked({"espalier": ours}, build_app())
    assert constraint is not None


def test_extra_arguments_of_others_stay_and_a_bias_leaves_no_report() -> None:
    got, _ = passed(
        body(response_format={"type": "json_object"}, vllm_xargs={"x": 1}, logit_bias={"7": 1}), by=StockConstraints
    )
    extra = json.loads(got)["vllm_xargs"]
    assert (extra["x"], json.loads(extra["espalier"])) == (1, {"constraint": {"kind": "json_object"}})


def test_beam_search_beside_a_stock_constraint_is_refused() -> None:
    got, sent = passed(body(use_beam_search=True, response_format=STATED), by=StockConstraints)
    assert (got, sent[0]["status"]) == (b"", 400)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "structural_tag", "structures": []}},
        {"response_format": {"type": "json_schema"}},
        {"response_format": "json"},
        {"response_format": {"type": ["text"]}},
        {"structured_outputs": {"structural_tag": "{}"}},
        {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
        {"structured_outputs": {"json": SCHEMA, "regex": "a"}},
        {"structured_outputs": {"regex": "a"}, "response_format": STATED},
        {"structured_outputs": []},
        {"structured_outputs": {}},
        {"response_format": STATED, "tools": [{}], "tool_choice": "required"},
        {"response_format": STATED, **CONSTRAINED},
    ],
)
def test_what_is_vllms_own_stays_with_vllm(fields: dict[str, Any]) -> None:
    asked = body(**fields)
    assert passed(asked, by=StockConstraints) == (asked, [])
