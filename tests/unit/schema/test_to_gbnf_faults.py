"""Faults known from converters of schemas to GBNF, one test for each; and llama.cpp parses what is printed."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any

import pytest

from espalier.errors import UnsupportedError
from espalier.grammar.check import check
from espalier.grammar.parser import parse
from espalier.schema.form import (
    Array,
    Boolean,
    Case,
    Contains,
    ItemKind,
    Null,
    NumberForm,
    Object,
    Property,
    Rest,
    String,
    Values,
)
from espalier.schema.gbnf import printed, to_gbnf
from espalier.schema.lowering.convert import convert
from tests.llama_grammar import LlamaGrammar, LlamaVocab, llama_bytes
from tests.unit.schema.hand_shapes import Accepts, Hand, accepts, dumps, one

ANY = (Null(), Boolean(), NumberForm(), String(), Array(items=9), Object(rest=(Rest(node=9),)))


def record(*properties: Property, **rest: Any) -> Object:
    return Object(properties=properties, **rest)


def test_alternatives_stand_in_parentheses() -> None:
    shapes = Hand({0: (record(Property(name="a", node=1, required=True)),), 1: (Values(values=("x", "y")),)})
    test = Accepts(parse(to_gbnf(shapes)))
    assert test('{"a": "x"}')
    assert test('{"a": "y"}')
    assert not test('{"a": "x"')
    assert not test('"y"}')


def test_no_comma_where_the_first_optional_property_is_left_out() -> None:
    properties = (Property(name="a", node=1), Property(name="b", node=1), Property(name="c", node=1, required=True))
    test = accepts(Hand({0: (record(*properties),), 1: (Null(),)}))
    assert test('{"b": null, "c": null}')
    assert test('{"c": null}')
    assert not test('{, "c": null}')
    assert not test('{"b": null "c": null}')


def test_whitespace_may_stand_between_a_value_and_the_comma_in_flexible_style() -> None:
    shapes = Hand({0: (record(Property(name="a", node=1), Property(name="b", node=1)),), 1: (Null(),)})
    assert accepts(shapes, whitespace="flexible")('{ "a" : null \n, "b" : null\t}')


def test_no_declared_properties_is_any_object() -> None:
    test = accepts(Hand({0: (Object(rest=(Rest(node=9),)),), 9: ANY}))
    assert test("{}")
    assert test('{"x": [1, {"y": "z"}]}')


def test_a_recursive_reference_becomes_a_recursive_rule() -> None:
    tree = record(Property(name="v", node=1, required=True), Property(name="kids", node=2))
    shapes = Hand({0: (tree,), 1: (NumberForm(integer=True),), 2: (Array(items=0),)})
    test = Accepts(parse(to_gbnf(shapes)))
    assert test('{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3}]}')
    assert not test('{"v": 1, "kids": [{}]}')


def test_a_constant_null_is_kept() -> None:
    test = accepts(one(Values(values=(None,))))
    assert test("null")
    assert not test('"null"')
    assert not test("")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1000000, "1000000"),
        (1e6, "1000000"),
        (1e21, "1e+21"),
        (0.1, "0.1"),
        (1e-7, "1e-07"),
        (-0.5, "-0.5"),
        (2**70, str(2**70)),
    ],
)
def test_numbers_are_written_as_json(value: float, text: str) -> None:
    assert accepts(one(Values(values=(value,))))(text)
    assert json.loads(text) == value


@pytest.mark.parametrize("control", [chr(c) for c in range(0x20)])
def test_no_control_character_stands_raw_in_a_string(control: str) -> None:
    for case in (String(), String(max_length=5), String(patterns=("^[^x]*$",)), String(not_patterns=("x",))):
        test = accepts(one(case))
        assert test(dumps(f"a{control}"))
        assert not test(f'"a{control}"')


def test_options_keep_their_order_from_run_to_run() -> None:
    options = tuple(record(Property(name=name, node=1, required=True)) for name in "qwertyuiop")
    shapes = Hand({0: options, 1: (Null(),)})
    text = to_gbnf(shapes)
    assert re.findall(r'\\"(.)\\"', text) == list("qwertyuiop")
    assert all(to_gbnf(Hand({0: options, 1: (Null(),)})) == text for _ in range(3))


def test_properties_keep_the_order_of_the_schema() -> None:
    properties = tuple(Property(name=name, node=1, required=True) for name in ("tool", "args"))
    assert accepts(Hand({0: (record(*properties),), 1: (Null(),)}))('{"tool": null, "args": null}')


def test_nothing_is_silently_ignored() -> None:
    cases: list[tuple[Case, list[str]]] = [
        (String(patterns=("^a",)), ['"b"']),
        (String(min_length=2, max_length=3), ['"a"', '"aaaa"']),
        (NumberForm(minimum=Fraction(1), maximum=Fraction(2)), ["0", "3"]),
        (Array(items=9, max_items=1), ["[1, 1]"]),
        (Object(), ['{"a": 1}']),
        (String(formats=("date",)), ['"2023-02-30"']),
    ]
    for case, texts in cases:
        test = accepts(Hand({0: (case,), 9: ANY}))
        assert not any(test(text) for text in texts)


def test_what_no_grammar_can_keep_is_refused_with_its_place() -> None:
    shapes = Hand({0: (record(Property(name="a", node=1)),), 1: (String(patterns=("a(?>b)",)),)})
    with pytest.raises(UnsupportedError, match=r"pattern at /properties/n1 cannot be enforced: .*offset 1"):
        to_gbnf(shapes)


def test_many_values_are_a_list_and_not_a_path_each() -> None:
    values = tuple(f"value {i}" for i in range(50_000))
    test = accepts(one(Values(values=values), Null()))
    assert test('"value 49999"')
    assert not test('"value 50000"')
    assert test("null")


def test_names_of_rules_are_those_that_llama_cpp_takes() -> None:
    text = to_gbnf(
        Hand(
            {0: (record(Property(name="a_b", node=1), Property(name="日", node=1)),), 1: ANY, 9: ANY},
            {1: "/x_y/日\n本"},
        )
    )
    assert all(re.fullmatch("[a-zA-Z0-9-]+", name) for name in re.findall(r"^(\S+) ::=", text, re.MULTILINE))
    assert "# /x_y/日\\u000a本\n" in text


# llama.cpp itself

NAME, AGE, TAGS = (Property(name=name, node=i + 1, required=i == 0) for i, name in enumerate(("name", "age", "tags")))
TWO = (Property(name="a", node=1), Property(name="b", node=1))
QUARTERS = NumberForm(multiples=(Fraction("0.25"),), minimum=Fraction(-3), maximum=Fraction(100000))
SAMPLES: list[tuple[Hand, list[str], list[str]]] = [
    (
        Hand(
            {
                0: (record(NAME, AGE, TAGS),),
                1: (String(min_length=1, max_length=20),),
                2: (NumberForm(integer=True, minimum=Fraction(0), maximum=Fraction(150)),),
                3: (Array(items=4, max_items=3),),
                4: (String(patterns=("^[a-z]+(-[a-z]+)*$",), max_length=9),),
            }
        ),
        ['{"name": "Ann", "age": 150}', '{"name":"é\\"\\u001f","tags":["a-b", "c"]}'],
        ['{"name": ""}', '{"name": "x", "age": 151}', '{"age": 1}', '{"name": "x", "tags": ["A"]}'],
    ),
    (
        Hand({0: (record(*TWO, rest=(Rest(node=9),)),), 1: (Boolean(),), 9: ANY}),
        ["{}", '{"b": true, "c": [1, -2.5e3, null, {"a": "x"}]}', '{"a": false}', '{"ab": 1, "": {}}'],
        ['{"b": true, "a": true}', '{"a": 1}', "{,}", '{"c": 01}'],
    ),
    (
        Hand(
            {
                0: (
                    Array(items=1, unique=True, min_items=1),
                    Array(
                        items=9,
                        contains=(Contains(match=2, other=3, most=2),),
                        kinds=((ItemKind(matches=1, node=2), ItemKind(matches=0, node=3)),),
                    ),
                ),
                1: (Values(values=("a", 3, {"k": [None]})),),
                2: (Null(),),
                3: (Boolean(),),
                9: (Boolean(), Null()),
            }
        ),
        ['["a", {"k": [null]}]', "[true, null]", "[3]"],
        ['["a", "a"]', "[]", "[null, null, null]", "[true]"],
    ),
    (
        one(
            QUARTERS,
            String(not_patterns=("x",), formats=("ipv4",)),
            String(formats=("date",)),
            Values(values=tuple(f"v{i}" for i in range(100))),
        ),
        ["-2.75", "99999.5", '"1.2.3.4"', '"2024-02-29"', '"v99"'],
        ["0.3", "100001", '"1.2.3.400"', '"2023-02-29"', '"v100"'],
    ),
]


@pytest.fixture(scope="module")
def llama() -> LlamaVocab:
    return llama_bytes()


def llama_accepts(llama: LlamaVocab, text: str, sample: str) -> bool:
    grammar = LlamaGrammar(llama, text)
    try:
        for byte in sample.encode():
            if not grammar.allows(byte):
                return False
            grammar.accept(byte)
        return grammar.allows(256)
    finally:
        grammar.close()


@pytest.mark.parametrize("whitespace", ["natural", "compact", "indented", "flexible"])
@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_llama_cpp_reads_it_and_agrees(llama: LlamaVocab, number: int, whitespace: Any) -> None:
    shapes, good, bad = SAMPLES[number]
    found = convert(shapes, whitespace=whitespace)
    text = printed(found)
    assert [finding for finding in check(parse(text)) if finding.code == "llama-cpp"] == []
    test = Accepts(parse(text))
    styles = {"compact": {"separators": (",", ":")}, "indented": {"indent": 2}}.get(whitespace, {})
    for samples, wanted in ((good, True), (bad, False)):
        for sample in samples:
            try:
                spelled = dumps(json.loads(sample), **styles)
            except ValueError:
                spelled = sample
            assert test(spelled) == wanted == llama_accepts(llama, text, spelled), spelled


def test_llama_cpp_takes_large_counts_in_portions(llama: LlamaVocab) -> None:
    text = to_gbnf(Hand({0: (String(max_length=3000), Array(items=1, min_items=1100, max_items=2500)), 1: (Null(),)}))
    assert [finding for finding in check(parse(text)) if finding.code == "llama-cpp"] == []
    assert llama_accepts(llama, text, '"' + "é" * 3000 + '"')
    assert not llama_accepts(llama, text, '"' + "é" * 3001 + '"')
    assert llama_accepts(llama, text, dumps([None] * 1100))
    assert not llama_accepts(llama, text, dumps([None] * 1099))
