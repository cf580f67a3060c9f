"""The grammar of calls: its rules and where they come from, what is refused by name, many tools."""

from __future__ import annotations

import json

import pytest

from benchmarks.constraints.tools import calls, tools
from espalier import ToolCalls, Vocab
from espalier.chat.wire.formats import WIRE_FORMATS, wire_format
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import compile_grammar
from espalier.constraints.tools.grammar import calls_grammar, checked_afterwards
from espalier.constraints.tools.schemas import tools_of
from espalier.constraints.verdict import judge
from espalier.errors import LimitExceeded, SpecError, UnsupportedError
from espalier.grammar.ast import TokenRef, postorder
from espalier.grammar.check import check
from espalier.grammar.parser import parse
from espalier.grammar.printer import print_grammar
from espalier.schema.lowering.rulebook import BASICS
from tests.tool_texts import FORMATS, TOOLS, written

BYTES = Compiler(Vocab.bytes())
PREFIXES = dict.fromkeys(("read", "read_file", "read_files", "re", "read-file", "read.file"), TOOLS["read"])


def required(given, **options):
    return ToolCalls(given, choice="required", **options)


def test_the_grammar_of_two_tools():
    found = calls_grammar(required({name: TOOLS[name] for name in ("read", "now")}, format="hermes"))
    assert print_grammar(found.grammar).startswith(
        'root ::= "<tool_call>" rest\n'
        'rest ::= [\\n ]? "\\n"? call "\\n"? "</tool_call>" '
        '("\\n"? "<tool_call>" [\\n ]? "\\n"? call "\\n"? "</tool_call>")*\n'
        "call ::=\n"
        '  "{\\"name\\":" " "? "\\"read\\"" "," " "? "\\"arguments\\":" " "? read "}" |\n'
        '  "{\\"name\\":" " "? "\\"now\\"" "," " "? "\\"arguments\\":" " "? now "}"\n'
        'read ::= "{\\"path\\":" " "? read-path "}"\n'
        "read-path ::= string\n"
        'now ::= "{}"\n'
        'string ::= "\\"" char* "\\""\n'
        "char ::= "
    )
    assert found.pointers == {"read": "read/", "read-path": "read/properties/path", "now": "now/"}
    assert found.rest == "rest"


@pytest.mark.parametrize("name", FORMATS)
def test_the_grammar_alone_says_the_same_and_can_be_printed(name):
    spec = required(TOOLS, format=name)
    found = calls_grammar(spec)
    assert not [finding for finding in check(found.grammar) if finding.severity == "error"]
    assert parse(print_grammar(found.grammar)) == found.grammar
    assert sum(rule in BASICS for rule in found.grammar.rules) == len({*BASICS} & {*found.grammar.rules})
    compiled = compile_grammar(found.grammar, spec, BYTES.vocab, BYTES.trie)
    text = written(wire_format(name), ("read", {"path": "a"}), ("now", {}))
    assert compiled.accepts(text)
    assert not compiled.accepts(text[:-1])


def test_pointers_name_the_tool_and_the_place():
    pointers = calls_grammar(required(TOOLS)).pointers
    assert pointers["read-path"] == "read/properties/path"
    assert pointers["search-inside-deep"] == "search/properties/inside/properties/deep"
    assert {pointer.partition("/")[0] for pointer in pointers.values()} == set(TOOLS)


def test_special_tokens_stand_beside_their_spelling():
    found = calls_grammar(required(TOOLS, format="hermes"), {"<tool_call>": 7, "</tool_call>": 9})
    named = {
        node.id for rule in found.grammar.rules.values() for node in postorder(rule.body) if isinstance(node, TokenRef)
    }
    assert named == {7, 9}


# Names


@pytest.mark.parametrize("name", FORMATS)
def test_names_that_begin_alike(name):
    given = {key: schema for key, schema in PREFIXES.items() if name != "pythonic" or "-" not in key}
    wire = wire_format(name)
    compiled = BYTES.compile(required(given, format=name))
    for key in given:
        assert compiled.accepts(written(wire, (key, {"path": "a"})))
    for key in ("rea", "read_fil", "read_filess", "r"):
        assert not compiled.accepts(written(wire, (key, {"path": "a"})))


