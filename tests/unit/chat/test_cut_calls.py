"""A call that a token limit cut off anywhere can be sent back: in every wire format, and to every kind of template."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from espalier.chat.messages import check_messages
from espalier.chat.prompt.abilities import Abilities
from espalier.chat.prompt.past import rewrite_past_calls
from espalier.chat.reading.cut_json import close_json
from espalier.chat.reading.json_scan import NotJson
from espalier.chat.reading.turn_parser import parse_turn
from espalier.chat.wire.formats import wire_format
from espalier.errors import InputError
from tests.examples import examples
from tests.tool_texts import FORMATS, TOOLS, random_call, written

ABILITIES = [
    Abilities(tools=True, tool_role=True, system_role=True, tool_calls=calls, call_objects=objects)
    for calls, objects in ((False, False), (True, False), (True, True))
]


def sent_back(arguments: Any) -> Any:
    call = {"id": "abcdEFG12", "type": "function", "function": {"name": "f", "arguments": arguments}}
    (message,) = check_messages([{"role": "assistant", "content": "", "tool_calls": [call]}])
    return message["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_cut_anywhere_comes_back(name: str) -> None:
    wire, rng = wire_format(name), random.Random(name)
    for _ in range(examples(8)):
        text = written(wire, random_call(rng), random_call(rng))
        for end in range(1, len(text) + 1):
            turn = parse_turn(text[:end], format=wire, names=list(TOOLS))
            if not turn.calls:
                continue
            calls = [
                {"id": f"call{i:05d}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for i, call in enumerate(turn.calls)
            ]
            messages = check_messages([{"role": "assistant", "content": turn.content, "tool_calls": calls}])
            for abilities in ABILITIES:
                rewrite_past_calls(messages, abilities, wire)
            for call, checked in zip(turn.calls, messages[0]["tool_calls"], strict=True):
                if call.is_complete:
                    assert checked["function"]["arguments"] == call.arguments


def test_every_prefix_of_an_object_is_closed_to_a_part_of_it() -> None:
    rng = random.Random(1)
    for _ in range(examples(200)):
        whole = {f"k{i}": random_value(rng, 3) for i in range(3)}
        text = json.dumps(whole, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
        for end in range(1, len(text) + 1):
            part = json.loads(close_json(text[:end]))
            json.dumps(part, ensure_ascii=False).encode()  # no half of a surrogate pair
            assert is_part(part, whole)
        assert json.loads(close_json(text)) == whole


def random_value(rng: random.Random, depth: int) -> Any:
    kinds = [
        lambda: rng.choice([True, False, None]),
        lambda: rng.uniform(-5, 5),
        lambda: rng.randrange(10**6),
        lambda: "".join(rng.choice('a"\\{}[],:\n\x01é😀') for _ in range(rng.randrange(8))),
        lambda: [random_value(rng, depth - 1) for _ in range(rng.randrange(3))],
        lambda: {str(rng.random()): random_value(rng, depth - 1) for _ in range(rng.randrange(3))},
    ]
    return rng.choice(kinds if depth else kinds[:4])()


def is_part(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return part.keys() <= whole.keys() and all(is_part(value, whole[name]) for name, value in part.items())
    if isinstance(part, list):
        return len(part) <= len(whole) and all(map(is_part, part, whole))
    return bool(whole.startswith(part)) if isinstance(part, str) else bool(part == whole)


@pytest.mark.parametrize(
    ("cut", "closed"),
    [
        ("", "{}"),
        (" ", "{}"),
        ("{", "{}"),
        ('{"city": "Par', '{"city": "Par"}'),
        ('{"city": "Paris", "da', '{"city": "Paris"}'),
        ('{"city": "Paris", "days": 1', '{"city": "Paris"}'),
        ('{"a": "x\\', '{"a": "x"}'),
        ('{"a": "x\\u00e', '{"a": "x"}'),
        ('{"a": "\\ud83d\\ude0', '{"a": ""}'),
        ('{"a": [{"b": true', '{"a": [{"b": true}]}'),
    ],
)
def test_what_is_cut_is_closed(cut: str, closed: str) -> None:
    assert sent_back(cut) == closed


@pytest.mark.parametrize("text", ["hello", "[1", "{'a'", '{"a": 1}x', '{"a": NaN', "null", "[]", '{"a": tru e'])
def test_what_begins_no_object_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not JSON of an object"):
        sent_back(text)
    if text not in ("[1", "null", "[]"):
        with pytest.raises(NotJson):
            close_json(text)


def test_half_of_a_surrogate_pair_is_replaced() -> None:
    assert sent_back('{"a": "\\ud800"}') == sent_back({"a": "\ud800"}) == {"a": "\ufffd"}
    assert sent_back('{"a": "\\ud83d\\ude00"}') == '{"a": "\\ud83d\\ude00"}'


def test_a_cut_call_that_is_not_ours_is_refused_by_name() -> None:
    """No reply of ours has such an id: the fault is the client's, who would not see it in a call that is closed."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    with pytest.raises(InputError, match=r"the arguments are not JSON of an object") as caught:
        check_messages([{"role": "assistant", "content": "", "tool_calls": [call]}])
    assert caught.value.field.endswith("function.arguments")
