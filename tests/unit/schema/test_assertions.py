r"""Patterns with `\b`, look-around and back-references: what is accepted matches in Python, and nearly all that does
is accepted."""

from __future__ import annotations

import json
from random import Random

import pytest

import espalier
from espalier import JsonSchema, Vocab
from espalier.constraints.compiler import Compiler
from espalier.errors import EspalierError, UnsupportedError
from espalier.schema.patterns.ecma import compiled
from espalier.schema.patterns.languages import read
from espalier.time_limit import time_limit
from tests.examples import examples

BYTES = Compiler(Vocab.bytes())
PATTERNS = (
    r"\bcat\b",
    r"^\bfoo\b|bar$",
    r"\Bx",
    r"x\b",
    r"\b",
    r"^\B$",
    r"\B",
    r"(?:a\b|b){1,2}",
    r"a\b\.|\bz",
    r"\bx\b-\b",
    r"^(a|bc)\1$",
    r"""^(['"])[a-c]*\1$""",
    r"(a)(b)\2\1",
    r"^(?<q>a|b)c\k<q>$",
    r"(a|b)(?:c\1)?",
    r"^((a|b)\2)c\1$",
    r"a(?=b)",
    r"a(?!b)c?",
    r"(?<=a)b",
    r"(?<!a)b",
    r"^(?:(?!ab)[ab])$",
    r"foo(?=\bbar)?",
    r"(?<![0-9])[0-9]{2}(?![0-9])",
    r"^(?=.*[0-9])(?=.*[a-z])[a-z0-9]{2,4}$",
    r"(?:^|,)a(?=,|$)",
    r"(?<=^|b)c",
    r"c(?=(?!a).)",
    r"a(?:(?=b)|c)b?",
)
REFUSED = {
    r"^(a*)b\1$": "more than 300 texts",
    r"(a)?\1": "left out or repeated",
    r"(?:(a)|b)\1": "left out or repeated",
    r"\1(a)": "not closed before it",
    r"(\bx)*": "more than 8 rounds",
    r"(?<=^|b)c": "inside a look-behind",
}


def holds(found, text: str) -> bool:
    return found is not None and found.accepts(text.encode())


@pytest.mark.parametrize("pattern", [one for one in PATTERNS if one not in REFUSED])
def test_the_automaton_has_the_texts_in_which_re_finds_the_translated_pattern(pattern: str) -> None:
    language, search = read(pattern).dfa(), compiled(pattern)
    random = Random(pattern)
    for _ in range(examples(1_500)):
        text = "".join(random.choice("""abcxz a"'.109-_,é—\n""") for _ in range(random.randint(0, 6)))
        if random.random() < 0.3:
            text = random.choice(("cat", "foo", "foobar", "bar", "bcbc", '"a"')) + random.choice(
                ("", " ", "s", "é", ".")
            )
        assert holds(language, text) == (search.search(text) is not None), text


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_is_not_regular_or_too_large_says_so(pattern: str) -> None:
    with pytest.raises(UnsupportedError, match=REFUSED[pattern]):
        read(pattern).dfa()


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "pattern": r"\bcat\b"}, ["a cat", "cat"], ["cats", "concat"]),
        ({"type": "string", "not": {"pattern": r"\bcat\b"}}, ["cats", ""], ["a cat", "cat."]),
        ({"type": "string", "pattern": r"^(a|bb)-\1$", "maxLength": 4}, ["a-a"], ["a-bb", "bb-bb"]),
        ({"type": "string", "pattern": r"^[a-z]+(?<!x)$", "minLength": 2}, ["ab"], ["ax", "x"]),
        (
            {"type": "object", "patternProperties": {r"^x\b": {"type": "integer"}}, "additionalProperties": False},
            [{"x": 1}, {"x y": 2}],
            [{"xy": 1}],
        ),
        ({"type": "object", "propertyNames": {"pattern": r"^(?!_).*\b$"}}, [{"a": 1}], [{"_a": 1}, {"a.": 1}]),
    ],
)
def test_in_schemas(schema: dict, good: list, bad: list) -> None:
    made = BYTES.compile(JsonSchema(schema))
    for value in good:
        assert made.accepts(json.dumps(value)), value
    for value in bad:
        assert not made.accepts(json.dumps(value)), value


def test_the_contract_says_what_re_reads_otherwise() -> None:
    contract = espalier.contract(JsonSchema({"type": "string", "pattern": r"\bcat\b"}))
    (entry,) = [entry for entry in contract.entries if entry.keyword == "pattern"]
    assert entry.verdict == "enforced"
    assert entry.note == r"as ECMA-262 reads it; Python's re, and so jsonschema, reads \b otherwise"


def test_a_generated_text_matches(demo_engine) -> None:
    schema = {"type": "string", "pattern": r"^\b[a-z]{2,6}(?<!o)\b \b(?!b)[a-z]{2,4}\b$"}
    found = demo_engine.generate("x", constraint=JsonSchema(schema), max_tokens=60, seed=1)
    assert found.verdict.valid is True


@pytest.mark.parametrize("seed", range(examples(60)))
def test_random_patterns(seed: int) -> None:
    random = Random(seed)

    def part(depth: int) -> str:
        draw = random.random()
        if draw < 0.25:
            return random.choice((r"\b", r"\B", "^", "$", r"\b"))
        if draw < 0.4 and depth:
            return random.choice(("(?=", "(?!")) + options(depth - 1) + ")"
        if draw < 0.5:
            return random.choice(("(?<=", "(?<!")) + random.choice(("a", "[ab]", "-", "ab", r"\w")) + ")"
        if draw < 0.65 and depth:
            return f"(?:{options(depth - 1)}){random.choice(('', '', '?', '{1,2}'))}"
        return random.choice(("a", "b", "-", "[ab]", "[^a]", ".", r"\w", " ")) + random.choice(("", "", "*", "+", "?"))

    def options(depth: int) -> str:
        return "|".join(
            "".join(part(depth) for _ in range(random.randint(1, 3))) for _ in range(random.choice((1, 1, 2)))
        )

    pattern = options(2)
    try:
        search = compiled(pattern)
        with time_limit(1):
            language = read(pattern).dfa()
    except EspalierError:
        return
    for _ in range(150):
        text = "".join(random.choice("aab- é\n") for _ in range(random.randint(0, 5)))
        assert holds(language, text) == (search.search(text) is not None), (pattern, text)
