"""Every verb of the agents' tool on every engine: what is only a default of ours falls back, and the answer says so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

import espalier
from espalier.agents.table import TOOLS, VERBS
from espalier.agents.tool import LogitTool
from espalier.store.trace_filter import TraceFilter
from espalier.wiring import demo_model
from tests.agent_calls import CALLS, USER, WEATHER, check_answer
from tests.llama_tools import llama_server_program, tool
from tests.scripted_server import STREAM, Asked, event, reply, scripted_server

MODEL = demo_model()
GGUF = MODEL / "demo.gguf"
ENGINES = ("transformers", "llamacpp", "llama-server", "llama-cli", "openai")
REAL = ("llama-server", "llama-cli")
"""Programs, which take a process for each or for all answers."""
WITHOUT_LOGITS = ("llama-server", "llama-cli", "openai")
LACKING: Mapping[tuple[str, str], str] = {
    ("llama-cli", "analyze_vocabulary"): "tokenizer not available",
    ("openai", "analyze_vocabulary"): "tokenizer not available",
}
"""What an engine cannot do at all, and how it says so. Everything else works on every engine."""
DOCUMENT_EXAMPLE = {
    "action": "generate_structured",
    "prompt": "Generate user info",
    "json_schema": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "email": {"type": "string"}},
        "required": ["name", "email"],
    },
}
ONLY_SCHEMA = {"prompt": "Generate user info", "max_tokens": 40, "seed": 7, "json_schema": USER, "seeds": 1}


class Traces:
    """Keeps the traces of one tool."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def save_trace(self, trace: Any, **_: Any) -> str:
        self.kept[f"trace-{len(self.kept)}"] = trace
        return f"trace-{len(self.kept) - 1}"

    def trace(self, trace_id: str, *, caller: str | None) -> Any:
        return self.kept.get(trace_id)

    def traces(self, wanted: TraceFilter, *, limit: int) -> list[Any]:
        return [{"id": name, "caller": wanted.caller} for name in self.kept][:limit]


def openai_answers(asked: Asked) -> list[Any]:
    """A server that keeps to what it is asked, as OpenAI's do."""
    if asked.path == "/v1/models":
        return [reply({"object": "list", "data": [{"id": "org/toy", "owned_by": "someone"}]})]
    schema = (asked.body.get("response_format") or {}).get("json_schema", {}).get("schema", {})
    delta: dict[str, Any] = {"content": "Hello."}
    if asked.body.get("tools"):
        function = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
        delta = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]}
    elif asked.body.get("response_format"):
        values = {"name": "Ada", "age": 36, "email": "a@b.c", "more": 1}
        if schema.get("additionalProperties") is False:
            values = {name: value for name, value in values.items() if name in schema["properties"]}
        delta = {"content": json.dumps(values)}
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    chunks = [
        {"choices": [{"index": 0, "delta": one, "finish_reason": end}]} for one, end in ((delta, None), ({}, "stop"))
    ]
    return [STREAM, *(event(one) for one in (*chunks, usage)), event("[DONE]")]


@pytest.fixture(scope="module", params=[pytest.param(one, marks=[pytest.mark.slow] * (one in REAL)) for one in ENGINES])
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[str, LogitTool]]:
    name = request.param
    with ExitStack() as stack:
        if name == "transformers":
            pytest.importorskip("torch", reason="torch is not installed")
            engine = espalier.load(str(MODEL))
        elif name == "llamacpp":
            pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
            engine = espalier.load(str(GGUF))
        elif name == "llama-server":
            tool("llama-server")
            engine = espalier.load(engine=name, url=stack.enter_context(llama_server_program(GGUF)))
        elif name == "llama-cli":
            engine = espalier.load(str(GGUF), engine=name, binary=tool("llama-completion"), threads=1)
        else:
            server = stack.enter_context(scripted_server(openai_answers))
            engine = espalier.load("org/toy", engine=name, url=server.address)
        stack.enter_context(engine)
        yield name, LogitTool(engine, traces=Traces())


@pytest.mark.parametrize("verb", [*(name for name in TOOLS if name in CALLS)])
def test_a_verb_answers(opened: tuple[str, LogitTool], verb: str) -> None:
    name, logit_tool = opened
    arguments: Mapping[str, Any] = CALLS[verb]
    if (name, verb) == ("openai", "try_remedies"):
        arguments = ONLY_SCHEMA  # such a server holds no regular expression
    found = logit_tool.call(verb, dict(arguments))
    if (name, verb) in LACKING:
        assert found.is_error
        assert found.error is not None
        assert LACKING[name, verb] in found.error.message
        assert found.error.hint
        return
    assert not found.is_error, found.data
    if verb == "explain" and name in ("llama-cli", "openai"):
        assert found.data["cost"]["total_steps"] == 0  # no probabilities are told
        return
    if verb == "test_config" and name == "openai":  # its toy answers no prompt
        assert "report" in found.data
        return
    check_answer(verb, found.data)


