import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier import Choice, Gbnf, JsonObject, JsonSchema, Regex
from espalier.constraints.kinds import KINDS
from espalier.constraints.spec import Spec
from espalier.errors import SchemaError, SpecError, UnsupportedError
from espalier.schema.read.documents import ANCHORS, DEFINITIONS
from espalier.schema.read.drafts import DRAFTS

WHITESPACE = st.sampled_from(["natural", "compact", "flexible"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
KEYWORDS = {"$schema", *ANCHORS, *DEFINITIONS}.union(*(draft.keywords for draft in DRAFTS.values()))
NAMES = st.text().filter(lambda name: name not in KEYWORDS)  # hypothesis also draws words of the source: `if`
SPECS = st.one_of(
    st.builds(JsonSchema, st.booleans() | st.dictionaries(NAMES, JSON), whitespace=WHITESPACE),
    st.builds(JsonObject, whitespace=WHITESPACE),
    st.builds(Regex, st.text().map(re.escape)),
    st.builds(Choice, st.lists(st.text(), min_size=1)),
    st.builds(Gbnf, st.sampled_from(['a ::= "x"', 'a ::= [a-z]+ "é"']), root=st.just("a")),
)


@given(SPECS)
def test_a_spec_survives_json_and_keeps_its_key(spec):
    back = Spec.from_json(json.loads(json.dumps(spec.to_json())))
    assert back == spec
    assert back.key() == spec.key()
    assert hash(back) == hash(spec)


@pytest.mark.parametrize("kind", [["all_of"] * 1000, "a" * 100_000, {"a": [0] * 1000}])
def test_an_error_does_not_repeat_a_long_value(kind):
    with pytest.raises(SpecError, match="unknown constraint") as raised:
        Spec.from_json({"kind": kind})
    assert len(raised.value.message) == SpecError.longest + 1
    assert raised.value.message.endswith("…")


def test_every_kind_is_registered_under_its_own_name():
    assert [KINDS.load(kind).spec.kind for kind in KINDS] == KINDS.names()


def test_the_order_of_keys_is_part_of_a_schema():
    one = JsonSchema({"properties": {"a": {}, "b": {}}})
    two = JsonSchema({"properties": {"b": {}, "a": {}}})
    assert one.key() != two.key()


def test_changing_the_dict_afterwards_does_not_change_the_spec():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    spec = JsonSchema(schema)
    key = spec.key()
    schema["properties"]["a"]["type"] = "integer"
    assert spec.key() == key


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: JsonSchema("{}"), SchemaError, "object or a boolean"),
        (lambda: JsonSchema([1]), SchemaError, "not list"),
        (lambda: JsonSchema({"minimum": float("nan")}), SchemaError, "not JSON"),
        (lambda: JsonSchema({"enum": [object()]}), SchemaError, "not JSON"),
        (lambda: JsonSchema({}, whitespace="wide"), SpecError, "wide"),
        (lambda: Regex(3), SpecError, "string"),
        (lambda: Choice([]), SpecError, "nothing to choose"),
        (lambda: Choice("yes"), SpecError, "list"),
        (lambda: Choice(["a", 1]), SpecError, "choice 1"),
        (lambda: Gbnf(b"root"), SpecError, "string"),
        (lambda: Spec.from_json({}), SpecError, "kind"),
        (lambda: Spec.from_json({"kind": "nope"}), SpecError, "nope"),
        (lambda: Spec.from_json({"kind": "regex", "patern": "a"}), SpecError, "patern"),
        (lambda: Spec.from_json({"kind": "regex"}), SpecError, "pattern"),
    ],
)
def test_a_constraint_that_is_not_well_formed_says_why(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_a_schema_nested_without_end_is_refused():
    schema: dict = {}
    node = schema
    for _ in range(100_000):
        node["items"] = {}
        node = node["items"]
    with pytest.raises(SchemaError, match="nested too deeply"):
        JsonSchema(schema)


@pytest.mark.parametrize(("kind", "field"), [("ban", "phrases"), ("regex", "pattern"), ("gbnf", "grammar")])
def test_a_field_that_is_left_out_is_named(kind, field):
    with pytest.raises(SpecError, match=f"needs `{field}`"):
        Spec.from_json({"kind": kind})


@pytest.mark.parametrize(
    ("schema", "error", "words"),
    [
        ({"type": "intger"}, SchemaError, 'at /type (did you mean "integer"?)'),
        ({"properties": {"a": {"minLength": -1}}}, SchemaError, "at /properties/a/minLength"),
        ({"items": {"$ref": "#/$defs/no"}}, SchemaError, "the reference '#/$defs/no' leads to nothing at /items/$ref"),
        ({"$schema": "urn:of-nobody"}, UnsupportedError, "is not known"),
    ],
)
def test_a_schema_checks_itself_when_it_is_made(schema, error, words):
    with pytest.raises(error) as caught:
        JsonSchema(schema)
    assert words in str(caught.value)


def test_a_schema_that_is_made_may_refer_to_itself_and_hold_what_nothing_uses():
    assert JsonSchema({"properties": {"next": {"$ref": "#"}}})
    assert JsonSchema({"$defs": {"unused": {"$ref": "#/nowhere"}}})


def test_a_long_schema_is_read_when_it_is_compiled():
    """Making a spec takes milliseconds: the time limit of a request begins with compiling."""
    schema = {"properties": {f"p{i}": {"type": "string"} for i in range(1000)}, "type": "intger"}
    assert JsonSchema(schema)
