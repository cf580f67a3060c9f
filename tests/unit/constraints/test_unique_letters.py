"""Unique items whose strings hold the letters that arrays and objects are made of: commas, brackets, quotation marks.

A token of several letters is allowed where its letters are, one after another, over a vocabulary of single bytes; and
a mask holds what `allows` says.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from espalier import JsonSchema, Vocab
from espalier.constraints.base import Matcher
from espalier.constraints.compiler import Compiler
from espalier.errors import SchemaError
from espalier.tokens import mask as masks
from tests.examples import examples

LETTERS = [*'xy1,]}[{: "', "\\"]
PIECES = ["x", "y", "1", '"', ",", "],", "[", '{"a":', "}", '","', '":', '"x', "x,", 'x"', "5", "]", "\\", '\\"']
VALUES = ["x,", "x,1", "]", "a]", 1, 11, 1.5, True, None, "{}", 'x"y']
SINGLE = [bytes((byte,)) for byte in range(256)]


def vocab_of(*more: bytes) -> Vocab:
    return Vocab.from_tokens([*SINGLE, *more, b""], eos_ids=[256 + len(more)], special_ids={})


BYTES = Compiler(vocab_of())


class Draw:
    """Schemas of items, and tokens, by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pattern(self, depth: int = 0) -> str:
        draw = self.random
        kinds = {
            "text": "".join(_escaped(draw.choice(LETTERS)) for _ in range(draw.randint(1, 3))),
            "class": f"[{''.join(map(_escaped, draw.sample(LETTERS, draw.randint(1, 3))))}]",
        }
        if depth < 2:
            kinds["either"] = f"({self.pattern(depth + 1)}|{self.pattern(depth + 1)})"
            kinds["several"] = f"({self.pattern(depth + 1)}){draw.choice(['?', '{1,2}', '{0,3}', '*'])}"
            kinds["both"] = self.pattern(depth + 1) + self.pattern(depth + 1)
        return draw.choice(list(kinds.values()))

    def scalar(self) -> dict[str, Any]:
        draw = self.random
        return draw.choice(
            [
                {"type": "string", "pattern": f"^{self.pattern()}$"},
                {"type": "string", "pattern": f"^{self.pattern()}$"},
                {"type": "string", "maxLength": draw.randint(0, 2)},
                {"type": draw.choice(["integer", "number", "boolean"])},
                {"type": "integer", "minimum": 0, "maximum": draw.randint(0, 20)},
                {"type": "number", "minimum": 0, "maximum": draw.choice([0, 0.5])},
                {"type": ["string", "null"], "maxLength": 1},
                {"enum": draw.sample(VALUES, draw.randint(1, 6))},
            ]
        )

    def items(self, depth: int = 0) -> dict[str, Any]:
        draw = self.random
        if draw.random() < 0.45 or depth > 1:
            return self.scalar()
        names = ["a", "b"][: draw.randint(1, 2)]
        return draw.choice(
            [
                {"anyOf": [self.scalar(), self.scalar()]},
                {"type": "object", "properties": {name: self.scalar() for name in names}, "required": ["a"]}
                | {"additionalProperties": False},
                {"type": "array", "items": self.items(depth + 1), "uniqueItems": draw.random() < 0.5, "maxItems": 2},
                {"type": "array", "prefixItems": [self.scalar(), self.scalar()], "items": False, "minItems": 2},
                {"anyOf": [self.scalar(), {"type": "array", "items": self.scalar(), "uniqueItems": True}]},
                {"type": "object", "propertyNames": {"enum": ["", *"xy"]}, "minProperties": draw.randint(0, 2)},
            ]
        )

    def tokens(self) -> list[bytes]:
        return sorted(
            {"".join(self.random.choice(PIECES) for _ in range(self.random.randint(2, 3))).encode() for _ in range(14)}
        )


def _escaped(letter: str) -> str:
    return "\\" + letter if letter in "\\[](){}" else letter


def _after(matcher: Matcher, text: bytes) -> Matcher | None:
    """The matcher after the bytes, None where it refuses one."""
    for byte in text:
        if not matcher.allows(byte):
            return None
        matcher.advance(byte)
    return matcher


