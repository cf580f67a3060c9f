"""Schemas as the arguments of a call in Python: what comes out is read by Python itself and judged by `jsonschema`, and
whatever JSON may say, the arguments may."""

from __future__ import annotations

import ast
import json
from random import Random
from typing import Any

import pytest

from espalier.errors import EspalierError, SchemaError, SpecError
from espalier.grammar.sample import SentenceSampler
from espalier.schema.form import Boolean, Null, Object, Property, Rest, String, Values
from espalier.schema.gbnf import printed, to_gbnf
from espalier.schema.lowering.convert import convert
from espalier.schema.lowering.notation import RESERVED, argument_names, is_argument
from espalier.schema.lowering.rulebook import SchemaGrammar
from espalier.schema.normal.expand import expand
from tests.oracle import validator
from tests.schema_fuzz import Maker
from tests.unit.schema.hand_shapes import Accepts, Hand

WORDS = {True: "True", False: "False", None: "None"}
TRIP = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 30},
        "tags": {"type": "array", "items": {"type": "string"}},
        "opts": {
            "type": "object",
            "properties": {"deep": {"type": "boolean"}, "n": {"type": ["null", "number"]}},
            "additionalProperties": False,
        },
    },
    "required": ["city"],
    "additionalProperties": False,
}
RECURSIVE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "inner": {"$ref": "#"}},
    "required": ["name"],
    "additionalProperties": False,
}
SCHEMAS: list[Any] = [
    TRIP,
    RECURSIVE,
    {"type": "object"},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "additionalProperties": False},
    {"type": "object", "patternProperties": {"^x_": {"type": "null"}}, "additionalProperties": False},
    {"type": "object", "propertyNames": {"pattern": "^[a-i]{1,2}$"}, "additionalProperties": {"type": "boolean"}},
    {"const": {"a": 1, "b": [True, None, {"c d": False, "e": 'x"\\\n\u0000é'}], "c": 1.5}},
    {"enum": [{}, {"a": True}, 3, "x", {"a": {}}, {"a": []}]},
    {"properties": {"k": {"enum": [None, True, False, 0, -1.5, 1e300, "", {"n": None}, [[]]]}}, "required": ["k"]},
    {"anyOf": [{"type": "null"}, RECURSIVE | {"properties": {"name": {"const": "x"}}}, TRIP]},
    {"type": "object", "minProperties": 1, "maxProperties": 2, "properties": {"a": True, "b": True, "c": True}},
    {"type": "object", "properties": {"u": {"type": "array", "items": {"enum": [1, True, None]}, "uniqueItems": True}}},
]


def call(value: dict[str, Any], separators: tuple[str, str] = (", ", ": ")) -> str:
    """The object as arguments, in the order of its names."""
    item = separators[0]
    return "(" + item.join(f"{name}={written(inner, separators)}" for name, inner in value.items()) + ")"


