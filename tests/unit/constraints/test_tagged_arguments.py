"""Arguments between tags, in the constraint: which texts are strings, and what is left out because it would be read
otherwise."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from espalier import ToolCalls, Vocab
from espalier.chat.reading.turn_parser import parse_turn
from espalier.chat.tools import Tool
from espalier.chat.wire.formats import wire_format
from espalier.chat.wire.render import render_calls
from espalier.constraints.compiler import Compiler
from espalier.errors import SpecError, UnsupportedError
from tests.unit.chat.turns import BY_SHAPE, cuts, parsed, values

BYTES = Compiler(Vocab.bytes())
OPEN = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "maybe": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "integer"}]},
        "inner": {"type": "object"},
        "kind": {"enum": ["a", 1, None, "1"]},
    },
    "required": ["text"],
}
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["", "5", "null", "\n", "</p", "[", "{}", " 1"]
)
arguments = st.fixed_dictionaries(
    {"text": texts},
    optional={
        "maybe": st.none() | texts,
        "either": st.integers(-99, 99) | texts.filter(lambda text: len(text) < 10),
        "inner": st.dictionaries(texts, values, max_size=2),
        "kind": st.sampled_from(["a", 1, None]),
    },
).map(lambda found: {key: found[key] for key in OPEN["properties"] if key in found})


@pytest.fixture(scope="module", params=BY_SHAPE["tagged"])
def compiled(request):
    spec = ToolCalls({"f": OPEN}, format=request.param, choice="required")
    return spec, BYTES.compile(spec)


@given(st.lists(arguments, min_size=1, max_size=2), cuts)
def test_arguments_are_accepted_byte_by_byte_and_come_back(compiled, given_ones, places):
    spec, one = compiled
    text = render_calls(spec.wire, [("f", found) for found in given_ones])
    turn = parsed(text, places, format=spec.wire, types=spec.types)
    back = [json.loads(call.arguments) for call in turn.calls]
    # A text that looks like JSON of an allowed type is read as JSON; where it is not, the arguments are the same.
    assume(back == given_ones and not any(isinstance(f.get("either"), float) for f in back))
    matcher = one.matcher()
    # JSON inside a value is written by our renderer, with escapes and numbers as the constraint may not write them.
    assume(not any("inner" in found for found in given_ones))
    for byte in text.encode():
        matcher.advance(byte)
    assert matcher.is_accepting


@pytest.mark.parametrize("name", BY_SHAPE["tagged"])
@pytest.mark.parametrize(
    ("argument", "value", "is_accepted"),
    [
        ("text", "5", True),
        ("text", "null", True),
        ("text", "{", True),
        ("maybe", "5", True),
        ("maybe", "null ", True),  # null with a space is JSON
        ("either", "x5", True),
        ("either", "-5", True),
        ("either", "1.5", False),
        ("either", "0123456789", False),
        ("kind", "1", True),
        ("kind", '"a"', False),
        ("inner", "x", False),
        ("inner", "{}", True),
    ],
)
def test_what_a_value_may_be(name, argument, value, is_accepted):
    wire = wire_format(name)
    spec = ToolCalls({"f": OPEN}, format=name, choice="required")
    rest = "" if argument == "text" else f"{wire.key}text{wire.assign}x{wire.value_close}\n"
    head = f"{wire.begin}{wire.head}{wire.name_open}f{wire.middle}"
    text = f"{head}{rest}{wire.key}{argument}{wire.assign}{value}{wire.value_close}{wire.tail}{wire.close}"
    if value == "null ":
        assert not BYTES.compile(spec).accepts(text)
        return
    assert BYTES.compile(spec).accepts(text) == is_accepted
    if is_accepted:
        (call,) = parse_turn(text, format=wire, types=spec.types).calls
        jsonschema.validate(call.parsed, OPEN)


@pytest.mark.parametrize("name", BY_SHAPE["tagged"])
def test_what_cannot_be_written_between_tags_is_refused(name):
    wire = wire_format(name)
    closed = {"type": "object", "additionalProperties": False}
    odd = f"a{wire.assign.split()[0]}b"
    with pytest.raises(SpecError, match="cannot be written between tags"):
        BYTES.compile(ToolCalls({"f": closed | {"properties": {odd: {}}, "required": [odd]}}, format=name))
    unique = {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}
    strict = Tool(name="f", parameters=closed | {"properties": unique}, strict=True)
    with pytest.raises(UnsupportedError, match="uniqueItems"):
        BYTES.compile(ToolCalls([strict], format=name))