def test_names_that_would_make_one_rule_name():
    both = {
        "a": {"type": "object", "properties": {"b-c": {"type": "integer"}}, "required": ["b-c"]},
        "a-b": {"type": "object", "properties": {"c": {"type": "boolean"}}, "required": ["c"]},
        "root": TOOLS["now"],
        "call": TOOLS["now"],
        "string": TOOLS["now"],
        "rest": TOOLS["now"],
    }
    compiled = BYTES.compile(required(both))
    for good in ('"a", "args": {"b-c": 1}', '"a-b", "args": {"c": true}', '"root", "args": {}', '"rest", "args": {}'):
        assert compiled.accepts(f'{{"name": {good}}}')
    for bad in ('"a", "args": {"b-c": true}', '"a-b", "args": {"c": 1}'):
        assert not compiled.accepts(f'{{"name": {bad}}}')


# Arguments


def accepts(schema, arguments, **options):
    text = json.dumps({"name": "f", "args": arguments})
    return BYTES.compile(required({"f": schema}, **options)).accepts(text)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({}, [{}, {"a": [1]}], [1, "x", [], None]),
        ({"properties": {"a": {"type": "integer"}}}, [{"a": 1}, {}], [1, {"a": "x"}]),
        ({"type": ["object", "string"]}, [{"a": "x"}], ["x", 1]),
        ({"anyOf": [{"type": "string"}, {"type": "object", "required": ["a"]}]}, [{"a": 1}], ["x", {}]),
        ({"enum": [1, {"a": 1}, {}]}, [{"a": 1}, {}], [1, {"a": 2}]),
        ({"const": {"a": None}}, [{"a": None}], [None, {}]),
        ({"uniqueItems": True, "required": ["a"]}, [{"a": 1}], [[1]]),
        (  # in old drafts nothing beside `$ref` counts
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "string",
                "$ref": "#/definitions/o",
                "definitions": {"o": {"required": ["a"]}},
            },
            [{"a": 1}],
            ["x", {}, 3],
        ),
        (
            {"$ref": "#/$defs/o", "maxProperties": 1, "$defs": {"o": {"required": ["a"]}}},
            [{"a": 1}],
            [{"a": 1, "b": 1}, "x"],
        ),
    ],
)
def test_arguments_are_objects(schema, good, bad):
    for arguments in good:
        assert accepts(schema, arguments)
    for arguments in bad:
        assert not accepts(schema, arguments)


def test_a_schema_that_refers_to_itself_may_be_no_object_there():
    schema = {
        "anyOf": [
            {"type": "integer"},
            {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
        ]
    }
    assert accepts(schema, {"next": {"next": 3}})
    assert not accepts(schema, 3)
    closed = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    for name in FORMATS:
        compiled = BYTES.compile(required({"f": closed}, format=name))
        assert compiled.accepts(written(wire_format(name), ("f", {"next": {"next": {}}})))
        assert not compiled.accepts(written(wire_format(name), ("f", {"next": {"last": {}}})))


# Faults


def refused(error, schema, **fields):
    with pytest.raises(error) as told:
        BYTES.compile(
            required([{"name": "fine", "parameters": {}}, {"name": "search", "parameters": schema, **fields}])
        )
    assert told.value.field == "tools"
    return told.value


def test_a_schema_that_no_object_satisfies_names_the_tool():
    for schema in ({"type": "string"}, {"enum": [1, 2]}, {"type": "array", "items": {}}):
        assert refused(SpecError, schema).message == "the tool search: no object satisfies its schema"
    assert (
        "the tool search: no document can satisfy" in refused(SpecError, {"allOf": [{"type": "object"}, False]}).message
    )


def test_a_schema_that_is_none_names_the_tool_and_the_pointer():
    told = refused(SpecError, {"type": "object", "properties": {"a": {"type": "text"}}})
    assert told.message.startswith("the tool search: ")
    assert "/properties/a/type" in told.message
    assert "leads to nothing" in refused(SpecError, {"$ref": "#/$defs/x"}).message
    assert "the tool search" in refused(UnsupportedError, {"$ref": "https://example.org/x"}).message


TAGS = {"type": "object", "properties": {"tags": {"type": "string", "pattern": r"^(a*)b\1$"}}}


def test_what_can_only_be_checked_is_refused_where_the_tool_is_strict():
    told = refused(UnsupportedError, TAGS, strict=True)
    assert told.message.startswith("the tool search: pattern at /properties/tags cannot be enforced")
    assert 'without "strict": true it is checked afterwards' in told.hint


@pytest.mark.parametrize("fields", [{}, {"strict": None}, {"strict": False}])
def test_what_can_only_be_checked_is_checked_alike_with_and_without_strict(fields):
    tool = {"name": "search", "parameters": TAGS, **fields}
    assert BYTES.compile(required([tool])).accepts('{"name": "search", "args": {"tags": "aab"}}')
    (read,) = tools_of([tool])
    assert checked_afterwards(read, required([tool])) == ("pattern at /properties/tags",)
    (free,) = tools_of([{"name": "f", "parameters": {"type": "object"}}])
    assert checked_afterwards(free, required([free])) == ()


@pytest.mark.parametrize("name", FORMATS)
def test_unique_items_are_checked_afterwards_where_no_tracker_reads_the_format(name):
    schema = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
    (tool,) = tools_of([{"name": "f", "parameters": schema}])
    wire = wire_format(name)
    spec = required([tool], format=name)
    repeated = written(wire, ("f", {"tags": [1, 1]}))
    is_enforced = not BYTES.compile(spec).accepts(repeated)
    assert BYTES.compile(spec).accepts(written(wire, ("f", {"tags": [1, 2]})))
    assert is_enforced == wire.has_json
    assert checked_afterwards(tool, spec) == (() if is_enforced else ("uniqueItems at /properties/tags",))


def test_formats_of_arguments_are_enforced_unless_they_are_remarks():
    schema = {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}, "required": ["day"]}
    held, free = ({"name": "f", "parameters": schema, **more} for more in ({}, {"formats": "annotate"}))
    right, wrong = (json.dumps({"name": "f", "args": {"day": day}}) for day in ("2024-02-29", "soon"))
    assert BYTES.compile(required([held])).accepts(right)
    assert not BYTES.compile(required([held])).accepts(wrong)
    assert BYTES.compile(required([free])).accepts(wrong)
    assert [judge(required([one]), wrong).valid for one in (held, free)] == [False, True]


