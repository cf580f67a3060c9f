"""Writes a schema in Gemma's notation of arguments: names without quotes, strings as raw text between two markers.

    {city:<escape>Paris<escape>,days:3}      for {"city": "Paris", "days": 3}

Numbers, words and brackets are those of JSON. A name that needs quotes, and a text with the marker in it, cannot be
written. It does not know how calls are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from espalier.automata.languages.algebra import both, language
from espalier.automata.languages.dfa import Dfa
from espalier.automata.lazy.linear import Linear
from espalier.errors import LimitExceeded
from espalier.grammar.ast import NEVER, Literal, Node
from espalier.grammar.regex.parse import parse_regex
from espalier.schema.form import NormalForm, Object, Rest, String, Values
from espalier.schema.lowering.layout import Layout
from espalier.schema.lowering.linear import choice, join, join_all
from espalier.schema.lowering.node_rules import NodeRules
from espalier.schema.lowering.notation import JSON
from espalier.schema.lowering.objects import ObjectRules
from espalier.schema.lowering.rulebook import RuleBook, RuleContext
from espalier.schema.lowering.spelling import literal
from espalier.schema.lowering.strings import MAX_MINIMISED
from espalier.schema.lowering.tagged import TWICE, RawStrings, raw_texts

NAME: Final = r"""[^\s:,{}\[\]<>"'\x00-\x1f]+"""
"""A name that is written without quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """quote: the marker before and after a string."""

    quote: str


class BareRules(NodeRules):
    """Converts every node to this notation."""

    def __init__(self, form: NormalForm, written: Layout, style: Bare) -> None:
        super().__init__(form, written, JSON)
        self._quote = style.quote
        self._strings = QuotedStrings(self._book, style.quote, self._language)
        self._objects = BareObjects(
            book=self._book,
            strings=self._strings,
            layout=written,
            value=self._value,
            cases=form.cases,
            text=self._language,
        )

    def _values(self, case: Values, context: RuleContext) -> Node:
        options: list[Node] = []
        for value in case.values:
            constant = self._constant(value)
            if constant is None:
                self._book.note(context.pointer, "enum", f"{value!r:.60} cannot be written without quotes: left out")
            else:
                options.append(constant)
        return choice(options) if options else NEVER

    def _constant(self, value: Any) -> Node | None:
        """One value, None for one that cannot be written. Values of a schema nest as deeply as Python reads them."""
        if isinstance(value, str):
            return None if self._quote in value else Literal(f"{self._quote}{value}{self._quote}")
        if not isinstance(value, dict | list) or not value:
            return literal(value, self._layout, 0)
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        layout = self._layout
        pieces: list[Node] = [Literal(opening)]
        for i, key in enumerate(value):
            part = self._constant(value[key] if isinstance(value, dict) else key)
            if part is None or (isinstance(value, dict) and not re.fullmatch(NAME, key)):
                return None
            member = join(Literal(key), join(layout.colon, part)) if isinstance(value, dict) else part
            pieces += (layout.between(0) if i else layout.first(0), member)
        return join_all([*pieces, layout.last(0), Literal(closing)])


class QuotedStrings(RawStrings):
    """Strings as raw text between two markers."""

    def __init__(self, book: RuleBook, quote: str, text: Callable[[Dfa, RuleContext], Node]) -> None:
        super().__init__(book, raw_texts((quote,), frozenset()))
        self._quote = Literal(quote)
        self._text = text
        self._written_cases: dict[String, Node] = {}

    def node(self, case: String, base: str, pointer: str, *, keyword: str = "pattern") -> Node:
        self.remarks(case, pointer)
        if case not in self._written_cases:
            self._written_cases[case] = self._new(case, base, pointer, keyword)
        return self._written_cases[case]

    def _new(self, case: String, base: str, pointer: str, keyword: str) -> Node:
        texts = self.language(case, keyword, pointer)
        if texts is None:
            return NEVER
        texts = texts.minimised() if len(texts) <= MAX_MINIMISED else texts
        try:
            text = self._text(texts, RuleContext(base=base, pointer=pointer, depth=0))
        except LimitExceeded as error:
            self._book.gap(pointer, keyword, error.message)
            return NEVER
        whole = join(self._quote, join(text, self._quote))
        return self._book.add(self._book.name(f"{base}-text", pointer), whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class BareObjects(ObjectRules):
    """Objects whose names have no quotes. text: writes an automaton's language as rules."""

    text: Callable[[Dfa, RuleContext], Node]

    def automaton(self, case: Object, context: RuleContext) -> Linear | None:
        writable = tuple(prop for prop in case.properties if re.fullmatch(NAME, prop.name))
        for prop in case.properties:
            if prop not in writable:
                self.book.note(context.pointer, "properties", f"the name {prop.name!r} needs quotes: it is left out")
                if prop.required:
                    return None
        # Names that are left out need quotes, so no undeclared name is one of them.
        return super(BareObjects, self).automaton(replace(case, properties=writable), context)

    def key(self, name: str) -> str:
        return name

    def _name(self, group: Rest, declared: tuple[str, ...], allowed: Dfa | None, context: RuleContext) -> Node:
        keyword = "patternProperties" if group.patterns else "additionalProperties"
        wanted = String(patterns=group.patterns, not_patterns=group.not_patterns, excluded=declared)
        self.book.note(context.pointer, keyword, TWICE)
        names = both(self.strings.language(wanted, keyword, context.pointer), language(parse_regex(NAME)))
        names = names if allowed is None else both(names, allowed)
        return NEVER if names is None else self.text(names.minimised(), replace(context, base=f"{context.base}-key"))
