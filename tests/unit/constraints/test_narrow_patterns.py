"""What goes to llguidance matches no more than the pattern does in any dialect."""

import re

import pytest

from espalier import JsonSchema, Vocab
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.llguidance import LlgCompiled
from espalier.constraints.json_schema.safe_patterns import narrow
from espalier.constraints.verdict import judge

BYTES = Compiler(Vocab.bytes())
ASCII = [chr(i) for i in range(1, 127)]
BEYOND = ["é", "٣", "\x85", "\u2028", "\ufeff", "\xa0", "ſ"]


@pytest.mark.parametrize(
    "pattern",
    [r"^\d$", r"^\w$", r"^\s$", r"^[\d_]$", r"^[\w.]$", r"^[^a]$", r"^\.$", r"^[\]a]$", r"^(?:a|\d)$", "^a$"],
)
def test_a_narrowed_pattern_matches_the_same_ascii_and_never_more(pattern):
    found = narrow(pattern)
    assert found is not None
    for char in [*ASCII, *BEYOND]:
        mine, theirs = re.search(found, char), re.search(pattern, char)
        assert mine is None or theirs is not None, (pattern, char)
        assert char in BEYOND or char in "\x1c\x1d\x1e\x1f" or (mine is None) == (theirs is None), (pattern, char)


@pytest.mark.parametrize(
    "pattern",
    [r"\D", r"\W", r"\S", r"\bfoo", r"[^\d]", r"[^\w]", r"\Afoo", r"(?i)a", r"a(?=b)", "[a&&b]", "[[:alpha:]]", r"\<",
     "[]a]", r"\u{61}", "[^]"],
)  # fmt: skip
def test_what_dialects_read_otherwise_takes_our_automaton(pattern):
    assert narrow(pattern) is None


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string", "pattern": r"^\W$"}, '"é"'),
        ({"type": "string", "pattern": r"^\D$"}, '"٣"'),
        ({"type": "string", "pattern": r"^[^\w]$"}, '"é"'),
        ({"patternProperties": {r"^\w*$": {"type": "integer"}}}, '{"é":0.3}'),
        ({"patternProperties": {r"^\d+$": {"type": "integer"}}}, '{"٣":0.3}'),
        ({"patternProperties": {"^a$": {"type": "integer"}}}, '{"a\\n":0.3}'),
        ({"type": "string", "pattern": "^[a&&b]$"}, '"c"'),
    ],
)
def test_no_reading_of_a_pattern_lets_an_invalid_document_through(schema, text):
    assert judge(JsonSchema(schema), text).valid is False
    assert not BYTES.compile(JsonSchema(schema)).accepts(text)


@pytest.mark.parametrize("separators", [(";", "="), ("[0-9]", ":"), ("", ":"), (",?", ":?"), (", *", ": *")])
def test_separators_that_could_be_something_else_are_refused_by_every_backend(separators):
    for schema in ({"type": "array"}, {"not": {"const": 1}}):
        with pytest.raises(Exception, match="separators"):
            BYTES.compile(JsonSchema(schema, separators=separators))


def test_one_pattern_of_a_closed_object_is_narrowed_for_llguidance():
    schema = {"type": "object", "patternProperties": {r"^\w+$": {"type": "integer"}}, "additionalProperties": False}
    compiled = BYTES.compile(JsonSchema(schema))
    assert isinstance(compiled, LlgCompiled)
    assert compiled.accepts('{"a_1":1}')
    for text in ('{"a_1":"x"}', '{"é":1.5}', '{"a\\n":0.5}', '{"-":1}'):
        assert not compiled.accepts(text), text