def test_a_tool_that_may_not_be_called_is_not_read():
    given = [{"name": "search", "parameters": TAGS}, {"name": "now", "parameters": {}}]
    assert BYTES.compile(ToolCalls(given, choice="now")).accepts('{"name": "now", "args": {}}')
    assert BYTES.compile(ToolCalls(given, choice="none")).accepts("x")


def test_arguments_that_python_cannot_write_name_the_tool():
    schema = {"type": "object", "properties": {"a-b": {}}, "required": ["a-b"]}
    with pytest.raises(SpecError, match="the tool f: the name 'a-b' cannot be written"):
        BYTES.compile(required({"f": schema}, format="pythonic"))
    with pytest.raises(SpecError, match="the tool f: arguments of a call are not indented"):
        BYTES.compile(required({"f": {}}, format="pythonic", whitespace="indented"))


def test_too_many_calls_or_parts_name_what_is_too_much():
    with pytest.raises(LimitExceeded):
        BYTES.compile(required(TOOLS, format="pythonic", max_calls=5_000_000))
    # Explored on demand, counts cost nothing.
    assert BYTES.compile(required(TOOLS, max_calls=5_000_000)).accepts('{"name": "now", "args": {}}')


def test_a_format_whose_marker_does_not_come_first_is_refused(monkeypatch):
    odd = type(wire_format("hermes"))(name="odd", shape="json", open="[", head="<c>")
    monkeypatch.setitem(WIRE_FORMATS._builtin, "odd", odd)
    with pytest.raises(SpecError, match="'odd' opens its calls before its marker"):
        ToolCalls(TOOLS, format="odd")


# Many tools


@pytest.mark.slow
@pytest.mark.parametrize(("count", "choice"), [(500, "auto"), (50, "required")])
def test_many_tools(count, choice):
    given = tools(count)
    spec = ToolCalls(given, format="openai", whitespace="compact", choice=choice)
    compiled = BYTES.compile(spec)
    for text in calls(list(given)):
        assert compiled.accepts(text)
        assert compiled.accepts(f"{text}\n{text}")
        assert not compiled.accepts(text[:-1])
        assert not compiled.accepts(text.replace("limit", "limits"))
    matcher = compiled.matcher()
    for byte in b'{"name":"':
        matcher.advance(byte)
    assert {chr(token) for token in range(256) if matcher.allows(token)} == {name[0] for name in given}
