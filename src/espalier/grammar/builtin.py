"""The built-in grammars, as GBNF text by name; a plugin adds its own under the entry point `espalier.grammars`.

JSON here is exactly RFC 8259 (escapes, no control characters, no leading zeros) in natural whitespace: at most one
space after `,` and `:`. Grammars for JSON Schemas are written by `schema/lowering/`, which this module does not know.
"""

from __future__ import annotations

from espalier.grammar.ast import Grammar
from espalier.grammar.parser import parse
from espalier.registry import Registry

_JSON = r"""
value  ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (member ("," " "? member)*)? "}"
member ::= string ":" " "? value
array  ::= "[" (value ("," " "? value)*)? "]"
string ::= "\"" ([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9A-Fa-f]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
"""

JSON = f"root ::= value\n{_JSON}"
"""Any JSON value."""

JSON_OBJECT = f"root ::= object\n{_JSON}"
"""Any JSON object."""

JSON_CONTAINER = f"root ::= object | array\n{_JSON}"
"""Any JSON object or array."""

TOOL_CALL = rf"""
root ::= "{{\"name\":" " "? string "," " "? "\"args\":" " "? object "}}"
{_JSON}"""
"""`{"name": "...", "args": {...}}`: a call of any tool with any arguments."""

LIST = r"""
root ::= item+
item ::= "- " [^\x00-\x20\x7F-\xA0\u2028\u2029] [^\x00-\x1F\x7F-\x9F\u2028\u2029]* "\n"
"""
"""A Markdown list: lines that start with a dash and are not empty."""

ARITHMETIC = r"""
root    ::= sum " = " number "\n"?
sum     ::= product (" "? [-+] " "? product)*
product ::= factor (" "? [*/] " "? factor)*
factor  ::= number | "(" sum ")"
number  ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)?
"""
"""A calculation with a result: `(1 + 2) * 3 = 9`. A grammar cannot check that the result is right."""

JSONObjectGrammar, ToolCallGrammar = JSON_OBJECT, TOOL_CALL
"""PedroCLI's names of the two."""

GRAMMARS = Registry(
    "grammars",
    {
        "json": JSON,
        "json_object": JSON_OBJECT,
        "json_container": JSON_CONTAINER,
        "tool_call": TOOL_CALL,
        "list": LIST,
        "arithmetic": ARITHMETIC,
    },
    holds=str,
)


def builtin(name: str) -> Grammar:
    """The grammar of this name, parsed. Raises UnknownName with the known names."""
    return parse(GRAMMARS.load(name))
