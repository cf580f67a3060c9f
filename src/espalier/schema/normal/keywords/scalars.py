"""Rules of the operations that apply to numbers and strings; their failures are in `table.py`, one step each."""

from __future__ import annotations

from typing import Any

from espalier.schema.normal.branch import Branch
from espalier.schema.normal.facts import NumberFacts, StringFacts
from espalier.schema.normal.literals import SchemaLiteral


def low_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    bound, strict, keyword = value
    assert isinstance(branch.facts, NumberFacts)
    branch.facts.above(bound, strict, literal.subschema.at(keyword))


def high_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    bound, strict, keyword = value
    assert isinstance(branch.facts, NumberFacts)
    branch.facts.below(bound, strict, literal.subschema.at(keyword))


def multiple_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    assert isinstance(branch.facts, NumberFacts)
    branch.facts.multiple(value, literal.subschema.at("multipleOf"))


def pattern_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    assert isinstance(branch.facts, StringFacts)
    branch.facts.pattern(value, literal.subschema.at("pattern"))


def format_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    assert isinstance(branch.facts, StringFacts)
    branch.facts.format(value, literal.subschema.at("format"))
