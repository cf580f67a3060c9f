"""Converts a schema's normal form to a grammar whose texts are the schema's documents, each value in one spelling.

A grammar may allow less than the schema (spellings that are left out): then there is a note. It may allow more: then
there is a gap, and the caller must refuse the schema or check the finished text. This module knows neither keywords of
JSON Schema nor matching, nor GBNF as text (`schema/gbnf.py`); the work is in `node_rules.py`.
"""

from __future__ import annotations

from espalier.errors import SpecError
from espalier.grammar.json_mode import JsonWhitespace
from espalier.schema.form import NormalForm
from espalier.schema.lowering.bare import Bare, BareRules
from espalier.schema.lowering.calls import CallRules
from espalier.schema.lowering.layout import layout
from espalier.schema.lowering.node_rules import SPACE, NodeRules
from espalier.schema.lowering.notation import CONSTANTS, STYLES, DocumentStyle
from espalier.schema.lowering.rulebook import SchemaGrammar
from espalier.schema.lowering.tagged import TaggedRules, Tags

RULES: dict[DocumentStyle, type[NodeRules]] = {"json": NodeRules, "python": CallRules}


def convert(
    form: NormalForm,
    *,
    whitespace: JsonWhitespace = "natural",
    indent: int = 2,
    separators: tuple[str, str] | None = None,
    style: DocumentStyle | Tags | Bare = "json",
) -> SchemaGrammar:
    """The grammar of a schema's documents.

    whitespace: as in `json_grammar`. indent: spaces a level, where it is `indented`. separators: regular expressions
    for the text between items and the text after keys, instead of `whitespace`. style: `python` writes the arguments of
    a call, `(city="Paris", days=3)`: the top must be an object, names that are not identifiers are left out, and
    `indented` is refused. `Tags` writes each argument between tags, `Bare` in
    Gemma's notation.

    Raises SchemaError if no document satisfies the schema, SpecError naming a field, LimitExceeded, and what `form`
    raises.
    """
    if isinstance(style, Tags):
        return TaggedRules(form, layout(whitespace, indent=indent, separators=separators, run=SPACE), style).run()
    if isinstance(style, Bare):
        return BareRules(form, layout(whitespace, indent=indent, separators=separators, run=SPACE), style).run()
    if style not in STYLES:
        raise SpecError(f"unknown style {style!r}", hint=f"one of: {', '.join(STYLES)}", field="style")
    if style == "python" and whitespace == "indented" and separators is None:
        raise SpecError("arguments of a call are not indented", hint="natural, compact or flexible", field="whitespace")
    written = layout(whitespace, indent=indent, separators=separators, run=SPACE)
    return RULES[style](form, written, CONSTANTS[style]).run()
