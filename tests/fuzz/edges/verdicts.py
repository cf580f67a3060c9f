"""Judges a complete text by its constraint with `jsonschema`, `json` and `re`; no matcher is asked."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from espalier.constraints.spec import Spec
from tests.fuzz.schema.oracle import parse, valid
from tests.fuzz.words import expression

Data = Mapping[str, Any]


def holds(spec: Spec, text: str) -> bool | None:
    """Whether the text satisfies the constraint; None where this module cannot tell."""
    judge = JUDGES.get(spec.kind)
    return None if judge is None else judge(spec, text)


def _schema(spec: Any, text: str) -> bool | None:
    try:
        value, _ = parse(text)
    except (ValueError, RecursionError):
        return False
    return bool(valid(spec.schema)(value))


def _json_object(_spec: Any, text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _regex(spec: Any, text: str) -> bool | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            return bool(re.fullmatch(spec.pattern, text)) if len(text) < 60 else None
    except (re.error, FutureWarning):
        return None


def _all(spec: Any, text: str) -> bool | None:
    found = [holds(one, text) for one in spec.members]
    return False if False in found else None if None in found else True


def _any(spec: Any, text: str) -> bool | None:
    found = [holds(one, text) for one in spec.members]
    return True if True in found else None if None in found else False


def _after(spec: Any, text: str) -> bool | None:
    _, marker, rest = text.partition(spec.marker)
    return holds(spec.inner, rest) if marker else False


JUDGES: Mapping[str, Callable[[Any, str], bool | None]] = {
    "json_schema": _schema,
    "json_object": _json_object,
    "regex": _regex,
    "choice": lambda spec, text: text in spec.options,
    "ban": lambda spec, text: all(one not in text for one in spec.phrases),
    "wordlist": lambda spec, text: bool(re.fullmatch(expression(spec), text)) if len(text) < 40 else None,
    "all_of": _all,
    "any_of": _any,
}