def written(value: Any, separators: tuple[str, str]) -> str:
    item, key = separators
    if value is None or isinstance(value, bool):
        return WORDS[value]
    if isinstance(value, dict):
        inside = (json.dumps(n, ensure_ascii=False) + key + written(v, separators) for n, v in value.items())
        return "{" + item.join(inside) + "}"
    if isinstance(value, list):
        return "[" + item.join(written(inner, separators) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def read(text: str) -> dict[str, Any]:
    """The arguments as Python parses them: keywords with literals only."""
    found = ast.parse("f" + text, mode="eval").body
    assert isinstance(found, ast.Call)
    assert not found.args
    values = {}
    for keyword in found.keywords:
        assert keyword.arg is not None
        values[keyword.arg] = ast.literal_eval(keyword.value)
    return values


def converted(schema: Any, **options: Any) -> SchemaGrammar:
    return convert(expand(schema), style="python", **options)


def notes(found: SchemaGrammar, keyword: str) -> list[str]:
    return [note.text for note in found.notes if note.keyword == keyword]


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
@pytest.mark.parametrize("whitespace", ["natural", "compact", "flexible"])
def test_every_text_is_a_call_whose_arguments_fit(number: int, whitespace: str) -> None:
    found = converted(SCHEMAS[number], whitespace=whitespace)
    assert not found.gaps
    valid = validator(SCHEMAS[number])
    sampler, random = SentenceSampler(found.grammar), Random(number)
    for size in (1, 10, 40, 120, 400) * 8:
        text = sampler.draw(random, max_size=size)
        assert valid(read(text)), text


@pytest.mark.slow
def test_the_same_values_as_in_json() -> None:
    """Random schemas: where the JSON grammar takes an object, this one takes its arguments, and takes no other.

    120 schemas; `python -m benchmarks.fuzz tools` tries calls in the Python style for as long as it is let.
    """
    met = {True: 0, False: 0}
    for seed in range(120):
        random = Random(seed)
        maker = Maker(random, depth=3)
        schema = maker.document()
        try:
            plain = convert(expand(schema), whitespace="compact")
        except EspalierError:
            continue
        try:
            ours = converted(schema, whitespace="compact")
        except SchemaError:  # no object fits, or so the values below must say
            ours = None
        takes, calls = Accepts(plain), None if ours is None else Accepts(ours)
        for _ in range(30):
            value = maker.value(0)
            if isinstance(value, dict):
                wanted = takes(json.dumps(value, separators=(",", ":")))
                got = calls is not None and calls(call(value, (",", ":")))
                assert got == wanted, (schema, value)
                met[wanted] += 1
    assert min(met.values()) > 140, met


@pytest.mark.slow
def test_samples_of_random_schemas_fit() -> None:
    seen = 0
    for seed in range(1000, 1150):
        random = Random(seed)
        schema = Maker(random, depth=3).document()
        try:
            shapes = expand(schema)
            found = convert(shapes, style="python")
        except EspalierError:
            continue
        if found.gaps or shapes.contract.by_verdict("checked"):
            continue
        valid, sampler = validator(schema), SentenceSampler(found.grammar)
        for size in (5, 30, 100):
            text = sampler.draw(random, max_size=size)
            assert valid(read(text)), (schema, text)
            seen += 1
    assert seen > 200


def test_the_example() -> None:
    test = Accepts(converted(TRIP))
    value = {"city": "Paris", "days": 3, "tags": ["a", "b"], "opts": {"deep": True, "n": None}}
    text = '(city="Paris", days=3, tags=["a", "b"], opts={"deep": True, "n": None})'
    assert call(value) == text
    assert read(text) == value
    assert test(text)
    assert test(call(value, (",", ":")))
    for wrong in (
        '{"city": "Paris"}',
        '("city"="Paris")',
        '(city: "Paris")',
        '(city ="Paris")',
        '(city= "Paris")',
        '( city="Paris")',
        '(city="Paris" )',
        '(city="Paris",)',
        "(city='Paris')",
        '(city="Paris", opts={"deep": true})',
        '(city="Paris", opts={"n": null})',
        '(city="Paris", opts=(deep=True))',
        '(city="Paris", days=03)',
        '(days=3, city="Paris")',
        "()",
    ):
        assert not test(wrong), wrong


def test_whitespace() -> None:
    flexible = Accepts(converted(TRIP, whitespace="flexible"))
    assert flexible('( city="x" ,\n\tdays=3 )')
    assert flexible('(\n  city="x",\n  opts={ "deep" : True }\n)')
    assert read('(\n  city="x",\n  opts={ "deep" : True }\n)') == {"city": "x", "opts": {"deep": True}}
    assert not flexible('(city ="x")')
    assert not flexible('(city= "x")')
    compact = Accepts(converted(TRIP, whitespace="compact"))
    assert compact('(city="x",days=3)')
    assert not compact('(city="x", days=3)')
    own = Accepts(converted(TRIP, whitespace="indented", separators=(",  ", ":")))
    assert own('(city="x",  days=3)')
    assert not own('(city="x", days=3)')
    empty = Accepts(converted({"const": {}}, whitespace="flexible"))
    assert empty("( )")
    assert empty("()")


def test_a_reference_to_the_top_is_a_dict_inside() -> None:
    found = converted(RECURSIVE)
    test = Accepts(found)
    assert test('(name="a", inner={"name": "b", "inner": {"name": "c"}})')
    assert not test('(name="a", inner=(name="b"))')
    assert not test('{"name": "a"}')
    assert found.pointers["root"] == ""


def test_names_inside_are_free() -> None:
    schema = {"properties": {"a": {"properties": {"x-y": {"type": "null"}}, "required": ["x-y"]}}, "required": ["a"]}
    assert Accepts(converted(schema))('(a={"x-y": None, "class": 1, "é ": 2})')


@pytest.mark.parametrize("name", ["my-name", "class", "None", "1a", "", "a b", "e\u0301x", "ﬁ", "__debug__", "a\ud800"])
def test_names_that_cannot_be_written(name: str) -> None:
    assert not is_argument(name)
    shapes = Hand({0: (Object(properties=(Property(name=name, node=1), Property(name="ok", node=1))),), 1: (Null(),)})
    found = convert(shapes, style="python")
    assert [text for text in notes(found, "properties") if repr(name) in text]
    test = Accepts(found)
    assert test("(ok=None)")
    assert test("()")
    needed = Hand({0: (Object(properties=(Property(name=name, node=1, required=True),)),), 1: (Null(),)})
    with pytest.raises(SchemaError, match="cannot be written as an argument"):
        convert(needed, style="python")


def test_a_required_name_that_cannot_be_written_is_named_by_its_pointer() -> None:
    schema = {"properties": {"a/b": {"type": "integer"}}, "required": ["a/b"]}
    with pytest.raises(SchemaError, match="'a/b'") as caught:
        converted(schema)
    assert caught.value.pointer == "/properties/a~1b"
    shared = {"properties": {"a-b": {"$ref": "#/$defs/x"}}, "required": ["a-b"], "$defs": {"x": {"type": "null"}}}
    with pytest.raises(SchemaError) as caught:
        converted(shared)
    assert caught.value.pointer == "/properties/a-b"


def test_of_several_objects_those_that_cannot_be_written_are_left_out() -> None:
    bad = {"type": "object", "properties": {"a-b": {"type": "null"}}, "required": ["a-b"]}
    good = {"type": "object", "properties": {"c": {"type": "null"}}, "required": ["c"], "additionalProperties": False}
    found = converted({"anyOf": [bad, good]})
    assert notes(found, "required")
    assert Accepts(found)("(c=None)")
    with pytest.raises(SchemaError, match="'a-b'"):
        converted(bad)
    constants = converted({"enum": [{"a-b": 1}, {"a": 1}]})
    assert Accepts(constants)("(a=1)")
    assert notes(constants, "required")


@pytest.mark.parametrize("name", ["straße", "naïve", "名前", "_", "match", "print", "True_", "x1"])
def test_identifiers_beyond_ascii_are_written_as_declared(name: str) -> None:
    found = converted({"properties": {name: {"type": "null"}}, "additionalProperties": False, "required": [name]})
    assert Accepts(found)(f"({name}=None)")
    assert read(f"({name}=None)") == {name: None}


def test_undeclared_names_are_identifiers_and_no_keywords() -> None:
    shapes = Hand(
        {0: (Object(properties=(Property(name="ab", node=1),), rest=(Rest(node=2),)),), 1: (Null(),), 2: (Boolean(),)}
    )
    found = convert(shapes, style="python")
    assert notes(found, "additionalProperties")
    test = Accepts(found)
    for name in ("x", "abc", "a", "_", "classy", "clas", "Nones", "A9", "__debug", "__debug___", "match"):
        assert test(f"({name}=True)"), name
        compile(f"f({name}=True)", "", "eval")
    for name in (*sorted(RESERVED), "ab", "", "9a", "a-b", "a b", "é", '"a"'):
        assert not test(f"({name}=True)"), name
    assert test("(ab=None, x=True, y=False)")
    assert not test("(x=True, ab=None)")


def test_names_by_pattern() -> None:
    schema = {
        "properties": {"x1": True},
        "patternProperties": {"^x": {"type": "boolean"}, "^(class|-)": {"type": "null"}},
        "additionalProperties": {"type": "integer"},
        "propertyNames": {"maxLength": 5},
    }
    test = Accepts(converted(schema))
    assert test("(x1=True, xy=False, y=1)")
    assert test("(class_=1)") is False
    assert test("(xylophone=True)") is False
    assert test("(xyl=1)") is False
    closed = {"patternProperties": {"^-": {"type": "null"}}, "additionalProperties": False}
    assert Accepts(converted(closed))("()")
    assert not Accepts(converted(closed))("(-=None)")


def test_argument_names_are_what_python_takes() -> None:
    found = argument_names()
    for name in ("a", "Z_9", "_", "iff", "i", "is_", "IS", *RESERVED, "a.b", "", "5"):
        assert found.accepts(name.encode()) == is_argument(name), name


@pytest.mark.parametrize(
    "schema", [{"type": "integer"}, {"type": ["null", "array"]}, {"const": 3}, {"enum": [[], "x"]}]
)
def test_only_objects_are_arguments(schema: Any) -> None:
    with pytest.raises(SchemaError, match="only objects can be written as arguments"):
        converted(schema)


def test_what_is_no_object_is_left_out_at_the_top() -> None:
    found = converted({"type": ["null", "object"], "properties": {"a": {"type": ["null", "integer"]}}})
    assert notes(found, "type")
    test = Accepts(found)
    assert test("(a=None)")
    assert test("(a=5)")
    assert not test("None")


def test_what_nothing_satisfies() -> None:
    with pytest.raises(SchemaError, match="no document"):
        convert(Hand({0: (Object(properties=(Property(name="a", node=-1, required=True),)),)}), style="python")


def test_faults_are_named() -> None:
    shapes = expand(TRIP)
    with pytest.raises(SpecError, match="indented") as caught:
        convert(shapes, style="python", whitespace="indented")
    assert caught.value.field == "whitespace"
    with pytest.raises(SpecError, match="unknown style") as caught:
        convert(shapes, style="yaml")  # type: ignore[arg-type]
    assert caught.value.field == "style"
    with pytest.raises(SpecError, match="whitespace"):
        convert(shapes, style="python", whitespace="wide")  # type: ignore[arg-type]


def test_strings_are_what_python_reads() -> None:
    """Every character that JSON strings hold here, in the one spelling, is the same character in Python."""
    test = Accepts(converted({"properties": {"s": {"type": "string"}}, "required": ["s"]}))
    for start in (*range(0, 0x800, 64), 0x2000, 0xD7C0, 0xE000, 0xFEC0, 0x1F600, 0x10FFC0):
        value = {"s": "".join(map(chr, range(start, start + 64)))}
        assert test(call(value))
        assert read(call(value)) == value
    for wrong in (
        r'"\x41"',
        r'"\N{DIGIT ONE}"',
        r'"\ud800"',
        r'"\/"',
        r'"\a"',
        '"\n"',
        '"\\\n"',
        "'a'",
        'r"a"',
        'b"a"',
    ):
        assert not test(f"(s={wrong})"), wrong


@pytest.mark.parametrize("text", ["0", "-0", "-0.0", "1.0", "1e5", "0e0", "1.5E-7", "-9e+300", "12345678901234567890"])
def test_numbers_are_what_python_reads(text: str) -> None:
    test = Accepts(converted({"properties": {"n": {"type": "number"}}, "required": ["n"]}))
    assert test(f"(n={text})")
    assert read(f"(n={text})") == json.loads(f'{{"n": {text}}}')
    for wrong in ("01", "-01", "1.", ".5", "1_0", "0x1", "1j", "+1", "--1", "00", "00e1", "inf"):
        assert not test(f"(n={wrong})"), wrong


def test_constants_are_spelled_for_python() -> None:
    value = {"a": 1, "b": [True, None, {"c": False}], "d": {}, "e": []}
    found = converted({"const": value})
    assert Accepts(found)(call(value))
    assert Accepts(found)('(a=1,b=[True,None,{"c":False}],d={},e=[])')
    assert not Accepts(found)(json.dumps(value))
    shapes = Hand(
        {0: (Object(properties=(Property(name="k", node=1),)),), 1: (Values(values=(None, True, {"x": False})),)}
    )
    test = Accepts(convert(shapes, style="python"))
    assert all(test(f"(k={text})") for text in ("None", "True", '{"x": False}'))
    assert not any(test(f"(k={text})") for text in ("null", "true", '{"x": false}', "False"))


def test_text_for_llama_cpp() -> None:
    text = to_gbnf(expand({"const": {"a": None}}), style="python")
    assert text == '# the schema itself\nroot ::= "(a=None)"\n'
    assert printed(converted({"const": {"a": None}})) == text


@pytest.mark.parametrize("schema", SCHEMAS)
def test_json_stays_as_it_was(schema: Any) -> None:
    found = convert(expand(schema))
    assert found == convert(expand(schema), style="json")
    assert not {"True", "False", "None"} & set(printed(found).replace('"', " ").split())


def test_json_rules_stay_as_they_were() -> None:
    schema = {
        "properties": {"a": {"type": "boolean"}, "b": {"enum": [None, True, "x"]}},
        "type": "object",
        "required": ["a"],
        "additionalProperties": False,
    }
    assert to_gbnf(expand(schema)).splitlines() == [
        "# the schema itself",
        r'root ::= "{\"a\":" " "? a ("," " "? "\"b\":" " "? b)? "}"',
        "# /properties/a",
        "a ::= boolean",
        "# /properties/b",
        r'b ::= "null" | "true" | "\"x\""',
        'boolean ::= "true" | "false"',
    ]


def test_a_long_list_of_strings_is_shared() -> None:
    words = [f"w{n}" for n in range(6000)]
    found = converted({"properties": {"w": {"enum": words}}, "required": ["w"], "additionalProperties": False})
    assert Accepts(found)('(w="w5999")')
    assert not Accepts(found)('(w="w6000")')


def test_strings_of_a_kind_keep_their_gaps() -> None:
    shapes = Hand({0: (Object(rest=(Rest(node=1, patterns=("(a*)b\\1",)),)),), 1: (String(),)})
    found = convert(shapes, style="python")
    assert [gap.keyword for gap in found.gaps] == ["patternProperties"]
