"""The constraint that several arguments of a request ask for: `constraint`, `grammar`, `json_schema`, `safety`.

All of them hold (`rule.py`). It knows no request.
"""

from __future__ import annotations

from typing import Any

from espalier.constraints.filters.matcher import schema_spec
from espalier.constraints.filters.safety import SafetyFilter
from espalier.constraints.joining.presets import grammar_spec
from espalier.constraints.joining.rule import together
from espalier.constraints.safety.spec import safety_of
from espalier.constraints.spec import Gbnf, Spec
from espalier.errors import InputError
from espalier.wording import OptionText, Setting


def named_constraint(
    *, constraint: Any = None, grammar: Any = None, json_schema: Any = None, safety: Any = None
) -> Spec | None:
    """grammar: GBNF, the name of a built-in grammar with `@`, or a Gbnf. json_schema: a schema, a Python type or JSON
    text. safety: the name of a preset, the fields of `Safety`, a Safety or a SafetyFilter. Raises InputError and its
    subclasses, naming the argument."""
    if constraint is not None and not isinstance(constraint, Spec):
        raise InputError(
            f"constraint must be a Spec, not {type(constraint).__name__}",
            hint="for example JsonSchema({...}), Regex(r'...'), Choice([...])",
            field="constraint",
        )
    specs = [constraint, None if grammar is None else _grammar(grammar)]
    specs.append(None if json_schema is None else schema_spec(json_schema))
    specs.append(None if safety is None else safety.spec() if isinstance(safety, SafetyFilter) else safety_of(safety))
    return together(*specs)


def _grammar(grammar: Any) -> Spec:
    if isinstance(grammar, Gbnf):
        return grammar
    if not isinstance(grammar, str):
        raise InputError(
            f"a grammar is GBNF, or the name of a built-in one, not {type(grammar).__name__}",
            hint=OptionText(Setting("grammar", "@json_object")),
            field="grammar",
        )
    return grammar_spec(grammar)
