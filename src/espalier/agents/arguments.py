"""The arguments of verbs: their JSON Schemas, and the check that names the field which is wrong.

`jsonschema` decides what is valid; this module words the refusal. What a value means is decided where it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from espalier.decoding.options import OPTIONS as STRATEGIES
from espalier.engines.request_options import CLOSED as CLOSED_OBJECTS
from espalier.engines.request_options import OPTIONS as REQUEST
from espalier.errors import EspalierError, InputError
from espalier.nearest import nearest
from espalier.sampling.config import COMMON
from espalier.sampling.fields import Option
from espalier.wording import in_words

MOST_SHOWN = 60

TEXT = {"type": "string"}
PROMPT = {"prompt": {"type": "string", "description": "What the model is asked."}}
SYSTEM = {"system_prompt": {"type": "string", "description": "A system message before it."}}
PRESET = {"preset": {"type": "string", "description": "A preset by name (list_presets); other arguments join it."}}
SCHEMA = {
    "json_schema": {
        "type": ["object", "string", "boolean"],
        "description": "JSON Schema of the whole answer, as an object or as JSON text.",
    }
}
SAFETY = {
    "safety": {
        "type": ["string", "object"],
        "description": "A safety filter: minimal, standard, strict, maximum; or an object: categories, patterns.",
    }
}
GRAMMAR = {"grammar": {"type": "string", "description": "GBNF of the whole answer, or a built-in one: @json_object."}}
FORMS = {
    **GRAMMAR,
    **SCHEMA,
    "regex": {"type": "string", "description": "A regular expression that the whole answer matches."},
    "choices": {
        "type": "array",
        "items": TEXT,
        "minItems": 1,
        "description": "The answer is exactly one of these texts.",
    },
    "constraint": {"type": "object", "description": 'Any constraint by its kind: {"kind": "wordlist", ...}.'},
}
"""What the form of the answer is. All that are given hold together."""


def _of(*options: Option) -> Mapping[str, Any]:
    """The schemas of options, by name."""
    return {option.name: {**option.json_schema(), "description": option.help} for option in options}


SAMPLING = _of(*COMMON)
DECODING = _of(REQUEST["schema_in_prompt"], STRATEGIES["strategy"], STRATEGIES["on_budget"])
REASONING = _of(REQUEST["reasoning"], REQUEST["max_reasoning"])
CLOSED = _of(CLOSED_OBJECTS)
TRACE = {"trace": {"type": "boolean", "description": "Store what the constraint did; the answer has a trace_id."}}
SENT_ON = ("preset", "grammar", "json_schema", "closed", "safety", *SAMPLING, *DECODING, *REASONING)
"""Arguments that `make_request` takes under the same name."""
OTHERWISE: Mapping[str, str] = {"system": "system_prompt", "tools": "available_tools", "schema": "json_schema"}
"""What errors call an argument -> its name."""
INNER = frozenset({"constraint", "grammar", "safety"})
"""Names of arguments by which errors also call what other arguments ask for."""


def checked(schema: Mapping[str, Any], arguments: Any, *, of: str = "this tool") -> dict[str, Any]:
    """The arguments, valid under the schema of a verb; whole numbers are ints. of: who takes them. Raises InputError
    naming the field."""
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise InputError(f"arguments are an object, not {type(arguments).__name__}", field="arguments")
    properties = schema["properties"]
    for name in schema["required"]:
        if name not in arguments:
            hint = properties[name].get("description")
            raise InputError(f"missing required parameter: {name}", hint=hint, field=name)
    for name in arguments:
        if name not in properties:
            raise _unknown(str(name), properties, of)
    for name, value in arguments.items():
        for error in _validator(json.dumps(properties[name])).iter_errors(value):
            path = name + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
            raise InputError(f"{path}: {_word_error(error)}", hint=properties[name].get("description"), field=name)
    return {name: _plain(value, properties[name]) for name, value in arguments.items()}


def _unknown(name: str, known: Mapping[str, Any], of: str) -> InputError:
    near = nearest(name, known, most=1)
    hint = f"did you mean {near[0]}?" if near and near[0] != name else f"there are: {', '.join(known) or 'none'}"
    return InputError(f"{of} takes no parameter {name!r:.80}", hint=hint, field=name[:80] or "arguments")


def _word_error(error: Any) -> str:
    """One line about an error of jsonschema, without a long value in it."""
    shown = repr(error.instance)
    value = shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}…"
    if error.validator == "type":
        kinds = error.validator_value
        return f"{value} is not of type {kinds if isinstance(kinds, str) else ' or '.join(kinds)}"
    if error.validator == "enum":
        return f"{value} is none of {', '.join(map(str, error.validator_value))}"
    rules = {
        "minimum": "less than",
        "exclusiveMinimum": "not above",
        "maximum": "more than",
        "minItems": "fewer items than",
        "maxItems": "more items than",
        "minLength": "shorter than",
    }
    if error.validator in rules:
        return f"{value} is {rules[error.validator]} {error.validator_value}"
    return f"{value} is not valid: {error.validator} {str(error.validator_value)[:MOST_SHOWN]}"


def _plain(value: Any, schema: Mapping[str, Any]) -> Any:
    """JSON has one kind of number: 3.0 is the integer 3."""
    return int(value) if schema.get("type") == "integer" and isinstance(value, float) else value


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    import jsonschema  # noqa: PLC0415  # slow to import

    return jsonschema.Draft202012Validator(json.loads(schema))


def blamed(error: EspalierError, properties: Mapping[str, Any], arguments: Any) -> EspalierError:
    """The error, its `field` now the argument that it is about: its own name for it, else the argument that says what
    form the answer has, else the first one that was given."""
    given = [name for name in properties if isinstance(arguments, Mapping) and name in arguments]
    is_inner = error.field in INNER and error.field not in given
    if error.field == "arguments" or (error.field in properties and not is_inner):
        return error
    inner = (error.field or "").partition(".")[0].partition("[")[0]
    likely = (inner, OTHERWISE.get(inner), *FORMS, "available_tools", "safety", *given)
    error.field = next((name for name in likely if name in given), "arguments")
    return error


def told(error: EspalierError) -> str:
    """The error as an agent reads it: the field, what is wrong, what to do."""
    named = error.field not in (None, "arguments") and str(error.field) not in error.message
    text = in_words(error.message, "tool") + (f" ({in_words(error.hint, 'tool')})" if error.hint else "")
    return f"{error.field}: {text}" if named else text
