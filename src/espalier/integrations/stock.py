"""Writes vLLM's own fields for constraints, `response_format` and `structured_outputs`, as one of ours. It imports no
vLLM, and compiles nothing: the processor reads what is written here, and says what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

KEY = "espalier"
FORMAT, OUTPUTS, EXTRA = "response_format", "structured_outputs", "vllm_xargs"


def _schema(value: Any) -> Any:
    """A schema, which vLLM also takes as JSON text. What is no JSON stays as it is, to be refused by name."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


KINDS: Mapping[str, Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {
        "json": lambda value: {"json_schema": _schema(value)},
        "json_object": lambda value: {"constraint": {"kind": "json_object"}},
        "regex": lambda value: {"constraint": {"kind": "regex", "pattern": value}},
        "choice": lambda value: {"constraint": {"kind": "choice", "options": value}},
        "grammar": lambda value: {"grammar": value},
    }
)
"""A kind of `structured_outputs`, and what asks the same of us."""


def with_ours(asked: Mapping[str, Any], *, name: str = "") -> dict[str, Any] | None:
    """The body of a request whose constraint our processor holds, with a report of this name; None where vLLM is to
    hold it: there is none, it has kinds or options that are vLLM's alone (structural tags, whitespace), or calls that
    vLLM constrains itself stand beside it."""
    extra = asked.get(EXTRA)
    if isinstance(extra, Mapping) and KEY in extra:
        return None
    if asked.get("tools") and asked.get("tool_choice", "auto") not in ("auto", "none", None):
        return None
    stated = _stated(asked.get(FORMAT)), _given(asked.get(OUTPUTS))
    if None in stated or all(stated) or not any(stated):
        return None
    (kind, value), *others = (stated[0] or stated[1] or {}).items()
    if others or kind not in KINDS or value is None or value is False:
        return None  # several at once are vLLM's to refuse
    ours: dict[str, Any] = KINDS[kind](value)
    if not asked.get("logit_bias"):  # beside which there is no report
        ours |= {"report": True} | ({"id": name} if name else {})
    kept = {key: value for key, value in asked.items() if key not in (FORMAT, OUTPUTS)}
    return kept | {EXTRA: {**(extra if isinstance(extra, Mapping) else {}), KEY: json.dumps(ours)}}


def _stated(form: Any) -> dict[str, Any] | None:
    """What a `response_format` asks for, as a kind of `structured_outputs`; None for one that stays vLLM's."""
    if form is None:
        return {}
    kind = form.get("type") if isinstance(form, Mapping) else None
    if kind == "json_schema":
        inner = form.get("json_schema")
        return {"json": inner["schema"]} if isinstance(inner, Mapping) and inner.get("schema") is not None else None
    return {"json_object": {"json_object": True}, "text": {}}.get(kind) if isinstance(kind, str) else None


def _given(outputs: Any) -> dict[str, Any] | None:
    """What `structured_outputs` asks for, without what is not set; None for what stays vLLM's."""
    if outputs is None:
        return {}
    if not isinstance(outputs, Mapping):
        return None
    return {name: value for name, value in outputs.items() if value is not None and value is not False}
