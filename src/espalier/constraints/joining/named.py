"""The constraint that several arguments of a request ask for: `constraint`, `json_schema`, `regex` and so on.

`READERS` is the one table of these names: Python's arguments, the fields of request bodies and the arguments of agents'
tools are read by it. All that are named hold (`rule.py`). It knows no request.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, get_origin

from espalier.constraints.filters.matcher import schema_spec
from espalier.constraints.filters.safety import SafetyFilter
from espalier.constraints.joining.presets import grammar_spec
from espalier.constraints.joining.rule import together
from espalier.constraints.safety.spec import safety_of
from espalier.constraints.spec import Choice, Gbnf, JsonSchema, Regex, Spec
from espalier.errors import InputError, UnsupportedError
from espalier.grammar.ast import Grammar
from espalier.grammar.printer import print_grammar
from espalier.wording import OptionText, Setting

LARK = re.compile(
    r"""^[ \t]*(?:%(?:import|ignore|declare|override|extend|llguidance)\b
    |[?!]?[A-Za-z_]\w*(?:\.\d+|\[[^\]\n]*\])?[ \t]*:(?!:)).*""",
    re.MULTILINE | re.VERBOSE,
)
"""A line of a Lark grammar: a directive, or a rule or terminal with one colon."""
GBNF = re.compile(r"^[ \t]*[\w-]+[ \t]*::=", re.MULTILINE)
"""A rule of a GBNF grammar."""
logger = logging.getLogger(__name__)

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


def read_grammar(
    grammar: Any, *, read_schema: Callable[..., JsonSchema] = schema_spec, tell: Callable[[str], None] = logger.warning
) -> Spec:
    """A Gbnf, GBNF text, a built-in grammar by its name with `@`, or text in Lark's form, translated exactly.
    read_schema: reads the schema of `%json`. tell: what changes no text and is not used. Raises GrammarError and its
    kin, with the construct of Lark's that cannot be."""
    if isinstance(grammar, Gbnf):
        return grammar
    if not isinstance(grammar, str):
        raise InputError(
            f"a grammar is GBNF, or the name of a built-in one, not {type(grammar).__name__}",
            hint=OptionText(Setting("grammar", "@json_object")),
            field="grammar",
        )
    if LARK.search(grammar) is None or GBNF.search(grammar) is not None:
        return grammar_spec(grammar)
    from espalier.grammar.lark.read import read_lark  # noqa: PLC0415  # slow to import, seldom needed

    lark = read_lark(grammar, partial(_lark_schema, read_schema))
    for place in lark.unused:
        tell(f"the whole text has one temperature; {place} of a rule is not used")
    return Gbnf(print_grammar(lark.grammar), token_limits=tuple(lark.token_limits.items()))


def _lark_schema(read_schema: Callable[..., JsonSchema], schema: Any) -> Grammar:
    """The grammar of `%json`, with the white space that llguidance's `x-guidance` asks for."""
    from espalier.constraints.json_schema.check import schema_grammar  # noqa: PLC0415  # imports the compiler

    options = schema.get("x-guidance") if isinstance(schema, dict) else None
    is_flexible = not isinstance(options, dict) or options.get("whitespace_flexible") is not False
    return schema_grammar(read_schema(schema, whitespace="natural" if is_flexible else "compact"))


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
