"""Lowers one JSON Schema for each backend that can enforce it, and computes the contract of a backend.

The backends are llguidance, for the schemas that it reads correctly, and our own automaton, for all others. Every form
is computed on first use and is independent of the vocabulary; `compile.py` picks the backend.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.automata.lazy.explored import Place
from espalier.constraints.json_schema.document_form import form_entries, ordered_keywords
from espalier.constraints.json_schema.for_llguidance import plain
from espalier.constraints.json_schema.termination import check_finite
from espalier.constraints.matching.automaton import automaton_of
from espalier.constraints.spec import JsonSchema
from espalier.constraints.unique.arrays import WatchedItems, unique_spots, watched_items
from espalier.constraints.unique.spots import Spots
from espalier.errors import SpecError
from espalier.schema.contract import Contract, Entry, KeywordVerdict
from espalier.schema.gbnf.convert import convert
from espalier.schema.gbnf.layout import Layout, layout
from espalier.schema.gbnf.rulebook import Converted, Remark
from espalier.schema.lazy.rules import SchemaRules
from espalier.schema.normal.expand import Expansion, expand

Backend: TypeAlias = Literal["llguidance", "automaton", "grammar", "watched"]
"""The code that enforces a schema.

llguidance: its own JSON Schema support. automaton: our automaton with a matcher of its own, which can also watch
`uniqueItems`. grammar: the same automaton inside a composition, or written as GBNF, where nothing watches it. watched:
the same inside a composition that watches it.
"""

# Each character has one spelling: in keys, `\\u0061` and `\\/` would be second spellings of a declared `a` and `/`.
ESCAPES = '"\\\\bfnrt'
# llguidance takes separators as regexes. A run of whitespace is at most 40 characters: enough for indentation, bounded.
WHITESPACE: dict[str, dict[str, Any]] = {
    "natural": {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"},
    "compact": {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"},
    "flexible": {"whitespace_flexible": True, "whitespace_pattern": r"[ \t\r\n]{0,40}"},
}


class LoweredSchema:
    """The forms of one `JsonSchema` spec: normal form, grammar, automaton, llguidance's Lark. Not thread-safe until
    each form has been computed once."""

    def __init__(self, spec: JsonSchema) -> None:
        self.spec = spec

    @cached_property
    def expansion(self) -> Expansion:
        """The normal form. Raises SchemaError, UnsupportedError, LimitExceeded."""
        spec = self.spec
        documents = {uri: json.loads(text) for uri, text in spec.documents}
        return expand(spec.schema, format=spec.format, order=spec.used_order, documents=documents or None)

    @cached_property
    def converted(self) -> Converted:
        """The grammar of the valid documents. Raises as `expansion` does, and SpecError for bad separators."""
        spec = self.spec
        return convert(self.expansion, whitespace=spec.whitespace, indent=spec.indent, separators=spec.separators)

    @cached_property
    def rules(self) -> SchemaRules:
        """The rules of the valid documents, explored on demand. Raises as `converted` does."""
        return SchemaRules(self.expansion, self._layout())

    def named_rules(self) -> SchemaRules:
        """The same rules, each with the JSON pointer that it comes from, for explanations."""
        return SchemaRules(self.expansion, self._layout(), named=True)

    def _layout(self) -> Layout:
        spec = self.spec
        return layout(spec.whitespace, indent=spec.indent, separators=spec.separators)

    def gaps(self, backend: Backend) -> tuple[Remark, ...]:
        """What the schema demands and the backend's automaton does not enforce."""
        return self.rules.gaps if backend == "automaton" else self.converted.gaps

    @cached_property
    def unique(self) -> Spots | None:
        """The arrays of strings in which a matcher need only forbid what repeats; None if there are others as well."""
        return unique_spots(self.expansion) if self._lacks_unique else None

    @cached_property
    def items(self) -> WatchedItems | None:
        """The arrays in which a matcher must forbid equal items, because the grammar does not; None if there are none,
        or if there are too many."""
        return watched_items(self.expansion) if self._lacks_unique else None

    @cached_property
    def _lacks_unique(self) -> bool:
        return any(gap.keyword == "uniqueItems" for gap in self.rules.gaps)

    def automaton(self, backend: Backend) -> Dfa | Network:
        """The automaton of the valid documents. Raises UnsupportedError if `backend` would leave a keyword unenforced
        that the spec does not allow to be checked afterwards, and LimitExceeded."""
        self.check(backend)
        return automaton_of(self.converted.grammar)

    def check(self, backend: Backend) -> None:
        """Raises UnsupportedError if `backend` would leave a keyword unenforced that the spec does not allow to be
        checked afterwards."""
        found = self._with_remarks(backend, self.expansion.contract, (), self.gaps(backend))
        found.check("checked" if self.spec.allow == "checked" else ())

    def start(self) -> Place:
        """The first position of the valid documents, explored on demand. Raises as `automaton` does."""
        self.check("automaton")
        return self.rules.start

    def contract(self, backend: Backend) -> Contract:
        """The verdict on every keyword if `backend` enforces the schema. Raises as `expansion` does."""
        found = self.expansion.contract
        order = list(ordered_keywords(self.spec, found))
        if backend == "llguidance":
            # llguidance enforces what the normal form leaves out, such as `oneOf` options that it cannot tell apart.
            held = [replace(e, verdict="enforced", note="") if e.verdict == "checked" else e for e in found.entries]
            spelled = Entry(pointer="", keyword="spelling", verdict="narrowed", note=SPELLING)
            form = form_entries(self.spec, self.expansion)
            return Contract((*Contract(tuple(held)).with_changes(order).entries, *form, spelled))
        notes = self.rules.notes if backend == "automaton" else self.converted.notes
        ordered = found.with_changes(order)
        form = form_entries(self.spec, self.expansion, [note.text for note in notes if note.keyword == "order"])
        kept = tuple(note for note in notes if note.keyword != "order")
        return self._with_remarks(backend, Contract((*ordered.entries, *form)), kept, self.gaps(backend))

    def _with_remarks(
        self, backend: Backend, found: Contract, notes: tuple[Remark, ...], gaps: tuple[Remark, ...]
    ) -> Contract:
        known = {entry.pointer for entry in found.entries}
        general: dict[str, dict[str, None]] = {}  # notes without a keyword in the schema, without repeats
        changes: list[tuple[str, KeywordVerdict, str]] = []
        for note in notes:
            if (at := _at(note.pointer, note.keyword)) in known:
                changes.append((at, "narrowed", note.text))
            else:
                general.setdefault(note.keyword, {})[note.text] = None
        for gap in gaps:
            watched = gap.keyword == "uniqueItems" and self.items is not None
            if not (watched and backend in ("automaton", "watched")):
                text = f"{gap.text}; {ALONE}" if watched else gap.text
                changes.append((_at(gap.pointer, gap.keyword), "checked", text))
        if backend in ("automaton", "watched") and self.items is not None and self.unique is None:
            changes += [(_at(pointer, "uniqueItems"), "narrowed", EVERYWHERE) for pointer in self.items.narrowed]
        entries = found.with_changes(changes).entries
        extra = [Entry(pointer="", keyword=name, verdict="narrowed", note="; ".join(texts))
                 for name, texts in general.items()]  # fmt: skip
        return Contract((*entries, *extra))

    def lark(self) -> str | None:
        """The schema as llguidance's Lark text, with forcing off; None unless llguidance is known to read it correctly.
        Raises SpecError for separators that could match something else."""
        spec = self.spec
        if spec.separators is not None:
            layout(spec.whitespace, separators=spec.separators)  # raises for ambiguous ones
        if spec.whitespace not in WHITESPACE or spec.documents:
            return None
        schema = spec.schema
        if spec.format == "assert" and '"format"' in spec.text:
            return None
        body = plain(schema, order=spec.used_order)
        if body is None:
            return None
        try:
            check_finite(body)
        except SpecError:
            return None  # the normal form drops the parts that never end, or names them in an error
        options = WHITESPACE[spec.whitespace] | {"json_allowed_escapes": ESCAPES}
        if spec.separators is not None:
            item, key = spec.separators
            options = {"whitespace_flexible": False, "item_separator": item, "key_separator": key} | {
                "json_allowed_escapes": ESCAPES
            }
        return '%llguidance {"no_forcing": true}\nstart: %json ' + json.dumps(body | {"x-guidance": options})


SPELLING = "each character of a string in one way, whole numbers without a point or an exponent"
"""The spellings that llguidance does not generate."""

ALONE = "enforced only where the schema stands alone or in AllOf or Free, and in no grammar"
EVERYWHERE = "no items are equal, even where another option would allow it"


def _at(pointer: str, keyword: str) -> str:
    return f"{pointer}/{keyword}" if keyword else pointer
