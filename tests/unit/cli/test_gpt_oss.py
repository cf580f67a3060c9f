"""The command with gpt-oss: a turn in channels is shown as any other one, under every constraint and in a chat."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import gpt_oss

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]
ANSWER = gpt_oss.THOUGHT + gpt_oss.FINAL + "Hello to you!<|return|>"
JSON = gpt_oss.THOUGHT + gpt_oss.FINAL + '{"name": "Ada", "age": 36}<|return|>'
WEATHER = gpt_oss.THOUGHT + gpt_oss.PREAMBLE + gpt_oss.call("get_weather", '{"city": "Rome"}')
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(run: Any, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, with a gpt-oss that writes a text."""

    def call(wish: str, *arguments: Any, **options: Any) -> tuple[int, str, str]:
        monkeypatch.setattr("espalier.engines.fake.open_engine", lambda *_, **__: gpt_oss.model(wish).engine)
        command, *rest = arguments
        return run(command, "-m", "fake", "--temperature", "0", *rest, **options)  # type: ignore[no-any-return]

    return call


def test_an_answer_stands_on_stdout_without_channels_and_thoughts(ask: Command) -> None:
    code, out, err = ask(ANSWER, "generate", "Hello")
    assert (code, out, err) == (0, "Hello to you!\n", "")


def test_an_answer_under_a_schema_is_the_document_alone(ask: Command) -> None:
    code, out, _ = ask(JSON, "generate", "--schema", "name, age int", "Generate user info")
    assert (code, json.loads(out)) == (0, {"name": "Ada", "age": 36})
    code, out, err = ask(JSON, "generate", "--schema", "name, age int", "--json", "Generate user info")
    result = json.loads(out)
    assert (code, result["reasoning"], result["content"]) == (0, "hm < 3", '{"name": "Ada", "age": 36}')
    assert result["verdict"]["valid"] is True
    assert "the model may reason first" in err


def test_no_note_speaks_of_reasoning_that_was_switched_off(ask: Command) -> None:
    code, out, err = ask(JSON, "generate", "--schema", "name, age int", "--reasoning", "none", "--json", "Hi")
    result = json.loads(out)
    assert (code, result["reasoning"], json.loads(result["content"])) == (0, None, {"name": "Ada", "age": 36})
    assert "may reason" not in err


def test_a_call_of_a_tool_is_printed_and_an_answer_beside_tools_is_text(ask: Command, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    code, out, err = ask(WEATHER, "generate", "--tools", "tools.json", "Weather in Rome?")
    assert (code, err) == (0, "")
    assert out.startswith("First the weather.")
    assert json.loads(out.splitlines()[-1]) == {"name": "get_weather", "arguments": {"city": "Rome"}}
    code, out, _ = ask(WEATHER, "generate", "--tools", "tools.json", "--json", "Weather in Rome?")
    (called,) = json.loads(out)["tool_calls"]
    assert (code, json.loads(called["function"]["arguments"])) == (0, {"city": "Rome"})
    code, out, err = ask(ANSWER, "generate", "--tools", "tools.json", "Hello")
    assert (code, out, err) == (0, "Hello to you!\n", "")


def test_tools_and_a_schema_hold_together(ask: Command, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    options = ("generate", "--tools", "tools.json", "--schema", "name, age int", "Hi")
    assert json.loads(ask(JSON, *options)[1]) == {"name": "Ada", "age": 36}
    assert json.loads(ask(WEATHER.replace(gpt_oss.PREAMBLE, ""), *options)[1])["name"] == "get_weather"


def test_a_thought_that_the_limit_cuts_is_no_answer(ask: Command) -> None:
    code, out, err = ask(ANSWER, "generate", "--max-tokens", "5", "Hello")
    assert (code, out.strip()) == (0, "")
    assert "limit of 5 tokens" in err


def test_a_trace_of_a_turn_in_channels_is_a_page(ask: Command, tmp_path: Path) -> None:
    code, _, _ = ask(JSON, "generate", "--schema", "name, age int", "--trace", "out.html", "Hi")
    assert code == 0
    assert "analysis" in (tmp_path / "out.html").read_text()


def test_a_chat_goes_on_over_two_turns_and_under_a_schema(ask: Command) -> None:
    code, out, err = ask(ANSWER, "chat", stdin="Hello\nHello again\n/json\nNow JSON\n/quit\n")
    first, second, third = out.splitlines()
    assert (code, first, second) == (0, "Hello to you!", "Hello to you!")
    assert isinstance(json.loads(third), dict)
    assert "constraint: json_object" in err
    code, out, err = ask(JSON, "chat", "--schema", "name, age int", stdin="Hi\nHi again\n")
    assert code == 0
    assert [json.loads(line) for line in out.splitlines() if line.startswith("{")] == [{"name": "Ada", "age": 36}] * 2
