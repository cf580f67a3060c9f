"""Which tokens a mask under `uniqueItems` asks for one by one, which is slow, and what is loose under a token limit."""

from __future__ import annotations

from typing import Any

import pytest

from espalier import JsonSchema, Vocab
from espalier.constraints.compiler import Compiler
from espalier.constraints.unique.matcher import CompiledUniqueItems, ItemsMatcher
from espalier.tokens import mask as masks
from tests.unit.constraints.test_unique_groups import (
    BYTES,
    FEW,
    INTEGER,
    MAP,
    RECORD,
    STRING,
    STRING_OR_NUMBER,
    UNIQUE_IN_FOUR,
    matcher_of,
)

MORE = b"""a" "} "}, "," ", ],[ ]] ], ,1 1, 12 123 ,n ,null,n 1,n },{ {" },n""".split()
SHORT = Compiler(
    Vocab.from_tokens([*(bytes((byte,)) for byte in range(256)), *MORE, b""], eos_ids=[256 + len(MORE)], special_ids={})
)
"""Each byte, and tokens that end and begin items."""
NESTED = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": INTEGER, "maxItems": 2}, "b": STRING},
    "required": ["a", "b"],
    "additionalProperties": False,
}
STRING_OR_NULL = {"type": ["null", "string"]}
NUMBER, ANYTHING = {"type": "number"}, dict[str, Any]()
SIMPLE, INTEGER_OR_NULL = {"type": ["boolean", "null", "string"]}, {"type": ["integer", "null"]}
STRING_OR_OBJECT, A_TO_AAA = {"anyOf": [STRING, {"const": {}}]}, {"type": "string", "pattern": "^a{0,3}$"}
INTEGER_LISTS = {"type": "array", "items": INTEGER}
ONE = {"type": "number", "minimum": 1, "maximum": 1}
MAP_OR_NULL = {"anyOf": [MAP, {"type": "null"}]}
LISTS = {"type": "array", "items": FEW}
UNIQUE_LISTS, UNIQUE_LISTS_OF_SIMPLE = (
    {"type": "array", "items": items, "uniqueItems": True} for items in (INTEGER, SIMPLE)
)
MAP_OF_UNIQUE_LISTS = {"type": "object", "additionalProperties": UNIQUE_LISTS}
LOOKS = [
    (INTEGER, 0, "[1,12,", ""),
    (INTEGER, 0, "[1,12,1", ""),
    (INTEGER, 0, "[", ""),
    (INTEGER, 0, "[1", ""),
    (INTEGER, 0, "[1,2,", ""),
    (NUMBER, 0, "[1,2,1.5", ""),
    (MAP_OR_NULL, 0, '[null,{"a":"b"', ""),
    (MAP_OR_NULL, 0, '[null,{"a":"b"},{"a":"b', '" "} "},'),
    (NUMBER, 0, "[0.5,1.5", ""),
    (NUMBER, 0, "[0.5,1.23456789", "12 123"),
    (NUMBER, 0, "[0.5,1.234567890123", "0 1 12 123 2 3 4 5 6 7 8 9"),
    (NUMBER, 0, "[0.5,12345678901234567", "."),
    (NUMBER, 0, "[0.5,1234567890.", "0 1 12 123 2 3 4 5 6 7 8 9"),
    (NUMBER, 0, "[1e5,1", ""),
    (NUMBER, 0, "[100,1e", "2"),
    (NUMBER, 0, "[100,1e2", ""),
    (NUMBER, 0, "[1,1e", "+ - 0"),
    (STRING_OR_NUMBER, 0, '["ab",1,"a', "],[ ]]"),
    (STRING_OR_NUMBER, 0, '["ab","a\\', '"," "},'),
    (RECORD, 0, '[{"a":"b","n":1},{"a":"', '" ", "," ],[ a"'),
    (RECORD, 0, '[{"a":"b","n":1},{"a":"b","n":', "1"),
    (RECORD, 0, "[", ""),
    (RECORD, 0, '[{"a":"b","n":1},{"a":"b","n":1', ""),
    (MAP, 0, '[{"a":"x"},{"a', ""),
    (MAP, 0, '[{},{"a":"x\\', '","'),
    (MAP, 0, '[{"a":"b"},{"a":"b', '" "} "},'),
    (MAP, 0, '[{"a":"b"},{"a":"', '" "} "}, a"'),
    (MAP, 0, '[{"a":"b"},{"a":"b"', ""),
    (MAP, 0, "[{},", "{"),
    (MAP, 0, "[{},{", "},{"),
    (MAP, 0, '[{"a":"a"},{"a":"', '" "} "}, a"'),
    (LISTS, 0, "[[1],[2,", ""),
    (INTEGER_LISTS, 0, "[[1],[12345678", ""),
    (INTEGER_LISTS, 0, "[[1],[123456789", "123"),
    (ONE, 0, "[1.0", ", ,1"),
    (UNIQUE_LISTS, 0, "[[1],[2,", ""),
    (UNIQUE_LISTS, 0, "[[1],[1", ""),
    (UNIQUE_LISTS, 0, "[[1],[", "],"),
    (UNIQUE_LISTS, 0, "[[1,2],[1", ""),
    (UNIQUE_LISTS, 0, "[[12],[1", ""),
    (UNIQUE_LISTS, 0, "[[],", ""),
    (UNIQUE_LISTS, 0, "[[1],[1,2", ""),
    (UNIQUE_IN_FOUR, 0, "[[[[[1,2", ", ,1 1, ] ], ],[ ]]"),
    (UNIQUE_IN_FOUR, 0, "[[[[[1],[1", ", ,1 1, ] ], ],[ ]]"),
    (SIMPLE, 0, "[true,", ""),
    (SIMPLE, 0, '[true,"', ""),
    (SIMPLE, 0, '["a",true,', ""),
    (SIMPLE, 0, "[true,false,null", ",null,n"),
    (SIMPLE, 0, "[true,false", ",null,n"),
    (INTEGER, 3, "[1,", "0"),
    (STRING_OR_NULL, 0, "[null,", ""),
    (STRING_OR_NULL, 0, '["a","', ""),
    (STRING_OR_NULL, 0, '["a\\"","a', ""),
    (STRING_OR_NULL, 0, '["a","\\', '","'),
    (STRING_OR_NULL, 0, '["a","b\\n', '" ", ","'),
    (STRING_OR_NULL, 3, "[null,", "n"),
    (STRING_OR_NULL, 3, "[", ""),
    (STRING_OR_NULL, 2, "[", ""),
    (A_TO_AAA, 0, '["a","aa","aaa","', '", "," a'),
    (A_TO_AAA, 0, '["a","aa","', '", "," a'),
    (A_TO_AAA, 0, '["a",""', ","),
    (INTEGER_OR_NULL, 0, "[1", ",null,n"),
    (INTEGER_OR_NULL, 0, "[null,1", ",null,n"),
    (INTEGER_OR_NULL, 0, "[null,12,1", ",null,n"),
    (NESTED, 0, '[{"a":[],"b":""},', ""),
    (NESTED, 0, '[{"a":[],"b":""},{', ""),
    (NESTED, 0, '[{"a":[],"b":""},{"a":[1', ""),
    (NESTED, 0, '[{"a":[],"b":""},{"a":[],"b":"', '" "} "}, a"'),
    (UNIQUE_LISTS_OF_SIMPLE, 0, '[[null],["a', '"'),
    (UNIQUE_LISTS_OF_SIMPLE, 0, "[[null],[n", "u"),
    (UNIQUE_LISTS_OF_SIMPLE, 0, "[[null],[null", ",n ,null,n"),
    (UNIQUE_LISTS_OF_SIMPLE, 0, '[["a"],["', '" a"'),
    (UNIQUE_LISTS_OF_SIMPLE, 0, '[["a"],[true,', "t"),
    (ANYTHING, 0, "[1,", ""),
    (ANYTHING, 0, '[{"a":1},{"a":1', "E e"),
    (ANYTHING, 0, "[[1],[1", "E e"),
    (ANYTHING, 0, "[[1],[", ""),
    (ANYTHING, 0, '["a",{"b":["', ""),
    (MAP_OF_UNIQUE_LISTS, 0, '[{"a":[1]},{"a":[1', "]"),
    (MAP_OF_UNIQUE_LISTS, 0, '[{"a":[1]},{"a":[', ""),
]
"""Items, the least number of them, a text, and the tokens that the mask after it asks for one by one."""


