"""Says whether an invalid text breaks what the contract of its schema calls enforced, or only what it calls checked.

It reads the errors of `jsonschema` and the contract. It judges nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jsonschema import ValidationError

from espalier.constraints.json_schema.lowered import LoweredSchema
from espalier.constraints.spec import JsonSchema
from espalier.constraints.verdict import IN_GRAMMAR, Promise
from espalier.errors import EspalierError
from espalier.schema.contract import ContractEntry

REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def broken_promise(spec: JsonSchema, errors: Sequence[ValidationError]) -> Promise:
    """`enforced` if one of the errors is about no keyword that is only checked. A schema that may leave nothing to be
    checked is enforced as a whole; the contract of any other is worked out again, which takes as long as compiling."""
    if spec.allow != "checked":
        return "enforced"
    try:
        lowered = LoweredSchema(spec)
        left = lowered.contract("alone").by_verdict("checked", "refused")
        if IN_GRAMMAR.get():  # equal items are forbidden there too
            more = lowered.contract("grammar").by_verdict("checked", "refused")
            left = (*left, *(entry for entry in more if entry.keyword != "uniqueItems"))
    except EspalierError:  # nobody can say what was enforced
        return "checked"
    schema = spec.schema
    return "enforced" if any(not _is_left(schema, error, left) for error in errors) else "checked"


def _is_left(schema: Any, error: ValidationError, left: Sequence[ContractEntry]) -> bool:
    """Whether the error may come from a keyword that is only checked: from it, from one inside it, or from one that
    holds it."""
    return any(_meets(schema, cause, entry) for cause in _with_context(error) for entry in left)


def _meets(schema: Any, error: ValidationError, entry: ContractEntry) -> bool:
    path = list(error.absolute_schema_path)
    pointer = _pointer(schema, path)
    if pointer is None:
        return entry.keyword in path or _refers(error.validator_value)
    left = _standing(schema, entry.pointer)
    return (
        left == pointer
        or pointer.startswith(f"{left}/")
        or left.startswith(f"{pointer}/")
        or _refers(error.validator_value)
    )


def _standing(schema: Any, pointer: str) -> str:
    """The pointer of a keyword; that of the schema that would hold it for one that is a consequence of others, as
    `minProperties` is of `{"not": {"maxProperties": 1}}`."""
    before, _, keyword = pointer.rpartition("/")
    for step in before.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict) and name in schema:
            schema = schema[name]
        elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
            schema = schema[int(name)]
        else:
            return pointer
    return before if isinstance(schema, dict) and keyword not in schema else pointer


def _pointer(schema: Any, path: Sequence[str | int]) -> str | None:
    """The pointer of an error's path; None where a reference is on the way, which the path does not name."""
    steps = []
    for step in path:
        if isinstance(schema, dict) and not REFERENCES.isdisjoint(schema):
            return None
        schema = schema[step]
        steps.append(str(step).replace("~", "~0").replace("/", "~1"))
    return "".join(f"/{step}" for step in steps)


def _refers(value: Any) -> bool:
    """Whether a keyword's value holds a reference, behind which the keyword that is only checked may stand."""
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            if not REFERENCES.isdisjoint(part):
                return True
            todo += part.values()
        elif isinstance(part, list):
            todo += part
    return False


def _with_context(error: ValidationError) -> Iterator[ValidationError]:
    yield error
    for cause in error.context or ():
        yield from _with_context(cause)