@pytest.mark.parametrize("seed", range(examples(100)))
def test_a_token_is_allowed_where_its_letters_are_whatever_the_strings_hold(seed: int) -> None:
    draw = Draw(seed)
    schema = {"type": "array", "items": draw.items(), "uniqueItems": True, "minItems": draw.random.choice([0, 0, 2])}
    more = draw.tokens()
    spec = JsonSchema(schema, whitespace=draw.random.choice(["compact", "flexible"]))
    vocab = vocab_of(*more)
    try:
        compiled, single = Compiler(vocab).compile(spec), BYTES.compile(spec).matcher()
    except SchemaError as refusal:
        assert "too few different items" in str(refusal)  # noqa: PT017  # most schemas are taken
        assert schema["minItems"] == 2
        return
    matcher, text = compiled.matcher(), b""
    for _ in range(20):
        allowed = [token for token in range(vocab.width) if matcher.allows(token)]
        assert masks.allowed_ids(matcher.mask(), vocab.width).tolist() == allowed
        assert [token for token in allowed if token < 256] == [byte for byte in range(256) if single.allows(byte)]
        for token, data in enumerate(more, 256):
            assert (_after(single.fork(), data) is not None) == (token in allowed), data
        assert compiled.accepts(text + vocab.decode(matcher.shortest_completion()))
        likely = [token for token in allowed if token >= 256 or SINGLE[token] in b'x1y,]"}[{']
        if not (choice := likely or [token for token in allowed if token not in vocab.eos_ids]):
            return
        token = draw.random.choice(choice)
        matcher.advance(token)
        text += vocab.bytes_of(token)
        following = _after(single, vocab.bytes_of(token))
        assert following is not None
        single = following


@pytest.mark.parametrize("letter", [",", "]"])
def test_a_string_that_goes_on_with_a_comma_was_taken_for_one_that_is_whole(letter: str) -> None:
    """The only way to go on was `,`, which ends an item outside of strings: `"x` was refused after `"x,1"`."""
    vocab = vocab_of(b'"x')
    items = {"type": ["string", "boolean"], "pattern": f"^x{_escaped(letter)}[12]$"}
    compiled = Compiler(vocab).compile(
        JsonSchema({"type": "array", "items": items, "uniqueItems": True}, whitespace="compact")
    )
    matcher = compiled.matcher()
    for byte in f'["x{letter}1",'.encode():
        matcher.advance(byte)
    assert masks.test(matcher.mask(), 256), "it may still become another string"
    for byte in f'"x{letter}2",'.encode():
        matcher.advance(byte)
    assert not masks.test(matcher.mask(), 256)


def test_a_token_that_ends_the_last_string_there_is_begins_no_item_after_it() -> None:
    """The shortest item that could follow is the string that the token ends, of which only the end is known."""
    vocab = vocab_of(b'y",', b'y"]')
    items = {"type": ["string", "boolean"], "pattern": "^y$"}
    compiled = Compiler(vocab).compile(
        JsonSchema({"type": "array", "items": items, "uniqueItems": True}, whitespace="compact")
    )
    for text, may_go_on in (("[true,false,", False), ("[true,", True)):
        matcher = _after(compiled.matcher(), f'{text}"'.encode())
        assert matcher is not None
        assert [masks.test(matcher.mask(), token) for token in (256, 257)] == [may_go_on, True]


def test_that_an_item_differs_is_not_said_of_another_array_at_the_same_offset() -> None:
    vocab = vocab_of(b'1}],"q":[{"a":1,"b":1},{"a":1,"b":1')
    item = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    items = {"type": "array", "items": item | {"required": ["a", "b"]}, "uniqueItems": True}
    schema = {"type": "object", "properties": {"p": items, "q": items}}
    matcher = Compiler(vocab).compile(JsonSchema(schema, whitespace="compact")).matcher()
    for token in (*b'{"p":[{"a":1,"b":1},{"a":2,"b":', 256):
        matcher.mask()  # which finds that the second item of the first array differs
        matcher.advance(token)
    assert not masks.test(matcher.mask(), ord("}"))
    assert not matcher.allows(ord("}"))