@pytest.mark.parametrize(("items", "least", "text", "looks"), LOOKS)
def test_a_mask_looks_at_no_token_by_itself_of_which_its_group_says_enough(
    items: Any, least: int, text: str, looks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = JsonSchema({"type": "array", "items": items, "uniqueItems": True, "minItems": least}, whitespace="compact")
    compiled = SHORT.compile(spec)
    assert isinstance(compiled, CompiledUniqueItems)
    matcher = compiled.matcher()
    for byte in text.encode():
        before = matcher.fork()
        matcher.advance(byte)
    looked, after = list[int](), ItemsMatcher._after

    def note(self: ItemsMatcher, token: int, state: Any) -> Any:
        looked.append(token)
        return after(self, token, state)

    monkeypatch.setattr(ItemsMatcher, "_after", note)
    allowed = matcher.mask()
    assert " ".join(sorted(compiled.text_of(token).decode() for token in looked)) == looks
    by_itself = [token for token in range(compiled.vocab.width) if matcher.allows(token)]
    assert masks.allowed_ids(allowed, compiled.vocab.width).tolist() == by_itself
    assert (matcher.mask() == allowed).all(), "once it is known whether the open item differs"
    matcher.rollback(1)
    assert (matcher.mask() == before.mask()).all(), "what is known of one position is not said of another"


@pytest.mark.parametrize(("least", "is_little"), [(0, True), (1, True), (2, False)])
def test_an_array_that_needs_several_items_is_not_closed_by_the_completion_of_fewest_bytes(
    least: int, is_little: bool
) -> None:
    """After `{"` comes the name of such an array, or another one."""
    array = {"type": "array", "items": INTEGER, "uniqueItems": True, "minItems": least}
    schema = {"type": "object", "properties": {"a": array, "b": INTEGER}, "additionalProperties": False}
    compiled = BYTES.compile(JsonSchema(schema, whitespace="compact"))
    assert isinstance(compiled, CompiledUniqueItems)
    matcher = compiled.matcher()
    for byte in b'{"':
        matcher.advance(byte)
    assert compiled.groups.opens_little(matcher._inner.state) == is_little
    assert matcher.is_loose(60) == is_little


@pytest.mark.parametrize(
    ("items", "text", "limit"),
    [
        (INTEGER, "[", 12),
        (INTEGER, "[1", 12),
        (INTEGER, "[1,2,3,", 15),
        (INTEGER, "[1,12345678901234", None),
        (RECORD, "[", 24),
        (RECORD, '[{"a":"b","n":1},{"a":"b","n":', None),
        (STRING_OR_NULL, "[null,", None),
        (STRING_OR_NULL, '["a",', 15),
        (STRING_OR_NULL, '["a","b\\', None),
        (SIMPLE, '[true,"', 16),
        (SIMPLE, "[true,false,null", None),
        (UNIQUE_LISTS, "[[1],[2,", 15),
        (A_TO_AAA, '["', 13),
        (A_TO_AAA, '["a","aa","aaa","', None),
    ],
)
def test_all_that_can_be_closed_within_many_tokens_can_be_where_there_is_room(
    items: Any, text: str, limit: int | None
) -> None:
    """From so many tokens on, which leave each item before a letter more to differ from it."""
    _, matcher = matcher_of(items, text, SHORT)
    assert next((most for most in range(1, 60) if matcher.is_loose(most)), None) == limit
