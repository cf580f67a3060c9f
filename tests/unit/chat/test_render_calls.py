import ast
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.chat.wire.formats import WIRE_FORMATS, wire_format
from espalier.chat.wire.render import PYTHON_WORDS, literal, render_calls
from espalier.errors import InputError

TWO = [("get_weather", {"city": 'São "P"'}), ("now", {})]

GOLDEN = {
    "args": '{"name": "get_weather", "args": {"city": "São \\"P\\""}}\n{"name": "now", "args": {}}',
    "tool_args": '{"tool": "get_weather", "args": {"city": "São \\"P\\""}}\n{"tool": "now", "args": {}}',
    "openai": '{"name": "get_weather", "arguments": {"city": "São \\"P\\""}}\n{"name": "now", "arguments": {}}',
    "llama3": '{"name": "get_weather", "parameters": {"city": "São \\"P\\""}}; {"name": "now", "parameters": {}}',
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "São \\"P\\""}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    "mistral": '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "São \\"P\\""}}, '
    '{"name": "now", "arguments": {}}]',
    "mistral_args": '[TOOL_CALLS]get_weather[ARGS]{"city": "São \\"P\\""}[TOOL_CALLS]now[ARGS]{}',
    "mistral_id": '[TOOL_CALLS]get_weather[CALL_ID]000000000[ARGS]{"city": "São \\"P\\""}'
    "[TOOL_CALLS]now[CALL_ID]000000001[ARGS]{}",
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
    '{"city": "São \\"P\\""}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v31": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "São \\"P\\""}'
    "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city": "São \\"P\\""}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}'
    "<|tool_call_end|><|tool_calls_section_end|>",
    "harmony": '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "São \\"P\\""}'
    "<|call|><|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>",
    "qwen_coder": '<tool_call>\n<function=get_weather>\n<parameter=city>\nSão "P"\n</parameter>\n</function>\n'
    "</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
    "glm": '<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>São "P"</arg_value>\n</tool_call>\n'
    "<tool_call>now\n</tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">São "P"</parameter>\n'
    '</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
    "function_gemma": '<start_function_call>call:get_weather{city:<escape>São "P"<escape>}<end_function_call>'
    "<start_function_call>call:now{}<end_function_call>",
    "gemma4": '<|tool_call>call:get_weather{city:<|"|>São "P"<|"|>}<tool_call|><|tool_call>call:now{}<tool_call|>',
    "functionary": '<function=get_weather>{"city": "São \\"P\\""}</function>\n<function=now>{}</function>',
    "upstream": '\ue000{"name": "get_weather", "arguments": {"city": "São \\"P\\""}}\ue001\n'
    '\ue000{"name": "now", "arguments": {}}\ue001',
    "pythonic": '[get_weather(city="São \\"P\\""), now()]',
}

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)


@pytest.mark.parametrize("name", GOLDEN)
def test_calls_are_spelled_as_models_write_them(name):
    assert render_calls(wire_format(name), TWO) == GOLDEN[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_no_calls_are_no_text(name):
    assert render_calls(wire_format(name), []) == ""


def test_every_format_of_ours_has_a_golden_text():
    assert set(GOLDEN) == set(WIRE_FORMATS.names())


@given(OBJECTS)
def test_json_reads_back(arguments):
    text = render_calls(wire_format("args"), [("f", arguments)])
    assert json.loads(text) == {"name": "f", "args": arguments}


@given(OBJECTS)
def test_finite_values_are_spelled_as_json_dumps_spells_them(arguments):
    expected = json.dumps(arguments, ensure_ascii=False)
    if "Infinity" not in expected:
        assert literal(arguments) == expected


@given(OBJECTS)
def test_python_reads_back(arguments):
    (call,) = ast.parse(render_calls(wire_format("pythonic"), [("f", arguments)]), mode="eval").body.elts
    read = {}
    for keyword in call.keywords:
        value = ast.literal_eval(keyword.value)
        read |= value if keyword.arg is None else {keyword.arg: value}
    assert call.func.id == "f"
    assert read == arguments or _differ_by_nfkc(arguments)


def _differ_by_nfkc(arguments):
    # Python normalises identifiers; JSON does not.
    return any(key.isidentifier() and ast.parse(key, mode="eval").body.id != key for key in arguments)


def test_python_has_its_own_words_and_no_names_for_infinity():
    value = [True, False, None, 1.5, -3, math.inf, -math.inf, {"a": "é\n"}]
    assert literal(value, PYTHON_WORDS) == '[True, False, None, 1.5, -3, 1e999, -1e999, {"a": "é\\n"}]'
    assert literal(value) == '[true, false, null, 1.5, -3, 1e999, -1e999, {"a": "é\\n"}]'


def test_names_that_python_cannot_spell_stand_at_the_end():
    text = render_calls(wire_format("pythonic"), [("f", {"my-key": 1, "class": None, "b": True})])
    assert text == '[f(b=True, **{"my-key": 1, "class": None})]'


@pytest.mark.parametrize("name", ["args", "mistral_args", "pythonic"])
@pytest.mark.parametrize("value", [math.nan, {1: 2}, object(), b"x", {1, 2}])
def test_what_is_no_json_is_refused(name, value):
    with pytest.raises(InputError, match=r"no (value|key) of"):
        render_calls(wire_format(name), [("f", {"a": value})])


def test_arguments_nested_too_deeply_are_refused():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InputError, match="too deeply"):
        render_calls(wire_format("args"), [("f", {"a": deep})])
