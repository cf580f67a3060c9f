"""JSON Schema as a whole: what the contract says, and that no invalid document comes out."""

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import jsonschema
import pytest

import espalier
from espalier import AllOf, JsonSchema, Regex, Vocab
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.compile import contract_of
from espalier.constraints.matching.automaton import CompiledAutomaton
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import judge
from espalier.errors import EspalierError, LimitExceeded, SchemaError, SpecError, UnsupportedError
from espalier.tokens import mask as masks
from tests.laws import check_matcher
from tests.tokenizers import byte_level_vocab, spm_vocab

BYTES = Compiler(Vocab.bytes())
REAL = Path(__file__).parents[4] / "shared" / "data" / "jsonschemabench-dev.jsonl.gz"

SCHEMAS = {
    "plain": {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name"],
        "additionalProperties": False,
    },
    "not an enum": {"type": "string", "not": {"enum": ["a", "b"]}, "maxLength": 4},
    "if then else": {
        "type": "object",
        "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["kind", "n"],
        "additionalProperties": False,
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"properties": {"n": {"maximum": 9}}},
        "else": {"properties": {"n": {"minimum": 10}}},
    },
    "one of overlapping": {"oneOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "multipleOf": 2}]},
    "contains": {"type": "array", "items": {"enum": [1, 2, 3]}, "contains": {"const": 2}, "maxItems": 4},
    "dependent": {
        "type": "object",
        "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}},
        "dependentRequired": {"a": ["b"]},
        "dependentSchemas": {"c": {"not": {"required": ["b"]}}},
        "additionalProperties": False,
    },
    "unevaluated": {
        "type": "object",
        "allOf": [{"properties": {"a": {"type": "boolean"}}}],
        "anyOf": [{"properties": {"b": {"type": "boolean"}}, "required": ["b"]}, {"properties": {"c": {"const": 1}}}],
        "unevaluatedProperties": False,
    },
    "names": {
        "type": "object",
        "propertyNames": {"pattern": "^[a-c]{1,2}$"},
        "patternProperties": {"^a": {"type": "integer", "maximum": 9, "minimum": 0}},
        "additionalProperties": {"type": "boolean"},
        "maxProperties": 3,
    },
    "unique of few": {"type": "array", "items": {"enum": ["x", "y", "z"]}, "uniqueItems": True},
    "numbers": {"type": "number", "exclusiveMinimum": 0.5, "maximum": 2, "multipleOf": 0.25},
    "recursive": {
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer", "minimum": 0, "maximum": 3},
                    "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
                },
                "required": ["v"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/tree",
    },
    "draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "integer",
        "minimum": 3,
        "exclusiveMinimum": True,
        "maximum": 12,
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_has_an_automaton_and_none_is_left_to_checking(name):
    compiled = BYTES.compile(JsonSchema(SCHEMAS[name]))
    assert type(compiled) is CompiledAutomaton
    assert contract_of(JsonSchema(SCHEMAS[name]), BYTES).worst in ("enforced", "narrowed")


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("make", [Vocab.bytes, byte_level_vocab, spm_vocab])
def test_every_document_that_random_sampling_finishes_is_valid(name, make):
    vocab, schema = make(), SCHEMAS[name]
    spec = JsonSchema(schema)
    compiled = Compiler(vocab).compile(spec)
    for seed in range(40):
        text = sampled(compiled, vocab, Random(seed))
        assert judge(spec, text).valid is True, text


def sampled(compiled, vocab, random, steps=30):
    """Uniformly through the masks; after some steps by a shortest way to the end."""
    matcher, data = compiled.matcher(), b""
    for _ in range(steps):
        token = int(random.choice(masks.allowed_ids(matcher.mask(), vocab.width)))
        matcher.advance(token)
        data += vocab.bytes_of(token)
        if matcher.is_finished:
            return data.decode()
    for token in matcher.shortest_completion():
        matcher.advance(token)
        data += vocab.bytes_of(token)
    assert matcher.is_finished
    return data.decode()


@pytest.mark.parametrize("name", SCHEMAS)
def test_laws(name):
    schema = SCHEMAS[name]
    vocab = byte_level_vocab()
    compiler = Compiler(vocab)
    compiled = compiler.compile(JsonSchema(schema))
    accepted = {sampled(compiled, vocab, Random(seed)) for seed in range(4)}
    check_matcher(compiled, trie=compiler.trie, accepted=sorted(accepted), rejected=["", "{", "[1,]", "nope"])


@cache
def real():
    if not REAL.is_file():
        pytest.skip("the sample of real schemas is not here")
    with gzip.open(REAL, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.slow
def test_both_automata_and_the_validator_agree_on_real_schemas():
    compared = 0
    for case in real()[::15]:
        spec = JsonSchema(case["schema"])
        try:
            compiled = BYTES.compile(spec)
            other = BYTES.compile(AllOf(spec, Regex("(?s).*")))  # built as a whole
        except (UnsupportedError, LimitExceeded):
            continue
        random = Random(7)
        for backend in (compiled, other):
            for _ in range(3):
                text = sampled(backend, Vocab.bytes(), random, steps=60)
                assert judge(spec, text).valid in (True, None), (case["id"], text)
                assert compiled.accepts(text), (case["id"], text)
                assert other.accepts(text), (case["id"], text)
                compared += 1
    assert compared > 100


def test_the_contract_names_what_could_not_be_enforced():
    schema = {"type": "string", "pattern": r"^(a*)b\1$"}
    contract = espalier.contract(schema)
    assert {e.pointer for e in contract.by_verdict("checked")} == {"/pattern"}
    with pytest.raises(UnsupportedError, match="/pattern"):
        BYTES.compile(JsonSchema(schema))
    allowed = BYTES.compile(JsonSchema(schema, allow="checked"))
    assert allowed.accepts('"aab"')
    assert judge(JsonSchema(schema, allow="checked"), '"aab"').valid is False


def test_order_whitespace_and_separators_are_as_asked():
    schema = {
        "properties": {"b": {"type": "null"}, "a": {"type": "null"}},
        "required": ["a"],
        "type": "object",
        "additionalProperties": False,
    }
    cases = {
        '{"b": null, "a": null}': {},
        '{"a":null,"b":null}': {"order": "required_first", "whitespace": "compact"},
        '{"a": null, "b": null}': {"order": ["a"]},
        '{\n  "b": null,\n  "a": null\n}': {"whitespace": "indented"},
        '{"b" : null ;;': {},
        '{ "b" :null , "a":null }': {"whitespace": "flexible"},
        '{"b":  null,  "a":  null}': {"separators": [",  ", ":  "]},
    }
    for text, options in cases.items():
        for shadowed in (False, True):
            spec = JsonSchema(schema, **options)
            compiled = BYTES.compile(AllOf(spec, Regex("(?s).*")) if shadowed else spec)
            assert compiled.accepts(text) == (";" not in text), (text, options, shadowed)


def test_documents_are_supplied_and_never_fetched():
    schema = {"$ref": "https://example.org/name"}
    with pytest.raises(UnsupportedError, match="nothing is fetched"):
        BYTES.compile(JsonSchema(schema))
    spec = JsonSchema(schema, documents={"https://example.org/name": {"type": "string", "maxLength": 2}})
    compiled = BYTES.compile(spec)
    assert compiled.accepts('"ab"')
    assert not compiled.accepts('"abc"')
    assert judge(spec, '"abc"').valid is False
    assert Spec.from_json(spec.to_json()) == spec


def test_format_annotates_unless_it_is_asserted():
    schema = {"type": "string", "format": "date"}
    assert BYTES.compile(JsonSchema(schema)).accepts('"no date"')
    spec = JsonSchema(schema, format="assert")
    assert BYTES.compile(spec).accepts('"2024-02-29"')
    assert not BYTES.compile(spec).accepts('"2023-02-29"')
    assert judge(spec, '"2023-02-29"').valid is False


@dataclass
class Point:
    x: int
    tag: str | None = None


def test_a_python_type_is_a_schema_and_the_answer_an_instance():
    with espalier.load("fake") as engine:
        result = engine.generate("hi", constraint=JsonSchema(Point), seed=1, max_tokens=400)
    assert result.verdict.valid is True
    assert isinstance(result.parsed, Point)


def test_refusals_name_the_place_in_the_schema():
    compiled = BYTES.compile(JsonSchema(SCHEMAS["plain"]))
    matcher = compiled.matcher()
    for byte in b'{"name":"Ada","age":':
        matcher.advance(byte)
    blame = matcher.explain(ord("x"))
    assert (blame.member, blame.rule) == ("json_schema", "/properties/age")
    matcher.rollback(7)
    assert matcher.explain(ord("7")).rule is not None
    assert bytes(compiled.matcher().shortest_completion()[:-1]) == b'{"name":""}'


BAD = {
    "a cycle of references": ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "leads to itself"),
    "a missing reference": ({"properties": {"a": {"$ref": "#/$defs/x"}}}, "/properties/a/$ref"),
    "minimum above maximum": ({"type": "integer", "minimum": 5, "maximum": 3}, "/maximum contradicts"),
    "a type that is no type": ({"type": "strin"}, "/type"),
    "properties that are a list": ({"properties": []}, "/properties"),
    "a list": ([1], "object or a boolean"),
    "NaN": ({"minimum": float("nan")}, "not JSON"),
    "nested too deeply": (json.loads('{"not":' * 900 + "{}" + "}" * 900), "too deeply"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_schema_is_a_typed_error(name):
    schema, message = BAD[name]
    with pytest.raises(SchemaError) as caught:
        BYTES.compile(JsonSchema(schema))
    assert message in str(caught.value)


OPTIONS = {
    "whitespace": "wide",
    "order": "sorted",
    "format": "yes",
    "allow": "all",
    "separators": ",",
    "documents": [1],
}


@pytest.mark.parametrize("field", OPTIONS)
def test_a_bad_option_names_its_field(field):
    with pytest.raises(SpecError) as caught:
        JsonSchema({}, **{field: OPTIONS[field]})
    assert caught.value.field == field


@pytest.mark.slow
def test_large_schemas_end_in_bounded_time():
    many = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(30_000)}}
    with pytest.raises(LimitExceeded, match="30000 properties"):
        BYTES.compile(JsonSchema(many))
    values = {"enum": [f"value {i}" for i in range(30_000)]}
    assert BYTES.compile(JsonSchema(values)).accepts('"value 29999"')


def test_every_error_of_a_schema_is_ours():
    """Random nonsense in a schema's place: compiled, or refused by a typed error."""
    random = Random(11)
    pieces = json.loads('[null, true, 3, -1, 1.5, "", "x", "#", [], ["a"], {}, {"a": 1}, {"type": "string"}, [{}]]')
    words = "type enum const properties required items pattern minimum maxLength allOf not if then $ref $id contains"
    words = [*words.split(), "minItems", "format", "multipleOf", "dependentRequired"]
    for _ in range(400):
        schema = {random.choice(words): random.choice(pieces) for _ in range(random.randint(1, 4))}
        try:
            compiled = BYTES.compile(JsonSchema(schema))
        except EspalierError:
            continue
        jsonschema.Draft202012Validator.check_schema(schema)
        assert isinstance(compiled.accepts("{}"), bool)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 12345678901234567890123, {"a": [2**60 + 1]}])
@pytest.mark.parametrize("schema", [lambda v: {"const": v}, lambda v: {"enum": [v]}], ids=["const", "enum"])
def test_a_constant_integer_beyond_what_a_double_holds_keeps_its_digits(schema, value):
    spec = JsonSchema(schema(value))
    assert json.loads(sampled(BYTES.compile(spec), Vocab.bytes(), Random(1))) == value
