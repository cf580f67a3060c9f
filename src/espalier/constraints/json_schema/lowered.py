"""Lowers one JSON Schema to what enforces it, and computes its contract.

Alone, a schema is rules that are explored on demand. Inside a composition, and as GBNF, it is a grammar that is written
out as a whole. Every form is computed on first use and is independent of the vocabulary.
"""

from __future__ import annotations

import json
from typing import Literal, TypeAlias

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.automata.lazy.explored import LazyState
from espalier.computed import computed
from espalier.constraints.json_schema.document_form import form_entries, ordered_keywords
from espalier.constraints.matching.automaton import automaton_of
from espalier.constraints.spec import JsonSchema
from espalier.constraints.unique.arrays import WatchedItems, unique_spots, watched_items
from espalier.constraints.unique.spots import Spots
from espalier.schema.contract import Contract, ContractEntry, KeywordVerdict
from espalier.schema.lazy.rules import SchemaRules
from espalier.schema.lowering.convert import convert
from espalier.schema.lowering.layout import Layout, layout
from espalier.schema.lowering.objects import NAMES
from espalier.schema.lowering.rulebook import Remark, SchemaGrammar
from espalier.schema.normal.expand import Expansion, expand

Use: TypeAlias = Literal["alone", "grammar", "watched"]
"""Where a schema is enforced.

alone: by a matcher of its own, which can also watch `uniqueItems`. grammar: inside a composition, or written as GBNF,
where nothing watches it. watched: inside a composition that watches it.
"""


class LoweredSchema:
    """The forms of one `JsonSchema` spec: normal form, rules, grammar, automaton. Not thread-safe until each form has
    been computed once."""

    def __init__(self, spec: JsonSchema) -> None:
        self.spec = spec

    @computed
    def expansion(self) -> Expansion:
        """The normal form. Raises SchemaError, UnsupportedError, LimitExceeded."""
        spec = self.spec
        documents = {uri: json.loads(text) for uri, text in spec.documents}
        return expand(
            spec.schema,
            format=spec.format,
            order=spec.used_order,
            documents=documents or None,
            closed=bool(spec.closed),
        )

    @computed
    def converted(self) -> SchemaGrammar:
        """The grammar of the valid documents. Raises as `expansion` does, and SpecError for bad separators."""
        spec = self.spec
        return convert(self.expansion, whitespace=spec.whitespace, indent=spec.indent, separators=spec.separators)

    @computed
    def rules(self) -> SchemaRules:
        """The rules of the valid documents, explored on demand. Raises as `converted` does."""
        return SchemaRules(self.expansion, self._layout())

    def forget_rules(self) -> None:
        """Drop the rules if they were made and nobody explores them, so that they are free at once."""
        rules: SchemaRules | None = vars(self).pop("rules", None)
        if rules is not None:
            rules.release()

    def named_rules(self) -> SchemaRules:
        """The same rules, each with the JSON pointer that it comes from, for explanations."""
        return SchemaRules(self.expansion, self._layout(), named=True)

    def _layout(self) -> Layout:
        spec = self.spec
        return layout(spec.whitespace, indent=spec.indent, separators=spec.separators)

    def gaps(self, use: Use) -> tuple[Remark, ...]:
        """What the schema demands and is not enforced there."""
        return self.rules.gaps if use == "alone" else self.converted.gaps

    @computed
    def unique(self) -> Spots | None:
        """The arrays of strings in which a matcher need only forbid what repeats; None if there are others as well."""
        return unique_spots(self.expansion) if self._lacks_unique else None

    @computed
    def items(self) -> WatchedItems | None:
        """The arrays in which a matcher must forbid equal items, because the grammar does not; None if there are none,
        or if there are too many."""
        return watched_items(self.expansion) if self._lacks_unique else None

    @computed
    def _lacks_unique(self) -> bool:
        return any(gap.keyword == "uniqueItems" or gap.text == NAMES for gap in self.rules.gaps)

    def automaton(self, use: Use) -> Dfa | Network:
        """The automaton of the valid documents. Raises UnsupportedError if this use would leave a keyword unenforced
        that the spec does not allow to be checked afterwards, and LimitExceeded."""
        self.check(use)
        return automaton_of(self.converted.grammar)

    def check(self, use: Use) -> None:
        """Raises UnsupportedError if this use would leave a keyword unenforced that the spec does not allow to be
        checked afterwards."""
        if not self.expansion.left_out and all(self._is_watched(gap, use) for gap in self.gaps(use)):
            return  # a contract has an entry for each keyword, and here none of them would say "checked"
        contract = self._with_remarks(use, self.expansion.contract, (), self.gaps(use))
        contract.check("checked" if self.spec.allow == "checked" else ())

    def _is_watched(self, gap: Remark, use: Use) -> bool:
        """Whether a matcher watches what the rules or the grammar leave open."""
        is_watchable = use in ("alone", "watched") and (gap.keyword == "uniqueItems" or gap.text == NAMES)
        return is_watchable and self.items is not None

    def start(self) -> LazyState:
        """The first position of the valid documents, explored on demand. Raises as `automaton` does."""
        try:
            self.check("alone")
        except BaseException:
            self.forget_rules()
            raise
        return self.rules.start

    def contract(self, use: Use) -> Contract:
        """The verdict on every keyword in this use. Raises as `expansion` does."""
        notes = self.rules.notes if use == "alone" else self.converted.notes
        contract = self.expansion.contract
        ordered = contract.with_changes(list(ordered_keywords(self.spec, contract)))
        form = form_entries(self.spec, self.expansion, [note.text for note in notes if note.keyword == "order"])
        remarks = tuple(note for note in notes if note.keyword != "order")
        return self._with_remarks(use, Contract((*ordered.entries, *form)), remarks, self.gaps(use))

    def _with_remarks(
        self, use: Use, contract: Contract, notes: tuple[Remark, ...], gaps: tuple[Remark, ...]
    ) -> Contract:
        known = {entry.pointer for entry in contract.entries}
        general: dict[str, dict[str, None]] = {}  # notes without a keyword in the schema, without repeats
        changes: list[tuple[str, KeywordVerdict, str]] = []
        for note in notes:
            if (at := _at(note.pointer, note.keyword)) in known:
                changes.append((at, "narrowed", note.text))
            else:
                general.setdefault(note.keyword, {})[note.text] = None
        for gap in gaps:
            if not self._is_watched(gap, use):
                text = f"{gap.text}; {ALONE}" if self._is_watched(gap, "alone") else gap.text
                changes += [(at, "checked", text) for at in self.expansion.places_of(gap.pointer, gap.keyword)]
        if use in ("alone", "watched") and self.items is not None and self.unique is None:
            for pointer in self.items.narrowed:
                changes += [(at, "narrowed", EVERYWHERE) for at in self.expansion.places_of(pointer, "uniqueItems")]
        entries = contract.with_changes(changes).entries
        extra = [
            ContractEntry(pointer="", keyword=name, verdict="narrowed", note="; ".join(texts))
            for name, texts in general.items()
        ]
        return Contract((*entries, *extra))


ALONE = "enforced only where the schema stands alone or in AllOf or Free, and in no grammar"
EVERYWHERE = "no items are equal, even where another option would allow it"


def _at(pointer: str, keyword: str) -> str:
    return f"{pointer}/{keyword}" if keyword else pointer
