"""What an independent validator says of a finished text. It never looks at a matcher: it judges the text alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jsonschema
from jsonschema.validators import validator_for

from espalier.constraints.spec import Choice, JsonObject, JsonSchema, Regex, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """valid is None where nothing independent could judge. judge: who did. errors: in words, at most five."""

    valid: bool | None
    judge: str
    errors: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"valid": self.valid, "judge": self.judge, "errors": list(self.errors)}


def judge(spec: Spec, text: str) -> Verdict:
    """The verdict on one output. Never raises for a bad text; that is what a verdict is for."""
    rule = JUDGES.get(spec.kind)
    return rule(spec, text) if rule else Verdict(valid=None, judge="none")


def parse(spec: Spec | None, text: str) -> Any:
    """The value of a complete output: JSON for a JSON constraint (None if it does not parse), else the text."""
    if spec is None or spec.kind not in ("json_schema", "json_object"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json(text: str) -> tuple[Any, Verdict | None]:
    try:
        return json.loads(text, parse_constant=_refuse_constant), None
    except (ValueError, RecursionError) as error:
        return None, Verdict(valid=False, judge="json", errors=(f"not JSON: {error}",))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _judge_schema(spec: Spec, text: str) -> Verdict:
    assert isinstance(spec, JsonSchema)
    value, failed = _json(text)
    if failed:
        return failed
    validator = validator_for(spec.schema, default=jsonschema.Draft202012Validator)(spec.schema)
    name = f"jsonschema {type(validator).__name__}"
    try:
        found = sorted(validator.iter_errors(value), key=lambda e: e.json_path)
    except RecursionError:
        return Verdict(valid=None, judge=name, errors=("nested too deeply to validate",))
    errors = tuple(f"{e.json_path}: {e.message[:200]}" for e in found[:5])
    return Verdict(valid=not found, judge=name, errors=errors)


def _judge_object(spec: Spec, text: str) -> Verdict:
    value, failed = _json(text)
    if failed:
        return failed
    assert isinstance(spec, JsonObject)
    kind = JSON_KINDS[type(value)]
    ok = kind in spec.kinds
    return Verdict(valid=ok, judge="json", errors=() if ok else (f"{kind} is none of: {', '.join(spec.kinds)}",))


def _judge_regex(spec: Spec, text: str) -> Verdict:
    assert isinstance(spec, Regex)
    try:
        pattern = re.compile(spec.pattern)
    except re.error as error:
        # Dialects differ at the edges (\p{L}); a pattern `re` cannot read is judged by nobody.
        return Verdict(valid=None, judge="re", errors=(f"re does not read this pattern: {error}",))
    ok = pattern.fullmatch(text) is not None
    return Verdict(valid=ok, judge="re", errors=() if ok else ("the pattern does not match the whole text",))


def _judge_choice(spec: Spec, text: str) -> Verdict:
    assert isinstance(spec, Choice)
    ok = text in spec.options
    return Verdict(valid=ok, judge="list", errors=() if ok else ("not one of the choices",))


JSON_KINDS = {
    dict: "object",
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}

JUDGES: dict[str, Callable[[Spec, str], Verdict]] = {
    JsonSchema.kind: _judge_schema,
    JsonObject.kind: _judge_object,
    Regex.kind: _judge_regex,
    Choice.kind: _judge_choice,
}
