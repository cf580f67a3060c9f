"""JSON Schema through llguidance, JSON mode through our own automata.

What cannot be enforced is refused with its JSON pointer. It rewrites no schema.
"""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
from jsonschema.validators import validator_for

from espalier.constraints.automaton_matcher import compile_grammar
from espalier.constraints.base import Compiled
from espalier.constraints.compile import Compiler
from espalier.constraints.finite import check_finite, escape, reachable
from espalier.constraints.schema_matcher import LlgBackend, LlgCompiled, LlgRefusal
from espalier.constraints.spec import JsonObject, JsonSchema, Spec
from espalier.errors import SchemaError, UnsupportedError
from espalier.grammar.json_mode import json_grammar

# In keys, `\\u0061` would be another spelling of a declared `a`, and so would `\\/`: each character has one spelling.
ESCAPES = '"\\\\bfnrt'

WHITESPACE: dict[str, dict[str, Any]] = {
    # llguidance's separators are regexes.
    "natural": {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"},
    "compact": {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"},
    # Runs of up to 40: room for indented documents, and never an endless one.
    "flexible": {"whitespace_flexible": True, "whitespace_pattern": r"[ \t\r\n]{0,40}"},
}


def compile_schema(spec: JsonSchema, compiler: Compiler) -> Compiled:
    """Raises SchemaError with a JSON pointer, or UnsupportedError for what cannot be enforced."""
    check_schema(spec.schema)
    check_finite(spec.schema)
    check_open_counts(spec.schema)
    return _compile(spec, spec.schema, spec.whitespace, compiler)


def compile_object(spec: JsonObject, compiler: Compiler) -> Compiled:
    """JSON mode is a grammar of our own. Raises VocabError."""
    grammar = json_grammar(kinds=spec.kinds, whitespace=spec.whitespace, indent=spec.indent, max_depth=spec.max_depth)
    return compile_grammar(grammar, spec, compiler.vocab, compiler.trie)


def check_schema(schema: Any) -> None:
    """Against the schema's own metaschema. Raises SchemaError with a pointer."""
    stated = schema.get("$schema") if isinstance(schema, dict) else None
    if stated is not None and not isinstance(stated, str):
        raise SchemaError("`$schema` is not a string", pointer="/$schema")
    cls = validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        cls.check_schema(schema)
    except jsonschema.SchemaError as error:
        pointer = "".join(f"/{escape(str(p))}" for p in error.absolute_path)
        raise SchemaError(error.message[:300], pointer=pointer) from error
    except RecursionError as error:
        raise SchemaError("the schema is nested too deeply") from error


def check_open_counts(schema: Any) -> None:
    """`minProperties` above 1 counts keys, and llguidance does not see that an undeclared key may come twice.
    Raises UnsupportedError."""
    for pointer, node in reachable(schema):
        if not isinstance(node, dict) or node.get("minProperties", 0) <= 1:
            continue
        if node.get("additionalProperties") is not False or node.get("patternProperties"):
            raise UnsupportedError(
                f"minProperties at {pointer}/minProperties cannot be enforced where any key may occur",
                hint="declare the properties and set additionalProperties to false",
            )


def _compile(spec: Spec, schema: Any, whitespace: str, compiler: Compiler) -> Compiled:
    options = WHITESPACE[whitespace] | {"json_allowed_escapes": ESCAPES}
    # `true` has no place for options; `{}` means the same.
    body = {"x-guidance": options} if schema is True else schema
    if isinstance(body, dict):
        if "x-guidance" in (schema if isinstance(schema, dict) else {}):
            raise SchemaError("`x-guidance` is llguidance's own key", pointer="/x-guidance", hint="use whitespace=")
        body = body | {"x-guidance": options}
    lark = '%llguidance {"no_forcing": true}\nstart: %json ' + json.dumps(body)
    try:
        return LlgCompiled(spec, compiler.part(LlgBackend), lark)
    except LlgRefusal as refusal:
        raise _our_error(str(refusal), schema) from refusal


def _our_error(message: str, schema: Any) -> SchemaError | UnsupportedError:
    reason = message.split("failed to compile JSON schema:", 1)[-1].split("\n   1 |", 1)[0].strip()
    keys = re.findall(r'"([^"]+)"', reason) if reason.startswith("Unimplemented keys") else []
    if keys:
        where = ", ".join(find_key(schema, key) or key for key in keys)
        return UnsupportedError(
            f"the schema uses what cannot be enforced yet: {where}", hint="remove it, or check it after generation"
        )
    if "oneOf" in reason:
        where = find_key(schema, "oneOf") or "oneOf"
        return UnsupportedError(
            f"the options of {where} overlap, so that exactly one cannot be enforced",
            hint="anyOf can, if that is meant",
        )
    if "regex" in reason or "look" in reason:
        where = find_key(schema, "pattern") or find_key(schema, "patternProperties") or "pattern"
        line = next((part for part in reason.splitlines() if part.startswith("error:")), reason.splitlines()[0])
        return UnsupportedError(f"the pattern at {where} cannot be enforced: {line[:200]}")
    quoted = re.search(r"(?:Unknown format|Invalid type): (\S+)", reason)
    pointer = find_value(schema, quoted.group(1)) if quoted else None
    if reason.startswith("Unknown format"):
        return UnsupportedError(f"{reason} at {pointer or 'format'}", hint="remove `format`, or check it afterwards")
    if reason.startswith("Unsatisfiable"):
        return SchemaError(f"no document can satisfy this schema: {reason}")
    return SchemaError(" ".join(reason.split())[:400], pointer=pointer)


def find_key(schema: Any, key: str) -> str | None:
    """The JSON pointer of the first object key of that name, depth first."""
    return next((pointer for pointer, k, _ in _walk(schema) if k == key), None)


def find_value(schema: Any, value: Any) -> str | None:
    """The JSON pointer of the first member with that value."""
    return next((pointer for pointer, _, v in _walk(schema) if v == value), None)


def _walk(schema: Any) -> Any:
    stack = [("", schema)]
    while stack:
        pointer, node = stack.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        children = [(f"{pointer}/{escape(str(k))}", k, v) for k, v in items]
        yield from children
        stack.extend((p, v) for p, _, v in reversed(children))
