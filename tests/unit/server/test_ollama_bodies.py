"""What bodies of Ollama's routes mean: options of the sampling, results of tools, templates."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi")

from espalier.server.asking.ollama.ask import ask_ollama_chat, ask_ollama_generate
from espalier.server.asking.ollama.messages import talk_of
from espalier.server.asking.ollama.template import render_template
from espalier.server.bodies.base import read_body
from espalier.server.bodies.ollama import OllamaChatBody, OllamaGenerateBody
from espalier.server.http.errors import UnsupportedParameter
from tests.server_app import make_process

Json = dict[str, Any]
HI = [{"role": "user", "content": "Hi"}]


def parsed(**body: Any) -> Any:
    process = make_process()
    if "prompt" in body:
        return ask_ollama_generate(read_body(OllamaGenerateBody, body, strict=False), process)
    return ask_ollama_chat(read_body(OllamaChatBody, {"messages": HI, **body}, strict=False), process)


OPTIONS: list[tuple[str, Any, str, Any]] = [
    ("num_predict", 7, "max_tokens", 7),
    ("num_predict", 7.0, "max_tokens", 7),
    ("top_k", 9, "top_k", 9),
    ("top_k", 9.0, "top_k", 9),
    ("top_k", 0, "top_k", 0),
    ("top_p", 0.5, "top_p", 0.5),
    ("top_p", 1, "top_p", 1.0),
    ("min_p", 0.1, "min_p", 0.1),
    ("typical_p", 0.7, "typical_p", 0.7),
    ("repeat_last_n", 33, "repetition_window", 33),
    ("repeat_last_n", -1, "repetition_window", -1),
    ("temperature", 0, "temperature", 0.0),
    ("temperature", 1.5, "temperature", 1.5),
    ("repeat_penalty", 1.2, "repetition_penalty", 1.2),
    ("presence_penalty", 1.5, "presence_penalty", 1.5),
    ("frequency_penalty", 1, "frequency_penalty", 1.0),
    ("mirostat", 1, "mirostat", 1),
    ("mirostat_tau", 0.8, "mirostat_tau", 0.8),
    ("mirostat_eta", 0.6, "mirostat_eta", 0.6),
    ("seed", 42, "seed", 42),
    ("seed", -1, "seed", None),
    ("stop", ["a", "b"], "stop", ("a", "b")),
    ("stop", "a", "stop", ("a",)),
    ("stop", [], "stop", ()),
    ("dry_multiplier", 0.8, "dry_multiplier", 0.8),
]


@pytest.mark.parametrize(("name", "value", "ours", "meant"), OPTIONS)
@pytest.mark.parametrize("asks", [{}, {"prompt": "Hi"}, {"prompt": "Hi", "raw": True}])
def test_an_option_is_the_sampling_field_that_it_means(
    name: str, value: Any, ours: str, meant: Any, asks: Json
) -> None:
    sampling = parsed(**asks, options={name: value}).requests[0].sampling
    assert getattr(sampling, ours) == meant


def test_the_defaults_are_those_of_ollama_unless_a_preset_or_a_strategy_states_the_sampling() -> None:
    sampling = parsed().requests[0].sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.8, 40, 0.9)
    assert sampling.max_tokens > 100_000
    best = parsed(espalier={"strategy": "best_of", "particles": 2}).requests[0].sampling
    assert (best.top_k, best.top_p) == (0, 1.0)


def call(name: str, call_id: str | None = None, arguments: Any = None) -> Json:
    named = {} if call_id is None else {"id": call_id}
    return {**named, "function": {"name": name, "arguments": arguments or {}}}


def result(**more: Any) -> Json:
    return {"role": "tool", "content": "sun", **more}


@pytest.mark.parametrize(
    ("calls", "results", "answered"),
    [
        ([call("a")], [result(tool_name="a")], ["call_1"]),
        ([call("a"), call("b")], [result(tool_name="b"), result(tool_name="a")], ["call_2", "call_1"]),
        ([call("a"), call("a")], [result(tool_name="a"), result(tool_name="a")], ["call_1", "call_2"]),
        ([call("a"), call("b")], [result(), result()], ["call_1", "call_2"]),
        ([call("a", "x")], [result(tool_name="a")], ["x"]),
        ([call("a", "x")], [result(tool_call_id="x")], ["x"]),
        ([call("a")], [result(tool_name="c")], ["call_1"]),
        ([], [result(tool_name="a")], ["call_1"]),
    ],
)
def test_a_result_answers_to_a_call(calls: list[Json], results: list[Json], answered: list[str]) -> None:
    talk = talk_of([{"role": "assistant", "tool_calls": calls}, *results])
    assert [message["tool_call_id"] for message in talk.messages[1:]] == answered


VALUES = {"System": "S", "Prompt": "P"}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ .Prompt }}", "P"),
        ("{{.Prompt}}", "P"),
        ("a {{- .Prompt -}} b", "aPb"),
        ("{{ .System }}|{{ .Prompt }}|{{ .Suffix }}", "S|P|"),
        ("{{ if .System }}<{{ .System }}>{{ end }}{{ .Prompt }}", "<S>P"),
        ("{{ if .Suffix }}x{{ else }}y{{ end }}", "y"),
        ("{{ if .Suffix }}x{{ else if .System }}y{{ else }}z{{ end }}", "y"),
        ("{{ if .System }}x{{ else if .Prompt }}y{{ else }}z{{ end }}", "x"),
        ("{{ if .Suffix }}{{ if .System }}x{{ end }}{{ .Response }}{{ else }}y{{ end }}z", "yz"),
        ("A{{ .Prompt }}B{{ .Response }}C", "APB"),
        ("{{ /* a remark */ }}{{ .Prompt }}", "P"),
        ("no action", "no action"),
        ("", ""),
    ],
)
def test_a_template_is_rendered(source: str, text: str) -> None:
    assert render_template(source, VALUES) == text


@pytest.mark.parametrize(
    "source",
    [
        "{{ range .Messages }}{{ end }}",
        "{{ .Tools }}",
        "{{ .prompt }}",
        "{{ end }}",
        "{{ else }}",
        "{{ if .System }}",
        "{{ if not .System }}{{ end }}",
        "{{ $x := .System }}",
        '{{ template "a" }}',
    ],
)
def test_a_template_with_anything_else_is_refused(source: str) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        render_template(source, VALUES)
    assert caught.value.field == "template"


def test_a_raw_prompt_passes_the_chat_template_by() -> None:
    assert parsed(prompt="Hi", raw=True).requests[0].raw
    assert parsed(prompt="Hi").requests[0].messages is not None
