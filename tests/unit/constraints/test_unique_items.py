"""Arrays with unique items of every kind: no two are equal, all that is valid can come, nothing is a trap."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import espalier
import tests.tokenizers as tokenizers
from espalier import AllOf, AnyOf, JsonObject, JsonSchema, Regex, Vocab
from espalier.chat.tools import read_tools
from espalier.constraints.compiler import Compiler
from espalier.constraints.free import Free, Region
from espalier.constraints.json_schema.check import check_schema
from espalier.constraints.json_schema.lowered import LoweredSchema
from espalier.constraints.matching.closing import closing, within
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.unique.matcher import CompiledUniqueItems
from espalier.constraints.unique.spots import Spot
from espalier.constraints.unique.tracker import DocumentTracker, ItemPosition
from espalier.constraints.verdict import judge
from espalier.errors import LimitExceeded, SchemaError, SpecError, TokenRefused, UnsupportedError, VocabError
from espalier.tokens import mask as masks
from tests.examples import examples
from tests.laws import check_matcher, matcher_after
from tests.oracle import validator

BYTES = Compiler(Vocab.bytes())
PIECES = Compiler(tokenizers.byte_level_vocab())
COMPILERS = {"bytes": BYTES, "byte level": PIECES}


def unique(items: object, **more: object) -> dict:
    return {"type": "array", "items": items, "uniqueItems": True} | more


INTS = unique({"type": "integer", "minimum": 0, "maximum": 20})
STRINGS = unique({"type": "string"})
RECORD = {"type": "object", "properties": {"t": STRINGS, "n": INTS}, "additionalProperties": False}
SWITCH = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 2},
                                           "b": {"type": "boolean"}}, "required": ["a"],
          "additionalProperties": False}  # fmt: skip
CASES = {
    "anything": (
        {"uniqueItems": True},
        ["[1,2]", '[{"a":1,"b":2},{"a":1}]', "[[1],[2]]", '"a"', "[1,true]", "[null,0,false]", '{"a":[1,1]}'],
        ["[1,1]", "[1,1.0]", "[100,1e2]", '[{"a":1,"b":2},{"b":2,"a":1}]', "[[1],[1]]", "[null,null]", "[0,-0.0]"],
    ),
    "numbers": (
        unique({"type": "number"}),
        ["[1, 1.5,0.1,0.2]", "[9007199254740992,9007199254740993]"],
        ["[0.1,0.10]", "[1,2,1.0]", "[0.1,0.1000000000000000055]", "[9007199254740992.0,9007199254740993.0]"],
    ),
    "all of twelve": (
        unique({"type": "integer", "minimum": 1, "maximum": 12}),
        ["[1,2,12]", f"[{','.join(map(str, range(12, 0, -1)))}]"],
        ["[1,1]", f"[{','.join(map(str, range(1, 13)))},1]"],
    ),
    "every value of an enum": (
        unique({"enum": ["aa", "ab", "abc", *"bcdefg"]}, minItems=9),
        ['["aa","ab","abc","b","c","d","e","f","g"]'],
        ['["aa","aa","abc","b","c","d","e","f","g"]', '["aa"]'],
    ),
    "objects": (
        unique(SWITCH, minItems=2),
        ['[{"a":0,"b":true},{"a":0},{"a":1}]'],
        ['[{"a":0},{"a":0}]'],
    ),
    "objects with any names": (
        unique({"type": "object"}),
        ['[{"a":1,"b":2},{"a":1,"b":3},{}]', '[{"a":1,"a":2},{"a":1}]'],
        ['[{"a":1,"b":2}, {"b":2,"a":1}]', '[{"a":1,"a":2},{"a":2}]'],
    ),
    "short strings": (
        unique({"type": "string", "maxLength": 2}, minItems=3), ['["","a","ab"]'], ['["","",""]', '["a"]'],
    ),
    "within one another": (
        unique(unique({"type": "boolean"}, maxItems=2), minItems=4),
        ["[[],[true],[false],[true,false],[false,true]]"],
        ["[[],[],[true],[false]]", "[[],[true,true],[false],[true]]"],
    ),
    "one first item leaves none for the second": (
        {"type": "array", "prefixItems": [{"type": "string"}, {"const": "a"}], "items": False, "minItems": 2,
         "uniqueItems": True},
        ['["b","a"]'],
        ['["a","a"]'],
    ),
    "strings and others": (
        unique({"type": ["string", "null", "boolean"]}), ['["b",null,true,false,"c"]'], ["[null,null]"],
    ),
    "beside contains": (
        STRINGS | {"contains": {"const": "a"}, "minContains": 1}, ['["b","a"]'], ['["a","a"]', '["b"]'],
    ),
    "a member after others": (
        {"type": "object", "properties": {"n": {"type": "string"}, "x": INTS | {"minItems": 3}},
         "required": ["n", "x"], "additionalProperties": False},
        ['{"n":"a[1,1]","x":[1,2,3]}'],
        ['{"n":"","x":[1,1,2]}'],
    ),
    "a member that cannot be": (
        {"type": "object", "properties": {"n": {"type": "string"},
                                          "x": unique({"enum": list("abcdefghi")}, minItems=10)},
         "additionalProperties": False},
        ['{"n":"x"}', "{}"],
        ['{"x":[]}'],
    ),
}  # fmt: skip
COMPOSED = {
    "all_of with an alphabet": (
        AllOf(JsonSchema(STRINGS), Regex(r'[\[\]",ab ]*')), ['["a","b"]', '["","a","aa"]'], ['["a","a"]', '["c"]'],
    ),
    "all_of that leaves few strings": (
        AllOf(JsonSchema(STRINGS | {"minItems": 3}), Regex(r'(\[|\]|"[ab]?"|,)*')),
        ['["a","b",""]'],
        ['["a","a",""]', '["a","b"]'],
    ),
    "all_of with two schemas": (
        AllOf(JsonSchema(INTS), JsonSchema(INTS | {"minItems": 2})), ["[1,2]"], ["[1,1]", "[1]"],
    ),
    "free": (
        Free({"<c>": Region(JsonSchema(RECORD), end="</c>"), "J:": JsonObject()}),
        ['no <c>{"t":["a","b"],"n":[1,2]}</c> J:{"t":["a","a"]} <c>{"t":["a"]}</c><c>{"t":["a"]}</c>', "[1,1]"],
        ['<c>{"t":["a","a"]}</c>', 'J:{"a":"<c>"} <c>{"n":[1,1]}</c>'],
    ),
    "all_of in free": (
        Free({"<c>": AllOf(JsonSchema(RECORD), Regex("[^z]*"))}),
        ['no <c>{"t":["a","b"],"n":[1,2]}zz'],
        ['<c>{"t":["a","a"]}'],
    ),
    "any_of": (
        AnyOf(JsonSchema(INTS), JsonSchema(STRINGS)), ["[1,2]", '["a"]', "[]"], ["[1,1]", '["a","a"]'],
    ),
}  # fmt: skip


SLOW = ("every value of an enum", "a member after others")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=[pytest.mark.slow] if kind != "bytes" and name in SLOW else [])
        for name in CASES
        for kind in COMPILERS
    ],
)
def test_laws(name: str, kind: str) -> None:
    schema, accepted, rejected = CASES[name]
    compiler = COMPILERS[kind]
    made = compiler.compile(JsonSchema(schema))
    assert isinstance(made, CompiledUniqueItems) or name == "a member that cannot be"
    check_matcher(made, trie=compiler.trie, accepted=accepted, rejected=rejected, walks=2)


@pytest.mark.parametrize("kind", COMPILERS)
@pytest.mark.parametrize("name", COMPOSED)
def test_laws_in_compositions(name: str, kind: str) -> None:
    spec, accepted, rejected = COMPOSED[name]
    compiler = COMPILERS[kind]
    check_matcher(compiler.compile(spec), trie=compiler.trie, accepted=accepted, rejected=rejected, walks=2)
    for text, good in [(text, True) for text in accepted] + [(text, False) for text in rejected]:
        assert judge(spec, text).valid is good, text


CALLS = {
    "args": '{"name":"%s","args":%s}',
    "openai": '{"name": "%s", "arguments": %s}',
    "llama3": '{"name": "%s", "parameters": %s}',
    "hermes": '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>',
    "mistral": '[TOOL_CALLS][{"name": "%s", "arguments": %s}]',
    "mistral_args": "[TOOL_CALLS]%s[ARGS]%s",
    "functionary": "<function=%s>%s</function>",
}
LISTS = {"type": "array", "items": {"type": "string"}}
TOOLS = {"f": RECORD, "ff": {"type": "object", "properties": {"t": LISTS}, "additionalProperties": False}}


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("name", CALLS)
def test_the_arguments_of_a_tool_keep_their_items_unique(name: str, choice: str) -> None:
    call = CALLS[name]
    good = [call % ("f", '{"t":["a","b"],"n":[1,2]}'), call % ("ff", '{"t":["a","a"]}')]
    bad = [call % ("f", '{"t":["a","a"]}'), call % ("f", '{"n":[3,3]}')]
    free = ['see [1,1] and {"n":[1,1]}'] if choice == "auto" else []
    made = BYTES.compile(ToolCalls(TOOLS, choice=choice, format=name))
    check_matcher(made, trie=BYTES.trie, accepted=[*good, *free], rejected=bad, walks=1)
    wire = ToolCalls(TOOLS, format=name).wire
    if wire.marker and choice == "auto":
        text = f"so: {call % ('ff', '{}')}"
        assert made.accepts(text)


def test_a_second_call_has_the_arrays_of_its_own_tool() -> None:
    spec = ToolCalls(TOOLS, choice="required", format="hermes")
    one, other = (CALLS["hermes"] % (name, '{"t":["a","a"]}') for name in ("ff", "f"))
    made = BYTES.compile(spec)
    assert made.accepts(f"{one}\n{one}")
    assert not made.accepts(f"{one}\n{other}")
    assert made.accepts(f"{one}\n" + CALLS["hermes"] % ("f", '{"t":["a"],"n":[1]}'))


def test_tools_in_python_notation_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"the tool f: uniqueItems at /properties/t cannot be enforced"):
        BYTES.compile(ToolCalls([replace(tool, strict=True) for tool in read_tools(TOOLS)], format="pythonic"))


def test_calls_in_all_of_are_followed_too() -> None:
    made = BYTES.compile(AllOf(ToolCalls(TOOLS, format="args"), Regex("[^z]*")))
    assert made.accepts(CALLS["args"] % ("f", '{"t":["a","b"]}'))
    assert not made.accepts(CALLS["args"] % ("f", '{"t":["a","a"]}'))


def test_free_refuses_regions_whose_end_is_not_known() -> None:
    with pytest.raises(UnsupportedError, match="each region is one JSON object or array"):
        BYTES.compile(Free({"a:": JsonSchema(INTS), "b:": Regex(".*")}))
    with pytest.raises(UnsupportedError, match="after 'a:' need not be one"):
        BYTES.compile(Free({"a:": JsonSchema({"anyOf": [INTS, {"type": "string"}]})}))


@settings(max_examples=examples(200), deadline=None)
@given(
    st.recursive(st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0, -0.0, 1e2, 100])
                 | st.text('a"\\[]{},:', max_size=2),
                 lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\[:', max_size=1), inner)),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_the_tracker_finds_the_first_repeated_item_however_the_text_is_cut(value: object, rng) -> None:
    tracker = DocumentTracker((Spot(names={}, other=0, items=(0,), unique=True, pointer="/x"),))
    data = json.dumps(value, indent=rng.choice([None, 1])).encode()
    point: object = tracker.start
    at = 0
    while at < len(data) and isinstance(point, ItemPosition):
        some = rng.randint(1, 6)
        point = tracker.feed(point, data[at : at + some])
        at += some
    everywhere = {"uniqueItems": True, "items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}}
    assert isinstance(point, ItemPosition) == validator(everywhere)(value)


# What it tells


def test_the_comma_is_refused_where_every_value_is_used() -> None:
    matcher = matcher_after(BYTES.compile(JsonSchema(unique({"type": "integer", "minimum": 1, "maximum": 9}))),
                    "[1,2,3,4,5,6,7,8,9")  # fmt: skip
    assert not matcher.allows(ord(","))
    assert matcher.allows(ord("]"))


def test_a_beginning_that_leads_only_to_a_repeated_item_is_refused() -> None:
    made = BYTES.compile(JsonSchema(unique({"enum": ["ab", "ac", "b", *range(9)]})))
    matcher = matcher_after(made, '["ab","ac","')
    assert not matcher.allows(ord("a"))
    assert matcher.allows(ord("b"))
    told = matcher.explain(ord("a"))
    assert told.reason == 'what can follow repeats an item of the array, such as "ab"'
    assert (told.rule, told.offset, told.expected) == (None, 0, "another item")


def test_the_refusal_names_the_item_and_the_place() -> None:
    any_number = unique({"type": "integer"})
    matcher = matcher_after(
        BYTES.compile(JsonSchema({"type": "object", "properties": {"n": any_number}})), '{"n": [12, 12'
    )
    told = matcher.explain(ord("]"))
    assert told.reason == 'the item "12" is in the array already, and its items are unique'
    assert (told.member, told.rule) == ("json_schema", "/properties/n")
    with pytest.raises(TokenRefused, match="is in the array already"):
        matcher.advance(ord(","))


def test_blame_in_all_of_is_the_schemas() -> None:
    made = BYTES.compile(AllOf(Regex(r"[^\n]*"), JsonSchema(INTS)))
    told = matcher_after(made, "[1,1").explain(ord(","))
    assert told.member == "all_of[1].json_schema"
    assert "in the array already" in told.reason


def test_completions_and_a_token_limit_repeat_nothing() -> None:
    made = BYTES.compile(
        JsonSchema(
            unique({"type": "boolean"}, maxItems=0) | {"items": {"type": "integer"}, "minItems": 4, "maxItems": 9}
        )
    )
    matcher = matcher_after(made, "[0,1")
    found = json.loads("[0,1" + made.vocab.decode(matcher.shortest_completion()).decode())
    assert len(set(found)) == len(found) == 4
    for most in range(2, 12):
        way = within(matcher, most)
        allowed = closing(matcher, most, made.vocab.width)
        for token in masks.allowed_ids(matcher.mask(), made.vocab.width).tolist():
            ahead = matcher.fork()
            ahead.advance(token)
            known = ahead.is_finished or within(ahead, most) is not None
            assert masks.test(allowed, token) == known, (most, token)
        assert way is None or len(way) <= most


def test_a_document_that_cannot_be_is_refused_when_it_is_compiled() -> None:
    with pytest.raises(SchemaError, match="contradicts uniqueItems"):
        BYTES.compile(JsonSchema(unique({"enum": list(range(9))}, minItems=10)))
    either = {"anyOf": [{"type": "null"}, unique({"type": "integer", "minimum": 1, "maximum": 9}, minItems=10)]}
    assert BYTES.compile(JsonSchema(either)).matcher().forced() == tuple(b"null")
    with pytest.raises(SpecError, match="too few different items"):
        BYTES.compile(AllOf(JsonSchema(STRINGS | {"minItems": 3}), Regex(r'(\[|\]|"a?"|,)*')))
    first = [{"type": "string"}, *[{"enum": list(range(9))}] * 10]
    with pytest.raises(LimitExceeded, match="bounded search"):
        BYTES.compile(JsonSchema({"type": "array", "prefixItems": first, "minItems": 11, "uniqueItems": True}))


@pytest.mark.parametrize(("least", "can_be"), [(3, True), (4, False)])
def test_names_of_which_patterns_leave_three_were_taken_for_endless(least: int, can_be: bool) -> None:
    """`{"x":` could come where no object with four names could follow."""
    names = {"type": "object", "patternProperties": {"..": False, "[^ab]": False}, "minProperties": least}
    schema = {"type": "object", "properties": {"x": names}, "additionalProperties": False}
    matcher = matcher_after(BYTES.compile(JsonSchema(schema, whitespace="compact")), "{")
    assert matcher.allows(ord('"')) == can_be
    if can_be:
        valid = validator(schema)
        matcher = matcher_after(BYTES.compile(JsonSchema(schema, whitespace="compact")), '{"x":{"b":1,"')
        assert valid(json.loads(b'{"x":{"b":1,"' + BYTES.vocab.decode(matcher.shortest_completion())))


def test_an_array_may_need_many_different_lists() -> None:
    """minItems: 50 was refused, because a thousand tries get no further than some forty items."""
    compiled = BYTES.compile(JsonSchema(unique({"type": "array", "items": {"type": "integer"}}, minItems=60)))
    text = bytes(compiled.matcher().shortest_completion()[:-1])
    items = [json.dumps(item) for item in json.loads(text)]
    assert len(items) == len(set(items)) == 60


def test_a_vocabulary_that_lacks_bytes_is_refused() -> None:
    with pytest.raises(VocabError, match="could not be made different"):
        Compiler(Vocab.from_tokens([b"[", b"]", b",", b"1", b"2", b""], eos_ids=[5])).compile(JsonSchema(INTS))


def test_the_contract_says_what_is_narrowed_and_where_it_is_not_enforced() -> None:
    contract = espalier.contract(JsonSchema({"anyOf": [INTS, {"type": "array", "items": {"type": "integer"},
                                                              "minItems": 3}]}))  # fmt: skip
    told = [one for one in contract.entries if one.keyword == "uniqueItems"][-1]
    assert (told.verdict, told.note) == ("narrowed", "no items are equal, even where another option would allow it")
    made = BYTES.compile(JsonSchema({"anyOf": [INTS, {"type": "array", "minItems": 3}]}))
    assert not made.accepts("[1,1,1]")
    report = check_schema(JsonSchema(INTS), BYTES, engine="gbnf")
    assert [entry.pointer for entry in report.lacking] == ["/uniqueItems"]


def test_rollback_and_fork_remember_the_items() -> None:
    made = BYTES.compile(JsonSchema(INTS))
    matcher = matcher_after(made, "[1,2,1")
    before = matcher.mask()
    fork = matcher.fork()
    for byte in b"2,5]":
        matcher.advance(byte)
    matcher.advance(256)
    matcher.rollback(5)
    assert np.array_equal(matcher.mask(), before)
    assert np.array_equal(fork.mask(), before)
    matcher.rollback(4)
    assert matcher.allows(ord("]"))


REPEATING = {
    "any items": ({"anyOf": [{"uniqueItems": True, "minItems": 2}, {"type": "array"}]}, "[3,null,3]"),
    "a longer array": (
        {"anyOf": [{"type": "array", "uniqueItems": True, "maxItems": 3}, {"type": "array", "maxItems": 4}]},
        "[1,1]",
    ),
    "a prefix": (
        {"anyOf": [{"prefixItems": [{"type": "null"}], "items": {"type": "string"}, "uniqueItems": True},
                   {"items": True, "maxProperties": 0}]},
        '[null,"a","a"]',
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", REPEATING)
def test_an_array_may_repeat_items_where_another_option_plainly_includes_it(which: str) -> None:
    schema, text = REPEATING[which]
    spec = JsonSchema(schema)
    compiled = BYTES.compile(spec)
    assert compiled.accepts(text)
    assert not isinstance(compiled, CompiledUniqueItems)
    for use in ("alone", "grammar"):
        entries = LoweredSchema(spec).contract(use).entries
        assert {one.verdict for one in entries if one.pointer} == {"enforced"}


NARROWED = {
    "in the options": {"anyOf": [unique({"type": "integer"}), {"items": {"type": "number"}, "maxItems": 3}]},
    "behind references": {
        "$defs": {"set": {"allOf": [unique({"type": "integer"})]}},
        "anyOf": [{"$ref": "#/$defs/set"}, {"items": {"type": "number"}, "maxItems": 3}],
    },
}


@pytest.mark.parametrize("which", NARROWED)
def test_the_contract_names_uniqueItems_where_it_stands_among_options(which: str) -> None:  # noqa: N802  # the keyword
    spec = JsonSchema(NARROWED[which], allow="checked")
    at = "/anyOf/0/uniqueItems" if which == "in the options" else "/$defs/set/allOf/0/uniqueItems"
    for use, verdict in (("alone", "narrowed"), ("grammar", "checked")):
        entries = [one for one in LoweredSchema(spec).contract(use).entries if one.keyword == "uniqueItems"]
        assert [(one.pointer, one.verdict) for one in entries] == [(at, verdict)]


LONG = {
    "numbers": (unique({"type": "integer"}, minItems=300), b"[0,1,2,3,", {b"0": False, b"4": True, b"]": False}),
    "lists": (unique(unique({"type": "number"}, minItems=200)), b"[[0,", {b"0": True, b"1": True, b"]": False}),
    "strings": (unique({"type": "string"}, minItems=200), b'["a","', {b'"': True, b"a": True}),
    "then a flag": (
        unique({"type": "boolean"}, prefixItems=[{"type": "integer"}] * 150, minItems=150, maxItems=151), b"[0,",
        {b"0": False, b"1": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_an_array_of_hundreds_of_unique_items_can_be_begun(name: str) -> None:
    """No bounded search finds such an array from its start; it is enough to know that one exists."""
    schema, text, allowed = LONG[name]
    matcher = BYTES.compile(JsonSchema(schema)).matcher()
    for byte in text:
        assert masks.test(matcher.mask(), byte), f"{byte:c} of {text!r}"
        matcher.advance(byte)
    found = matcher.mask()
    assert {piece: masks.test(found, piece[0]) for piece in allowed} == allowed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["integers", "lists"])
def test_long_arrays_of_unique_items_keep_the_laws(name: str) -> None:
    schema, good, bad = {
        "integers": (unique({"type": "integer", "minimum": 0}, minItems=60), [*range(60)], [*range(59), 0]),
        "lists": (
            unique(unique({"type": "integer"}, maxItems=2), minItems=1), [[i] for i in range(20)],
            [[1, 2], [3], [1, 2]],
        ),
    }[name]  # fmt: skip
    made = BYTES.compile(JsonSchema(schema))
    accepted, rejected = (json.dumps(one, separators=(",", ":")) for one in (good, bad))
    check_matcher(made, trie=BYTES.trie, accepted=[accepted], rejected=[rejected], walks=2)
