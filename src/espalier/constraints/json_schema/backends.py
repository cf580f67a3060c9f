"""The roads of one schema: llguidance for what it reads as it is meant, our own grammar for the rest; and the contract.

Each part is made when it is first asked for, and knows no vocabulary.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property
from typing import Any

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.constraints.automaton_matcher import automaton_of
from espalier.constraints.json_schema.for_llguidance import plain
from espalier.constraints.json_schema.termination import check_finite
from espalier.constraints.json_schema.unique_arrays import Spots, unique_spots
from espalier.constraints.spec import JsonSchema
from espalier.errors import SpecError
from espalier.schema.contract import Contract, Entry, Verdict
from espalier.schema.gbnf.convert import Converted, convert
from espalier.schema.gbnf.layout import layout
from espalier.schema.normal.expand import Expansion, expand

# In keys, `\\u0061` would be another spelling of a declared `a`, and so would `\\/`: each character has one spelling.
ESCAPES = '"\\\\bfnrt'
# llguidance's separators are regexes. Runs of up to 40: room for indented documents, and never an endless one.
WHITESPACE: dict[str, dict[str, Any]] = {
    "natural": {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"},
    "compact": {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"},
    "flexible": {"whitespace_flexible": True, "whitespace_pattern": r"[ \t\r\n]{0,40}"},
}


class SchemaRoads:
    """What one `JsonSchema` spec becomes. Not safe across threads while it is first asked; ask under the compiler."""

    def __init__(self, spec: JsonSchema) -> None:
        self.spec = spec
        self.through_llguidance = False
        """Whether llguidance enforces it; `compile.py` says so when it does."""
        self.alone = False
        """Whether a matcher of its own enforces it, and no composition or grammar: that can also watch `unique`."""

    @cached_property
    def expansion(self) -> Expansion:
        """The normal form. Raises SchemaError, UnsupportedError, LimitExceeded."""
        spec = self.spec
        documents = {uri: json.loads(text) for uri, text in spec.documents}
        return expand(spec.schema, format=spec.format, order=spec.order, documents=documents or None)

    @cached_property
    def converted(self) -> Converted:
        """The grammar of the schema's documents. Raises as `expansion`, and SpecError for separators."""
        spec = self.spec
        return convert(self.expansion, whitespace=spec.whitespace, indent=spec.indent, separators=spec.separators)

    @cached_property
    def unique(self) -> Spots | None:
        """The arrays in which a matcher can forbid equal items, if that is all that the grammar leaves of
        `uniqueItems`; None where there are none or it is not."""
        lacking = any(gap.keyword == "uniqueItems" for gap in self.converted.gaps)
        return unique_spots(self.expansion) if lacking else None

    @cached_property
    def automaton(self) -> Dfa | Network:
        """Raises UnsupportedError for what is neither enforced nor allowed to be checked, LimitExceeded."""
        self.contract.check("checked" if self.spec.allow == "checked" else ())
        return automaton_of(self.converted.grammar)

    @cached_property
    def contract(self) -> Contract:
        """A verdict for every keyword, on the road that is taken."""
        found = self.expansion.contract
        order: list[tuple[str, Verdict, str]] = [(entry.pointer, "narrowed", ORDER) for entry in found.entries
                 if entry.keyword == "properties" and entry.verdict in ("enforced", "checked")]  # fmt: skip
        if self.through_llguidance:
            # What the normal form leaves out, such as options that it cannot tell apart, llguidance enforces.
            held = [replace(e, verdict="enforced", note="") if e.verdict == "checked" else e for e in found.entries]
            spelled = Entry(pointer="", keyword="spelling", verdict="narrowed", note=SPELLING)
            return Contract((*Contract(tuple(held)).with_changes(order).entries, spelled))
        known = {entry.pointer for entry in found.entries}
        general: dict[str, dict[str, None]] = {}  # notes that belong to no keyword, each once
        changes: list[tuple[str, Verdict, str]] = [*order]
        for note in self.converted.notes:
            if (at := _at(note.pointer, note.keyword)) in known:
                changes.append((at, "narrowed", note.text))
            else:
                general.setdefault(note.keyword, {})[note.text] = None
        for gap in self.converted.gaps:
            watched = gap.keyword == "uniqueItems" and self.unique is not None
            if not (watched and self.alone):
                text = f"{gap.text}; {ALONE}" if watched else gap.text
                changes.append((_at(gap.pointer, gap.keyword), "checked", text))
        entries = found.with_changes(changes).entries
        extra = [Entry(pointer="", keyword=name, verdict="narrowed", note="; ".join(texts))
                 for name, texts in general.items()]  # fmt: skip
        return Contract((*entries, *extra))

    def lark(self) -> str | None:
        """The schema for llguidance with forcing off, None where it is not known to be read as it is meant."""
        spec = self.spec
        if spec.separators is not None:
            layout(spec.whitespace, separators=spec.separators)  # raises for what can be something else
        if spec.whitespace not in WHITESPACE or spec.documents:
            return None
        schema = spec.schema
        if spec.format == "assert" and '"format"' in spec.text:
            return None
        body = plain(schema, order=spec.order)
        if body is None:
            return None
        try:
            check_finite(body)
        except SpecError:
            return None  # the normal form leaves out the parts that never end, or says where they are
        options = WHITESPACE[spec.whitespace] | {"json_allowed_escapes": ESCAPES}
        if spec.separators is not None:
            item, key = spec.separators
            options = {"whitespace_flexible": False, "item_separator": item, "key_separator": key} | {
                "json_allowed_escapes": ESCAPES
            }
        return '%llguidance {"no_forcing": true}\nstart: %json ' + json.dumps(body | {"x-guidance": options})


ORDER = "in this order"
SPELLING = "each character of a string in one way, whole numbers without a point or an exponent"
"""What llguidance leaves out."""

ALONE = "enforced only where the schema stands alone, in no composition or grammar"


def _at(pointer: str, keyword: str) -> str:
    return f"{pointer}/{keyword}" if keyword else pointer
