"""The constraint that several arguments of a request ask for: `constraint`, `json_schema`, `regex` and so on.

`READERS` is the one table of these names: Python's arguments, the fields of request bodies and the arguments of agents'
tools are read by it. All that are named hold (`rule.py`). It knows no request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, get_origin

from espalier.constraints.filters.matcher import schema_spec
from espalier.constraints.filters.safety import SafetyFilter
from espalier.constraints.joining.presets import grammar_spec
from espalier.constraints.joining.rule import together
from espalier.constraints.safety.spec import safety_of
from espalier.constraints.spec import Choice, Gbnf, JsonSchema, Regex, Spec
from espalier.errors import InputError, UnsupportedError
from espalier.grammar.printer import print_grammar
from espalier.wording import OptionText, Setting

LARK = re.compile(
    r"""^[ \t]*(?:%(?:import|ignore|declare|override|extend|llguidance)\b
    |[?!]?[A-Za-z_]\w*(?:\.\d+|\[[^\]\n]*\])?[ \t]*:(?!:)).*""",
    re.MULTILINE | re.VERBOSE,
)
"""A line of a Lark grammar: a directive, or a rule or terminal with one colon."""

Constraint: TypeAlias = Any
"""What `read_constraint` takes. A type checker has no word for it: to it, `Literal["a"]` and `int | None` are no types.
"""


def read_constraint(value: Any) -> Spec:
    """A Spec; a Python type or function; a schema as a dict; or a Spec as JSON, which has a `kind`. Raises InputError
    and its subclasses."""
    if isinstance(value, Spec):
        return value
    if isinstance(value, Mapping):
        return Spec.from_json(value) if isinstance(value.get("kind"), str) else JsonSchema(value)
    if callable(value) or get_origin(value) is not None or hasattr(value, "__value__"):
        return JsonSchema(value)
    hint = "a type such as User or list[int], a schema as a dict, or a Spec such as Regex(r'...')"
    if isinstance(value, str):
        hint = "a text is regex=, grammar= or json_schema="
    elif isinstance(value, Sequence | set | frozenset):
        hint = "one of several texts is choice=[...]"
    raise InputError(
        f"a constraint is a type, a schema or a Spec, not {type(value).__name__}", hint=hint, field="constraint"
    )


def read_grammar(grammar: Any) -> Spec:
    """A Gbnf, GBNF text, a built-in grammar by its name with `@`, or text in Lark's form, translated exactly. Raises
    GrammarError and its kin, with the construct of Lark's that cannot be."""
    if isinstance(grammar, Gbnf):
        return grammar
    if not isinstance(grammar, str):
        raise InputError(
            f"a grammar is GBNF, or the name of a built-in one, not {type(grammar).__name__}",
            hint=OptionText(Setting("grammar", "@json_object")),
            field="grammar",
        )
    if LARK.search(grammar) is not None and "::=" not in grammar:
        from espalier.grammar.lark.read import read_lark  # noqa: PLC0415  # slow to import, seldom needed

        return grammar_spec(print_grammar(read_lark(grammar)))
    return grammar_spec(grammar)


def read_safety(safety: Any) -> Spec:
    """The name of a preset, the fields of `Safety`, a Safety or a SafetyFilter. Raises SpecError and its kin."""
    return safety.spec() if isinstance(safety, SafetyFilter) else safety_of(safety)


READERS: Mapping[str, Callable[[Any], Spec]] = {
    "constraint": read_constraint,
    "json_schema": schema_spec,
    "regex": Regex,
    "choice": Choice,
    "grammar": read_grammar,
    "safety": read_safety,
}
"""The name of an argument or field -> what reads its value. A `json_schema` may be JSON text."""


def named_constraint(**values: Any) -> Spec | None:
    """The constraint of values by the names of `READERS`, where None asks for nothing. Raises InputError and its
    subclasses, naming the argument."""
    specs = []
    for name, value in values.items():
        if value is not None:
            try:
                specs.append(READERS[name](value))
            except (InputError, UnsupportedError) as error:
                if name not in ("constraint", "safety"):  # they have fields of their own
                    error.field = name
                raise
    return together(*specs)