def test_every_verb_is_called_somewhere() -> None:
    assert {*VERBS} - {*CALLS} == {"explain_trace", "list_traces"}


def test_stored_traces_are_listed_and_explained(opened: tuple[str, LogitTool]) -> None:
    _, logit_tool = opened
    made = logit_tool.call("generate", {"prompt": "Hi", "max_tokens": 6, "seed": 7, "trace": True})
    assert not made.is_error, made.data
    assert logit_tool.call("list_traces", {}).data["traces"]
    found = logit_tool.call("explain_trace", {"trace_id": made.data["trace_id"]})
    assert not found.is_error, found.data


@pytest.mark.parametrize("seed", range(3))
def test_the_example_of_the_document_has_no_third_property(opened: tuple[str, LogitTool], seed: int) -> None:
    found = opened[1].call("logit", {**DOCUMENT_EXAMPLE, "seed": seed, "max_tokens": 80})
    assert found.data["success"], found.data
    assert set(json.loads(found.data["output"])) == {"name", "email"}


def test_what_an_engine_cannot_plan_is_told_and_refused_only_on_demand(opened: tuple[str, LogitTool]) -> None:
    name, logit_tool = opened
    call = {"prompt": "Generate user info", "json_schema": USER, "max_tokens": 60, "seed": 1}
    found = logit_tool.call("generate_structured", call)
    assert not found.is_error, found.data
    assert any("on_budget" in note for note in found.data["notes"]) == (name in WITHOUT_LOGITS)
    asked = logit_tool.call("generate_structured", {**call, "on_budget": "close"})
    assert asked.is_error == (name in WITHOUT_LOGITS)
    if asked.is_error:
        assert asked.error is not None
        assert asked.error.field == "on_budget"


def test_the_schema_is_closed_unless_the_call_says_otherwise(opened: tuple[str, LogitTool]) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "minProperties": 2}
    call = {"prompt": "Generate user info", "json_schema": schema, "max_tokens": 80, "seed": 3}
    found = opened[1].call("generate_structured", call)
    if opened[0] != "openai":
        assert not found.is_error, found.data
        assert any("not closed" in note for note in found.data["notes"])
    refused = opened[1].call("generate_structured", {**call, "closed": True})
    assert refused.is_error


@pytest.mark.parametrize("preset", ["minimal", "standard", "strict", "maximum"])
def test_a_safety_preset_works_and_says_what_each_category_got(opened: tuple[str, LogitTool], preset: str) -> None:
    name, logit_tool = opened
    found = logit_tool.call("generate", {"prompt": "Hi", "max_tokens": 12, "seed": 7, "safety": preset})
    assert not found.is_error, found.data
    assert found.data["valid"] is True
    told = [note for note in found.data["notes"] if "code_injection" in note]
    if name not in WITHOUT_LOGITS:
        assert not told
        return
    assert len(told) == 1
    assert ("grammar" in told[0]) == (name != "openai"), told
    refused = logit_tool.call("generate", {"prompt": "Hi", "safety": {"preset": preset, "must_mask": True}})
    assert refused.is_error
    assert refused.error is not None
    assert refused.error.field == "safety"


def test_safety_beside_a_schema_works(opened: tuple[str, LogitTool]) -> None:
    call = {"prompt": "Generate user info", "json_schema": USER, "max_tokens": 60, "seed": 1, "safety": "standard"}
    found = opened[1].call("generate_structured", call)
    assert not found.is_error, found.data
    assert found.data["valid"] is True


@pytest.mark.parametrize(
    "preset", ["json_strict", "tool_call", "deterministic", "code_generation", "creative", "safe_chat"]
)
def test_a_built_in_preset_works(opened: tuple[str, LogitTool], preset: str) -> None:
    found = opened[1].call("generate", {"prompt": "Hi", "max_tokens": 12, "seed": 7, "preset": preset})
    assert not found.is_error, found.data
    if opened[0] == "openai" and preset != "safe_chat":
        assert any("of the preset, such a server lacks" in note for note in found.data["notes"])


def test_tools_for_an_agent_name_the_field_closed() -> None:
    assert "closed" in TOOLS["generate_structured"].input_schema["properties"]
    assert "closed" not in TOOLS["generate_tool_call"].input_schema["properties"]
    assert WEATHER["name"] == "get_weather"
