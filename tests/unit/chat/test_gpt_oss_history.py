"""Earlier turns in a template that renders one call for each message, and looks for thoughts in a field of its own."""

from __future__ import annotations

from typing import Any

import pytest

from espalier.chat.prompt.render import render_prompt
from espalier.chat.prompt.template import ChatTemplate
from espalier.chat.wire.formats import wire_format
from tests.chat_templates import GPT_OSS, LLAMA
from tests.gpt_oss import harmony, read_by_openai

ASKED = {"role": "user", "content": "What is the weather?"}
TEMPLATE = ChatTemplate(GPT_OSS)


def called(*cities: str, content: str = "", **more: Any) -> dict[str, Any]:
    calls = [
        {"id": city, "type": "function", "function": {"name": f"in_{city}", "arguments": f'{{"city": "{city}"}}'}}
        for city in cities
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls, **more}


def result(city: str, text: str = "warm") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": city, "content": f"{text} in {city}"}


def rendered(*messages: dict[str, Any], template: ChatTemplate = TEMPLATE) -> str:
    return render_prompt(template, [ASKED, *messages], format=wire_format("harmony"))


def call(city: str) -> str:
    return f'<|start|>assistant to=functions.in_{city}<|channel|>commentary json<|message|>{{"city": "{city}"}}<|call|>'


def answer(city: str) -> str:
    return f'<|start|>functions.in_{city} to=assistant<|channel|>commentary<|message|>"warm in {city}"<|end|>'


def test_what_the_template_can_do_is_found() -> None:
    abilities = TEMPLATE.abilities
    assert (abilities.many_calls, abilities.thought_key, abilities.thought_with_content) == (False, "thinking", False)


@pytest.mark.parametrize("results", [["a", "b"], ["b", "a"]])
def test_each_of_several_calls_is_rendered_with_its_own_result(results: list[str]) -> None:
    text = rendered(called("a", "b"), *map(result, results))
    assert text.endswith(call("a") + answer("a") + call("b") + answer("b") + "<|start|>assistant")


def test_results_without_ids_go_to_the_calls_in_order() -> None:
    plain = [{key: value for key, value in result(city).items() if key != "tool_call_id"} for city in "ab"]
    assert call("a") + answer("a") + call("b") + answer("b") in rendered(called("a", "b"), *plain)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_a_thought_before_a_call_is_rendered_whatever_a_client_calls_it(field: str) -> None:
    text = rendered(called("a", **{field: "hm"}), result("a"))
    assert f"<|channel|>analysis<|message|>hm<|end|>{call('a')}" in text
    later = rendered(called("a", **{field: "hm"}), result("a"), {"role": "assistant", "content": "Warm."}, ASKED)
    assert "hm" not in later


def test_a_preamble_and_a_thought_before_a_call_are_both_kept() -> None:
    text = rendered(called("a", "b", content="First a.", reasoning_content="hm"), result("a"), result("b"))
    assert f"<|channel|>analysis<|message|>hm\n\nFirst a.<|end|>{call('a')}{answer('a')}{call('b')}" in text
    assert text.count("First a.") == 1


def test_a_template_that_refuses_several_calls_gets_them_one_by_one() -> None:
    template = ChatTemplate(LLAMA, bos_token="<s>")
    text = rendered(called("a", "b"), result("a"), result("b"), template=template)
    places = [text.index(part) for part in ('"in_a"', "warm in a", '"in_b"', "warm in b")]
    assert places == sorted(places)


def test_openai_reads_the_history_as_it_was() -> None:
    encoding = harmony()
    text = rendered(called("a", "b", reasoning_content="hm"), result("a"), result("b"))
    _, _, turns = text.removesuffix("<|start|>assistant").partition("<|end|><|start|>user")
    tokens = encoding.encode(f"<|start|>user{turns}", allowed_special="all")
    messages = encoding.parse_messages_from_completion_tokens(tokens, None, strict=True)
    assert [(str(one.author.role.value), one.recipient) for one in messages] == [
        ("user", None),
        ("assistant", None),
        ("assistant", "functions.in_a"),
        ("tool", "assistant"),
        ("assistant", "functions.in_b"),
        ("tool", "assistant"),
    ]
    assert read_by_openai(call("a").removeprefix("<|start|>assistant")).calls == (("in_a", '{"city": "a"}'),)
