"""64 mixed requests at once over HTTP on both in-process engines: each gets the reply that it gets alone."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("torch")

import httpx2
import jsonschema

import espalier
from espalier.engine_table import open_engine
from espalier.engines.options import EngineOptions
from tests.server_app import make_app, served, settings

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

DEMO = Path(__file__).resolve().parents[3] / "models" / "demo"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
REGEX, CHOICES = r"[A-Z][a-z]{2,8}-\d{2}", ["red", "green", "blue", "nothing of all that"]
GRAMMAR = 'root ::= "[" [a-z]{1,6} ("," [a-z]{1,6}){0,3} "]"'
TOOL = {"type": "function", "function": {"name": "save", "strict": True, "parameters": SCHEMA}}
NAMED = {"type": "json_schema", "json_schema": {"name": "user", "strict": True, "schema": SCHEMA}}


def fits_schema(message: dict[str, Any]) -> None:
    jsonschema.validate(json.loads(message["content"]), SCHEMA)


def fits_regex(message: dict[str, Any]) -> None:
    assert re.fullmatch(REGEX, message["content"])


def fits_choice(message: dict[str, Any]) -> None:
    assert message["content"] in CHOICES


def fits_grammar(message: dict[str, Any]) -> None:
    assert re.fullmatch(r"\[[a-z]{1,6}(,[a-z]{1,6}){0,3}\]", message["content"])


def fits_object(message: dict[str, Any]) -> None:
    assert isinstance(json.loads(message["content"]), dict)


def fits_tools(message: dict[str, Any]) -> None:
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "save"
    jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)


def fits_all(message: dict[str, Any]) -> None:
    """Nothing was asked of it."""


KINDS: tuple[tuple[dict[str, Any], Any], ...] = (
    ({"response_format": NAMED}, fits_schema),
    ({"structured_outputs": {"regex": REGEX}}, fits_regex),
    ({"structured_outputs": {"choice": CHOICES}}, fits_choice),
    ({"grammar": GRAMMAR}, fits_grammar),
    ({"response_format": {"type": "json_object"}}, fits_object),
    ({"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}, fits_tools),
    ({}, fits_all),
)
PROMPTS = ("Generate user info", "Name a colour of the sea", "Hi")


def transformers_engine() -> Any:
    pytest.importorskip("transformers")
    return open_engine(str(DEMO), options=EngineOptions(device="cpu", dtype="float32"))


def llamacpp_engine() -> Any:
    pytest.importorskip("llama_cpp")
    return open_engine(str(DEMO / "demo.gguf"), options=EngineOptions(kv_type="f32", flash_attention="off", threads=1))


@pytest.fixture(scope="module", params=[transformers_engine, llamacpp_engine], ids=["transformers", "llamacpp"])
def api(request: pytest.FixtureRequest) -> Iterator[Any]:
    with espalier.LoadedEngine(request.param()) as loaded:
        yield make_app(engine=loaded, config=settings())


def body(number: int) -> dict[str, Any]:
    kind, _ = KINDS[number % len(KINDS)]
    prompt = PROMPTS[number // len(KINDS) % len(PROMPTS)]
    return {
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "seed": 0,
        "max_tokens": 40,
        "stream": number % 2 == 1,
        **kind,
    }


PERIOD = len(KINDS) * len(PROMPTS)


def gathered(chunks: list[dict[str, Any]]) -> tuple[dict[str, Any], str | None]:
    """The message and the finish reason of a stream."""
    content, calls, finish = "", {}, None
    for chunk in chunks:
        (choice,) = chunk["choices"]
        content += choice["delta"].get("content") or ""
        finish = choice["finish_reason"] or finish
        for part in choice["delta"].get("tool_calls", ()):
            call = calls.setdefault(part["index"], {"function": {"name": "", "arguments": ""}})
            for name in ("name", "arguments"):
                call["function"][name] += part["function"].get(name) or ""
    return {"content": content or None, **({"tool_calls": [*calls.values()]} if calls else {})}, finish


def plain(message: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    calls = [(one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls") or ()]
    return message.get("content") or "", calls


async def ask(http: httpx2.AsyncClient, number: int, *, leaves_after: int | None = None) -> Any:
    """(message, finish reason); of one that leaves, the text that it has read."""
    sent = body(number)
    if not sent["stream"]:
        if leaves_after is not None:
            asking = asyncio.create_task(http.post("/v1/chat/completions", json=sent))
            for _ in range(leaves_after):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            return "", None
        answer = await http.post("/v1/chat/completions", json=sent)
        assert answer.status_code == 200, answer.text
        (choice,) = answer.json()["choices"]
        return choice["message"], choice["finish_reason"]
    chunks: list[dict[str, Any]] = []
    async with http.stream("POST", "/v1/chat/completions", json=sent) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                chunks.append(json.loads(line.removeprefix("data: ")))
                assert "error" not in chunks[-1], chunks[-1]
            if leaves_after is not None and len(chunks) >= leaves_after:
                return plain(gathered(chunks)[0])[0], None
        assert line == "data: [DONE]" or not line
    return gathered(chunks)


def test_64_mixed_requests_at_once_each_as_alone(api: Any) -> None:
    leaving = {number for number in range(64) if number % 9 == 4}

    async def main(url: str) -> tuple[list[Any], list[Any]]:
        limits = httpx2.Limits(max_connections=80)
        async with httpx2.AsyncClient(base_url=url, timeout=300, limits=limits) as http:
            alone = [await ask(http, number) for number in range(PERIOD)]
            together = await asyncio.gather(
                *(ask(http, number, leaves_after=4 if number in leaving else None) for number in range(64))
            )
            async with asyncio.timeout(120):  # those who left are seen to have gone within a step
                while (await http.get("/ready")).json() != {"status": "ok", "running": 0, "waiting": 0}:
                    pass
            return alone, together

    with served(api) as url:
        alone, together = asyncio.run(main(url))
    judged: Counter[str] = Counter()
    for number, (message, finish) in enumerate(together):
        wanted, its_finish = alone[number % PERIOD]
        if number in leaving:
            assert plain(wanted)[0].startswith(message)
            continue
        assert (plain(message), finish) == (plain(wanted), its_finish), number
        if finish != "length":
            _, fits = KINDS[number % len(KINDS)]
            fits(message)
            judged[fits.__name__] += 1
    assert sum(judged.values()) >= 30, judged
    assert {"fits_schema", "fits_regex", "fits_choice", "fits_grammar", "fits_tools"} <= set(judged), judged
