"""Bodies of hostile requests: schemas, expressions and grammars that are small and costly, and large bodies."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]
LARGE = 1_900_000
"""Bytes, just below MAX_BODY_BYTES."""


def doubling(levels: int) -> Json:
    """Every level is judged twice, so the last one 2**levels times."""
    rules: Json = {"l0": {"enum": ["x"]}}
    for level in range(1, levels + 1):
        below = {"$ref": f"#/$defs/l{level - 1}"}
        rules[f"l{level}"] = {
            "type": "object",
            "required": ["c"],
            "additionalProperties": False,
            "properties": {"c": below},
            "allOf": [{"properties": {"c": below}}],
        }
    return {"$defs": rules, "$ref": f"#/$defs/l{levels}"}


def objects(count: int) -> Json:
    return {"enum": [{"a": i, "b": f"x{i}", "c": [i, {"d": i}]} for i in range(count)]}


def many_properties(count: int, **more: Any) -> Json:
    return {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(count)}, **more}


def chain(count: int) -> Json:
    rules: Json = {f"r{i}": {"$ref": f"#/$defs/r{i + 1}"} for i in range(count)}
    return {"$defs": rules | {f"r{count}": {"type": "string"}}, "$ref": "#/$defs/r0"}


def choices(count: int) -> Json:
    """Two ways for each of so many properties, in one conjunction."""
    return {
        "type": "object",
        "allOf": [
            {
                "anyOf": [
                    {"properties": {f"p{i}": {"type": "integer"}}, "required": [f"p{i}"]},
                    {"properties": {f"q{i}": {"type": "string"}}, "required": [f"q{i}"]},
                ]
            }
            for i in range(count)
        ],
    }


def conditions(count: int) -> Json:
    return {
        "type": "object",
        "allOf": [
            {"if": {"required": [f"p{i}"]}, "then": {"required": [f"q{i}"]}, "else": {"required": [f"r{i}"]}}
            for i in range(count)
        ],
    }


def nested_not(depth: int) -> Json:
    schema: Json = {"type": "string", "pattern": "^a"}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


def deep(depth: int) -> Json:
    schema: Json = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": 1}
    return schema


SCHEMAS: dict[str, Any] = {
    **{f"doubling references {n}": doubling(n) for n in (16, 18, 20, 22, 25, 30)},
    "multiple of 999983": {"type": "integer", "multipleOf": 999983, "minimum": -(10**18), "maximum": 10**18},
    "multiple of a millionth": {"type": "number", "multipleOf": 0.000001, "minimum": -1e9, "maximum": 1e9},
    "multiple of 200 digits": {"type": "integer", "multipleOf": 10**199 + 7},
    "multiples of five primes": {
        "type": "integer",
        "allOf": [{"multipleOf": p} for p in (9973, 9967, 9949, 9941, 9931)],
    },
    "bounds of 300 digits": {"type": "integer", "minimum": -(10**300), "maximum": 10**300 + 1},
    "enum of 3000 objects": objects(3000),
    "enum of 6000 objects": objects(6000),
    "enum of 20000 strings": {"enum": [f"word{i * 7919}" for i in range(20_000)]},
    "enum of long strings": {"enum": ["x" * 2000 + str(i) for i in range(110)]},
    "3000 properties": many_properties(3000, additionalProperties=False),
    "3000 required properties": many_properties(3000, required=[f"p{i}" for i in range(3000)]),
    "chain of 4000 references": chain(4000),
    "14 of two": choices(14),
    "25 of two": choices(25),
    "40 conditions": conditions(40),
    "nested not": nested_not(60),
    "100 levels": deep(100),
    "recursive any of": {
        "$defs": {
            "n": {
                "anyOf": [
                    {"type": "array", "items": {"$ref": "#/$defs/n"}},
                    {"type": "object", "additionalProperties": {"$ref": "#/$defs/n"}},
                    {"type": "string"},
                ]
            }
        },
        "$ref": "#/$defs/n",
    },
    "200 patterns in all of": {"type": "string", "allOf": [{"pattern": f"[a-z]{{{i % 7}}}{i}"} for i in range(200)]},
    "300 objects in one of": {"oneOf": [{"type": "object", "properties": {"k": {"const": i}}} for i in range(300)]},
    "200 pattern properties": {
        "type": "object",
        "patternProperties": {f"^[a-z]{{1,9}}{i}": {"type": "integer"} for i in range(200)},
    },
    "unique items of a long array": {
        "type": "array",
        "items": {"type": "integer"},
        "uniqueItems": True,
        "minItems": 300,
    },
    "contains and unique": {
        "type": "array",
        "items": {"type": "string"},
        "contains": {"const": "a"},
        "uniqueItems": True,
    },
    "10000 items at least": {"type": "array", "items": {"type": "integer"}, "minItems": 10_000},
    "100000 characters at least": {"type": "string", "minLength": 100_000},
    "9999 repeated pattern": {"type": "string", "pattern": "^(?:a{0,99}b){0,999}$"},
    "60 dependent schemas": {
        "type": "object",
        "dependentSchemas": {f"p{i}": {"required": [f"p{i + 1}"]} for i in range(60)},
    },
    "unevaluated properties": {
        "type": "object",
        "anyOf": [{"properties": {f"p{i}": {}}} for i in range(60)],
        "unevaluatedProperties": False,
    },
    "property names of a pattern": {"type": "object", "propertyNames": {"pattern": "^(a|aa|aaa){1,400}$"}},
    "300 date-times": {
        "type": "object",
        "properties": {f"d{i}": {"type": "string", "format": "date-time"} for i in range(300)},
    },
    "5000 unused definitions": {"$defs": {f"u{i}": {"type": "object"} for i in range(5000)}, "type": "integer"},
    "a key of 60000 letters": {"type": "object", "properties": {"k" * 60_000: {"type": "integer"}}},
    "backtracking pattern": {"type": "string", "pattern": "^(a|a)*$", "minLength": 30},
    "backtracking names": {"type": "object", "properties": {"a" * 40 + "!": {}}, "patternProperties": {"^(a+)+$": {}}},
    "constant of 5000 members": {"const": {f"k{i}": [i, {"v": "x" * 20}] for i in range(5000)}},
}

REGEXES: dict[str, str] = {
    "unicode letters 900": r"\p{L}{900}.*\p{N}{500}",
    "333000 repetitions": "a{0,333000}b",
    "subset construction": "(a|b)*a(a|b){20}",
    "nested repetitions": "((a{1,30}){1,30}){1,30}",
    "900 of two classes": "(?:[a-z]{1,40}[0-9]{1,40}){1,900}",
    "two far gaps": ".{0,5000}x.{0,5000}y",
    "alternation of 100 kB": "|".join(f"word{i}[a-z]{{1,{i % 9 + 1}}}" for i in range(5000)),
    "ignoring case": "(?i:[a-zé-ž]{1,300}x){1,50}",
    "2000 word characters": r"\w{2000}",
    "3000 of a complement": "[^a]{3000}",
    "3000 groups": "(" * 3000 + "a" + ")" * 3000,
    "300 unicode classes": r"\p{Lu}\p{Ll}{0,3}" * 300,
    "one megabyte": "a" * 1_000_000,
    "backtracking for the judge": "(a|a)*b|.*",
    "backtracking far": "(?:x+x+)+y|[^y]{0,4000}",
    "product of stars": "".join(f"[{a}-z]*" for a in "abcdefghijklmnopqrstuvwxyz") * 20 + "!",
}

GRAMMARS: dict[str, str] = {
    "forty times r r": "root ::= r\nr ::= " + " | ".join(["r r"] * 40) + ' | "a"',
    "9000 rules": "root ::= r0\n"
    + "\n".join(f'r{n} ::= "a" r{n + 1} | [a-z]{{1,9}} r{(n * 7919) % 9000} | ""' for n in range(9000))
    + '\nr9000 ::= "z"',
    "ambiguous": 'root ::= root root | "a" | "aa" | ""',
    "forty rules r r": "\n".join(["root ::= r0", *(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(40)), 'r40 ::= "a"?']),
    "3000 groups": "root ::= " + "(" * 3000 + '"a"' + ")" * 3000,
    "100000 repetitions": 'root ::= ("a" [b-z]?){1,100000}',
    "one megabyte of text": 'root ::= "' + "a" * 1_000_000 + '"',
    "mutual recursion": "root ::= r0\n" + "\n".join(f'r{i} ::= r{(i + 1) % 2000} "a" | "b"' for i in range(2000)),
    "500 optional": "root ::= " + '"a"? ' * 500,
    "left recursion": "root ::= r0\n"
    + "\n".join(f'r{i} ::= r{i} r{i + 1} | "x"' for i in range(300))
    + '\nr300 ::= "y"',
}


def form(data: bytes, boundary: str = "x") -> bytes:
    """A form that uploads a file."""
    head = f'--{boundary}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{boundary}\r\n'
    file = 'content-disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
    return f"{head}{file}".encode() + data + f"\r\n--{boundary}--\r\n".encode()


def text_of(size: int, piece: str = "All work and no play makes Jack a dull boy. ") -> str:
    return (piece * (size // len(piece) + 1))[:size]


def bias(size: int) -> Json:
    """As many entries as fit."""
    return {str(i % 2_000_000): 0.5 for i in range(size // 14)}


def encoded(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()
